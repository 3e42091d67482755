"""Prefixes and phrases to avoid: every translation keeps to them, and its score counts all of its tokens."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy import SPANISH, toy_pairs
from translators import ONE_STREAM, toy_translator

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.decoding.demands import AvoidedPhrases, SourceLine, demanding
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel

TEXTS = [src for src, _ in toy_pairs(12, seed=5)]
PREFIXES = ["uno", "dos tres", "diez, diez", "", "uno uno uno uno", "cuatro.", "ocho siete", "tres"]


@torch.inference_mode()
def log_prob_of(translator: Translator, text: str, tokens: list[int]) -> float:
    src = torch.tensor([[*translator.src_tokenizer.encode(text), EOS_ID]])
    log_probs = translator.model(src, torch.tensor([[BOS_ID, *tokens]])).log_softmax(dim=-1)[0]
    return log_probs[torch.arange(len(tokens) + 1), [*tokens, EOS_ID]].sum().item()


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("stream", [{}, ONE_STREAM])
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_a_translation_begins_with_its_prefix_and_is_scored_with_it(kind: str, stream: dict, beam_size: int) -> None:
    translator = toy_translator(kind, stream)
    lines = [SourceLine(text, prefix) for text, prefix in zip(TEXTS, PREFIXES, strict=False)]
    options = search_options(translator.config.decoding, beam_size=beam_size, n_best=beam_size)
    free = translator.translate_lines([line.text for line in lines], options)
    for line, translated, unbound in zip(lines, translator.translate_lines(lines, options), free, strict=True):
        assert translated.problem == ""
        for hypothesis in translated.hypotheses:
            rest = hypothesis.text.removeprefix(line.prefix)
            assert hypothesis.text == line.prefix + rest
            goes_on = line.prefix[-1:].isalnum() and rest[:1].isalnum()
            assert not goes_on, "the last word of a prefix is a whole word"
            if kind == "word":  # whose tokens are told as they stand in the vocabulary
                vocabulary = translator.tgt_tokenizer.backend.get_vocab()
                tokens = [vocabulary[token] for token in hypothesis.tokens]
                assert hypothesis.log_prob == pytest.approx(log_prob_of(translator, line.text, tokens), abs=1e-4)
        if not line.prefix:
            assert translated.hypotheses == unbound.hypotheses


def test_a_prefix_that_is_the_models_own_text_changes_no_text() -> None:
    translator = toy_translator("word")
    free = translator.translate(TEXTS, beam_size=1)
    lines = [SourceLine(text, " ".join(found.split()[:3])) for text, found in zip(TEXTS, free, strict=True)]
    assert translator.translate(lines, beam_size=1) == free


def test_a_prefix_that_cannot_be_met_leaves_its_line_alone_blank() -> None:
    translator = toy_translator("word", max_length_ratio=0.0, max_length_extra=4)
    lines = [SourceLine(TEXTS[0], "uno dos tres cuatro"), SourceLine(TEXTS[0]), SourceLine(TEXTS[0], "uno zebra")]
    long, free, unknown = translator.translate_lines(lines)
    assert long.problem == "the prefix has 4 tokens, and the translation may have 3"
    assert unknown.problem == "the model cannot write these words of the prefix: zebra"
    assert (long.hypotheses, unknown.hypotheses, free.problem) == ([], [], "")
    assert free.text == translator.translate([TEXTS[0]])[0] != ""


def test_of_a_blank_source_nothing_can_be_demanded() -> None:
    """Said, since it is what shows that a file of prefixes or phrases is not the text's own."""
    translator = toy_translator("word")
    demanding_lines = [
        SourceLine(" ", "uno"),
        SourceLine("", constraints=("dos",)),
        SourceLine("", "", (("", "tres"),)),
    ]
    nothing = [SourceLine("", " "), SourceLine(" "), SourceLine("", constraints=(" ",))]
    found = translator.translate_lines([*demanding_lines, *nothing, SourceLine(TEXTS[0], "uno")])
    told = "the source is blank, and a prefix or phrase is demanded of its translation"
    assert [one.problem for one in found] == [told] * 3 + [""] * 4
    assert [bool(one.hypotheses) for one in found] == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (SourceLine(None), "The text of line 2 is of type NoneType. Give it as str."),  # pyright: ignore
        (SourceLine("one", None), "The prefix of line 2 is of type NoneType."),  # pyright: ignore
        (SourceLine("one", constraints="uno"), r"The constraints of line 2 are a string. .*\('uno',\)"),  # pyright: ignore
        (SourceLine("one", constraints=(5,)), r"The constraints of line 2 are \(5,\). Give a tuple"),  # pyright: ignore
        (SourceLine("one", constraints=(("uno", 5),)), r"The constraints of line 2 are"),  # pyright: ignore
        (SourceLine("one", place="5"), "The place of line 2 is '5'. Give a tuple of whole numbers"),  # pyright: ignore
        (SourceLine("one", place=(-5,)), r"The place of line 2 is \(-5,\)"),
        (SourceLine("one", place=(2**70,)), r"The place of line 2 is"),
    ],
)
def test_what_is_no_line_is_told_by_its_number(line: SourceLine, told: str) -> None:
    with pytest.raises(UserError, match=told):
        toy_translator("word").translate(["one", line])


