"""Forms that are sent in parts: what was put in comes out, what is none is refused, and none takes long."""

import asyncio
import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Answers, Served

from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.web.forms import MOST_FIELDS, fields_of_parts

KIND = "multipart/form-data; boundary=B"
NAMED = b'Content-Disposition: form-data; name="q"'
TYPE = {"Content-Type": KIND}


def fields(body: bytes, kind: str = KIND) -> dict[str, list[str]]:
    return asyncio.run(fields_of_parts(body, kind))


def part(headers: bytes, text: bytes = b"x") -> bytes:
    return b"--B\r\n" + headers + b"\r\n\r\n" + text + b"\r\n"


@given(st.dictionaries(st.text("abc ;=", min_size=1), st.lists(st.text(), min_size=1, max_size=3), max_size=3))
def test_what_was_put_in_comes_out(values: dict[str, list[str]]) -> None:
    name_header = 'Content-Disposition: form-data; name="{}"'
    sent = [part(name_header.format(name).encode(), text.encode()) for name in values for text in values[name]]
    assert fields(b"".join(sent) + b"--B--\r\n") == values


def test_a_file_is_its_text() -> None:
    text = "Eins.\n" * 200_000  # more than is kept in memory
    assert fields(part(NAMED + b'; filename="a.txt"', text.encode()) + b"--B--\r\n") == {"q": [text]}


@pytest.mark.parametrize("body", [b"q=one", b"--B\nX: y", part(b"X: y") + b"--B--", part(NAMED + b"\r\nX: y" * 50)])
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        fields(body)
    for kind in ("multipart/form-data", "multipart/form-data; boundary="):
        with pytest.raises(ValueError, match=r"."):
            fields(part(NAMED) + b"--B--", kind)


def test_no_form_takes_long() -> None:
    bodies = [
        part(NAMED + b";" * 40_000),
        part(b"Content-Disposition: form-data; name=" + b"(a)" * 16_000),
        part(NAMED + b"\r\nX: y" * 50_000),
        b"--B\r\n\r\n" * 30_000,
        part(NAMED) * MOST_FIELDS,
        b"--B\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n" * 5_000,
        part(NAMED, b"\r\n" * 150_000),
        part(NAMED, b"\r\n--B " + b" " * 300_000),
        part(NAMED, b"\r\n-" * 100_000),
    ]
    begun = time.process_time()
    for body in bodies:
        for sent in (body, body + b"--B--"):
            for kind in (KIND, KIND + ";" * 60_000):
                with contextlib.suppress(ValueError):
                    fields(sent, kind)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("charset", ["punycode", "utf-16", "latin-1", "nonsense", ""])
def test_no_other_charset_is_obeyed(charset: str) -> None:
    """Text in UTF-8 became other text, and punycode is decoded in quadratic time, before any key is asked for."""
    with pytest.raises(Refusal, match="the charset of the form is not UTF-8"):
        fields(part(NAMED, b"a" * 300_000) + b"--B--", f'{KIND}; charset="{charset}"')
    assert fields(part(NAMED, "ü".encode()) + b"--B--", f"{KIND}; charset=UTF-8") == {"q": ["ü"]}


def test_more_fields_than_are_taken_are_refused() -> None:
    assert len(fields(part(NAMED) * MOST_FIELDS + b"--B--")["q"]) == MOST_FIELDS
    with pytest.raises(ValueError, match=f"is {MOST_FIELDS}"):
        fields(part(NAMED) * (MOST_FIELDS + 1) + b"--B--")


def test_a_client_is_told_what_is_wrong_and_the_log_is_not(server: Served, still_answers: Answers) -> None:
    told = server.told
    answer = server.request("POST", "/translate", part(NAMED, b"\xfc") + b"--B--", TYPE)
    assert answer.status == 400
    assert f"it is not UTF-8 (byte {len(NAMED) + 9}). Send text in UTF-8." in answer.json["error"]
    answer = server.request("POST", "/translate", b"q=one", TYPE)
    assert (answer.status, "its parts cannot be told apart" in answer.json["error"]) == (400, True)
    assert server.told == told
    still_answers(server)


def test_nothing_that_comes_with_an_open_request_is_read(server: Served) -> None:
    kind = {"Content-Type": "multipart/form-data" + ";" * 60_000}
    for path in ("/health?%ff", "/languages", "/frontend/settings", "/metrics", "/", "/page/settings"):
        assert server.request("GET", path, b"{ no form " * 10_000, kind).status == 200
