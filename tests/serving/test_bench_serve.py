"""The benchmark of the server: it measures, and it sees a reply that is another's, an error, and a lost connection."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bench_serve
import pytest

from transformer_mt.errors import UserError

SCRIPT = Path(bench_serve.__file__)
PAIRS = [("one", "uno"), ("two", "dos"), ("three", "tres")]


@pytest.mark.slow
def test_it_measures_and_finds_every_reply_right(run: Path) -> None:
    arguments = ("--run", str(run), "--clients", "4", "--seconds", "1", "--sentences", "1", "3", "--lines", "40000")
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^tmt translate: [\d.]+ sentences/s before, [\d.]+ after", done.stdout, re.MULTILINE)) == 2
    measured = re.findall(r"(\d) sentences? a request, (?:4|one) clients?: .* replies, (\d+) wrong", done.stdout)
    assert measured == [("1", "0"), ("1", "0"), ("3", "0"), ("3", "0")]
    spent = r"of a sentence: search ([\d.]+) ms, in groups of ([\d.]+), server ([\d.]+) ms, clients ([\d.]+) ms; tmt"
    for numbers in re.findall(spent, done.stdout):
        search, group, server, clients = map(float, numbers)
        assert search + server > clients > 0
        assert 1 <= group <= 12
    assert len(re.findall(spent, done.stdout)) == 2
    assert len(re.findall(r"memory: \d+ MB before, \d+ MB after", done.stdout)) == 2


def test_the_processor_s_time_is_that_of_the_process_and_its_children() -> None:
    burn = "import subprocess, sys, time\nwhile time.process_time() < {}: pass\n"
    tell = "print(time.process_time(), flush=True)\ninput()\n"
    child = f"subprocess.Popen([sys.executable, '-c', {burn.format(0.6) + tell!r}])\n"
    command = [sys.executable, "-c", burn.format(0.3) + child + tell]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        told = sorted(float(process.stdout.readline()) for _ in range(2))
        assert bench_serve.processor_of(process.pid) == pytest.approx(told, abs=0.2)
        process.kill()


def test_too_few_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["one"] * 100

    def speed(seconds: float) -> bench_serve.Speed:
        done = bench_serve.OfFile(["uno"] * 100, seconds, processor=seconds)
        monkeypatch.setattr(bench_serve, "translate", lambda run, lines: done)
        return bench_serve.speed_of_file(Path("runs/toy"), lines, bench_serve.OfFile([], 2.0, 2.0))[1]

    with pytest.raises(UserError, match=r"100 lines take hardly longer than the start of tmt translate\. Give more"):
        speed(2.9)
    assert speed(3.5).per_second == pytest.approx((100 - bench_serve.WARM_LINES) / 1.5)


def tally_of(answer: Callable[[str, int], bytes]) -> bench_serve.Tally:
    """What two clients see of a server that answers the texts of requests, which it numbers, so."""

    async def play() -> bench_serve.Tally:
        numbers = iter(range(10**6))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length
                text = json.loads(await reader.readexactly(int(length[1])))["q"]
                reply = answer(text, next(numbers))
                if not reply:
                    writer.close()
                    return
                writer.write(reply)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        questions = bench_serve.Questions(PAIRS, ("en", "es"), 2)
        return await bench_serve.ask(port, 2, 0.2, questions)

    return asyncio.run(play())


def reply(text: str, status: str = "200 OK") -> bytes:
    body = json.dumps({"translatedText": text}).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def right(text: str) -> str:
    for english, spanish in PAIRS:
        text = text.replace(english, spanish)
    return text


def test_right_replies_are_right() -> None:
    tally = tally_of(lambda text, _: reply(right(text)))
    assert len(tally.seconds) > 2
    assert tally.wrong == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda text, number: reply(right(text) if number else right(text).replace("\t", " ", 1)),  # another's number
        lambda text, number: reply(right(text), "200 OK" if number else "503 Service Unavailable"),
        lambda text, number: reply(right(text)) if number else b"",
        lambda text, number: reply(right(text) if number else right(text).replace("uno", "dos").replace("tres", "dos")),
    ],
    ids=["number", "status", "lost", "text"],
)
def test_one_wrong_reply_is_seen(answer: Callable[[str, int], bytes]) -> None:
    assert len(tally_of(answer).wrong) == 1


def test_each_request_has_a_number_of_its_own() -> None:
    marks = {bench_serve.number_as_space(number) for number in range(2000)}
    assert len(marks) == 2000
    assert all(mark.isspace() for mark in marks)
