"""Terms of a glossary: found as whole words, the longest first, and translated as the file says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_constrained_translation import holds, long_translator
from toy import ENGLISH, SPANISH, toy_pairs

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.glossary import Glossary
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.errors import UserError

TEXTS = [src for src, _ in toy_pairs(10, seed=5)]


def glossary(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_terms_are_whole_words_the_longest_first(tmp_path: Path) -> None:
    path = glossary(
        tmp_path / "terms",
        "cat|cats\tgato|gatos\nblack cat\tgato negro\ncat flap\tgatera\n"
        "\nUS\tEE. UU.\n鱼\tpez\nC++\tC++\nice  cream\thelado\n",
    )
    terms = Glossary.read(path)
    cat, black = ("gato", "gatos"), ("gato negro",)
    for text, found in (
        ("The cats saw a cat.", (cat, cat)),
        ("A black cat, a black  cat", (black, black)),
        ("concat cat1 Cat catsup", ()),
        ("a black cats", (cat,)),
        ("a cat flap, a cat", (("gatera",), cat)),
        ("(cat)", (cat,)),
        ("us in the US", (("EE. UU.",),)),
        ("我吃鱼", (("pez",),)),
        ("C++11 and C++", (("C++",), ("C++",))),
        ("ice cream", (("helado",),)),
        ("", ()),
    ):
        assert terms.constraints_of(text) == found, text
    assert Glossary.read(path, lowercase=True).constraints_of("us, CAT") == (("EE. UU.",), cat)


def test_a_given_constraint_stands_for_one_term() -> None:
    terms = Glossary([(("cat", "cats"), ("gato", "gatos")), (("dog",), ("perro",))])
    assert terms.constraints_of("cat cats dog", ["gatos", "perro"]) == (("gato", "gatos"),)
    assert terms.constraints_of("cat dog", [("x", "gato")]) == (("perro",),)
    assert terms.constraints_of("cat", ["Gato"]) == (("gato", "gatos"),)


def test_a_given_constraint_is_what_the_model_writes_of_it() -> None:
    """Written otherwise, it was demanded beside the term's own translation, and so stood there twice."""
    terms = Glossary([(("black cat",), ("gato  negro",)), (("tea",), ("te\u0301",))])
    assert terms.constraints_of("black cat, tea", [" gato negro", "t\u00e9"]) == ()
    assert Glossary([(("cat",), ("gato",))], lowercase=True).constraints_of("cat", ["Gato"]) == ()


@given(
    st.text("ab |.", max_size=12), st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
)
def test_every_term_that_is_found_stands_there(text: str, forms: list[str]) -> None:
    found = Glossary([((form,), (form,)) for form in forms]).constraints_of(text)
    rest = " ".join(text.split())
    for (form,) in found:
        assert form in rest
        rest = rest[rest.index(form) + len(form) :]
    if not found:
        assert not set(text.split()) & set(forms)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "There is no file .*Check the name after --glossary"),
        ("\n \n", "holds no term. Write a term, a tab and its translation a line"),
        ("cat\tgato\ndog\n", "line 2 has 1 column. Write a term, a tab and its translation"),
        ("cat\tgato\tx\n", "line 1 has 3 columns"),
        ("cat\t \n", "line 1 has nothing for a term or a translation"),
        ("cat||cats\tgato\n", "line 1 has nothing for a term"),
        ("cat\tgato\ndog|cat\tperro\n", "line 2 has the term cat, and so has line 1. Write it once"),
    ],
)
def test_a_file_that_is_no_glossary_is_told(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "terms"
    if content is not None:
        glossary(path, content)
    with pytest.raises(UserError, match=said):
        Glossary.read(path)


def test_a_file_that_the_config_names_is_said_to_be_from_there() -> None:
    said = (
        r"no file terms\.tsv\. Check the name after decoding\.glossary \(in the run's config, --glossary none switches"
    )
    with pytest.raises(UserError, match=said):
        long_translator("word", glossary="terms.tsv").translate(TEXTS)
    with pytest.raises(UserError, match=r"no file terms\.tsv\. Check the name after --glossary\."):
        long_translator("word", glossary="other.tsv").translate(TEXTS, glossary="terms.tsv")


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_every_term_of_a_line_is_in_its_translation(kind: str, beam_size: int, tmp_path: Path) -> None:
    """The model has learned nothing, and translates each term as the file says."""
    path = glossary(
        tmp_path / "terms",
        "".join(f"{src}\t{tgt}|{tgt} {tgt}\n" for src, tgt in zip(ENGLISH[:3], SPANISH[:3], strict=True)),
    )
    translator = long_translator(kind)
    options = search_options(translator.config.decoding, glossary=str(path), beam_size=beam_size)
    free = translator.translate(TEXTS, beam_size=beam_size)
    terms = Glossary.read(path)
    assert any(terms.constraints_of(text) for text in TEXTS)
    for text, translated, unbound in zip(TEXTS, translator.translate_lines(TEXTS, options), free, strict=True):
        assert translated.problem == ""
        assert holds(translated.text, terms.constraints_of(text), ordered=False)
        if not terms.constraints_of(text):
            assert translated.text == unbound
    (both,) = translator.translate_lines([SourceLine("one two", constraints=("uno", "diez"))], options)
    assert holds(both.text, ("uno", "diez", "dos"), ordered=False)


def test_each_piece_of_a_long_line_has_its_own_terms(tmp_path: Path) -> None:
    path = glossary(tmp_path / "terms", "one\tdiez ocho\n")
    translator = long_translator("word", glossary=str(path))
    text = ". ".join(["one two", *TEXTS, "three", "one"])
    for too_long in (TooLong.SPLIT, TooLong.TRUNCATE):
        options = search_options(translator.config.decoding, too_long=too_long)
        (translated,) = translator.translate_lines([text], options)
        assert (translated.too_long, translated.problem) == (True, "")
        assert translated.text.count("diez ocho") >= (text.split(" ").count("one") if too_long is TooLong.SPLIT else 1)


@pytest.mark.parametrize("num_words", [38, 39, 40])
def test_a_line_that_just_fills_the_model_is_looked_at_whole(num_words: int, tmp_path: Path) -> None:
    """With EOS it has 40 places. The model does not know the term, which is no longer read from a line that is cut."""
    translator = long_translator("word", glossary=str(glossary(tmp_path / "terms", "zebu\tcinco\n")))
    options = search_options(translator.config.decoding, too_long=TooLong.TRUNCATE)
    (translated,) = translator.translate_lines(["zebu" + " one" * (num_words - 1)], options)
    assert translated.too_long == (num_words == 40)
    assert ("cinco" in translated.text) != translated.too_long


def test_terms_and_an_order_are_refused_by_both_names() -> None:
    with pytest.raises(UserError, match=r"constraints is ordered and glossary terms.tsv, whose terms have no order"):
        search_options(DecodingConfig(glossary="terms.tsv"), constraints="ordered")
