"""Files cut short or with one byte changed, as a disk or a copy that broke off leaves them."""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st


@dataclass(frozen=True)
class Damage:
    """To one of several files, at one of its bytes: cut there (`change` 0), or this byte changed."""

    file: int
    place: int
    change: int

    def of(self, content: bytes) -> bytes:
        """The content, damaged; always another one."""
        place = self.place % len(content)
        changed = bytes([content[place] ^ self.change]) if self.change else b""
        return content[:place] + changed + content[place + 1 :] * (self.change > 0)


HUGE = 2**31
DAMAGES = st.builds(
    Damage,
    st.integers(0, HUGE),
    st.integers(0, HUGE),
    # One bit in half of the cases, what a disk does; else any change; else a cut.
    st.one_of(st.sampled_from([1 << bit for bit in range(8)]), st.integers(1, 255), st.just(0)),
)


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder that is not empty, with its bytes, in order of its name."""
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {path: content for path, content in files.items() if content}


def restore(files: dict[Path, bytes]) -> None:
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
