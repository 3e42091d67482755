"""Clients that are slow, broken or many: each has an answer of its own or none, and all others have theirs."""

import asyncio
import json
import random
import signal
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Answers, Serve, Served
from toy import toy_pairs
from waiting import wait_until

from transformer_mt import Translator

pytest.importorskip("uvicorn", reason="tmt serve needs the extra serve")
from uvicorn import Config
from uvicorn.server import ServerState

from transformer_mt.serving.web import application

PAIRS = toy_pairs(120, seed=8)
VALUES = {"source": "en", "target": "es"}
HEAD = b"POST /translate HTTP/1.1\r\nHost: tmt\r\nContent-Type: application/json\r\n"


@contextmanager
def connected(server: Served, sent: bytes) -> Iterator[socket.socket]:
    """A connection over which this was sent."""
    with server.connect() as connection:
        connection.sendall(sent)
        yield connection


def status_of(connection: socket.socket) -> int:
    """Of the answer that comes; 0 where the server ends the connection without one."""
    with connection.makefile("rb") as file:
        line = file.readline()
    return int(line.split()[1]) if line else 0


def test_replies_depend_on_nobody_else(server: Served, translator: Translator) -> None:
    sentences = [english for english, _ in PAIRS]
    wanted = dict(zip(sentences, [translator.translate([one])[0] for one in sentences], strict=True))
    chance = random.Random(3)
    requests = [chance.choices(sentences, k=chance.randint(1, 6)) for _ in range(200)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(server.translate, requests))
    assert answers == [[wanted[one] for one in request] for request in requests]


def test_replies_with_tags_depend_on_nobody_else(server: Served, translator: Translator) -> None:
    sentences = [english for english, _ in PAIRS[:40]]
    wanted = [f"<p>{text}</p>" for text in translator.translate(sentences)]
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda one: server.translate(f"<p>{one}</p>", format="html"), sentences))
    assert answers == wanted