def test_a_text_translated_in_pieces_begins_with_its_prefix() -> None:
    translator = toy_translator("word")
    line = SourceLine(". ".join(TEXTS[:8]), "uno dos")
    (translated,) = translator.translate_lines(
        [line], search_options(translator.config.decoding, too_long=TooLong.SPLIT)
    )
    assert translated.too_long
    assert translated.text.startswith("uno dos ")


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_what_is_to_be_avoided_is_in_no_translation(kind: str, beam_size: int, tmp_path: Path) -> None:
    translator = toy_translator(kind)
    translator.decoder = partial(Babble, ids=sorted(set(translator.tgt_tokenizer.encode(" ".join(SPANISH)))))
    free = translator.translate_lines(TEXTS, search_options(translator.config.decoding, beam_size=beam_size))
    avoided = sorted(set().union(*(words_of(translated.text) for translated in free[:6])))[:3]
    assert len(avoided) == 3
    path = tmp_path / "avoid.txt"
    path.write_text("".join(f"{word}\n" for word in avoided), encoding="utf-8")
    options = search_options(translator.config.decoding, beam_size=beam_size, n_best=beam_size, avoid=str(path))
    found = translator.translate_lines(TEXTS, options)
    is_met = [any(one in words_of(h.text) for one in avoided for h in translated.hypotheses) for translated in free]
    assert any(is_met)
    for translated, unbound, is_changed in zip(found, free, is_met, strict=True):
        assert translated.hypotheses or translated.too_long
        assert not any(one in words_of(h.text) for one in avoided for h in translated.hypotheses)
        if beam_size == 1 and not is_changed:
            assert translated.text == unbound.text
    alone = [translator.translate_lines([text], options)[0] for text in TEXTS]
    assert [one.text for one in alone] == [one.text for one in found], "batch mates change nothing"


def test_where_every_search_finds_it_the_line_is_blank_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer_mt.decoding.translator.SEARCHES_TO_AVOID", 0)
    translator = toy_translator("word")
    text = translator.translate(TEXTS[:1])[0]
    (tmp_path / "avoid.txt").write_text(f"{text.split()[0]}\n", encoding="utf-8")
    options = search_options(translator.config.decoding, avoid=str(tmp_path / "avoid.txt"), beam_size=1)
    (told,) = translator.translate_lines(TEXTS[:1], options)
    assert not told.hypotheses
    assert told.problem == f"the search finds no translation without a phrase of {tmp_path / 'avoid.txt'}"


def test_what_is_to_be_avoided_does_not_stand_where_pieces_meet(tmp_path: Path) -> None:
    """Each piece was without the phrase, and their translations side by side held it."""
    translator = toy_translator("word")
    translator.decoder = partial(Babble, ids=sorted(set(translator.tgt_tokenizer.encode(" ".join(SPANISH)))))
    pieces = TEXTS[:8]
    first, second = translator.translate(pieces[:2])
    phrase = f"{first.split()[-1]} {second.split()[0]}"
    (tmp_path / "avoid.txt").write_text(f"{phrase}\n", encoding="utf-8")
    options = search_options(translator.config.decoding, too_long=TooLong.SPLIT)
    avoiding = search_options(options, avoid=str(tmp_path / "avoid.txt"))
    (free,) = translator.translate_lines([" ".join(pieces)], options)
    assert phrase in free.text
    assert translator.translate_lines(pieces[:2], options) == translator.translate_lines(pieces[:2], avoiding)
    told, other = translator.translate_lines(["  ".join(pieces), " ".join(pieces[::-1])], avoiding)
    assert told.hypotheses == []
    assert told.problem == f"every translation holds a phrase of {tmp_path / 'avoid.txt'} where its pieces meet"
    assert (bool(other.text), other.problem) == (True, "")


