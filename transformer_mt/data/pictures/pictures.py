"""Text to the patches of its picture: what stands in the place of a source tokenizer under `data.source_as: picture`.

The picture of a line is a pure function of the text, the font and the sizes of `model.patches`. Each word is drawn once
and remembered, and a line is words with the space of the font between them. Then each word is moved to where a patch
begins, so that a word has the same patches wherever it stands.
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
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
WAY = "words begin at patches"  # how a line is laid out; who changes that, changes this, and models of it are refused
FAINT = 232  # a column whose pixels are all lighter is paper: edges of letters, and what JPEG leaves around them
GAP = 0.2  # of the height: so many columns of paper are a space; between two letters there are fewer


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
        self._drawing = font.fitting(patches.height)
        ascent, descent = self._drawing.getmetrics()
        self._baseline = ascent + (patches.height - ascent - descent) // 2
        self._space = max(1, round(self._drawing.getlength(" ")))
        self._words: dict[str, Strip] = {}
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
        font = Font.find(asked)
        if font.sha256 != sha256:
            raise UserError(
                f"{path}: the model was trained on pictures in {name} with the SHA-256 {sha256[:12]}…, and {font.path} "
                f"is another file ({font.name}, {font.sha256[:12]}…). Put the font of the training there."
            )
        return cls(font, patches, bool(lowercase))

    def draw(self, text: str) -> Strip:
        """The picture of a line; of a blank one it has no columns."""
        gap = np.full((self.patches.height, self._space), WHITE, np.uint8)
        pieces: list[Strip] = []
        for word in normalize(text, self.lowercase).split():
            pieces += [gap, self._word(word)]
        return np.concatenate(pieces[1:], axis=1) if pieces else gap[:, :0]

    def columns(self, strip: Strip) -> NDArray[np.int64]:
        """Which column of a picture of the right height stands at each column after its words have been moved; -1 is
        paper. Each word begins at a patch, with a column of what is beside its ink on either side. The width of a
        space, and what is beside the text, change nothing.
        """
        ink = np.flatnonzero((strip < FAINT).any(axis=0))
        least = max(2, round(GAP * self.patches.height))
        moved: list[NDArray[np.int64]] = []
        place = 0
        for word in np.split(ink, np.flatnonzero(np.diff(ink) > least) + 1) if len(ink) else []:
            columns = np.arange(word[0] - 1, word[-1] + 2)
            columns[columns == strip.shape[1]] = -1  # as the one before the first
            start = -(-place // self.patches.stride) * self.patches.stride
            moved += [np.full(start - sum(map(len, moved)), -1), columns]
            place = start + len(columns) + least - 2
        return np.concatenate(moved) if moved else ink

    def cut(self, strip: Strip) -> NDArray[np.uint8]:
        """A picture of the right height -> its patches (num_patches, pixels), row by row, after its words have been
        moved. The last is filled with paper.
        """
        height, width, step = self.patches.height, self.patches.width, self.patches.stride
        columns = self.columns(strip)
        if not len(columns):
            return np.empty((0, self.patches.pixels), np.uint8)
        number = 1 + max(0, -(-(len(columns) - width) // step))
        columns = np.pad(columns, (0, (number - 1) * step + width - len(columns)), constant_values=-1)
        moved = np.where(columns < 0, np.uint8(WHITE), strip[:, columns])
        windows = np.lib.stride_tricks.sliding_window_view(moved, width, axis=1)[:, ::step]
        return windows.transpose(1, 0, 2).reshape(number, height * width)

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

    def _places(self, text: str) -> Iterator[tuple[str, float]]:
        """Each letter of a text, and the column of its middle after its word has been moved."""
        columns = self.columns(self.draw(text))
        ink = np.flatnonzero(columns >= 0)
        left = 0.0
        for word in normalize(text, self.lowercase).split():
            width = self._word(word).shape[1]
            for number, letter in enumerate(word):
                found = np.searchsorted(columns[ink], left + width * (number + 0.5) / len(word))
                yield letter, float(ink[min(found, len(ink) - 1)]) if len(ink) else 0.0
            left += width + self._space

    def _is_missing(self, character: str) -> bool:
        """Whether the font lacks it. Control and format characters have no form, and are not drawn."""
        return ord(character) not in self.font.characters and not unicodedata.category(character).startswith("C")

    def _word(self, word: str) -> Strip:
        found = self._words.get(word)
        if found is None:
            if self._num_bytes > MEMO_BYTES:
                self._words, self._num_bytes = {}, 0
            self._words[word] = found = self._drawn(word)
            self._num_bytes += found.nbytes
        return found

    def _drawn(self, word: str) -> Strip:
        """A word, of known letters in one go."""
        seen = [c for c in word if self._is_missing(c) or ord(c) in self.font.characters]
        pieces, known = [np.empty((self.patches.height, 0), np.uint8)], ""
        for character in [*seen, ""]:
            if character and not self._is_missing(character):
                known += character
                continue
            pieces += [self._letters(known)] * bool(known) + [self._box()] * bool(character)
            known = ""
        return np.concatenate(pieces, axis=1)

    def _letters(self, text: str) -> Strip:
        from PIL import Image, ImageDraw

        left, _, right, _ = self._drawing.getbbox(text, anchor="ls")
        overhang = max(0, -int(left))
        width = overhang + max(1, int(right), round(self._drawing.getlength(text)))
        image = Image.new("L", (width, self.patches.height), 0)
        ImageDraw.Draw(image).text((overhang, self._baseline), text, fill=255, font=self._drawing, anchor="ls")
        return as_levels(255 - np.asarray(image))

    def _box(self) -> Strip:
        """For a character that the font has not."""
        height = self.patches.height
        box = np.full((height, max(4, height // 2)), WHITE, np.uint8)
        box[height // 5 : -(height // 5), 1:-1] = UNK_ID
        box[height // 5 + 1 : -(height // 5) - 1, 2:-2] = WHITE
        return box


def as_levels(grey: NDArray[np.integer]) -> Strip:
    """Grey of 0, black, to 255, white, as the levels that are no special ids."""
    return (BLACK + np.round(grey * ((WHITE - BLACK) / 255))).astype(np.uint8)


def is_kept_picture(path: Path) -> bool:
    """Whether the file is what `Pictures.save` writes, by its beginning."""
    try:
        with path.open("rb") as file:
            return f'"{HEADER}"'.encode() in file.read(32)
    except OSError:
        return False
