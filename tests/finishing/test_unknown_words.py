"""Words in the place of UNK: names come through a model of whole words, and each UNK has the right source word."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from commands import call_tmt
from given_translations import Given
from hypothesis import given
from hypothesis import strategies as st
from named_toy import named_pairs, named_translator, write_corpus
from toy import toy_pairs
from translators import SMALL, make_translator, write_run

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.words import words_of
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing import unknown_words as module
from transformer_mt.finishing.treated import treated
from transformer_mt.finishing.unknown_words import TAKEN, UnknownWordReplacer, read_dictionary
from transformer_mt.finishing.word_alignment import AlignedTranslator
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.storage.run_folder import RunFolder

NEW = [src for src, _ in named_pairs(700)[600:]]
LINES = ["Qux one two three.", "one Baz two three.", "four five."]
TOY = Aligner.train(toy_pairs(300))
WOMBATS = Aligner.train(
    [*toy_pairs(300), *(("one wombat", "uno vombátido"), ("two wombat one", "dos vombátido uno")) * 3]
)
WORDS = make_translator({"num_encoder_layers": 1, **SMALL}, tokenizer={"joint": False})


@pytest.fixture(scope="module")
def model() -> Translator:
    return named_translator()[0]


@pytest.fixture(scope="module")
def replacing(model: Translator) -> UnknownWordReplacer:
    return UnknownWordReplacer(model, named_translator()[1], model.tgt_tokenizer)


def names_of(text: str) -> list[str]:
    return re.findall(r"\b[A-Z]\w*", text)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_names_that_were_never_seen_come_through(
    model: Translator, replacing: UnknownWordReplacer, beam_size: int
) -> None:
    assert not any(names_of(text) or "<unk>" in text for text in model.translate(NEW, beam_size=beam_size))
    with_unk = model.translate(NEW, beam_size=beam_size, allow_unk=True)
    texts = replacing.translate(NEW, beam_size=beam_size)
    num_right = 0
    for src, unk, text in zip(NEW, with_unk, texts, strict=True):
        assert re.sub(r"[A-Z]\w*", "<unk>", text) == unk  # but for those of digits, nothing else changed
        if unk.count("<unk>") == len(names_of(src)):
            assert names_of(text) == names_of(src), src
            num_right += len(names_of(src)) > 0
    assert num_right > 0.6 * sum(bool(names_of(src)) for src in NEW)


def test_a_batch_gives_what_single_lines_give_and_tokens_stay_the_model_s(
    model: Translator, replacing: UnknownWordReplacer
) -> None:
    options = search_options(model.config.decoding, beam_size=3, n_best=3)
    lines = replacing.translate_lines(NEW[:12], options)
    plain = model.translate_lines(NEW[:12], options.model_copy(update={"allow_unk": True}))
    for line, unk in zip(lines, plain, strict=True):
        (alone,) = replacing.translate_lines([line.source], options)
        assert [h.text for h in alone.hypotheses] == [h.text for h in line.hypotheses]
        assert [h.tokens for h in line.hypotheses] == [h.tokens for h in unk.hypotheses]
        assert [h.log_prob for h in line.hypotheses] == [h.log_prob for h in unk.hypotheses]
        assert not any("<unk>" in h.text for h in line.hypotheses)


def test_pieces_of_a_long_line(model: Translator, replacing: UnknownWordReplacer) -> None:
    """Their white space stays."""
    line = "  ".join(["Qux one two three four.", "five six seven."] * 3)
    options = search_options(model.config.decoding, too_long=TooLong.SPLIT)
    (found,) = replacing.translate_lines([line], options)
    (unk,) = model.translate_lines([line], options.model_copy(update={"allow_unk": True}))
    assert found.too_long
    assert unk.text.count("<unk>") > 1
    assert ".  " in unk.text
    assert found.text == unk.text.replace("<unk>", "Qux")


def test_alignments_and_tags_see_the_words_put_in(replacing: UnknownWordReplacer) -> None:
    texts = NEW[:20]
    for line in AlignedTranslator(replacing, TOY).translate_lines(texts):
        assert line.hypotheses[0].alignment == TOY.align([(line.source, line.text)])[0].white_space_links()
    bold = [re.sub(r"([A-Z]\w*)", r"<b>\1</b>", text) for text in texts]
    pages = HtmlTranslator(replacing, replacing.aligner).translate(bold)
    marked = [re.findall(r"<b>([A-Z]\w*)</b>", page) for page in pages]
    assert sum(map(len, marked)) > 8
    for page, names, text in zip(pages, marked, replacing.translate(texts), strict=True):
        assert re.sub("</?b>", "", page) == text
        assert set(names) <= set(names_of(text))


GIVEN = {
    # The last two words change places; three and four are known, and so not what UNK stands for.
    "one Zyx. two": ("uno <unk> ￭. dos", "uno Zyx. dos"),
    "three four Zyx": ("tres <unk> cuatro", "tres Zyx cuatro"),
    "Ab Cd": ("<unk> <unk>", "Ab Cd"),
    "Ab one two Cd three": ("<unk> uno dos <unk> tres", "Ab uno dos Cd tres"),
    # Twice in the translation, once in the source.
    "one Ab two three": ("uno <unk> tres <unk>", "uno Ab tres Ab"),
    "Ab": ("<unk> <unk>", "Ab Ab"),
    # Marks that touch a name stay where the model put them, and are not copied.
    "(one) “Ab-Cd”, two": ("(￭ uno ￭) <unk> ￭-￭ <unk> ￭, dos", "(uno) Ab-Cd, dos"),
    # The letters of UNK in a text are no UNK.
    "one <unk> Ab": ("uno <￭ unk ￭> <unk>", "uno <unk> Ab"),
    "one": ("uno", "uno"),
    # A known word whose translation is beyond the model's vocabulary.
    "one wombat two": ("uno <unk> dos", "uno WOMBAT dos"),
}  # fmt: skip


def test_each_unk_has_its_source_word() -> None:
    given = Given({src: tokens for src, (tokens, _) in GIVEN.items()}, WORDS.config)
    dictionary = {"wombat": "WOMBAT"}
    found = UnknownWordReplacer(given, WOMBATS, WORDS.tgt_tokenizer, dictionary).translate_lines(GIVEN)
    for line, (_, expected) in zip(found, GIVEN.values(), strict=True):
        assert line.text == expected


def linked(replacing: UnknownWordReplacer, src: str, tgt: str) -> list[int]:
    return replacing.linked_words(tgt, [unk.span() for unk in re.finditer("<unk>", tgt)], words_of(src))


@given(
    st.lists(st.sampled_from(["one", "wombat", "two", "Ab", "Cd"]), min_size=1, max_size=9),
    st.lists(st.sampled_from(["<unk>", "uno"]), max_size=9),
)
def test_the_likeliest_pair_is_linked_first(src: list[str], tgt: list[str]) -> None:
    """Against loops over all pairs, as often as there are UNKs. Of equal pairs the first counts."""
    vocabulary = WORDS.tgt_tokenizer.backend.get_vocab()
    likely_of_known = WOMBATS.probability_of(lambda word: word not in vocabulary)
    numbers = WOMBATS.src_vocabulary.find([word.lower() for word in src])
    likely = np.array([1.0 if number < 0 else likely_of_known[number] for number in numbers])
    here = np.array([place for place, word in enumerate(tgt, 1) if word == "<unk>"]) / max(1, len(tgt))
    distances = np.abs(here[:, None] - np.arange(1, len(src) + 1) / len(src))
    scores, links = likely * np.exp(-WOMBATS.forward.tension * distances), {}
    while len(links) < len(here):
        pairs = [(u, s) for u in range(len(here)) if u not in links for s in range(len(src))]
        unk, word = max(pairs, key=lambda pair: scores[pair])
        links[unk] = word
        scores[:, word] *= TAKEN
    replacing = UnknownWordReplacer(WORDS, WOMBATS, WORDS.tgt_tokenizer)
    assert linked(replacing, " ".join(src), " ".join(tgt)) == [links[unk] for unk in range(len(here))]


@pytest.mark.parametrize("stretch", [1, 2, 7, 1000])
def test_a_long_line_is_linked_in_stretches(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand. Each name is the one word near its UNK that is not known; and a name that one UNK has taken is no
    other's, though it be nearer than the next name, also where they are of two stretches.
    """
    replacing = UnknownWordReplacer(WORDS, TOY, WORDS.tgt_tokenizer)
    names = " ".join(f"n{i} one two" for i in range(60)), " ".join(["<unk> uno"] * 60)
    next_name = "one one n0 one n1 one one one", " ".join([*["uno"] * 5, "<unk> <unk>", *["uno"] * 9])
    for most in (module.MOST_CELLS, 0):
        monkeypatch.setattr(module, "MOST_CELLS", most)
        monkeypatch.setattr(module, "STRETCH", stretch)
        assert linked(replacing, *names) == [3 * i for i in range(60)]
        assert linked(replacing, *next_name) == [2, 4]


