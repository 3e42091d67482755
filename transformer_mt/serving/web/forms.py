"""The fields of a form, of either kind that a browser sends."""

import logging
from collections.abc import AsyncGenerator
from urllib.parse import parse_qs

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from transformer_mt.serving.refusal import Refusal

MOST_FIELDS = 2000

# It tells the log of each byte that a client should not have sent.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


def fields_of_query(query: str) -> dict[str, list[str]]:
    """The values of each field of a query string, or of a form that is sent as one. Raises UnicodeDecodeError for
    escapes that are not UTF-8, and ValueError where there are too many fields.
    """
    return parse_qs(query, True, errors="strict", max_num_fields=MOST_FIELDS)


async def fields_of_parts(body: bytes, content_type: str) -> dict[str, list[str]]:
    """The values of each field of a form that is sent in parts (multipart/form-data); a file is its text.

    Raises Refusal for another charset than UTF-8, UnicodeDecodeError for what is not UTF-8, and ValueError for what is
    no such form or has too many fields.
    """
    charset = parse_options_header(content_type)[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8"):  # starlette obeys it, and punycode is slow
        raise Refusal(400, "Invalid request: the charset of the form is not UTF-8. Send text in UTF-8.")
    body.decode("utf-8")  # starlette would read other bytes as Latin-1

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    reader = MultiPartParser(
        Headers({"content-type": content_type}),
        stream(),
        max_files=MOST_FIELDS,
        max_fields=MOST_FIELDS,
        max_part_size=len(body),
    )
    try:
        form = await reader.parse()
    except MultiPartException as error:
        raise ValueError(error.message) from None
    fields: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        text = value if isinstance(value, str) else (await value.read()).decode("utf-8")
        fields.setdefault(name, []).append(text)
    await form.close()
    return fields
