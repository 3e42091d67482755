"""Forms that are sent in parts: as Python's reader of mail has them, and quickly whatever they are."""

import contextlib
import time
from email.parser import BytesParser
from email.policy import compat32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Answers, Served

from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.web.multipart import multipart_fields

KIND = "multipart/form-data; boundary=B"


def fields(body: bytes, kind: str = KIND) -> list[tuple[str, str]]:
    return list(multipart_fields(body, kind, 2000))


def part(headers: bytes, text: bytes = b"x") -> bytes:
    return b"--B\r\n" + headers + b"\r\n\r\n" + text + b"\r\n"


@given(st.lists(st.tuples(st.text('abc "\\;=', min_size=1), st.text(max_size=50)), min_size=1, max_size=5))
def test_fields_are_what_a_reader_of_mail_finds(values: list[tuple[str, str]]) -> None:
    quoted = [(name.replace("\\", "\\\\").replace('"', '\\"').encode(), text.encode()) for name, text in values]
    body = b"".join(part(b'Content-Disposition: form-data; name="%s"' % name, text) for name, text in quoted)
    body += b"--B--\r\n"
    assert fields(body) == values
    read = BytesParser(policy=compat32).parsebytes(b"Content-Type: " + KIND.encode() + b"\r\n\r\n" + body)
    parts = list(read.walk())[1:]
    assert [one.get_payload(decode=True) for one in parts] == [text for _, text in quoted]


@pytest.mark.parametrize(
    ("headers", "text", "wanted"),
    [
        (b"Content-Disposition: form-data; name=q", b"one", [("q", "one")]),
        (b'content-disposition:form-data;NAME="q"', b"one", [("q", "one")]),
        (b'Content-Disposition: form-data; filename="a; name=z"; name="q"', b"", [("q", "")]),
        (b'Content-Type: text/plain\r\nContent-Disposition: form-data; name="q"', b"\r\n\r\n", [("q", "\r\n\r\n")]),
        (b'Content-Disposition: form-data; name="q"\r\nContent-Transfer-Encoding: 8bit', b"\xc3\xbc", [("q", "ü")]),
        (b'Content-Disposition: form-data; name="q"\r\nContent-Transfer-Encoding: base64', b"w7w=", [("q", "ü")]),
        (b'Content-Disposition: form-data; name="q"', b"--B- is no boundary --B", [("q", "--B- is no boundary --B")]),
        (b"Content-Disposition: form-data", b"without a name", []),
    ],
)
def test_headers_of_a_part(headers: bytes, text: bytes, wanted: list[tuple[str, str]]) -> None:
    body = part(headers, text) + b"--B--\r\n"
    for sent in (body, b"what stands before\r\n" + body + b"and behind", body.replace(b"\r\n", b"\n")):
        found = fields(sent, 'multipart/form-data; charset=utf-8; boundary="B"')
        assert found == [(name, value.replace("\r\n", "\n") if b"\r" not in sent else value) for name, value in wanted]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"q=one", "the end is missing"),
        (b"--B", "the end is missing"),
        (b"--B\r\n--B--", "a part has no text"),
        (b"--B\r\nX: y--B--", "the end is missing"),
        (part(b"X: y"), "the end is missing"),
        (part(b"X: y") + b"--C--", "the end is missing"),
        (part(b"Content-Transfer-Encoding: gzip") + b"--B--", "no such encoding"),
    ],
)
def test_what_is_no_form_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fields(body)
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", f"multipart/form-data; boundary={'B' * 71}"):
        with pytest.raises(ValueError, match="no boundary"):
            fields(part(b"X: y") + b"--B--", kind)


def test_no_form_takes_long() -> None:
    """Python's reader of mail took half a minute over some of them."""
    named = b'Content-Disposition: form-data; name="q"'
    bodies = [
        part(named + b";" * 40_000) + b"--B--",
        part(b"Content-Disposition: form-data; name=" + b"(a)" * 16_000) + b"--B--",
        part(named + b"\r\nX: y" * 50_000) + b"--B--",
        b"--B\r\n\r\n" * 30_000 + b"--B--",
        b"--B\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n" * 5_000 + b"--B--",
        part(named, b"\r\n" * 150_000) + b"--B--",
        part(named, b"\r\n--B " + b" " * 300_000) + b"--B--",
    ]
    begun = time.process_time()
    for body in bodies:
        for sent in (body, body[:-4]):
            with contextlib.suppress(Refusal, ValueError):
                fields(sent)
    assert time.process_time() - begun < 5


def test_more_parts_than_are_taken_are_refused() -> None:
    body = part(b'Content-Disposition: form-data; name="q"') * 3 + b"--B--"
    assert len(list(multipart_fields(body, KIND, 3))) == 3
    with pytest.raises(ValueError, match="too many"):
        list(multipart_fields(body, KIND, 2))


def test_long_headers_are_refused_with_a_sentence(server: Served, still_answers: Answers) -> None:
    body = part(b'Content-Disposition: form-data; name="q"; filename="' + b"x" * 1000 + b'"') + b"--B--"
    answer = server.request("POST", "/translate", body, {"Content-Type": KIND})
    assert (answer.status, "the headers of a part have more than 1,000 bytes" in answer.json["error"]) == (400, True)
    answer = server.request("POST", "/translate", b"x", {"Content-Type": "multipart/form-data" + ";" * 1000})
    assert (answer.status, "the content type has more than 1,000 bytes" in answer.json["error"]) == (400, True)
    still_answers(server)


def test_nothing_that_comes_with_an_open_request_is_read(server: Served) -> None:
    kind = {"Content-Type": "multipart/form-data" + ";" * 60_000}
    for path in ("/health?%ff", "/languages", "/frontend/settings", "/metrics", "/", "/page/settings"):
        assert server.request("GET", path, b"{ no form " * 10_000, kind).status == 200
