"""The words of the input that a model does not know, told in one line at the end."""

from collections.abc import Sequence

from transformer_mt.cli.terminal import remark

MAX_NAMED, MAX_LETTERS = 8, 40  # so many unknown words are named, each by its first letters


class UnknownWords:
    """The words of the input that a model does not know: their number, and the first few."""

    def __init__(self) -> None:
        self.num_all = 0
        self.first: list[str] = []

    def add(self, words: Sequence[str]) -> None:
        """Add the unknown words of one line."""
        self.num_all += len(words)
        for word in words:
            if len(self.first) <= MAX_NAMED and word not in self.first:
                self.first.append(word)

    def report(self, of_one: str = "guesses what it means", of_several: str = "guesses what they mean") -> None:
        """Write a line on standard error, if there are unknown words. The arguments say what the model does with one
        or several.
        """
        if not self.num_all:
            return
        named = ", ".join(_named(word[:MAX_LETTERS]) for word in self.first[:MAX_NAMED])
        more = ", …" * (len(self.first) > MAX_NAMED)
        words = (
            f"1 word of the input, and {of_one}"
            if self.num_all == 1
            else (f"{self.num_all:,} words of the input, and {of_several}")
        )
        remark(f"the model does not know {words}: {named}{more}")


def _named(word: str) -> str:
    """The word as a terminal may write it; a character that it may not write, by its number."""
    from transformer_mt.data.word_splitting import has_word, printable

    if len(word) == 1 and printable(word) != word:
        return f"U+{ord(word):04X}"
    return printable(word) if has_word(word) else f"‘{printable(word)}’"
