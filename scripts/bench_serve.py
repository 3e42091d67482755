"""The server under load: requests and sentences a second, how long replies take, and whether each is the right one.

    python scripts/bench_serve.py --run RUN [--clients 64] [--seconds 60] [--sentences 1 8] [--lines 10000]

RUN is a trained model. The sentences are those of its validation split. `tmt translate` translates them as a file,
before and after the server is asked: the mean of its sentences a second, without its start, is what the server is
measured by, and its translations are what the server must answer. `tmt serve` is asked by one client alone and by all
clients at once, each of which sends its next request as soon as it has its reply. A request has so many sentences, a
line each, and a number, written in blanks and tabs behind them, which must come back. The exit status is 1 where a
reply is an error, is lost or is not the one that belongs to its request.

Clients, server and search share the cores of this machine. So the processor's time that a sentence takes is told of
each of them, beside that of `tmt translate` without its start: these figures stand also where others use the machine,
which makes sentences a second worthless. Memory is the proportional set size of the server and its processes together,
after a tenth of the time and at its end. Processor and memory are told on Linux.
"""

import asyncio
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

from measuring import command

from transformer_mt.errors import UserError

TMT = (sys.executable, "-m", "transformer_mt")
ALONE_SECONDS = 10.0
WARM_LINES = 64
BITS = 24  # of the number of a request


@dataclass
class Tally:
    """What clients have seen: how long each reply took, in seconds, and what was wrong."""

    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """The bytes of a request, and the text of its reply."""

    request: bytes
    expected: str


def number_as_space(number: int) -> str:
    """A number in blanks and tabs. White space comes back as it was."""
    return "\n" + "".join(" \t"[number >> bit & 1] for bit in range(BITS))


class Questions:
    """Requests without end, each with its own number, of sentences drawn by chance."""

    def __init__(self, pairs: Sequence[tuple[str, str]], languages: tuple[str, str], num_sentences: int) -> None:
        self._pairs = pairs
        self._languages = languages
        self._num_sentences = num_sentences
        self._chance = random.Random(1)
        self._number = 0

    def next(self) -> Question:
        drawn = self._chance.choices(self._pairs, k=self._num_sentences)
        self._number += 1
        mark = number_as_space(self._number)
        text, expected = ("\n".join(side) + mark for side in zip(*drawn, strict=True))
        src, tgt = self._languages
        body = json.dumps({"q": text, "source": src, "target": tgt}).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: tmt\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        return Question(head.encode() + b"\r\n\r\n" + body, expected)


class Client(asyncio.Protocol):
    """A connection over which one request after another is sent, until the time is up."""

    def __init__(self, questions: Questions, tally: Tally, until: float) -> None:
        self.questions, self.tally, self.until = questions, tally, until
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not found or not length or len(body) < int(length[1]):
            return
        self._received.clear()
        self.tally.seconds.append(time.perf_counter() - self._asked)
        answer = json.loads(body)
        if not head.startswith(b"HTTP/1.1 200") or answer.get("translatedText") != self._question.expected:
            self.tally.wrong.append(f"{head[:15].decode()}: {answer!r} instead of {self._question.expected!r}")
        if time.perf_counter() < self.until:
            self._ask()
        else:
            self.transport.close()
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.tally.wrong.append(f"a connection was lost before its reply: {exc}")
            self.ended.set_result(None)

    def _ask(self) -> None:
        self._question = self.questions.next()
        self._asked = time.perf_counter()
        self.transport.write(self._question.request)