def test_clients_that_go_away_harm_nobody(server: Served, still_answers: Answers, translator: Translator) -> None:
    body = json.dumps({"q": "one two.", **VALUES}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    for end in (1, len(HEAD) // 2, len(HEAD) + 10, len(whole) - 1, len(whole)):
        with connected(server, whole[:end]) as connection:
            # Ends it with a reset, so that the server cannot even answer.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert server.translate("one two.") == translator.translate(["one two."])[0]
    still_answers(server)


def test_nobody_waits_for_clients_that_are_gone(serve: Serve, translator: Translator) -> None:
    """While the process of the search stands still, so that none of their sentences can be done by chance."""
    server = serve("--workers", "1", "--timeout", "100")
    server.signal_search(signal.SIGSTOP)

    def told(name: str) -> int:
        lines = server.get("/metrics").body.decode().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    with ExitStack() as stack:
        for i in range(40):
            path, more = (("/translate", {}), ("/translate", {"format": "html"}), ("/page/translate", {}))[i % 3]
            body = json.dumps({"q": f"<p>{i} one two.</p>" * 20, **VALUES, **more}).encode()
            head = b"POST %s HTTP/1.1\r\nHost: tmt\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
            stack.enter_context(connected(server, head + body))
        wait_until(lambda: told("tmt_waiting_requests") == 40 and told("tmt_waiting_sentences") > 0)
    wait_until(lambda: told("tmt_waiting_requests") == told("tmt_waiting_sentences") == 0)
    server.signal_search(signal.SIGCONT)
    assert server.translate("one two.") == translator.translate(["one two."])[0]
    assert server.translate("<p>one two.</p>", format="html") == f"<p>{translator.translate(['one two.'])[0]}</p>"
    assert told("tmt_batches_total") <= 3, "what nobody waits for is searched"
    assert 'status="499"' in server.get("/metrics").body.decode()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b'{"q": "\xff\xfe", "source": "en", "target": "es"}', b"\xc3", b"[" * 100_000,
        b'{"q": ' + b"9" * 10_000 + b"}", b'"q"', b"null", b"q=%ff", b'{"q": "one"} {}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused(server: Served, still_answers: Answers, body: bytes) -> None:
    for kind in (
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "image/png",
    ):
        for path in ("/translate", "/v2/translate", "/detect", "/page/translate", "/page/attention"):
            answer = server.request("POST", path, body, {"Content-Type": kind})
            assert answer.status == 400
            assert set(answer.json) == {"message" if path.startswith("/v2") else "error"}
    still_answers(server)


def test_bytes_that_are_no_http_are_refused(server: Served, still_answers: Answers) -> None:
    for sent in (
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n",
    ):
        with connected(server, sent) as connection:
            assert status_of(connection) in (0, 400)
    still_answers(server)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("more", [UPGRADE, UPGRADE.replace(b"Upgrade,", b"Upgrade, close,")], ids=["stays", "closes"])
@pytest.mark.parametrize("at", [0, 1], ids=["at once", "apart"])
def test_a_client_that_asks_for_another_protocol_is_answered_in_this_one(
    server: Served, translator: Translator, still_answers: Answers, more: bytes, at: int
) -> None:
    """As Java's does with every request. Its body is a body, and no request of its own, whatever it looks like."""
    for body, status in (
        (json.dumps({"q": "one two.", **VALUES}).encode(), 200), (b"GET /health HTTP/1.1\r\nHost: tmt\r\n\r\n", 400)
    ):  # fmt: skip
        head = HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body)
        with connected(server, head + body * (at == 0)) as connection, connection.makefile("rb") as file:
            if at:
                time.sleep(0.05)
                connection.sendall(body)
            told, length = [file.readline()], 0
            while told[-1].strip():
                told.append(file.readline())
                length = int(told[-1].split()[1]) if told[-1].startswith(b"content-length") else length
            answer = json.loads(file.read(length))
            if b"close" not in more:
                connection.sendall(b"GET /languages HTTP/1.1\r\nHost: tmt\r\nConnection: close\r\n\r\n")
                assert b'"code":"en"' in file.read()
        assert int(told[0].split()[1]) == status
        assert status == 400 or answer == {"translatedText": translator.translate(["one two."])[0]}
    with connected(server, b"CONNECT tmt:80 HTTP/1.1\r\nHost: tmt:80\r\n\r\n") as connection:
        assert status_of(connection) == 400
    still_answers(server)


def test_a_body_of_ten_megabytes_is_refused(server: Served, still_answers: Answers) -> None:
    answer = server.request("POST", "/translate", b'{"q": "' + b"x" * 10**7 + b'"}')
    assert answer.status == 413
    chunks = b"".join(b"%x\r\n%s\r\n" % (10**6, b"x" * 10**6) for _ in range(10)) + b"0\r\n\r\n"
    with connected(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks) as connection:
        assert status_of(connection) == 413
    still_answers(server)


@pytest.mark.parametrize(
    ("begun", "part"),
    [
        (HEAD, b"X: y\r\n"),
        (HEAD + b"X: ", b"y"),
        (HEAD[:6], b"y"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),  # headers behind a body
    ],
    ids=["headers", "a header", "an address", "trailers"],
)
def test_a_head_that_never_ends_is_not_kept(server: Served, still_answers: Answers, begun: bytes, part: bytes) -> None:
    """It would fill the memory."""
    with connected(server, begun) as connection, suppress(ConnectionError):
        for _ in range(1000):
            connection.sendall(part * 10**4)
        pytest.fail("all of it was taken")
    with connected(server, HEAD + b"X: y\r\n" * 10**4 + b"\r\n") as connection:
        assert status_of(connection) == 400
    still_answers(server)


def test_text_that_no_encoding_can_write_is_replaced(server: Served) -> None:
    body = b'{"q": "\\ud800 one \\udfff \\u0000", "source": "en", "target": "en"}'
    assert server.request("POST", "/translate", body).json == {"translatedText": "\ufffd one \ufffd \x00"}
    assert server.translate("\ud800 one \x00 \u2028 \x85 two") != ""


@settings(max_examples=40)
@given(st.text(max_size=200), st.sampled_from(["text", "html"]))
def test_any_text_has_an_answer(server: Served, text: str, format: str) -> None:
    answer = server.post("/translate", {"q": text, **VALUES, "format": format})
    assert answer.status == 200
    assert isinstance(answer.json["translatedText"], str)


def test_a_thousand_connections_keep_nobody_waiting(
    server: Served, translator: Translator, still_answers: Answers
) -> None:
    wanted = translator.translate([english for english, _ in PAIRS[:10]])
    with ExitStack() as stack:
        for i in range(1000):
            # A third says nothing, a third half of a head, and a third half of a body.
            sent = (b"", HEAD[:20], HEAD + b"Content-Length: 100\r\n\r\n{")[i % 3]
            stack.enter_context(connected(server, sent))
        assert [server.translate(english) for english, _ in PAIRS[:10]] == wanted
        assert server.get("/health").status == 200
    still_answers(server)


@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_reads_nothing_is_not_waited_for(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep its answer in the memory, and a server from its end. One that reads slowly has all of it."""
    monkeypatch.setattr(application, "IDLE_SECONDS", 0.2)
    size, state = 2 * 10**7, ServerState()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": bytes(size)})

    def read_slowly(client: socket.socket) -> int:
        read = 0
        while part := client.recv(2**18):
            read += len(part)
            time.sleep(0.01)
        return read

    async def ask() -> None:
        config = Config(app, lifespan="off", log_config=None)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: application._Connection(config, state, {}), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: tmt\r\nConnection: close\r\n\r\n")
            if reads:
                assert await asyncio.to_thread(read_slowly, client) > size
            while not state.total_requests or state.connections:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(ask(), 60))
