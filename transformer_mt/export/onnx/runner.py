"""Translates with encoder.onnx and decoder_step.onnx, which lie beside this file, by greedy search.

    python translate.py "The cat sat" "I am reading a book."
    python translate.py < in.txt > out.txt

It needs onnxruntime, and numpy, which comes with it. `tmt export --to onnx` copies it into the folder of a model.
"""

import json
import os
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]

PAD, UNK, BOS, EOS = range(4)
JOINER, ESCAPED_JOINER = "\uffed", "<joiner>"
# The character for each byte in the entries of a vocabulary of subwords.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = {chr(byte): byte for byte in PRINTABLE}
BYTES |= {chr(256 + i): byte for i, byte in enumerate(sorted({*range(256)}.difference(PRINTABLE)))}
CHARACTERS = {byte: character for character, byte in BYTES.items()}


def is_word(character: str) -> bool:
    """Whether it is a letter, a mark or a digit."""
    return unicodedata.category(character)[0] in "LMN"


def pieces_of(chunk: str) -> list[str]:
    """A stretch without white space -> its words, and its other characters one by one."""
    pieces: list[str] = []
    for before, character in zip(" " + chunk, chunk, strict=False):
        if pieces and is_word(before) and is_word(character):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


class Tokenizer:
    """A file of the library `tokenizers`, read without it: the kinds word, bpe and unigram."""

    def __init__(self, path: Path, kind: str, lowercase: bool) -> None:
        model = json.loads(path.read_text(encoding="utf-8"))["model"]
        self.lowercase, self.known, self.scores = lowercase, {}, {}
        self.split = {"word": self._word, "bpe": self._bpe, "unigram": self._unigram}[kind]
        self.is_word = kind == "word"
        if kind == "unigram":
            self.scores = dict(model["vocab"])
            self.longest = max(map(len, self.scores))
            self.entries = [piece for piece, _ in model["vocab"]]
        else:
            self.entries = sorted(model["vocab"], key=model["vocab"].__getitem__)
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model.get("merges", ()))}
        self.ids = {entry: i for i, entry in enumerate(self.entries)}

    def encode(self, text: str) -> list[int]:
        """Ids, without EOS."""
        text = unicodedata.normalize("NFC", text.lower() if self.lowercase else text)
        ids: list[int] = []
        for chunk in text.split():
            if chunk not in self.known:
                self.known[chunk] = [self.ids.get(entry, UNK) for entry in self.split(chunk)]
            ids += self.known[chunk]
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text on one line."""
        entries = [self.entries[i] for i in ids if i > EOS or i == UNK]
        text = self._join(entries) if self.is_word else self._of_bytes(entries)
        return " ".join(text.split())

    def _word(self, chunk: str) -> list[str]:
        """Words, and marks with a joiner on each side on which they touch: on the left, but before the first word."""
        pieces = pieces_of(chunk)
        words = [is_word(piece[0]) for piece in pieces]
        first = words.index(True) if True in words else 0
        found = []
        for i, piece in enumerate(pieces):
            escaped = ESCAPED_JOINER if piece == JOINER else piece
            right = i < first or (i + 1 < len(pieces) and words[i + 1])
            if words[i] or len(pieces) == 1:
                found.append(escaped)
            else:
                found.append(JOINER * (0 < i >= first) + escaped + JOINER * right)
        return found

    def _join(self, entries: list[str]) -> str:
        text, attached = "", True
        for entry in entries:
            core = entry.removeprefix(JOINER)
            text += "" if attached or core != entry else " "
            attached, core = core.endswith(JOINER), core.removesuffix(JOINER)
            text += JOINER if core == ESCAPED_JOINER else core
        return text

    def _of_bytes(self, entries: list[str]) -> str:
        return bytes(BYTES[character] for character in "".join(entries)).decode("utf-8", errors="replace")

    def _spelled(self, chunk: str) -> list[str]:
        """The pieces of a chunk, each as the characters of its bytes; the space before the chunk is of the first."""
        pieces = pieces_of(chunk)
        pieces[0] = f" {pieces[0]}"
        return ["".join(CHARACTERS[byte] for byte in piece.encode()) for piece in pieces]

    def _bpe(self, chunk: str) -> list[str]:
        """The merge that was learned first is made first."""
        found = []
        for piece in self._spelled(chunk):
            parts = list(piece)
            while len(parts) > 1:
                ranks = [self.ranks.get(pair, len(self.ranks)) for pair in pairwise(parts)]
                rank = min(ranks)
                i = ranks.index(rank)
                if rank == len(self.ranks):
                    break
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            found += parts
        return found

    def _unigram(self, chunk: str) -> list[str]:
        """The parts with the largest sum of log-probabilities."""
        found = []
        for piece in self._spelled(chunk):
            best: list[tuple[float, int]] = [(0.0, 0)] + [(-np.inf, 0)] * len(piece)
            for start in range(len(piece)):
                for end in range(start + 1, min(start + self.longest, len(piece)) + 1):
                    score = best[start][0] + self.scores.get(piece[start:end], -np.inf)
                    if score > best[end][0]:
                        best[end] = (score, start)
            parts, end = [], len(piece)
            while end:
                start = best[end][1]
                parts.append(piece[start:end])
                end = start
            found += reversed(parts)
        return found


class Translator:
    """The model of a folder that `tmt export --to onnx` wrote."""

    encoder: Any
    step: Any

    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        """`threads` compute; 0 for onnxruntime's default."""
        folder = Path(folder)
        self.settings = json.loads((folder / "transformer_mt.json").read_text(encoding="utf-8"))
        kind, lowercase = self.settings["tokenizer"]["kind"], self.settings["tokenizer"]["lowercase"]
        self.src, self.tgt = (
            Tokenizer(folder / "tokenizers" / f"{side}.json", kind, lowercase) for side in ("src", "tgt")
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.step = (
            onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder_step")
        )
        self.names = [output.name.removeprefix("memory_") for output in self.encoder.get_outputs()]

    def translate(self, texts: list[str], batch_size: int = 32) -> list[str]:
        """A text for each text; blank for a blank one and for one that is longer than the model's positions."""
        rows = {i: [*self.src.encode(text), EOS] for i, text in enumerate(texts)}
        fitting = [i for i, row in rows.items() if 1 < len(row) <= self.settings["max_len"]]
        fitting.sort(key=lambda i: len(rows[i]))
        found = [""] * len(texts)
        for first in range(0, len(fitting), batch_size):
            batch = fitting[first : first + batch_size]
            for i, ids in zip(batch, self.search([rows[i] for i in batch]), strict=True):
                found[i] = self.tgt.decode(ids)
        return found

    def search(self, rows: list[list[int]]) -> list[list[int]]:
        """Greedy search: source ids with EOS -> target ids without."""
        src = np.array([row + [PAD] * (max(map(len, rows)) - len(row)) for row in rows], np.int64)
        fixed = dict(zip((f"memory_{name}" for name in self.names), self.encoder.run(None, {"src": src}), strict=True))
        fixed["src_mask"] = src != PAD
        heads, size = next(iter(fixed.values())).shape[1::2]
        past = [np.zeros((len(rows), heads, 0, size), np.float32) for _ in self.names]
        decoding = self.settings["decoding"]
        limits = np.array([self.limit(len(row)) for row in rows])
        tokens, found = np.full(len(rows), BOS), [[] for _ in rows]
        for length in range(1, max(limits) + 1):
            inputs = {
                "tokens": tokens,
                **fixed,
                **{f"past_{name}": k for name, k in zip(self.names, past, strict=True)},
            }
            logits, *past = self.step.run(None, inputs)
            logits[:, [PAD, BOS] if decoding["allow_unk"] else [PAD, BOS, UNK]] = -np.inf
            if length <= decoding["min_length"]:
                logits[:, EOS] = -np.inf
            tokens = np.where((tokens == EOS) | (length >= limits), EOS, logits.argmax(axis=1))
            for ids, token in zip(found, tokens, strict=True):
                ids += [] if token == EOS else [int(token)]
            if (tokens == EOS).all():
                break
        return found

    def limit(self, src_len: int) -> int:
        """The largest number of tokens of a translation, EOS counted, as EOS is in `src_len`."""
        decoding: dict[str, Any] = self.settings["decoding"]
        longest = int(decoding["max_length_ratio"] * src_len) + decoding["max_length_extra"]
        asked = decoding["max_length"]
        return min(longest, self.settings["max_len"], self.settings["max_len"] if asked is None else asked + 1)


def write(texts: list[str]) -> None:
    """Write each text as a line of standard output. Where its reader has gone the process ends with status 1, and where
    it cannot be written with 2 and a sentence on standard error.
    """
    try:
        for text in texts:
            print(text)
        sys.stdout.flush()
    except OSError as error:
        # The text that waits would fail again at the end of Python.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        told = f"Standard output cannot be written: {error.strerror}. Free some space there, or choose another place."
        sys.exit(refusal(told))


def refusal(told: str) -> int:
    """The exit status of what a user can cause, which is told on standard error."""
    print(told, file=sys.stderr)
    return 2


def main() -> None:
    """Translate the arguments, or else the lines of standard input. Where a stream that this needs is closed, the
    process ends with status 2 and a sentence.
    """
    if sys.stdout is None:
        sys.exit(refusal("Standard output is closed. Give the translations a place, for example > FILE."))
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # pyright: ignore[reportAttributeAccessIssue]
    # Bytes of an argument that are no UTF-8 come as lone surrogates.
    texts = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in sys.argv[1:]]
    if not texts:
        if sys.stdin is None:
            sys.exit(refusal("Standard input is closed. Give the texts as arguments, or lines by < FILE."))
        # A byte order mark before the first line is no part of it.
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")  # pyright: ignore[reportAttributeAccessIssue]
        texts = [line.removesuffix("\n").removesuffix("\r") for line in sys.stdin]
    write(Translator(Path(__file__).parent).translate(texts))


if __name__ == "__main__":
    main()
