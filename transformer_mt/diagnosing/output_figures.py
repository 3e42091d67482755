"""What is counted of a validation's translations: copies, empty ones, repetitions, and how long they are."""

import re
from collections import Counter
from collections.abc import Sequence

HAS_WORD = re.compile(r"\w")
END = re.compile(r"\W*$")
# 2 to 40 characters with a letter or digit among them, four times in a row or more
REPETITION = re.compile(r"(?=.{0,40}\w)(.{2,40}?)\1{3,}", re.DOTALL)


def output_figures(sources: Sequence[str], references: Sequence[str], outputs: Sequence[str]) -> dict[str, float]:
    """Shares of the outputs, and beside them those of the references; lengths are in characters. Empty where there is
    no output.
    """
    if not outputs:
        return {}
    references = references[: len(outputs)]
    figures = {"num_outputs": len(outputs)}
    for prefix, texts in (("", outputs), ("reference_", references)):
        pairs = zip(sources, texts, strict=False)
        figures |= {
            f"{prefix}copies": _share([_is_copy(src, text) for src, text in pairs]),
            f"{prefix}empty": _share([not HAS_WORD.search(text) for text in texts]),
            f"{prefix}repeating": _share([repeats(text) for text in texts]),
            f"{prefix}same": max(Counter(texts).values()) / len(texts),
        }
    length = sum(map(len, references))
    return figures | ({"length_ratio": sum(map(len, outputs)) / length} if length else {})


def repeats(text: str) -> bool:
    """Whether something with a letter or a digit in it stands in the text four times in a row."""
    text = END.sub(" ", text, count=1)  # the last time it is followed by a full stop, or by nothing
    found = REPETITION.search(text)
    while found and not HAS_WORD.search(found[1]):
        found = REPETITION.search(text, found.end())
    return found is not None


def _is_copy(src: str, text: str) -> bool:
    return bool(HAS_WORD.search(text)) and " ".join(src.casefold().split()) == " ".join(text.casefold().split())


def _share(holds: list[bool]) -> float:
    return sum(holds) / len(holds)
