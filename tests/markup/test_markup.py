"""HTML: what is taken out and repaired, by hand-made cases; what is put back, by hand-made links; and the laws of both
for any text, with the parser of Python's library as the oracle.
"""

import html
import time
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.aligning.words import words_of
from transformer_mt.markup.marked import Segment, take_out
from transformer_mt.markup.placing import WordLinks
from transformer_mt.markup.repair import repaired
from transformer_mt.markup.tokens import BLOCKS, RAW, VOID, Kind, tokens_of
from transformer_mt.markup.writing import put_back

PARTS = [
    *["<b>", "</b>", "<i class='x>y'>", "</i>", '<A HREF="a?b&c">', "</a >", "<p>", "</p>", "<li>", "<div>", "</div>"],
    *["<br>", "<img src=a.png>", "<x id='1'/>", "<!-- a <b> -->", "<code>", "</code>", "<pre>", "</pre>", "<script>"],
    *[
        "</script>",
        "<span translate=no>",
        "</span>",
        "&amp;",
        "&lt;",
        "&nbsp;",
        "&",
        "<",
        ">",
        " ",
        "one",
        "Zwei ",
        ",",
    ],
    *['"', "'", "=", "/", "<!", "-->", "<?", "é", "\n", '<a b="c>', "<textarea>", "<!doctype html>", "<hr/>", "3"],
    *["<b/>", "<i/>", "<code/>", "<a href=x/>"],
]
HTML = st.lists(st.sampled_from(PARTS), max_size=14).map("".join) | st.text()


def word_links(src: str, tgt: str, links: str = "") -> WordLinks:
    """`links` as `0-0 1-2`, between words of which each mark is one."""
    pairs = [(int(i), int(j)) for i, _, j in (link.partition("-") for link in links.split())]
    src_words, tgt_words = ([(word.start, word.end) for word in words_of(text)] for text in (src, tgt))
    return WordLinks(src_words, tgt_words, pairs)


def identity(line: str) -> str:
    """Taken out and put back around a translation that is the source."""
    marked = take_out(line)
    texts = [segment.text for segment in marked.segments]
    words = [word_links(text, text, " ".join(f"{i}-{i}" for i in range(len(words_of(text))))) for text in texts]
    return put_back(marked, texts, words)


def translate(line: str, tgt: str, links: str) -> str:
    """Of one segment, by hand."""
    marked = take_out(line)
    (segment,) = marked.segments
    return put_back(marked, [tgt], [word_links(segment.text, tgt, links)])


