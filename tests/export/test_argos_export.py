"""The real Argos Translate installs our package, makes our pieces of any text, and finds our greedy text."""

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import ask, foreign_python
from toy import all_entries, toy_pairs
from translators import ONE_STREAM, PICTURES, SMALL, make_translator, write_run

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import open_run

pytest.importorskip("ctranslate2", reason="the extra ct2 is not installed; the extra dev brings it")

from transformer_mt.export.argos.double_array import double_array
from transformer_mt.export.argos.export import export_run, write_model
from transformer_mt.export.argos.sentencepiece_model import piece_of
from transformer_mt.export.ctranslate2 import vocabulary
from transformer_mt.export.expressible import OPTIONS

BPE = {"kind": "bpe", "vocab_size": 400}
SCRIPT = Path(__file__).with_name("foreign_argos.py")
PACKAGES = ["argos-translate-lt==1.12.1"]  # what LibreTranslate 1.9.6 asks for
TEXTS = [
    "", " ", "  one\u00a0 two\u2028three\x1cfour\t", "</s> <pad> one<s><unk>", "e\u0301 a\u0302\u0301 🙂 ß\u200b ñandú",
    "«¿qué?» don't...", "日本語。 한글 \u1112\u1161\u11ab", "▁ Ġ Ċ \\u0041 \u0085", "\u212b ﬁ ½ ²", "aaaaaa aaaaa baba",
]  # fmt: skip


def translator_of(kind: str) -> Translator:
    tokenizer = {"kind": kind, "vocab_size": 600, **all_entries(kind), "joint": True}
    model = {"num_encoder_layers": 1, **SMALL, "tie_embeddings": "none", "max_len": 60}
    pairs = toy_pairs(50) + [(text, text) for text in TEXTS if text.strip()]
    translator = make_translator(model, pairs, noise=0.3, tokenizer=tokenizer, decoding={"beam_size": 1})
    with torch.no_grad():
        translator.model.output.bias[:EOS_ID] = -40  # Argos Translate forbids none of them
        translator.model.output.bias[EOS_ID] += 3
    return Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config)


def texts_for(translator: Translator) -> list[str]:
    dice = random.Random(3)
    characters = [*"".join(TEXTS), *map(chr, range(1, 0x250)), *map(chr, range(0x4E00, 0x4E20))]
    drawn = ["".join(dice.choices(characters, k=12)) for _ in range(200)]
    return [*TEXTS, *drawn, *(src for src, _ in toy_pairs(30, seed=3))]


@pytest.mark.foreign
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_argos_translate_runs_the_package(kind: str, tmp_path: Path, foreign_home: dict[str, str]) -> None:
    translator = translator_of(kind)
    file = tmp_path / "en_es.argosmodel"
    notes = export_run(open_run(write_run(tmp_path / "run", translator)), None, file)
    assert notes[0].startswith("Argos Translate searches by its own rules")
    texts, ours = texts_for(translator), translator.src_tokenizer
    entries = vocabulary(ours)
    dice = random.Random(5)
    ids = [*ours.encode_batch(texts), *(dice.choices(range(4, len(entries)), k=9) for _ in range(100))]
    pieces = [[piece_of(entries[i]) for i in row] for row in ids]
    python = foreign_python("argos-translate-lt", *PACKAGES, alone=True)
    asked = json.dumps({"texts": texts, "pieces": pieces})
    found = json.loads(ask(python, SCRIPT, str(file), stdin=asked, environment=foreign_home))
    assert found["languages"] == ["en", "English", "es", "Spanish"]
    assert "# toy: en to es" in found["readme"]
    assert found["ours"] == []
    assert found["pieces"] == pieces[: len(texts)]
    assert list(map(plain, found["decoded"])) == [plain(ours.decode(row)) for row in ids]
    lines = translator.translate_lines(texts, search_options(translator.config.decoding))
    # One whose largest length ours reached is cut there, and theirs goes on. Theirs takes lines one by one, and lets no
    # translation be empty.
    compared = [
        (plain(line.text), plain(text))
        for line, text, row in zip(lines, found["translated"], ids, strict=False)
        if line.text and "\n" not in line.source and len(line.hypotheses[0].tokens) < min(59, 2 * len(row) + 11)
    ]
    assert [one for one, _ in compared] == [two for _, two in compared]
    assert len(set(compared)) > 5


def plain(text: str) -> str:
    """Without what Argos Translate changes itself: it writes a space for an underscore and for SentencePiece's space.
    How many signs stand for bytes that are no text is a matter of taste too, and a zero byte is none there.
    """
    return " ".join(text.replace("_", " ").replace("▁", " ").replace("\ufffd", "").replace("\0", "").split())


@pytest.fixture
def foreign_home(tmp_path: Path) -> dict[str, str]:
    """Folders of its own for what Argos Translate installs; a beam of 1 is greedy search."""
    kinds = ("DATA", "CONFIG", "CACHE")
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in kinds}
    return {**folders, "ARGOS_BEAM_SIZE": "1", "ARGOS_DEVICE_TYPE": "cpu"}


