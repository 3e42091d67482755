"""How long a line of text may be before it is left out unread."""

from transformer_mt.errors import UserError

# Bytes of UTF-8. That is a whole novel of some 200,000 tokens, whose attention alone would take 160 GB. A line of this
# length is tokenized in some hundred MB, so memory is bounded whatever a file holds.
LONGEST_LINE = 2**20
BEYOND = "?" * (LONGEST_LINE + 1)  # stands for every longer line, since nobody needs its text


def is_beyond(text: str) -> bool:
    """Whether a text is longer than `LONGEST_LINE`, and so too long for any model."""
    return len(text) > LONGEST_LINE // 4 and len(text.encode("utf-8", "surrogatepass")) > LONGEST_LINE


def beyond_error(where: str, way_out: str = "set data.too_long: filter") -> UserError:
    """What to raise for a pair with such a side, where such pairs are not left out."""
    return UserError(
        f"{where}: a side is longer than {LONGEST_LINE:,} bytes, which no model takes. Break it into sentences, or "
        f"{way_out}."
    )
