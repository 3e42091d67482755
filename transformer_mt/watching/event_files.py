"""The sample translations and the pictures of a training, which stand in TensorBoard's files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.paths import is_file

SAMPLE = re.compile(r"sample (\d+)/text_summary")
ROW = re.compile(r"\*\*(source|reference|translation)\*\*: (.*)", re.DOTALL)
ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|<>])")
PNG = b"\x89PNG"


@dataclass(frozen=True)
class SampleText:
    """A sentence of the validation split, and how the model translated it at some step."""

    source: str
    reference: str
    translation: str


class EventFiles:
    """What TensorBoard's files say that the page shows. `update` reads what is new.

    `samples[number][step]` are the samples, and `pictures[name]` is the newest picture of that name: step and PNG.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.samples: dict[int, dict[int, SampleText]] = {}
        self.pictures: dict[str, tuple[int, bytes]] = {}
        self._loaders: dict[str, Any] = {}

    def update(self) -> None:
        """A file that is no longer there is left as it was read; of a link to nothing TensorBoard raises errors of its
        own.
        """
        for path in filter(is_file, sorted(self.folder.glob("events.out.tfevents.*"))):
            for event in self._new_events(path):
                if event.HasField("session_log"):  # a training that goes on: what stood behind its step is void
                    self._forget_from(event.step)
                for value in event.summary.value:
                    self._add(event.step, value)

    def _new_events(self, path: Path) -> Iterator[Any]:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        if path.name not in self._loaders:
            self._loaders[path.name] = EventFileLoader(str(path))
        yield from self._loaders[path.name].Load()

    def _forget_from(self, step: int) -> None:
        for texts in self.samples.values():
            for later in [one for one in texts if one >= step]:
                del texts[later]
        self.samples = {number: texts for number, texts in self.samples.items() if texts}
        self.pictures = {name: found for name, found in self.pictures.items() if found[0] < step}

    def _add(self, step: int, value: Any) -> None:
        strings = value.tensor.string_val
        if (named := SAMPLE.fullmatch(value.tag)) and strings:
            if (sample := _sample(strings[0].decode("utf-8", errors="replace"))) is not None:
                self.samples.setdefault(int(named[1]), {})[step] = sample
        elif value.metadata.plugin_data.plugin_name == "images" and len(strings) == 3 and strings[2].startswith(PNG):
            self.pictures[value.tag] = step, bytes(strings[2])


def _sample(text: str) -> SampleText | None:
    """From the Markdown that a validation writes; None for another text of this name."""
    rows = {found[1]: ESCAPED.sub(r"\1", found[2]) for part in text.split("\n\n") if (found := ROW.fullmatch(part))}
    return SampleText(**rows) if len(rows) == 3 else None
