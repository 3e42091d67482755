"""Where the sentences of a text end, in whatever language: by the marks that unicode names, and what stands around.

A full stop is an end only where the next word does not go on in lower case, and where the word before it is no
abbreviation, initial or ordinal. So some ends are missed, which costs less than a cut within a sentence.
"""

import regex

# Of the word before a full stop, as it is written there: these never end a sentence, whatever follows.
_ABBREVIATIONS = """
    Mr Mrs Ms Mx Messrs Dr Drs Prof Rev Hon Gen Col Capt Cpt Lt Sgt Maj Cpl Adm Sen Rep Gov Pres Supt St Mt Ft vs
    Hr Fr Frl bzw ca vgl evtl ggf sog geb Abs Aufl Bd Mme Mlle MM Mgr Ste cf av env Sr Sra Srta Dra Dña Ud Uds Vd Vds
    Avda Sig Sigra Dott Avv Ing Arch On Mons Exmo Exma Dhr Mevr Mw bijv resp Np tzv tzn např prof dr mgr inż ks śp
    г-н г-жа ул пр им акад проф доц напр ср гл кн
"""
# These do not where a number follows: "No. 5", "Art. 3".
_BEFORE_NUMBERS = """
    no nos nr nrs nro núm num n° p pp pg pág págs str s vol vols fig figs ch chap cap art arts sec sect eq eqs tab ex
    par para col línea ver rev ed bd abb kap abs tel ext approx jan feb mar apr jun jul aug sep sept oct nov dec
    стр рис табл гл ст п илл
"""
ABBREVIATIONS, BEFORE_NUMBERS = frozenset(_ABBREVIATIONS.split()), frozenset(_BEFORE_NUMBERS.split())
# The nouns that German writes in upper case after an ordinal: "am 3. Mai", "im 19. Jahrhundert".
_AFTER_ORDINALS = regex.compile(
    r"\s+(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez|Jahrhundert|Klasse|Stock|Mal|Platz|Weltkrieg)"
)
_LINE_END = r"[\n\r\v\f\x85\u2028\u2029]"
_END = regex.compile(
    rf"""
    (?P<line>{_LINE_END})
    # Thai and Lao part sentences by a space. The sign of repetition has spaces of its own.
    | (?P<space>(?<=[\p{{Thai}}\p{{Lao}}])(?<![ๆໆฯ])\s+(?=[\p{{Thai}}\p{{Lao}}])(?![ๆໆฯ]))
    | (?P<mark>[\p{{Sentence_Break=STerm}}\p{{Sentence_Break=ATerm}}…⋯]+|(?<=\p{{Greek}}\p{{M}}{{0,2}});)
      (?P<closing>(?:["'\p{{Pe}}\p{{Pf}}\p{{Pi}}]|\[\d+\])*+(?:[ \u00a0\u202f]»(?=\s|$))?)
    """,
    regex.VERBOSE,
)
_FULL_STOP = frozenset(".․﹒．")
# After these a sentence goes on without a space as well: addresses, names such as "Yahoo!".
_NEEDS_SPACE = regex.compile(r"[.․﹒!?‼‽⁇⁈⁉…⋯;]")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]")
_QUOTED_ON = regex.compile("と|って")  # Japanese: what stands in quotes is said by the sentence around it
_CLOSES = regex.compile(r"[\p{Pe}\p{Pf}]")
# Both are bounded, so that the time for a line is proportional to its length, whatever it holds.
_NEXT_WORD = regex.compile(r"[\p{P}\p{S}\s]{0,32}+(.?)", regex.DOTALL)
_LAST_WORD = regex.compile(r"[\p{L}\p{M}\p{N}°'’-]*+$")
_LONGEST_WORD = 32  # before a full stop; a longer one is no abbreviation


def split_sentences(text: str) -> list[tuple[int, int]]:
    """The first character of each sentence and the one after its last, without the white space between them.

    Closing quotes and brackets belong to the sentence. A line end ends a sentence in every case.
    """
    spans = []
    start = 0
    num_quotes = counted = 0  # how many straight quotes there are before the place `counted`
    has_capitals = any(map(str.isupper, text))
    for match in _END.finditer(text):
        if match["mark"] is None:
            end = match.start()
        else:
            num_quotes += text.count('"', counted, match.start())
            counted = match.start()
            end = _end_after_mark(text, start, match, has_capitals, in_quotes=num_quotes % 2 == 1)
        if end is not None:
            spans.append(_stripped(text, start, end))
            start = end
    return [(first, end) for first, end in [*spans, _stripped(text, start, len(text))] if first < end]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end].lstrip()
    return end - len(part), end - len(part) + len(part.rstrip())


def _end_after_mark(text: str, start: int, match: regex.Match[str], has_capitals: bool, in_quotes: bool) -> int | None:
    """Where the sentence that begins at `start` ends, if it does at this mark."""
    mark, end = match["mark"], match.end()
    if end == len(text):
        return end
    if not text[end].isspace():
        return _end_without_space(text, match, in_quotes)
    if not _NEEDS_SPACE.fullmatch(mark[-1]) and mark[-1] not in _FULL_STOP:
        return end
    following = _NEXT_WORD.match(text, end)
    assert following is not None
    if has_capitals and following[1].islower():
        return None
    if mark in _FULL_STOP and _belongs_to_word(text, start, match, following[1].isdigit()):
        return None
    return end


def _end_without_space(text: str, match: regex.Match[str], in_quotes: bool) -> int | None:
    """The same where no white space follows the mark, as in Chinese."""
    mark, closing, end = match["mark"], match["closing"], match.end("mark")
    before, after = text[match.start() - 1 : match.start()], text[match.end()]
    if mark[-1] == "．":
        if before.isdigit() or not _UNSPACED.match(after):
            return None
    elif _NEEDS_SPACE.match(mark[-1]) and not (
        mark[-1] not in "…⋯;" and _UNSPACED.match(before) and _UNSPACED.match(after)
    ):
        return None
    for character in closing:  # an opening quote belongs to the next sentence
        if not (_CLOSES.match(character) or (character == '"' and in_quotes)):
            break
        in_quotes = in_quotes and character != '"'
        end += 1
    is_said = end > match.end("mark") and (mark[-1] in "!?！？" or _QUOTED_ON.match(text, end))
    return None if is_said else end


def _belongs_to_word(text: str, start: int, match: regex.Match[str], is_before_number: bool) -> bool:
    """Whether a full stop makes an abbreviation, an initial or an ordinal of the word before it."""
    before = text[max(start, match.start() - _LONGEST_WORD) : match.start()]
    found = _LAST_WORD.search(before)
    assert found is not None
    word = found[0].strip("'’")
    if word.isdigit():
        is_first = len(before) < _LONGEST_WORD and before.strip() == word  # the number of a list's entry
        return is_first or (len(word) < 3 and _AFTER_ORDINALS.match(text, match.end()) is not None)
    is_initial = len(word) == 1 and word.lower() != word.upper()
    return is_initial or word in ABBREVIATIONS or (is_before_number and word.lower() in BEFORE_NUMBERS)