class Tags(HTMLParser):
    """The tags of a text, in order; inline ones must nest, in each other and in blocks."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tags: list[str] = []
        # The open tags, outermost first. An inline tag with a slash is a point or a start tag: all readings are tried.
        self.readings: set[tuple[str, ...]] = {()}
        self.feed(text)
        self.close()
        assert any(BLOCKS.issuperset(open_tags) for open_tags in self.readings)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag in RAW:  # as in browsers; older versions of the library know only two of these
            self.set_cdata_mode(tag)
        self.tags.append(self.get_starttag_text() or "")
        if tag not in VOID:
            self.readings = {(*open_tags, tag) for open_tags in self.readings}

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        points = set() if tag in BLOCKS | RAW else self.readings
        self.handle_starttag(tag, attrs)
        self.readings |= points

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")
        if tag in BLOCKS:
            closed = [_without_block(open_tags, tag) for open_tags in self.readings]
            self.readings = {open_tags for open_tags in closed if open_tags is not None}
        else:
            self.readings = {open_tags[:-1] for open_tags in self.readings if open_tags[-1:] == (tag,)}
        assert self.readings

    def handle_comment(self, data: str) -> None:
        self.tags.append("<!-- -->")


def _without_block(open_tags: tuple[str, ...], tag: str) -> tuple[str, ...] | None:
    """The tags that are open behind the end tag of a block; None where it would close an inline one."""
    if tag not in open_tags:
        return open_tags
    number = len(open_tags) - 1 - open_tags[::-1].index(tag)
    return open_tags[:number] if BLOCKS.issuperset(open_tags[number:]) else None


def text_of(line: str) -> str:
    """What stands between the tags."""
    return html.unescape("".join(token.raw for token in tokens_of(line) if token.kind is Kind.TEXT))


def signs(text: str) -> Counter[str]:
    """How often each character comes, but white space."""
    return Counter("".join(text.split()))


@given(HTML)
def test_the_tokens_are_the_text(text: str) -> None:
    assert "".join(token.raw for token in tokens_of(text)) == text


@given(HTML, st.randoms(use_true_random=False))
def test_whatever_comes_in_what_goes_out_is_well_formed_and_has_every_tag(text: str, random) -> None:
    """Under any links."""
    fixed = "".join(token.raw for token, _ in repaired(list(tokens_of(text))))
    marked = take_out(text)
    targets = [random.choice(["", "x", "a, b", "uno dos tres."]) for _ in marked.segments]
    words = []
    for segment, target in zip(marked.segments, targets, strict=True):
        plain = word_links(segment.text, target)
        pairs = [f"{i}-{j}" for i in range(len(plain.src_words)) for j in range(len(plain.tgt_words))]
        words.append(word_links(segment.text, target, " ".join(random.sample(pairs, random.randint(0, len(pairs))))))
    result = put_back(marked, targets, words)
    assert Counter(Tags(result).tags) == Counter(Tags(fixed).tags)
    untranslated = signs(text_of(fixed)) - signs("".join(segment.text for segment in marked.segments))
    assert signs(text_of(result)) == untranslated + signs("".join(targets))


@given(HTML)
def test_a_translation_that_is_the_source_gives_the_repaired_line(text: str) -> None:
    once = identity(text)
    assert identity(once) == once
    fixed = "".join(token.raw for token, _ in repaired(list(tokens_of(text))))
    assert Tags(once).tags == Tags(fixed).tags
    assert signs(text_of(once)) == signs(text_of(fixed))


@pytest.mark.parametrize(
    "line",
    [
        "The <b>black cat</b> <i>sat</i> down.",
        "<p>One <a href='x'>two <b>three</b></a>, four.</p>\t<ul><li>Five</li> <li>Six</li></ul>",
        "One<br>Two <img src=a> three <img src=b>, four<img src=c>.",
        "Press <kbd>F1</kbd>, then <code>a &lt; b</code> <code>c</code> now.",
        "Unbelievable <!-- really --> news",
        "<a href='x'><img src=a> Home</a> page",
        "<div>Dear <span translate='no'>X <b>Y</b></span>,<p>AT&amp;T &lt;3 you</p></div>",
        "  <b>All of it</b>  ",
        '<pre> a  b </pre><p>Text <x id="1"/> goes on</p><script>if (a < b) {}</script>',
        "<td>12</td><td>&nbsp;</td><td>5 &gt; 3</td>",
        "<ul><li>One<li>Two</ul>",
        "<img src=a><b><img src=b>One</b><!-- --><img src=c><br>two",
        "<a href=x><div>Block <em>inside</em></div></a>",
        "<b/>A cat</b> <i/>sat <i>on <i/>the</i> <b/>mat</b>, <x id='1'/>and <code class='a'/>no more</code>.",
        "<a href=http://example.org/>A cat</a> sat on <a title='x=y' href = a?b=c/ >mats</a>.",
    ],
)
def test_good_html_comes_back_as_it_was(line: str) -> None:
    assert identity(line) == line


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        ("a < b and c > d", "a &lt; b and c &gt; d"),
        ("I <3 you & <me@example.org>", "I &lt;3 you &amp; &lt;me@example.org&gt;"),
        ("Not <b>closed", "Not <b>closed</b>"),
        ("Stray</b> end", "Stray end"),
        ("<b>One <i>two</b> three</i>", "<b>One <i>two</i></b> three"),
        ("<p>One <b>two</p><p>three</b></p>", "<p>One <b>two</b></p><p>three</p>"),
        ("Use <code>ls</p><p>next", "Use <code>ls</code></p><p>next"),
        ("</div><p>A page spans lines", "</div><p>A page spans lines"),
        ("Before <!-- open", "Before <!-- open-->"),
        ("Before <!--> after <code>a<!--->b", "Before <!----> after <code>a<!---->b</code>"),
        ("Some <code>a<!-- b</code>", "Some <code>a<!-- b</code>--></code>"),
        ('A <a href="x>link', 'A &lt;a href="x&gt;link'),
        ("<b>One<p>two", "<b>One</b><p>two"),
        ("<b/>One<p>two</b> <i/>three <b>four</i>", "<b/>One</b><p>two <i/>three <b>four</b></i>"),
        ("Un<b>believ</b>able <i> news</i>", "<b>Unbelievable</b> <i>news</i>"),
        pytest.param(f"One &#{'9' * 5000};", f"One &amp;#{'9' * 5000};", id="a number that Python does not read"),
    ],
)
def test_broken_html_is_repaired(broken: str, fixed: str) -> None:
    assert identity(broken) == fixed
    assert identity(fixed) == fixed


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("<p>One <b>two</b></p><p>AT&amp;T</p>", ["One two", "AT&T"]),
        ("One<br/>two", ["One", "two"]),
        ("<code/>no</code>One <code/>two <b><code/>no</b></code>", ["One two"]),
        ("<code id=x/>no</code>one <code id='x=y'/>two <x id=/>three", ["one two three"]),
        ("Press <kbd>F1</kbd>, then <code>x y</code> now", ["Press, then now"]),
        ("by<code>x</code>by un<wbr>seen, un<!-- -->seen", ["by by unseen, unseen"]),
        ("  a \n <i> b</i> ", ["a b"]),
        (
            "of&nbsp;2&nbsp;34, <b>1&nbsp;000</b>\u202f&nbsp;000 and 350\u202f000",
            ["of 2 34, 1\xa0000 000 and 350\u202f000"],
        ),
        ("<pre>no</pre><b class='notranslate'>no</b><i translate=NO>no</i>12 + 3", []),
        ("<title>The page</title><style>p {}</style>", ["The page"]),
    ],
)
def test_what_the_model_gets(line: str, texts: list[str]) -> None:
    assert [segment.text for segment in take_out(line).segments] == texts


@pytest.mark.parametrize(
    ("line", "tgt", "links", "expected"),
    [
        ("The <b>black</b> cat", "El gato negro", "0-0 1-2 2-1", "El gato <b>negro</b>"),
        ("<i>The black</i> <b>cat</b>", "El gato negro", "0-0 1-2 2-1", "<i>El</i> <b>gato</b> negro"),
        (
            "The <i><b>black</b> cat</i> sat",
            "El gato negro dormía",
            "0-0 1-2 2-1 3-3",
            "El <i>gato <b>negro</b></i> dormía",
        ),
        ("<a>Yes</a> & no", "Sí y no", "0-0 1-1 2-2", "<a>Sí</a> y no"),
        ("He <b>did not</b> go", "Il n'alla pas", "0-0 1-1 2-1 2-4 3-3", "Il <b>n</b>'alla pas"),
        ("<b>A red</b> car", "Un coche rojo", "", "<b>Un coche rojo</b>"),
        ("See <img src=a> here", "Aquí vea", "0-1 1-0", "<img src=a> Aquí vea"),
        ("Use <code>ls</code>, then go", "Usa, luego ve", "0-0 1-1 2-2 3-3", "Usa <code>ls</code>, luego ve"),
        ("<b>One</b> two", "", "", "<b></b>"),
        ("One <b>two</b> three", "uno tres", "0-0 2-1", "uno <b></b>tres"),
        ("One <b>two</b> three", "uno dos tres", "0-0 2-2", "uno <b>dos</b> tres"),
        ("<b>All</b>", "a < b & c", "0-0", "<b>a &lt; b &amp; c</b>"),
        ("<b>Un</b><i>do</i>", "Deshacer", "0-0", "<b>Deshacer</b><i></i>"),
        ("<u><b>Un</b><i>do</i></u> it", "Deshazlo ya", "0-0", "<u><b>Deshazlo</b><i></i></u> ya"),
    ],
)
def test_tags_go_with_the_words_that_they_stood_around(line: str, tgt: str, links: str, expected: str) -> None:
    assert translate(line, tgt, links) == expected


@pytest.mark.parametrize(
    "space", ["&#10;", "&NewLine;", "&#13;&#x0A;", " &#010; ", "&nbsp;", "&#8232;", "\u2028", "\x85"]
)
@pytest.mark.parametrize(
    "line", ["{}one two", "one two{}", "<p>{}one</p>{}two{}<br>", "<b>one</b>{}", "{}<b>one</b> two"]
)
def test_white_space_around_a_segment_stays_as_it_is_written(line: str, space: str) -> None:
    """An entity for a line end became one, and made two lines of a translation."""
    text = line.format(*[space] * 3)
    assert identity(text) == text


@pytest.mark.parametrize(
    "line", ["<b>{}one{}</b>", "one{}two", "one<br>{}<b>{}two</b>", "12{}3", "one <code>a{}b</code>{}."]
)
def test_no_entity_becomes_a_line_end(line: str) -> None:
    for space in ("&#10;", "&NewLine;", "&#13;&#10;"):
        assert not {"\n", "\r"} & set(identity(line.format(space, space)))


def test_a_segment_knows_its_white_space() -> None:
    (before, segment, after) = take_out("<p>\t one </p>").parts
    assert (before, after) == ("<p>", "</p>")
    assert isinstance(segment, Segment)
    assert (segment.before, segment.text, segment.after) == ("\t ", "one", " ")


def test_many_tags_of_a_segment_take_no_time() -> None:
    """Each was compared with every word of the translation: 30 s here."""
    line = "<b>a</b> " * 8000
    begun = time.process_time()
    assert identity(line) == line
    assert time.process_time() - begun < 15, "1 to 5 s"


@pytest.mark.parametrize("unit", ["a <b/> ", "<b>a</b> a "])
def test_nor_do_those_of_a_segment_without_links(unit: str) -> None:
    """As one has that is too long to be aligned. All words were looked through for each point, and for words without
    links all others of their kind: 60 and 100 s here.
    """
    line = unit * 10_000
    marked = take_out(line)
    (segment,) = marked.segments
    begun = time.process_time()
    written = put_back(marked, [segment.text], [word_links(segment.text, segment.text)])
    assert time.process_time() - begun < 10, "0.5 to 1 s"
    assert signs(written) == signs(line)
