"""Numbers with what they count, for messages."""


def counted(number: int, noun: str, several: str | None = None) -> str:
    """`1 pair`, `3,000 pairs`. `several` is the plural that an s does not make: `counted(2, "entry", "entries")`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {several or f'{noun}s'}"
