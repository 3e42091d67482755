"""Text files that grow together, line n of one beside line n of each other, whatever ends the process."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.storage.files import writing

Row = tuple[str, ...]  # a line of each file
_WAY_OUT = "Free some space or choose another --output; the same command goes on with what is there."


class ParallelFiles:
    """The files, opened where they were left. `read` what is there, and then `cut` and `write`.

    A process may be killed at any moment. What counts is the lines that are whole in all files.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self._whole = [0] * len(paths)  # the bytes of each file that were read or written as a whole
        self._is_written = False
        self._to_write, self._to_read = [], []
        with ExitStack() as opened:
            for path in paths:
                with writing(path, _WAY_OUT):
                    # Written without a buffer, so that nothing waits that a full disk refused.
                    self._to_write.append(opened.enter_context(path.open("ab", buffering=0)))
                    self._to_read.append(opened.enter_context(path.open("rb")))
            self._open = opened.pop_all()

    def close(self) -> None:
        """Close the files, without what was written only in part."""
        if self._is_written:
            with suppress(UserError):
                self.cut()
        self._open.close()

    def read(self, number: int) -> list[Row]:
        """The next `number` lines of all, or the fewer that are whole in all."""
        columns = []
        for path, file in zip(self.paths, self._to_read, strict=True):
            lines = [line for line in (file.readline() for _ in range(number)) if line.endswith(b"\n")]
            try:
                columns.append([line[:-1].decode("utf-8") for line in lines])
            except UnicodeDecodeError:
                raise UserError(f"{path} is not UTF-8, so it was changed since. Give another --output.") from None
        rows = list(zip(*columns, strict=False))
        if len(rows) == number:
            self._whole = [file.tell() for file in self._to_read]
        return rows

    def is_at_end(self) -> bool:
        """Whether all files end with what was read."""
        return all(path.stat().st_size == whole for path, whole in zip(self.paths, self._whole, strict=True))

    def cut(self) -> None:
        """End the files behind the last lines that were read as many as asked for, or written."""
        for path, file, whole in zip(self.paths, self._to_write, self._whole, strict=True):
            with writing(path, _WAY_OUT):
                file.truncate(whole)

    def write(self, rows: Sequence[Row]) -> None:
        """Add the rows. Raises UserError where that fails; `close` then takes off what was written in part."""
        self._is_written = True
        sizes = []
        for column, (path, file) in enumerate(zip(self.paths, self._to_write, strict=True)):
            content = memoryview("".join(row[column] + "\n" for row in rows).encode())
            sizes.append(len(content))
            with writing(path, _WAY_OUT):
                while content:
                    content = content[file.write(content) :]
        self._whole = [whole + size for whole, size in zip(self._whole, sizes, strict=True)]