class Babble:
    """Random words, other ones for each source and beginning, as a step function of the search."""

    def __init__(self, _model: TranslationModel, src: Tensor, ids: list[int]) -> None:
        self.ids = ids
        self.rows = [tuple(row[row != PAD_ID].tolist()) for row in src]

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [(*row, token) for row, token in zip(self.rows, tokens.tolist(), strict=True)]
        logits = torch.full((len(self.rows), 400), -20.0)
        for row, text in zip(logits, self.rows, strict=True):
            row[[EOS_ID, *self.ids]] = torch.randn(
                len(self.ids) + 1, generator=torch.Generator().manual_seed(hash(text))
            )
        return logits[:, : max(self.ids) + 1]

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.rows = [self.rows[i] for i in index.tolist()]


def words_of(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text).split())


def test_a_phrase_is_whole_words_and_is_met_however_it_is_written() -> None:
    translator = toy_translator("bpe")
    tokenizer = translator.tgt_tokenizer
    avoided = AvoidedPhrases(["dos tres", "uno", "鱼"], tokenizer)
    vocabulary = tokenizer.backend.get_vocab()
    in_bytes = [vocabulary[byte] for byte in "Ġuno"]
    assert in_bytes != tokenizer.encode("uno")
    assert avoided.is_in(in_bytes)
    found = avoided.sequence_in([*tokenizer.encode("diez"), *in_bytes, *tokenizer.encode(".")])
    assert found == tuple(in_bytes[1:]), "without the space before it"
    for text, is_met in (
        ("ninguno", False), ("unos", False), ("unos, uno", True), ("dos cuatro tres", False), ("dos tres.", True),
        ("Uno", False), ("大鱼在", True), ("dos tres4", False),
    ):  # fmt: skip
        tokens = tokenizer.encode(text)
        assert avoided.is_in(tokens) == is_met, text
        if is_met:
            assert not avoided.is_in(tokens[: tokens.index(avoided.sequence_in(tokens)[-1])])


def test_a_prefix_that_is_to_be_avoided_is_told(tmp_path: Path) -> None:
    (tmp_path / "avoid.txt").write_text("dos\n", encoding="utf-8")
    translator = toy_translator("word", avoid=str(tmp_path / "avoid.txt"))
    told, other = translator.translate_lines([SourceLine(TEXTS[0], "uno dos"), SourceLine(TEXTS[0], "uno")])
    assert told.problem == f"the prefix holds a phrase of {tmp_path / 'avoid.txt'}"
    assert other.text.startswith("uno ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"There is no file .*avoid\.txt\. Check the name after "),
        ("\n \n", r"holds no word or phrase to avoid\. Write one a line, or leave out "),
    ],
)
def test_a_file_of_phrases_that_is_none_is_told(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "avoid.txt").write_text(content, encoding="utf-8")
    path = str(tmp_path / "avoid.txt")
    with pytest.raises(UserError, match=said + r"--avoid\."):
        toy_translator("word").translate(TEXTS, avoid=path)
    of_config = r"decoding\.avoid \(in the run's config, --avoid none switches it off\)\."
    with pytest.raises(UserError, match=said + of_config):
        toy_translator("word", avoid=path).translate(TEXTS)
    assert toy_translator("word", avoid=path).translate(TEXTS[:1], avoid="none") != [""]


def test_a_file_of_phrases_whose_name_is_too_long_is_told() -> None:
    with pytest.raises(UserError, match=r"x cannot be read: File name too long\. Check the name after --avoid\."):
        toy_translator("word").translate(TEXTS, avoid="x" * 300)


def test_prefixes_stand_in_a_file_or_behind_a_tab(tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    path.write_text("uno\n\ntres\n", encoding="utf-8")
    chunks = [["a", "b"], ["c"]]
    expected = [[SourceLine("a", "uno"), SourceLine("b")], [SourceLine("c", "tres")]]
    assert list(demanding(chunks, str(path))) == expected
    assert list(demanding([["a\tuno", "b"], ["c\ttres"]], "tab")) == expected
    assert list(demanding([["a\tuno"]], None)) == [[SourceLine("a\tuno")]]
    with pytest.raises(UserError, match="prefixes ends after line 3, and there are more texts to translate"):
        list(demanding([["a", "b"], ["c", "d"]], str(path)))
    with pytest.raises(UserError, match="prefixes goes on after line 2, where the texts to translate end"):
        list(demanding([["a", "b"]], str(path)))