def test_a_trie_gives_every_key_its_number_and_knows_no_other() -> None:
    """Read by the rule of the layout: from p to p XOR offset XOR label, the number at p XOR offset."""
    dice = random.Random(2)
    keys = {bytes(dice.choices(range(1, 256), k=dice.randint(1, 4))) for _ in range(3000)}
    keys |= {bytes([byte]) for byte in range(1, 256)}
    values = {key: i for i, key in enumerate(sorted(keys))}
    array = double_array(values)
    assert len(array) % 1024 == 0
    units = memoryview(array).cast("I")

    def look_up(key: bytes) -> int | None:
        place, unit = units[0] >> 10, units[0]
        for byte in key:
            place ^= byte
            unit = units[place]
            if unit & (1 << 31 | 0xFF) != byte:
                return None
            place ^= unit >> 10
        return units[place] & ~(1 << 31) if unit & 1 << 8 else None

    others = {bytes(dice.choices(range(1, 256), k=dice.randint(1, 5))) for _ in range(3000)} - keys
    assert {key: look_up(key) for key in keys} == values
    assert {look_up(key) for key in others} == {None}


@pytest.mark.parametrize(
    ("model", "tokenizer", "message"),
    [
        (
            {**ONE_STREAM, "positions": "relative_bias"},
            BPE,
            r"\Amodel.architecture is decoder_only, .* model.architecture: encoder_decoder to export it, or .*\Z",
        ),
        ({"num_experts": 2}, BPE, "model.num_experts is 2"),
        ({"attention_window": 9}, BPE, "model.attention_window is 9"),
        (PICTURES, {**BPE, "joint": False}, "model.patches is set, .* model.patches: null and data.source_as: text"),
        *(
            ({key: name}, BPE, f"model.{key} is {name}, ")
            for key, table in OPTIONS.items()
            for name, option in table.items()
            if option.ctranslate2 is None
        ),
        ({"num_experts": 2, "attention_window": 9}, {"kind": "word"}, "(?s)num_experts.*attention_window.*kind"),
        ({}, {"kind": "word"}, "tokenizer.kind is word, .* tokenizer.kind: bpe or unigram"),
        ({}, {**BPE, "joint": False}, "tokenizer.joint is false"),
        ({}, {**BPE, "lowercase": True}, "tokenizer.lowercase is true"),
        ({}, {**BPE, "tags": ["<BT>"]}, "tokenizer.tags holds <BT>"),
    ],
)
def test_what_is_not_exact_is_refused_by_its_key(
    model: dict[str, Any], tokenizer: dict[str, Any], message: str, tmp_path: Path
) -> None:
    translator = make_translator({"num_encoder_layers": 1, **SMALL, **model}, tokenizer=tokenizer)
    with pytest.raises(UserError, match=message):
        write_model(translator.model, translator.src_tokenizer, translator.config, tmp_path / "new.argosmodel")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_new_and_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_of("bpe")
    sides = translator.model, translator.src_tokenizer, translator.config
    beside: list[str] = []

    def full(*_: Any) -> None:
        beside.extend(path.name for path in tmp_path.iterdir())
        raise OSError(28, "No space left")

    with monkeypatch.context() as patched:
        patched.setattr("zipfile.ZipFile.write", full)
        with pytest.raises(UserError, match="cannot be written: No space left"):
            write_model(*sides, tmp_path / "new.argosmodel")
    assert len(beside) == 2, "the archive and the model that goes into it"
    assert all(name.startswith(".tmp-new.argosmodel-") for name in beside), "what a kill leaves says what it is"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"model does not end in \.argosmodel\. Name the file .*model\.argosmodel"):
        write_model(*sides, tmp_path / "model")
    for folder in (Path(), Path(".."), Path("/"), tmp_path):
        with pytest.raises(UserError, match=r"is a folder\. Name a new file, for example .*model\.argosmodel"):
            write_model(*sides, folder)
    with pytest.raises(UserError, match=r"cannot be written: No such file or directory\. Choose another place"):
        write_model(*sides, tmp_path / "nowhere" / "new.argosmodel")
    assert list(tmp_path.iterdir()) == []
    data = translator.config.data.model_copy(update={"src_lang": "a/b"})
    named = *sides[:2], translator.config.model_copy(update={"data": data})
    write_model(*named, tmp_path / "new.argosmodel", quantization="int8")
    assert [path.name for path in tmp_path.iterdir()] == ["new.argosmodel"]
    with zipfile.ZipFile(tmp_path / "new.argosmodel") as archive:
        assert archive.testzip() is None
        assert f"translate-a_b_{data.tgt_lang}-1_0/metadata.json" in archive.namelist(), "where Argos Translate looks"
    with pytest.raises(UserError, match=r"new\.argosmodel exists\. Name another"):
        write_model(*sides, tmp_path / "new.argosmodel")