async def ask(port: int, num_clients: int, seconds: float, questions: Questions) -> Tally:
    """What so many clients see in that time."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    clients = []
    for _ in range(num_clients):
        _, client = await loop.create_connection(lambda: Client(questions, tally, until), "127.0.0.1", port)
        clients.append(client)
    await asyncio.gather(*(client.ended for client in clients))
    return tally


def processes_of(pid: int) -> list[Path]:
    """The folders in /proc of a process and its descendants, itself first. Raises OSError where there are none."""
    found, to_do = [], [pid]
    while to_do:
        found.append(Path("/proc") / str(to_do.pop()))
        paths = found[-1].glob("task/*/children")
        to_do += [int(child) for path in paths for child in path.read_text().split()]
    return found


def memory_of(pid: int) -> float:
    """The memory of a process and its descendants, in MB; nan where the system does not tell."""
    try:
        rolled_up = [(process / "smaps_rollup").read_text() for process in processes_of(pid)]
    except OSError:
        return float("nan")
    return sum(int(size) for text in rolled_up for size in re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)) / 1024


def processor_of(pid: int) -> tuple[float, float]:
    """Seconds of the processor that a process has had, and its descendants; nan where the system does not tell."""
    try:
        # Behind the name, which may hold blanks, user's and system's time are the 12th and the 13th of the numbers.
        stats = [(process / "stat").read_text().rpartition(")")[2].split()[11:13] for process in processes_of(pid)]
    except OSError:
        return float("nan"), float("nan")
    seconds = [sum(map(int, times)) / os.sysconf("SC_CLK_TCK") for times in stats]
    return seconds[0], sum(seconds[1:])


@dataclass(frozen=True)
class Spent:
    """Seconds of the processor that the server's own process has had, those that search, and the clients; and how many
    groups were searched.
    """

    server: float
    search: float
    clients: float
    groups: float

    @classmethod
    def until_now(cls, pid: int, port: int) -> "Spent":
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            groups = re.search(r"^tmt_batches_total (\d+)", answer.read().decode(), re.MULTILINE)
        assert groups
        return cls(*processor_of(pid), time.process_time(), float(groups[1]))

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(getattr(self, of.name) - getattr(before, of.name) for of in fields(self)))


@contextmanager
def serving(run: Path, arguments: Sequence[str]) -> Iterator[tuple[int, int]]:
    """`tmt serve`, as the number of its process and its port."""
    process = subprocess.Popen(
        [*TMT, "serve", "--run", str(run), "--port", "0", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        told = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", told)):
            told = process.stderr.readline()
            if not told:
                raise SystemExit(f"tmt serve has ended with status {process.wait()}")
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class OfFile:
    """What `tmt translate` made of a file, in how many seconds, of the clock and of the processor."""

    translations: list[str]
    seconds: float
    processor: float


@dataclass(frozen=True)
class Speed:
    """Sentences a second, and the processor's seconds of a sentence."""

    per_second: float
    processor: float


def translate(run: Path, lines: Sequence[str]) -> OfFile:
    """`tmt translate` of the lines."""

    def of_ended_processes() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        given, written = Path(folder, "in"), Path(folder, "out")
        given.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        begun, processor = time.perf_counter(), of_ended_processes()
        subprocess.run([*TMT, "translate", "--run", run, "--input", given, "--output", written], check=True)
        seconds, processor = time.perf_counter() - begun, of_ended_processes() - processor
        return OfFile(written.read_text("utf-8").split("\n")[:-1], seconds, processor)


def speed_of_file(run: Path, lines: Sequence[str], start: OfFile) -> tuple[list[str], Speed]:
    """The translations of a file, and its speed without the seconds of the start, for which UserError is raised where
    they are most of it.
    """
    done = translate(run, lines)
    if done.seconds < 1.5 * start.seconds:
        raise UserError(f"{len(lines):,} lines take hardly longer than the start of tmt translate. Give more --lines.")
    more = len(lines) - WARM_LINES
    return done.translations, Speed(more / (done.seconds - start.seconds), (done.processor - start.processor) / more)


def tell(name: str, tally: Tally, seconds: float, num_sentences: int, of_file: float) -> None:
    per_second = len(tally.seconds) / seconds
    times = sorted(tally.seconds)
    median, worst = statistics.median(times), times[min(len(times) - 1, int(0.99 * len(times)))]
    print(
        f"{name}: {per_second:.1f} requests/s, {per_second * num_sentences:.1f} sentences/s "
        f"({per_second * num_sentences / of_file:.2f} of tmt translate); median {1000 * median:.1f} ms, "
        f"99th percentile {1000 * worst:.1f} ms; {len(tally.seconds):,} replies, {len(tally.wrong)} wrong",
        flush=True,
    )


