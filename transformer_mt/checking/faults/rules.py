"""The table of faults: what each is called, what it says of a pair, and how it is found."""

from typing import NamedTuple


class Rule(NamedTuple):
    """A kind of fault. `says` ends the sentence "This pair ...". `is_kept`: `--write` keeps such pairs."""

    name: str
    says: str
    found: str
    is_kept: bool = False


RULES = (
    Rule("blank", "has a side with nothing on it", "White space and invisible characters alone."),
    Rule("no_words", "has a side without a word", "No letter and no digit, and the other side has one."),
    Rule("too_long", "has a side that is too long for the model",
         "More words than model.max_len has positions (of two files: 1,024), or over 1 MiB; a character of a script "
         "without spaces counts as half a word."),
    Rule("duplicate", "stands further up already", "Both texts are equal; the first of them is not counted."),
    Rule("same_letters", "stands further up but for case, marks and spaces",
         "Both texts are equal in their letters and digits, whatever their case; the pair further up has no fault for "
         "which it would be taken out."),
    Rule("several_targets", "has a source that stands further up with another target",
         "Sources are compared as `tmt data split` does: case and white space make no difference.", is_kept=True),
    Rule("copy", "has the same text on both sides",
         "Equal letters and digits, a letter among them, of two words or ten letters at least."),
    Rule("ratio", "has sides whose lengths do not go together",
         "Characters of both sides. Among pairs of like length in this corpus, the ratio lies four times as far from "
         "the median as the 10th or the 90th percentile, and the lengths miss it by 8 characters or more. Of fewer "
         "than 100 pairs it is not looked for."),
    Rule("script", "has a side in another script",
         "Over half of a side's letters are of scripts that make less than 3 % of that side's letters in this corpus; "
         "or a word mixes Latin letters with Cyrillic or Greek ones."),
    Rule("language", "has a side in another language",
         "Its words are those of the other side's language, as this corpus shows them; with the extra `check`, also "
         "any other language, where py3langid is sure."),
    Rule("swapped", "has its sides swapped", "The words of each side are those of the other one in this corpus."),
    Rule("numbers", "has other numbers on each side",
         "Both sides have a number in digits that the other lacks. Marks between digits, and clocks of 12 and 24 "
         "hours, make no difference."),
    Rule("names", "has other names on each side",
         "A name is a capitalised word that this corpus mostly has on both sides. Each side has one that the other "
         "lacks."),
    Rule("markup", "has markup", "Tags and entities of HTML, and brackets of wikis."),
    Rule("encoding", "was read in a wrong encoding",
         "U+FFFD; UTF-8 that was read as Latin-1 or Windows-1252; a question mark inside a word; control characters."),
    Rule("mixed_forms", "is composed otherwise than the rest",
         "Accents are characters of their own (NFD) where this corpus has composed ones (NFC). tmt reads both alike.",
         is_kept=True),
    Rule("repetition", "repeats itself on one side",
         "Up to four words stand three times in a row, or up to eight characters six times; the other side has no such "
         "place."),
    Rule("leak", "is in the validation or the test",
         "A side is equal to one there; case and white space make no difference."),
    Rule("near_leak", "is almost in the validation or the test",
         "A side shares four fifths of its words with one there, of five words at least (in scripts without spaces: of "
         "its pairs of characters). Candidates come from MinHash."),
    Rule("shift", "is beside a wrong line",
         "From a line on, line n translates line n + k of the other side, by the scores of the word aligner trained on "
         "this corpus."),
)  # fmt: skip
BITS = {rule.name: 1 << number for number, rule in enumerate(RULES)}
TAKEN_OUT = sum(BITS[rule.name] for rule in RULES if not rule.is_kept)


def names_of(flags: int) -> list[str]:
    """The names of the faults whose bits are set, in the order of the table."""
    return [name for name, bit in BITS.items() if flags & bit]
