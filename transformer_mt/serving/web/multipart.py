"""A form that is sent in parts (RFC 7578). It is read in one pass: whoever asks for nothing has no key yet."""

import re
from binascii import a2b_base64, a2b_qp
from collections.abc import Callable, Iterator

from transformer_mt.serving.refusal import Refusal

MOST_HEAD = 1000  # bytes of a content type, and of the headers of a part: a browser sends some hundred
LONGEST_BOUNDARY = 70  # RFC 2046, section 5.1.1
# A value in quotes may hold a semicolon, and a quote behind a backslash. No part of it can be matched in two ways.
_PARAMETER = re.compile(r';\s*([^\s;="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))')
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_DECODE: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, "7bit": bytes, "8bit": bytes, "binary": bytes, "base64": a2b_base64, "quoted-printable": a2b_qp,
}  # fmt: skip


def multipart_fields(body: bytes, content_type: str, most: int) -> Iterator[tuple[str, str]]:
    """The fields of a form by their names, in order; parts without a name are left out. `content_type` says what stands
    between the parts.

    Raises Refusal for a part with long headers, UnicodeDecodeError for text that is not UTF-8, and ValueError for what
    is no such form, or has more than `most` parts.
    """
    boundary = _parameter(content_type, "boundary")
    if not 0 < len(boundary) <= LONGEST_BOUNDARY:
        raise ValueError("there is no boundary")
    escaped = re.escape(boundary.encode("latin-1", "replace"))
    line = re.compile(rb"(?:\A|\r?\n)--" + escaped + rb"(--)?[ \t]*(?=\r?\n|\Z)")
    begin: int | None = None
    for number, found in enumerate(line.finditer(body)):
        if number > most:
            raise ValueError("there are too many parts")
        if begin is not None and (field := _field(body[begin : found.start()])):
            yield field
        if found[1]:
            return
        begin = found.end()
    raise ValueError("the end is missing")


def _field(part: bytes) -> tuple[str, str] | None:
    """The name and the text of a part, which begins with the line end of its boundary."""
    blank_line = _BLANK_LINE.search(part)
    if blank_line is None:
        raise ValueError("a part has no text")
    if blank_line.start() > MOST_HEAD:
        raise Refusal(400, f"Invalid request: the headers of a part have more than {MOST_HEAD:,} bytes. Send less.")
    lines = part[: blank_line.start()].decode("utf-8").split("\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = _parameter(headers.get("content-disposition", ""), "name")
    encoding = headers.get("content-transfer-encoding", "").lower()
    if encoding not in _DECODE:
        raise ValueError("no such encoding")
    text = _DECODE[encoding](part[blank_line.end() :])
    return (name, text.decode("utf-8")) if name else None


def _parameter(header: str, name: str) -> str:
    """A parameter of a header; blank where it has none of that name."""
    for found in _PARAMETER.finditer(header):
        if found[1].lower() == name:
            return re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3].strip()
    return ""
