"""What a client asks for: the parameters of a request, as JSON, as a form or in the query string."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from transformer_mt.serving.refusal import Limits, Refusal
from transformer_mt.serving.web.forms import fields_of_parts, fields_of_query

MOST_READ = 2**26  # of a body that is too long: it is read and dropped, so that its sender hears why
LONGEST_WORD = 200  # characters


class Parameters:
    """The parameters by name. Each has one value or several. But for a text, which may be blank, one that is null or
    blank is as one that is not there: clients with a field for each option send them so.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) not in (None, "", [])

    def texts(self, name: str) -> tuple[list[str], bool]:
        """The texts of that name, and whether they are a list. Raises Refusal where there is none, or no text."""
        value = self._values.get(name)
        if value is None:
            raise Refusal(400, f"Invalid request: missing {name} parameter. Give the text to work on as {name}.")
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise Refusal(400, f"Invalid request: {name} is neither a text nor a list of texts. Give one of them.")
        return [whole(text) for text in texts], isinstance(value, list)

    def text(self, name: str) -> str:
        """The one text of that name. Raises Refusal where there is none, and for a list of several or of none."""
        texts, _ = self.texts(name)
        if len(texts) != 1:
            raise Refusal(400, f"Invalid request: {name} is a list. Give one text.")
        return texts[0]

    def word(self, name: str, default: str | None = None) -> str:
        """A short text; a number of JSON is one too, and true is 1. Raises Refusal where there is none and no default,
        and for anything else.
        """
        value = self._values.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value is None or value == "":
            value = default
        if isinstance(value, int):
            value = str(int(value))
        if value is None:
            raise Refusal(400, f"Invalid request: missing {name} parameter. Give {name}.")
        if not isinstance(value, str) or len(value) > LONGEST_WORD:
            raise Refusal(400, f"Invalid request: {name} is no word. Give a text.")
        return whole(value)

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number, 0 or more. Raises Refusal for anything else, and beyond `most`."""
        value: Any = self._values[name] if name in self else default
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise Refusal(400, f"Invalid request: {name} is no whole number from 0 to {most}. Give one.")
        return value


def whole(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON's escapes can write and no encoding can."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


async def parameters_of(request: Request, limits: Limits) -> Parameters:
    """The parameters of a request; those of the body are stronger than those of the query string. Raises Refusal for a
    body that is too long, does not come in time, or is no JSON or form in UTF-8.
    """
    body = await _body(request, limits)
    try:
        values: dict[str, Any] = _joined(fields_of_query(request.url.query))
        values |= await _values(body, request.headers.get("content-type", "")) if body.strip() else {}
    except UnicodeDecodeError as error:
        at = f"byte {error.start:,}"
        raise Refusal(400, f"Invalid request: it is not UTF-8 ({at}). Send text in UTF-8.") from None
    except (ValueError, RecursionError) as error:
        said = str(error)[:200] if isinstance(error, json.JSONDecodeError) else "its parts cannot be told apart"
        raise Refusal(
            400, f"Invalid request: the body is not what it says it is ({said}). Send JSON or a form."
        ) from None
    return Parameters(values)


async def _body(request: Request, limits: Limits) -> bytes:
    """The body of a request that comes in time and is not too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size <= limits.max_bytes:
                    parts.append(part)
                elif size > MOST_READ:
                    break
    except TimeoutError:
        raise Refusal(408, f"The request did not come within {limits.seconds:g} seconds. Send it at once.") from None
    except ClientDisconnect:
        raise Refusal(400, "The request ended before its time. Send all of it.") from None
    if size > limits.max_bytes:
        raise Refusal(413, f"The body has more than {limits.max_bytes:,} bytes, the most that is taken. Send less.")
    return b"".join(parts)


async def _values(body: bytes, content_type: str) -> dict[str, Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return _joined(fields_of_query(body.decode("utf-8")))
    if kind == "multipart/form-data":
        return _joined(await fields_of_parts(body, content_type))
    values = json.loads(body.decode("utf-8-sig"))
    if not isinstance(values, dict):
        raise Refusal(400, "Invalid request: the body is no JSON object. Send one.")
    return values


def _joined(fields: dict[str, list[str]]) -> dict[str, Any]:
    """A field that comes once is a text, and one that comes several times a list."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
