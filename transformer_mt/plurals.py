"""Numbers as messages say them."""


def counted(number: int, noun: str, several: str | None = None) -> str:
    """`1 pair`, `3,000 pairs`. `several` is the plural that an s does not make: `counted(2, "entry", "entries")`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {several or f'{noun}s'}"


def rounded(score: float) -> str:
    """`41.25`; of a number with more than six digits three of them: the ppl of a model that diverged has hundreds."""
    return f"{score:.2f}" if abs(score) < 1e6 else f"{score:.3g}"
