"""What the server does not do, as an HTTP status and a sentence for whoever asked."""

from dataclasses import dataclass


@dataclass
class Refusal(Exception):  # noqa: N818, a refused request is no error of the server
    """`status` is the answer's. `seconds` is how long a client should wait before it asks again, where that helps."""

    status: int
    message: str
    seconds: int | None = None


@dataclass(frozen=True)
class Limits:
    """What one request may ask, and how much the server takes on.

    `max_chars` and `max_lines` are of a request: characters of all its texts, and lines, where a text without a line
    end is one. `max_waiting` requests are under way at once. Each has `seconds`, from its first byte to its answer.
    """

    max_chars: int = 20_000
    max_lines: int = 500
    max_waiting: int = 256
    seconds: float = 30.0

    @property
    def max_bytes(self) -> int:
        """Of a body: a character is twelve bytes at most, as two escapes in JSON or four in a form."""
        return 12 * self.max_chars + 64 * self.max_lines + 65_536

    def check(self, texts: list[str]) -> int:
        """The number of characters. Raises Refusal where the texts are beyond the limits."""
        num_chars = sum(map(len, texts))
        if num_chars > self.max_chars:
            raise Refusal(
                413, f"The request has {num_chars:,} characters, and {self.max_chars:,} are taken at once. Send less."
            )
        num_lines = sum(text.count("\n") + 1 for text in texts)
        if num_lines > self.max_lines:
            raise Refusal(
                413, f"The request has {num_lines:,} lines, and {self.max_lines:,} are taken at once. Send less."
            )
        return num_chars
