"""Tags as a browser or a parser of XML reads them, in hostile text too."""

import time
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marks import slow

from transformer_mt.aligning.words import words_of
from transformer_mt.markup.marked import take_out
from transformer_mt.markup.placing import WordLinks
from transformer_mt.markup.tokens import Kind, tokens_of
from transformer_mt.markup.writing import put_back


# Each another state in which the reader may stay to the end; the others of their kinds are slow.
@pytest.mark.parametrize(
    ("unit", "xml"),
    [
        *((unit, False) for unit in ('<a "="', """<a "='"'=""", "<!--", "<a '", "<", "<script>", "<code>", "<b><p>")),
        *(slow(unit, False) for unit in (
            "<a '='", "&", "<a href=", "<?", "</a ", "</p><b>", "<code></p>", "<pre><b>", "<b/></b>", "<a b=c/>",
        )),
        *((unit, True) for unit in ('<a "="', "<![CDATA[", "<é><ü>")),
        *(slow(unit, True) for unit in ("<!--", "<?", "<!a [", "<b/></b>")),
    ],
)  # fmt: skip
def test_a_hostile_text_takes_no_time(unit: str, xml: bool) -> None:
    """Tags in the quotes of each other were read from each `<` to the end of the text: 20 s here."""
    begun = time.process_time()
    take_out(unit * (240_000 // len(unit)), xml)
    assert time.process_time() - begun < 10, "1 to 3 s"


def test_xml_has_names_and_sections_of_its_own() -> None:
    line = "<größe>a</größe><_x/><a:b/><style/> b <![CDATA[<i>c</i>]]> d <?e > ?><İx>f</İx>"
    kinds = [(token.kind, token.raw) for token in tokens_of(line, xml=True) if token.kind is not Kind.TEXT]
    assert kinds == [
        (Kind.START, "<größe>"),
        (Kind.END, "</größe>"),
        (Kind.POINT, "<_x/>"),
        (Kind.POINT, "<a:b/>"),
        (Kind.POINT, "<style/>"),
        (Kind.POINT, "<![CDATA[<i>c</i>]]>"),
        (Kind.POINT, "<?e > ?>"),
        (Kind.START, "<İx>"),
        (Kind.END, "</İx>"),
    ]


def test_entities_of_a_document_stay_in_xml_and_are_text_in_html() -> None:
    """Those that HTML knows are characters in both; `&notit;` is not the sign that `&not` is in HTML."""
    line = "a &brand; b &eacute;&#10;&notit;&größe; & c; d &amp;brand;"
    tokens = list(tokens_of(line, xml=True))
    assert [token.raw for token in tokens if token.kind is Kind.POINT] == ["&brand;", "&notit;", "&größe;"]
    assert "".join(token.raw for token in tokens) == line
    assert [token.kind for token in tokens_of(line)] == [Kind.TEXT]


NAMES = ["b", "i", "p", "div", "code", "pre", "style", "script", "größe", "_x", "İ", "X", "a.b-c"]
TEXTS = ["", " ", "one", "two, three. ", "&lt;", "&amp;", "&#10;", "4", "é", "]]&gt;"]
POINTS = [
    "&brand;",
    "<!-- a <b> > -->",
    "<![CDATA[<b>x & y]]>",
    "<?php 1 > <b> ?>",
    "<br/>",
    "<x id='>'/>",
    "<style/>",
    "<code/>",
]


def _element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("<{0} a='1'>{1}</{0}>".format, st.sampled_from(NAMES), st.lists(inner, max_size=5).map("".join))


XML = st.recursive(st.sampled_from([*TEXTS, *TEXTS, *POINTS]), _element, max_leaves=20)


@given(st.lists(XML, max_size=5).map("".join), st.randoms(use_true_random=False))
def test_well_formed_xml_stays_so_with_all_its_elements(line: str, random: Random) -> None:
    """Under any links, by Python's parser of XML."""
    marked = take_out(line, xml=True)
    targets = [random.choice(["", "x", "a, b < c", "uno & dos tres."]) for _ in marked.segments]
    links = []
    for segment, target in zip(marked.segments, targets, strict=True):
        src, tgt = ([(word.start, word.end) for word in words_of(text)] for text in (segment.text, target))
        pairs = [(i, j) for i in range(len(src)) for j in range(len(tgt))]
        links.append(WordLinks(src, tgt, random.sample(pairs, random.randint(0, len(pairs)))))
    written = put_back(marked, targets, links)
    declared = '<!DOCTYPE all [<!ENTITY brand "Co.">]>'
    before, after = (ElementTree.fromstring(f"{declared}<all>{text}</all>") for text in (line, written))
    assert sorted(one.tag for one in before.iter()) == sorted(one.tag for one in after.iter())
    for point in POINTS[:4]:
        assert line.count(point) == written.count(point)
