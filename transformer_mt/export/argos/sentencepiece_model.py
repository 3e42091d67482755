"""Our subword tokenizers as a file of SentencePiece, which gives the same pieces.

Our pieces are of bytes, and those of SentencePiece of characters. So its normalizer, which replaces strings, writes the
character that stands for each byte in our vocabulary, and its denormalizer writes the bytes again.
"""

import struct
import sys
import unicodedata
from collections.abc import Iterator, Mapping

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.tokenizers import BYTES_BY_CHARACTER
from transformer_mt.export.argos.double_array import double_array

SPACE = "▁"
_OUR_SPACE = next(character for character, byte in BYTES_BY_CHARACTER.items() if byte == ord(" "))
_CHARACTERS = {byte: character for character, byte in BYTES_BY_CHARACTER.items()}
_END_OF_COMMON = 0x20000  # the two planes with the scripts of all living languages, and emoji
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_VARINT, _BYTES, _FLOAT = 0, 2, 5


def piece_of(entry: str) -> str:
    """What SentencePiece calls an entry of our vocabulary."""
    return entry if entry in SPECIAL_TOKENS else entry.replace(_OUR_SPACE, SPACE)


def sentencepiece_model(entries: list[str], model: Mapping) -> bytes:
    """The file of a tokenizer of subwords. `entries` are those of its vocabulary in the order of their ids, `model` is
    that of its JSON.

    Under `bpe` the score of a piece is the place of its merge, so that what was learned first is merged first.
    """
    if model["type"] == "BPE":
        ranks = {"".join(pair): rank for rank, pair in reversed([*enumerate(model["merges"])])}
        scores = {entry: -float(ranks.get(entry, len(ranks))) for entry in entries}
        kind = 2
    else:
        scores, kind = dict(model["vocab"]), 1
    pieces = [_field(1, _message(piece_of(entry), scores[entry], _type_of(i))) for i, entry in enumerate(entries)]
    trainer = _field(3, kind) + _field(4, len(entries))
    trainer += _field(40, UNK_ID) + _field(41, BOS_ID) + _field(42, EOS_ID) + _field(43, PAD_ID)
    trainer += b"".join(_field(45 + i, SPECIAL_TOKENS[each]) for i, each in enumerate((UNK_ID, BOS_ID, EOS_ID, PAD_ID)))
    forth = _field(1, "bytes") + _field(2, charsmap(_to_characters()))
    forth += _field(3, 1) + _field(4, 1) + _field(5, 1)  # a space before the text, single spaces, written as SPACE
    back = _field(1, "characters") + _field(2, charsmap(_to_bytes())) + _field(3, 0) + _field(4, 0) + _field(5, 0)
    return b"".join(pieces) + _field(2, trainer) + _field(3, forth) + _field(5, back)


def charsmap(replacements: Mapping[bytes, bytes]) -> bytes:
    """Replacements in the form of a normalizer: the size of a trie, the trie, and the strings that it points to."""
    places, strings = {}, bytearray()
    for new in dict.fromkeys(replacements.values()):
        places[new] = len(strings)
        strings += new + b"\0"
    trie = double_array({old: places[new] for old, new in replacements.items()})
    return struct.pack("<I", len(trie)) + trie + bytes(strings)


def _to_characters() -> dict[bytes, bytes]:
    """Each byte becomes its character, white space a space, and what NFC composes is composed before."""
    found = {bytes([byte]): character.encode() for byte, character in _CHARACTERS.items() if byte}
    for character in _every_character(sys.maxunicode + 1):
        apart = unicodedata.normalize("NFD", character)
        if character.isspace():
            found[character.encode()] = b" "
        elif apart != character:
            whole = unicodedata.normalize("NFC", character)
            halfway = {unicodedata.normalize("NFC", apart[:i]) + apart[i:] for i in range(len(apart))}
            for old in {character, *halfway} - {whole}:
                found[old.encode()] = _written(whole)
    return found


def _to_bytes() -> dict[bytes, bytes]:
    """The characters of the bytes of one character become that character, and any byte that is left over the sign for
    what cannot be read: SentencePiece would fail at bytes that are no text. The planes of characters beyond those that
    are in common use are left out, because each entry has its place in the trie.
    """
    found = {character.encode(): "\ufffd".encode() for byte, character in _CHARACTERS.items() if not 0 < byte < 0x80}
    for character in _every_character(_END_OF_COMMON):
        if ord(character) < 0x10000 or unicodedata.category(character) != "Cn":
            found[_written(character)] = character.encode()
    return found


def _every_character(end: int) -> Iterator[str]:
    """All characters but the zero byte, which neither keys nor strings can hold, and halves of surrogate pairs."""
    return (chr(i) for i in range(1, end) if not 0xD800 <= i < 0xE000)


def _written(text: str) -> bytes:
    return "".join(_CHARACTERS[byte] for byte in text.encode()).encode()


def _type_of(i: int) -> int:
    return _UNKNOWN if i == UNK_ID else _CONTROL if i < len(SPECIAL_TOKENS) else _NORMAL


def _message(piece: str, score: float, kind: int) -> bytes:
    return _field(1, piece) + _field(2, score) + _field(3, kind)


def _field(number: int, value: str | bytes | int | float) -> bytes:
    """A field of a message of protocol buffers, by the type of its value."""
    if isinstance(value, float):
        return _varint(number << 3 | _FLOAT) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