def test_the_memory_of_a_long_line_is_bounded() -> None:
    """A line of a megabyte would have taken a matrix of gigabytes, and looked through it once for each UNK."""
    replacing = UnknownWordReplacer(WORDS, TOY, WORDS.tgt_tokenizer)
    src, tgt = " ".join(f"n{i}" for i in range(4000)), " ".join(["<unk>"] * 4000)
    assert linked(replacing, "n0", "<unk>") == [0]  # what is made once
    tracemalloc.start()
    try:
        links = linked(replacing, src, tgt)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert links == list(range(4000))
    assert peak < 100 * 2**20, "a matrix of all pairs takes 122 MB"


def test_the_tag_of_a_language_is_no_word_of_the_source() -> None:
    tagged = make_translator(SMALL, tokenizer={"joint": False, "tags": ["<2es>"]})
    given = Given({"<2es> zebu eats": "<unk> come"}, tagged.config)
    assert UnknownWordReplacer(given, TOY, tagged.tgt_tokenizer).translate(given.translations) == ["zebu come"]


def test_the_dictionary_comes_before_the_source_s_word(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("zug\ttren\nLondon\tLondres\nUSA\tEstados  Unidos\n", encoding="utf-8")
    given = Given(dict.fromkeys(["Zug", "ZUG", "zug", "London", "london", "USA", "Paris"], "el <unk> ￭."), WORDS.config)
    replacing = UnknownWordReplacer(given, TOY, WORDS.tgt_tokenizer, read_dictionary(path))
    expected = ["tren", "tren", "tren", "Londres", "london", "Estados Unidos", "Paris"]
    assert replacing.translate(given.translations) == [f"el {word}." for word in expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\td\te\n", "line 2: 3 columns, and there are two"),
        ("a\n", "line 1: 1 column, and there are two"),
        ("a\tb\n\nc\td\n", "line 2: a blank line. Take it out."),
        ("a\tb\n \td\n", "line 2: the source word is blank"),
        ("a\t\n", "line 1: the translation is blank"),
        ("New York\tNueva York\n", "line 1: 'New York' is 2 words to the model"),
        ("a\tb\na\tc\n", "line 2: a is 'b' on a line before. Keep one of them."),
        ("", "has no line"),
    ],
)
def test_mistakes_in_a_dictionary_are_told_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "words.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        read_dictionary(path)


