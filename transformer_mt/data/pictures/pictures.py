"""Text to the patches of its picture: what stands in the place of a source tokenizer under `data.source_as: picture`.

The picture of a line is a pure function of the text, the font and the sizes of `model.patches`. Each word is drawn
once, larger, scaled down as a picture from a file is, and remembered. Each begins at a patch, so that a word has the
same patches wherever it stands.
"""

import json
import math
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import EOS_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.pictures.fonts import Font
from transformer_mt.data.tokenizers import MEMO_BYTES, Tokenizer, normalize
from transformer_mt.errors import UserError
from transformer_mt.storage.files import replace_file

WHITE = 255
BLACK = len(SPECIAL_TOKENS)  # levels below are special ids
Strip = NDArray[np.uint8]  # (height, width), levels: 255 is paper, 4 is black, and 1 is the id of UNK
HEADER = "picture"  # what a file begins with in which a run keeps its font
# Who changes how a line is drawn, changes this: models of it are refused.
WAY = "drawn in five sizes, words begin at patches"
FAINT = 232  # a column whose pixels are all lighter is paper: edges of letters, and what JPEG leaves around them
GAP = 0.2  # of the height: so much paper is a space; between two letters there is less
Drawn = tuple[float, float]  # how many times as large as it is read, and how much too large it is then read
# One is chosen by the text of a line. So a model learns how pictures of other programs are: letters of other sizes fall
# on pixels in another way, and what their size is, is known to a few per cent.
DRAWN: tuple[Drawn, ...] = (*[(4.0, 0.0)] * 4, (1.5, 0.03), (2.0, -0.04), (2.5, 0.015), (3.0, -0.02))


