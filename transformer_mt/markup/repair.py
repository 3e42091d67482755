"""HTML or XML in which every inline tag has its partner, and none crosses another."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, dropwhile

from transformer_mt.markup.tokens import BLOCKS, VOID, Kind, Token

# No entity is this long, and Python turns no more than 4,300 digits into a number.
_BARE_AMPERSAND = re.compile(r"&(?!#?\w{1,40};)")


@dataclass(frozen=True)
class _Nesting:
    """Which tokens make pairs, and what is wrong.

    `ends` are the places of end tags by those of their start tags. `limits` are those before which an inline tag that
    was never closed ends at the latest. `stray` are those of inline end tags that close nothing.
    """

    ends: dict[int, int]
    limits: dict[int, int]
    stray: set[int]


def repaired(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """The tokens with the inline end tags that are missing, and without those that close nothing; signs in text that
    could make a tag are entities. With each token stands whether it parts the text, as an inline tag does that spans
    blocks.

    Block tags stay as they are: HTML closes many of them by itself, and a page may span lines. What is not translated
    is one point.
    """
    tokens = list(_with_points(_with_starts(tokens)))
    nesting = _nesting(tokens)
    num_blocks = list(accumulate((token.parts_text for token in tokens), initial=0))
    parts = [token.parts_text for token in tokens]
    for start, end in nesting.ends.items():
        if num_blocks[end] > num_blocks[start]:
            parts[start] = parts[end] = True
    next_parting = _next_places(parts)
    closing: dict[int, list[int]] = {}
    for start, limit in nesting.limits.items():
        closing.setdefault(min(limit, next_parting[start + 1]), []).append(start)
    for place in range(len(tokens) + 1):
        for start in sorted(closing.get(place, ()), reverse=True):  # inner ones first
            yield _end_of(tokens[start]), False
        if place < len(tokens) and place not in nesting.stray:
            yield tokens[place], parts[place]


def _next_places(parts: list[bool]) -> list[int]:
    """For each place the first from there on that parts the text, or the end."""
    places = [len(parts)] * (len(parts) + 1)
    for place in reversed(range(len(parts))):
        places[place] = place if parts[place] else places[place + 1]
    return places


class _OpenTags:
    """The start tags that wait for their end tags, as their places among the tokens, with the quickest way to each."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self.places: list[int] = []
        self._by_name: defaultdict[str, list[int]] = defaultdict(list)  # indices into `places`
        self._blocks: list[int] = []

    def add(self, place: int) -> None:
        """Another one, within those that are open."""
        name = self._tokens[place].name
        self._by_name[name].append(len(self.places))
        if name in BLOCKS:
            self._blocks.append(len(self.places))
        self.places.append(place)

    def find(self, name: str) -> int | None:
        """The number of the innermost one of this name."""
        return self._by_name[name][-1] if self._by_name[name] else None

    def is_beyond_block(self, number: int) -> bool:
        """Whether a block was opened later."""
        return bool(self._blocks) and self._blocks[-1] > number

    def take(self, number: int) -> list[Token]:
        """Take away this one and all within it, outermost first."""
        taken = [self._tokens[place] for place in self.places[number:]]
        for token in taken:
            self._by_name[token.name].pop()
            if token.name in BLOCKS:
                self._blocks.pop()
        del self.places[number:]
        return taken


def _nesting(tokens: Sequence[Token]) -> _Nesting:
    found = _Nesting({}, {}, set())
    open_tags = _OpenTags(tokens)

    def close(number: int, place: int) -> None:
        """Take away these open tags; those that are inline were never closed."""
        found.limits.update((start, place) for start in open_tags.places[number:] if tokens[start].name not in BLOCKS)
        open_tags.take(number)

    for place, token in enumerate(tokens):
        if token.kind is Kind.START:
            open_tags.add(place)
        elif token.kind is Kind.END:
            is_block = token.name in BLOCKS
            number = open_tags.find(token.name)
            if number is not None and (is_block or not open_tags.is_beyond_block(number)):
                found.ends[open_tags.places[number]] = place
                close(number + 1, place)
                open_tags.take(number)
            elif is_block:  # it was opened on an earlier line, before all that is open
                close(0, place)
            else:
                found.stray.add(place)
    close(0, len(tokens))
    return found


def _with_starts(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens, where an inline tag with a slash, such as `<b/>`, is a start tag if an end tag has no other. HTML
    ignores the slash, and those who write it mean a point.
    """
    open_tags: defaultdict[str, list[int]] = defaultdict(list)
    with_slash: defaultdict[str, list[int]] = defaultdict(list)
    starts: set[int] = set()
    for place, token in enumerate(tokens):
        if token.kind is Kind.START:
            open_tags[token.name].append(place)
        elif token.kind is Kind.POINT and token.name not in VOID:
            with_slash[token.name].append(place)
        elif token.kind is Kind.END:
            if open_tags[token.name]:
                open_tags[token.name].pop()
            elif with_slash[token.name]:
                starts.add(with_slash[token.name].pop())
    for place, token in enumerate(tokens):
        yield replace(token, kind=Kind.START) if place in starts else token


def _with_points(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, with each element that is not translated as one point, and comments closed."""
    tokens = [_closed(token) for token in tokens]
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.is_untranslated:
            raw, place = _untranslated(tokens, place)
            token = Token(Kind.POINT, raw, token.name)
        else:
            place += 1
            if token.kind is Kind.TEXT:
                text = _BARE_AMPERSAND.sub("&amp;", token.raw)
                token = replace(token, raw=text.replace("<", "&lt;").replace(">", "&gt;"))
        yield token


def _closed(token: Token) -> Token:
    """A comment that nothing closes ends with the text. `<!-->` is a comment to browsers, and not to all parsers."""
    if token.kind is not Kind.POINT or not token.raw.startswith("<!--"):
        return token
    if len(token.raw) < len("<!---->") and token.raw.endswith(">"):
        return replace(token, raw="<!---->")
    return token if token.raw.endswith("-->") else replace(token, raw=token.raw + "-->")


def _untranslated(tokens: Sequence[Token], first: int) -> tuple[str, int]:
    """The element that begins at `first`, closed, and the place after it. It ends where another would cross it."""
    written: list[str] = []
    open_tags = _OpenTags(tokens)
    for place in range(first, len(tokens)):
        token = tokens[place]
        is_raw = place > first and tokens[place - 1].holds_raw
        if token.kind is Kind.START:
            open_tags.add(place)
        elif token.kind is Kind.END:
            number = open_tags.find(token.name)
            if number is None:
                break
            unclosed = open_tags.take(number)[1:]
            if token.name in BLOCKS:  # it closes blocks within it, but for those within an inline tag
                unclosed = list(dropwhile(lambda opened: opened.name in BLOCKS, unclosed))
            written += [_end_of(opened).raw for opened in reversed(unclosed)]
        is_text = token.kind is Kind.TEXT and not is_raw
        written.append(token.raw.replace("<", "&lt;") if is_text else token.raw)
        if not open_tags.places:
            return "".join(written), place + 1
    else:
        place = len(tokens)
    written += [_end_of(opened).raw for opened in reversed(open_tags.take(0))]
    return "".join(written), place


def _end_of(start: Token) -> Token:
    """The end tag that a start tag lacks, its name as it is written there."""
    return Token(Kind.END, f"</{start.raw[1 : 1 + len(start.name)]}>", start.name)