def test_what_is_avoided_is_not_put_in(tmp_path: Path) -> None:
    path = tmp_path / "avoid"
    path.write_text("uno Ab\n", encoding="utf-8")
    given = Given({"one Ab": "uno <unk>", "Ab one": "<unk> uno"}, WORDS.config)
    options = search_options(WORDS.config.decoding, avoid=str(path))
    one, two = UnknownWordReplacer(given, TOY, WORDS.tgt_tokenizer).translate_lines(given.translations, options)
    assert (one.hypotheses, one.problem) == ([], f"every translation holds a phrase of {path} in the place of UNK")
    assert (two.text, two.problem) == ("Ab uno", "")


def test_what_to_avoid_is_read_once_and_a_config_may_say_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "avoid").write_text("uno Ab\n", encoding="utf-8")
    given = Given({"one Ab": "uno <unk>"}, WORDS.config)
    options = search_options(WORDS.config.decoding, avoid="~/avoid")
    replacing = UnknownWordReplacer(given, TOY, WORDS.tgt_tokenizer)
    assert replacing.translate_lines(given.translations, options)[0].hypotheses == []
    (tmp_path / "avoid").unlink()
    assert replacing.translate_lines(given.translations, options)[0].hypotheses == []


def test_pieces_of_words_write_no_unk_and_stay_as_they_are() -> None:
    pieces = make_translator({"num_encoder_layers": 1, **SMALL}, tokenizer={"kind": "bpe", "vocab_size": 300})
    pieces.checkpoints = [(RunFolder(Path("run")), Path("step_1"))]
    told: list[str] = []
    options = search_options(pieces.config.decoding)
    assert treated(pieces, LinesConfig(replace_unk=True), options, told.append) is pieces
    assert told == ["--replace-unk changes nothing here: the model writes words in pieces, and none is unknown to it"]
    assert all(UNK_ID not in row for row in pieces.tgt_tokenizer.encode_batch(NEW))
    given = Given({"one Ab": "uno <unk>"}, WORDS.config)
    assert UnknownWordReplacer(given, TOY, WORDS.tgt_tokenizer).translate(["one Ab"]) == ["uno Ab"]
    assert [options and options.allow_unk for options in given.asked] == [True]


def test_the_command_line(tmp_path: Path) -> None:
    translator, aligner = named_translator()
    write_corpus(tmp_path)
    config = translator.config
    source = config.data.train[0].model_copy(update={"src": "train.en", "tgt": "train.es"})
    data = config.data.model_copy(update={"root": str(tmp_path), "train": [source]})
    named = Translator(
        translator.model, translator.src_tokenizer, translator.tgt_tokenizer, config.model_copy(update={"data": data})
    )
    write_run(tmp_path / "run", named)
    words = tmp_path / "words.tsv"
    words.write_text("qux\tZorro\n", encoding="utf-8")
    expected = UnknownWordReplacer(translator, aligner, translator.tgt_tokenizer, {"qux": "Zorro"}).translate(LINES)
    assert expected[0].startswith("Zorro ")
    arguments = ("translate", "--run", "run", "--replace-unk", "--unk-dictionary", "words.tsv", *LINES)
    result = call_tmt(tmp_path, *arguments)
    assert result.stdout.split("\n")[:-1] == expected, result.stderr
    aligned = call_tmt(tmp_path, *arguments, "--alignment", "hard", "--format", "moses", "--n-best", "2")
    assert [line.split(" ||| ")[1] for line in aligned.stdout.split("\n")[:-1:2]] == expected
    assert " ||| 0-0" in aligned.stdout
    words.write_text("qux\tZorro\tzorro\n", encoding="utf-8")
    mistaken = call_tmt(tmp_path, *arguments)
    assert (mistaken.returncode, mistaken.stdout) == (2, "")
    assert "words.tsv, line 1: 3 columns" in mistaken.stderr