class Pictures(Tokenizer):
    """Draws lines, and cuts them into patches: rows (num_patches, pixels) of levels of 8 bits, in the place of ids.

    What the font has not is a box, whose level is the id of UNK. Nothing here has a vocabulary.
    """

    def __init__(self, font: Font, patches: PatchesConfig, lowercase: bool) -> None:
        # Not that of the base: there is no backend.
        self.font = font
        self.patches = patches
        self.lowercase = lowercase
        self.tags = {}
        largest = font.fitting(4 * patches.height)
        ascent, descent = largest.getmetrics()
        self.size = largest.size / 4  # of the letters, as fonts count: pixels an em
        self.baseline = patches.height / 2 + (ascent - descent) / 8  # rows of the height above it
        self._drawings = {times: font.at_size(max(1, round(self.size * times))) for times, _ in DRAWN}
        self._words: dict[tuple[Drawn, str], list[Strip]] = {}
        self._num_bytes = 0

    @classmethod
    def of(cls, config: RunConfig) -> "Pictures":
        """As the config says. UserError where it has no such font."""
        assert config.model.patches is not None, "the config asks for it"
        return cls(Font.find(config.data.font), config.model.patches, config.tokenizer.lowercase)

    @property
    def vocab_size(self) -> int:
        """Levels of a pixel."""
        return WHITE + 1

    @property
    def settings(self) -> dict[str, Any]:
        """All that a picture depends on but the text."""
        sizes = {"height": self.patches.height, "width": self.patches.width, "step": self.patches.stride}
        return {
            "font": self.font.asked, "name": self.font.name, "sha256": self.font.sha256, **sizes,
            "lowercase": self.lowercase, "way": WAY,
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """The settings, as JSON. The font stays where it is."""
        replace_file(path, json.dumps({HEADER: self.settings}, indent=2) + "\n")

    @classmethod
    def load(cls, path: Path, way_out: str) -> "Pictures":
        """What `save` wrote. UserError, with `way_out` where the file is damaged, and where the font is another now."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))[HEADER]
            way = kept.get("way")
            patches = PatchesConfig(height=kept["height"], width=kept["width"], step=kept["step"])
            asked, name, sha256, lowercase = (kept[key] for key in ("font", "name", "sha256", "lowercase"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} does not say how pictures are drawn ({error}). {way_out}") from None
        if way != WAY:
            raise UserError(f"{path}: the model was trained on pictures laid out in another way. Train it anew.")
        way_out = f"The model was trained on pictures in {name} ({path}): put that font there, or install it."
        font = Font.find(asked, way_out)
        if font.sha256 != sha256:
            raise UserError(
                f"{path}: the model was trained on pictures in {name} with the SHA-256 {sha256[:12]}…, and {font.path} "
                f"is another file ({font.name}, {font.sha256[:12]}…). Put the font of the training there."
            )
        return cls(font, patches, bool(lowercase))

    def words_in(self, grey: NDArray[np.uint8], baseline: float, size: float) -> list[Strip]:
        """The words of a picture (rows, columns) of a line, 0 is black, each scaled to the height of the patches and
        with a column of paper on either side. `baseline`: the row on which letters stand; `size`: how large they are,
        in pixels an em.
        """
        from PIL import Image

        scale = size / self.size
        height = self.patches.height
        ink = np.flatnonzero((grey < FAINT).any(axis=0))
        if not len(ink):
            return []
        top, side = baseline - self.baseline * scale, math.ceil(2 * scale)
        above, below = max(0, math.ceil(-top)), max(0, math.ceil(top + height * scale - len(grey)))
        padded = np.pad(grey, ((above, below), (side, side)), constant_values=WHITE)
        image, top = Image.fromarray(padded), top + above
        words: list[Strip] = []
        for columns in np.split(ink + side, np.flatnonzero(np.diff(ink) > GAP * height * scale) + 1):
            left, width = columns[0] - scale, math.ceil((columns[-1] + 1 - columns[0]) / scale) + 2
            box = (left, top, left + width * scale, min(top + height * scale, len(padded)))
            words.append(_as_levels(np.asarray(image.resize((width, height), Image.Resampling.HAMMING, box))))
        return words

    def lay(self, words: list[Strip]) -> Strip:
        """The words side by side, each from where a patch begins."""
        starts = self._starts(words)
        columns = starts[-1] + words[-1].shape[1] if words else 0
        strip = np.full((self.patches.height, columns), WHITE, np.uint8)
        for start, word in zip(starts, words, strict=True):
            strip[:, start : start + word.shape[1]] = word
        return strip

    def cut(self, strip: Strip) -> NDArray[np.uint8]:
        """What `lay` gave -> its patches (num_patches, pixels), row by row. The last is filled with paper."""
        height, width, step = self.patches.height, self.patches.width, self.patches.stride
        if not strip.shape[1]:
            return np.empty((0, self.patches.pixels), np.uint8)
        number = 1 + max(0, -(-(strip.shape[1] - width) // step))
        filled = np.pad(strip, ((0, 0), (0, (number - 1) * step + width - strip.shape[1])), constant_values=WHITE)
        windows = np.lib.stride_tricks.sliding_window_view(filled, width, axis=1)[:, ::step]
        return windows.transpose(1, 0, 2).reshape(number, height * width)

    def draw(self, text: str) -> Strip:
        """The words of a line, laid out; of a blank line there are no columns."""
        return self.lay([part for _, parts in self._drawn_words(text) for part in parts])

    def encode(self, text: str) -> Any:
        """The patches of a text, (num_patches, pixels)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[Any]:
        """The patches of each text, (num_patches, pixels)."""
        for text in texts:
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise UserError(
                    f"{text!a} holds half of a surrogate pair, which is no character. Read it again as UTF-8, or "
                    "replace it."
                )
        return [self.cut(self.draw(text)) for text in texts]

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The patches of all texts one after the other, and how many each has."""
        rows = self.encode_batch(texts)
        flat = np.concatenate([np.empty((0, self.patches.pixels), np.uint8), *rows])
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

    def tokens(self, ids: Sequence[Any], text: str | None = None) -> list[str]:
        """The letters in the middle of each patch; without the text that was drawn, its number, from 1."""
        letters = [str(number) for number in range(1, len(ids) + 1)] if text is None else [""] * len(ids)
        for letter, middle in self._places(text or ""):
            place = max(0, round((middle - self.patches.width / 2) / self.patches.stride))
            if place < len(ids):
                letters[place] += letter
        for place, patch in enumerate(ids):
            if np.all(np.asarray(patch) == EOS_ID):
                letters[place] = SPECIAL_TOKENS[EOS_ID]
        return [found.strip() or "·" for found in letters]

    def unknown_words(self, text: str) -> list[str]:
        """The words with a character that the font has not."""
        return [word for word in normalize(text, self.lowercase).split() if any(map(self._is_missing, word))]

    def decode(self, ids: list[int]) -> str:
        """No text comes out of a picture: who has patches alone must not ask."""
        raise AssertionError("a picture has no text")

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """There is nothing to learn."""
        raise AssertionError("pictures have no vocabulary")

    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        raise AssertionError("pictures have no vocabulary")

    def _join(self, tokens: list[str]) -> str:
        raise AssertionError("a picture has no text")

    def _starts(self, words: list[Strip]) -> list[int]:
        """The column from which each word's patches are cut: a multiple of the step."""
        step, between = self.patches.stride, max(0, round(GAP * self.patches.height) - 2)
        starts, free = [], 0
        for word in words:
            starts.append(-(-free // step) * step)
            free = starts[-1] + word.shape[1] + between
        return starts

    def _places(self, text: str) -> Iterator[tuple[str, float]]:
        """Each letter of a text, and the column of its middle in the strip."""
        drawn = list(self._drawn_words(text))
        starts = iter(self._starts([part for _, parts in drawn for part in parts]))
        for word, parts in drawn:
            columns = np.concatenate([np.arange(part.shape[1]) + next(starts) for part in parts] or [np.zeros(1)])
            for number, letter in enumerate(word):
                yield letter, float(columns[int(len(columns) * (number + 0.5) / len(word))])

    def _is_missing(self, character: str) -> bool:
        """Whether the font lacks it. Control and format characters have no form, and are not drawn."""
        return ord(character) not in self.font.characters and not unicodedata.category(character).startswith("C")

    def _drawn_words(self, text: str) -> Iterator[tuple[str, list[Strip]]]:
        """Each word of a text and its strips: nearly always one, and two where a word has as much paper inside as there
        is between words.
        """
        line = normalize(text, self.lowercase)
        drawn = DRAWN[zlib.crc32(line.encode()) % len(DRAWN)]
        for word in line.split():
            found = self._words.get((drawn, word))
            if found is None:
                if self._num_bytes > MEMO_BYTES:
                    self._words, self._num_bytes = {}, 0
                self._words[drawn, word] = found = self._word(word, drawn)
                self._num_bytes += sum(part.nbytes for part in found)
            yield word, found

    def _word(self, word: str, drawn: Drawn) -> list[Strip]:
        """A word, of known letters in one go."""
        seen = [c for c in word if self._is_missing(c) or ord(c) in self.font.characters]
        if not any(map(self._is_missing, seen)):
            return self._letters("".join(seen), drawn)
        pieces: list[Strip] = []
        paper = np.full((self.patches.height, 1), WHITE, np.uint8)
        for is_missing, group in groupby(seen, self._is_missing):
            characters = "".join(group)
            parts = [self._box()] * len(characters) if is_missing else self._letters(characters, drawn)
            pieces += [piece for part in parts for piece in (part, paper)]
        return [np.concatenate(pieces[:-1], axis=1)]

    def _letters(self, text: str, drawn: Drawn) -> list[Strip]:
        from PIL import Image, ImageDraw

        times, off = drawn
        drawing = self._drawings[times]
        left, top, right, bottom = drawing.getbbox(text, anchor="ls")
        overhang = max(0, -int(left))
        width = overhang + max(1, int(right), round(drawing.getlength(text)))
        above, below = max(0, -int(top)), max(0, int(bottom))
        image = Image.new("L", (width, above + below + 1), WHITE)
        ImageDraw.Draw(image).text((overhang, above), text, fill=0, font=drawing, anchor="ls")
        return self.words_in(np.asarray(image), above, drawing.size / (1 + off))

    def _box(self) -> Strip:
        """For a character that the font has not."""
        height = self.patches.height
        box = np.full((height, max(3, height // 2 - 2)), WHITE, np.uint8)
        box[height // 5 : -(height // 5)] = UNK_ID
        box[height // 5 + 1 : -(height // 5) - 1, 1:-1] = WHITE
        return box


def _as_levels(grey: NDArray[np.integer]) -> Strip:
    """Grey of 0, black, to 255, white, as the levels that are no special ids."""
    return (BLACK + np.round(grey * ((WHITE - BLACK) / 255))).astype(np.uint8)


def is_kept_picture(path: Path) -> bool:
    """Whether the file is what `Pictures.save` writes, by its beginning."""
    try:
        with path.open("rb") as file:
            return f'"{HEADER}"'.encode() in file.read(32)
    except OSError:
        return False
