"""The curves of a training that still grows."""

from collections import deque
from pathlib import Path
from typing import Any

from transformer_mt.training.monitoring.metrics_file import Curve, add_to_curves

NUM_RECENT = 20  # lines that the speed is taken from


class MetricsTail:
    """What metrics.jsonl says. `update` reads the lines that are new, and all of them where the file is another one,
    since a resumed training cuts off what its checkpoint does not know.

    `curves` have the names of TensorBoard, such as `validation/bleu`. `last` is the last line of each kind. `recent` is
    what the speed is taken from. `num_broken` lines could not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.last: dict[str, dict[str, Any]] = {}
        self.recent: deque[tuple[int, float]] = deque(maxlen=NUM_RECENT)  # steps and seconds of training
        self.num_broken = 0
        self._offset = 0
        self._last_line = b""

    def update(self) -> None:
        """Raises OSError where the file is there and cannot be read."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._forget()
            return
        with file:
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                self._forget()
                file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):  # the rest of it is still being written
                    break
                self._offset += len(line)
                self._last_line = line
                self._add(line)

    def _add(self, line: bytes) -> None:
        entry = add_to_curves(line, self.curves)
        if entry is None:
            self.num_broken += 1
            return
        self.last[entry["kind"]] = entry
        if entry["kind"] == "train":
            self.recent.append((entry["step"], entry["elapsed_seconds"]))

    @property
    def pace(self) -> tuple[int, int, float] | None:
        """The step of the first of the last lines, how many steps came after it, and their seconds with validations and
        checkpoints between them; None before the second line.
        """
        if len(self.recent) < 2:
            return None
        (first, begun), (last, ended) = self.recent[0], self.recent[-1]
        return (first, last - first, ended - begun) if last > first else None


def thinned(curve: Curve, most: int) -> Curve:
    """Some `most` points of a curve at regular places, its last one among them."""
    steps, values = curve
    stride = -(-len(steps) // most)
    start = (len(steps) - 1) % max(1, stride)
    return steps[start::stride], values[start::stride]