def tell_processor(spent: Spent, num_sentences: int, of_file: float) -> None:
    search, server, clients = (1000 * one / num_sentences for one in (spent.search, spent.server, spent.clients))
    print(
        f"processor, of a sentence: search {search:.2f} ms, in groups of {num_sentences / spent.groups:.1f}, server "
        f"{server:.2f} ms, clients {clients:.2f} ms; tmt translate {1000 * of_file:.2f} ms, "
        f"{1000 * of_file / (search + server):.2f} of search and server",
        flush=True,
    )


def main() -> None:
    parser = command.Parser(__doc__)
    parser.add_argument("--run", type=command.folder, required=True)
    parser.add_argument("--clients", type=command.count(), default=64)
    parser.add_argument("--seconds", type=command.count(), default=60)
    parser.add_argument("--sentences", type=command.count(), nargs="+", default=[1, 8], help="of a request; in turn")
    parser.add_argument("--lines", type=command.count(), default=10_000, help="of the file that tmt translate gets")
    parser.add_argument("serve", nargs="*", help="options of tmt serve, behind --")
    asked = parser.parse_args()
    from transformer_mt.config.loading import load_config
    from transformer_mt.data.corpus import load_corpus
    from transformer_mt.decoding.lines.sentences import split_sentences
    from transformer_mt.storage.run_folder import open_run

    config = load_config(str(open_run(asked.run).config.resolve())).config
    lines = [src for src, _ in load_corpus(config.data.validation, config.data)]
    lines = [line for line in dict.fromkeys(lines) if split_sentences(line) == [(0, len(line))]][: asked.lines]
    many = (lines * -(-asked.lines // len(lines)))[: asked.lines]
    start = min((translate(asked.run, many[:WARM_LINES]) for _ in range(2)), key=lambda done: done.seconds)
    translations, first = speed_of_file(asked.run, many, start)
    pairs = list(zip(lines, translations, strict=False))
    languages = (config.data.src_lang, config.data.tgt_lang)
    wrong = []
    for num_sentences in asked.sentences:
        questions = Questions(pairs, languages, num_sentences)
        with serving(asked.run, asked.serve) as (pid, port):
            alone = asyncio.run(ask(port, 1, min(ALONE_SECONDS, asked.seconds), questions))
            begun = asyncio.run(ask(port, asked.clients, asked.seconds / 10, questions))
            before, spent = memory_of(pid), Spent.until_now(pid, port)
            tally = asyncio.run(ask(port, asked.clients, asked.seconds, questions))
            after, spent = memory_of(pid), Spent.until_now(pid, port).since(spent)
        last = speed_of_file(asked.run, many, start)[1]
        speeds = [first.per_second, last.per_second]
        print(f"tmt translate: {speeds[0]:.1f} sentences/s before, {speeds[1]:.1f} after these; {os.cpu_count()} cores")
        of_each = f"{num_sentences} sentence{'s' * (num_sentences > 1)} a request"
        for name, seen, seconds in (
            ("one client", alone, min(ALONE_SECONDS, asked.seconds)),
            (f"{asked.clients} clients", tally, asked.seconds),
        ):
            tell(f"{of_each}, {name}", seen, seconds, num_sentences, statistics.mean(speeds))
        processor = statistics.mean([first.processor, last.processor])
        tell_processor(spent, len(tally.seconds) * num_sentences, processor)
        print(f"memory: {before:.0f} MB before, {after:.0f} MB after these", flush=True)
        first = last
        wrong += [*alone.wrong, *begun.wrong, *tally.wrong]
    for one in wrong[:10]:
        print(one, file=sys.stderr)
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    command.run(main)
