"""A training split that is read while it is trained on, shuffled within windows, with nothing kept on the disk.

An epoch is the windows of the stream one after the other, each planned like a corpus of its own. So the order is a
function of (seed, epoch, window). A resumed run finds its place by reading on to its window. A thread reads the next
window while this one is trained on.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.batches.batching import Batch, Rows, plan_batches
from transformer_mt.data.batches.plan import EPOCH_BITS, LengthsByPart
from transformer_mt.data.batches.stream_window import Window, WindowReader
from transformer_mt.data.cache import key_of
from transformer_mt.data.sources.source import Source
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted

Place = dict[str, int | str]  # of a window in its epoch, and its digest; what a checkpoint keeps


class StreamError(UserError):
    """Something in the stream cannot be read, or has changed. Every process comes to it."""


@dataclass(frozen=True)
class _Planned:
    """A window of an epoch and its micro-batches; how many micro-batches come before it, and how many pairs were left
    out before it, or cut.
    """

    window: Window
    batches: list[Rows]
    first: int
    num_blank: int
    num_too_long: int
    num_cut: int


class Stream:
    """The pairs of the training sources as a split. Rows can be asked for while their window is needed.

    Making it raises UserError where not a single pair fits the model. Reading on raises StreamError at the first pair
    that cannot be read.
    """

    name = "train"

    def __init__(self, config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> None:
        self.size = config.data.shuffle_window
        # A row is (epoch, number of its window, place in it) in one number.
        self._windows_an_epoch = 2**EPOCH_BITS // self.size
        self._reader = WindowReader(config, src, tgt, lambda: not threading.main_thread().is_alive())
        self.descriptions = [source.description for source in self._reader.sources]
        self._lock = threading.RLock()
        self._reading: tuple[int, Future[Window], threading.Thread] | None = None
        self._windows: dict[int, Window] = {}
        # What a window becomes in an epoch, for what is hidden of text in one language.
        self.noise: Callable[[Window, int], Window] | None = None
        self._needed = 0  # the place of the first window that may still be asked for
        self._resumed: tuple[int, Place] | None = None
        self.src_lengths = LengthsByPart(lambda place: self._windows[place].src_lengths, self.size)
        self.tgt_lengths = LengthsByPart(lambda place: self._windows[place].tgt_lengths, self.size)
        self.beginning = self._beginning(config.model.max_len)
        self.fingerprint = _fingerprint(config.data, self._reader.sources, self.beginning)

    def plan(self, max_tokens: int, seed: int, epoch: int) -> "StreamPlan":
        """The micro-batches of an epoch. They begin at the place that `go_on_from` set, if it is in this epoch."""
        place = self._resumed[1] if self._resumed and self._resumed[0] == epoch else None
        return StreamPlan(self, max_tokens, seed, epoch, place)

    def go_on_from(self, epoch: int, place: Place | None) -> None:
        """Begin this epoch at a place that `StreamPlan.place` gave; None: at its beginning."""
        self._resumed = None if place is None else (epoch, place)

    def take_noise(self, noise: Callable[[Window, int], Window]) -> None:
        """From now on a window is what this makes of it in its epoch, and so are those that were read already."""
        with self._lock:
            self.noise = noise
            self._windows = {
                place: noise(window, place // self._windows_an_epoch) for place, window in self._windows.items()
            }

    def batch(self, indices: Rows) -> Batch:
        """The pairs of these rows, which are of one window, padded."""
        return self._windows[int(indices[0]) // self.size].batch(indices % self.size)

    def where(self, index: int) -> str:
        """Where the pair of this row stands: `file.en / file.de, line 17`."""
        window, row = self._windows[index // self.size], index % self.size
        return self._reader.where(int(window.sources[row]), int(window.lines[row]))

    def sample_texts(self, number: int, seed: int) -> list[tuple[str, str]]:
        """Raw source and target text of so many pairs of the first window, which remembers only a few."""
        return self.beginning.shown[:number]

    def unknown_shares(self) -> tuple[float, float]:
        """UNK among the tokens of the source and of the target, in the first window."""
        return self.beginning.unknown_shares()

    def identity(self) -> dict[str, str | int]:
        """What tells these pairs from others, as far as that is known at the beginning."""
        return {"fingerprint": self.fingerprint}

    def window(self, epoch: int, number: int) -> tuple[Window, int]:
        """A window of an epoch, and the row of its first pair. It is kept until `forget`; a thread reads the next."""
        with self._lock:
            place = epoch * self._windows_an_epoch + number
            if place not in self._windows:
                if self._reading is None or self._reading[0] != number:
                    self._read_in_thread(number)
                assert self._reading is not None
                try:
                    window = self._reading[1].result()
                except UserError as error:
                    raise StreamError(str(error)) from error
                self._windows[place] = window if self.noise is None else self.noise(window, epoch)
                self._read_in_thread(number + 1 if window.num_read == self.size else 0)
            return self._windows[place], place * self.size

    def forget(self, epoch: int, number: int) -> None:
        """From the next call on, the windows before this one are no longer needed. They stay until then because the
        last update may turn out not to be finite, and its pairs are then asked for while the next update is made.
        """
        with self._lock:
            self._windows = {place: window for place, window in self._windows.items() if place >= self._needed}
            self._needed = epoch * self._windows_an_epoch + number

    def _read_in_thread(self, number: int) -> None:
        """Read a window. Only one is read at a time: another, even if nobody waits for it, is read to its end first."""
        if self._reading is not None:
            self._reading[2].join()
        future: Future[Window] = Future()

        def read() -> None:
            try:
                window = self._reader.read(number)
            except BaseException as error:  # raised again where the window is asked for
                future.set_exception(error)
                return
            if window is not None:  # None: the program is ending
                future.set_result(window)

        thread = threading.Thread(target=read, name="stream")
        self._reading = number, future, thread
        thread.start()

    def _beginning(self, max_len: int) -> Window:
        """The first window with a pair in it."""
        number = 0
        while True:
            window, _ = self.window(0, number)
            if len(window):
                return window
            if window.num_read < self.size:
                pairs = counted(window.first + window.num_read, "pair")
                raise UserError(
                    f"Of {pairs} of {', '.join(self.descriptions)}, none can be trained on: each has a blank side, or "
                    f"is longer than model.max_len {max_len}. Check the files, or raise model.max_len."
                )
            self.forget(0, number)
            number += 1


class StreamPlan:
    """The micro-batches of an epoch of a stream, planned a window at a time (see `Plan`)."""

    num_micro_batches = None

    def __init__(self, stream: Stream, max_tokens: int, seed: int, epoch: int, place: Place | None) -> None:
        self._stream, self._max_tokens, self._seed, self._epoch = stream, max_tokens, seed, epoch
        self._lock = threading.RLock()
        self._planned: list[_Planned] = []
        self._next = _numbers(place)
        self._digest = place and place["digest"]
        self._is_whole = False

    def take(self, first: int, number: int) -> list[Rows]:
        """See `Plan`."""
        with self._lock:
            self.has(first + number - 1)
            while len(self._planned) > 1 and self._planned[1].first <= first:
                del self._planned[0]
            self._stream.forget(self._epoch, self._planned[0].window.first // self._stream.size)
            found = [rows for planned in self._planned for rows in planned.batches]
            begin = first - self._planned[0].first
            return found[begin : begin + number]

    def get(self, number: int) -> Rows | None:
        """See `Plan`."""
        with self._lock:
            if not self.has(number):
                return None
            planned = [one for one in self._planned if one.first <= number][-1]
            return planned.batches[number - planned.first]

    def has(self, number: int) -> bool:
        """See `Plan`."""
        with self._lock:
            while number >= self._next["micro_batch"] and not self._is_whole:
                self._plan_window()
            return number < self._next["micro_batch"]

    def known(self) -> list[Rows]:
        """See `Plan`."""
        self.has(self._next["micro_batch"] if not self._planned else 0)
        return [rows for planned in self._planned for rows in planned.batches]

    def place(self, number: int) -> Place:
        """The place of the window that holds this micro-batch, the first that was not taken yet."""
        with self._lock:
            self.has(number)
            planned = [one for one in self._planned if one.first <= number][-1]
            return {
                "window": planned.window.first // self._stream.size,
                "micro_batch": planned.first,
                "num_blank": planned.num_blank,
                "num_too_long": planned.num_too_long,
                "num_cut": planned.num_cut,
                "digest": planned.window.digest,
            }

    def summary(self) -> str | None:
        """The counts of an epoch that is over."""
        read = self._next
        parts = [f"epoch {self._epoch + 1} is over: {counted(read['num_pairs'], 'pair was', 'pairs were')} read"]
        parts += [f"{read['num_blank']:,} with a blank side dropped"] * (read["num_blank"] > 0)
        parts += [f"{read['num_too_long']:,} too long left out"] * (read["num_too_long"] > 0)
        parts += [f"{read['num_cut']:,} cut in half for data.noise"] * (read["num_cut"] > 0)
        return ", ".join(parts)

    def _plan_window(self) -> None:
        after = self._next
        window, row = self._stream.window(self._epoch, after["window"])
        if self._digest and self._digest != window.digest:
            raise StreamError(
                f"The data changed since this run was begun: the pairs from number {window.first + 1:,} on of "
                f"{', '.join(self._stream.descriptions)} are others than they were. Restore them, or train from the "
                "start under another name (name=NEW)."
            )
        self._digest = None
        lengths = window.src_lengths, window.tgt_lengths
        batches = plan_batches(*lengths, self._max_tokens, self._seed, self._epoch, after["window"])
        if batches:
            planned = [rows + row for rows in batches]
            before = (after[name] for name in ("micro_batch", "num_blank", "num_too_long", "num_cut"))
            self._planned.append(_Planned(window, planned, *before))
        self._is_whole = window.num_read < self._stream.size
        self._next = {
            "window": after["window"] + 1,
            "micro_batch": after["micro_batch"] + len(batches),
            "num_pairs": window.first + window.num_read,
            "num_blank": after["num_blank"] + window.num_blank,
            "num_too_long": after["num_too_long"] + window.num_too_long,
            "num_cut": after["num_cut"] + window.num_cut,
        }
        if self._is_whole and self._next["micro_batch"] == 0:
            raise StreamError(
                f"There was no pair to train on in epoch {self._epoch + 1} of {', '.join(self._stream.descriptions)}, "
                "though there was before. Restore the data, and go on with --resume auto."
            )


def _numbers(place: Place | None) -> dict[str, int]:
    names = ("window", "micro_batch", "num_pairs", "num_blank", "num_too_long", "num_cut")
    return {name: int((place or {}).get(name, 0)) for name in names}


def _fingerprint(data: DataConfig, sources: list[Source], beginning: Window) -> str:
    """A hash of all that is known at the beginning: the sources and their settings, file sizes, the first window."""
    parts = [data.columns and data.columns.model_dump(), beginning.digest, *(source.outline() for source in sources)]
    return "stream-" + key_of(parts, num_bytes=16)
