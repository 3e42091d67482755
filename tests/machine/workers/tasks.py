"""Tasks, both ways of working on them, and programs whose processes are at work."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from marks import on_linux

from transformer_mt.machine import workers as module
from transformer_mt.machine.workers import Workers

CPU = torch.device("cpu")
Tasks = Iterable[Callable[[], Any]]
Way = Callable[[Tasks, int], Generator[Any]]


def call(task: Callable[[], Any]) -> Any:
    return task()


def in_threads(tasks: Tasks, num_workers: int) -> Generator[Any]:
    return module.in_threads(call, tasks, num_workers)


def in_processes(tasks: Tasks, num_workers: int) -> Generator[Any]:
    """Results of tasks that cannot be pickled, by their place; of those that come one by one, as they come."""
    workers = Workers("the work", "Do less.")
    if not isinstance(tasks, Sequence):
        return workers._in_processes(call, tasks, num_workers)
    return workers._in_processes(lambda place: tasks[place](), range(len(tasks)), num_workers)


def in_parallel(tasks: Sequence[Callable[[], Any]], device: torch.device) -> Generator[Any]:
    return Workers("the work", "Do less.").map(lambda place: tasks[place](), range(len(tasks)), device)


both = pytest.mark.parametrize("way", [in_threads, pytest.param(in_processes, marks=on_linux)])


def slow(i: int, log: Path) -> Callable[[], tuple[int, int]]:
    def task() -> tuple[int, int]:
        time.sleep(0.02 * (i % 2))
        with log.open("a") as file:
            file.write(f"{i}\n")
        return i, torch.get_num_threads()

    return task


def fail(error: Exception) -> Callable[[], tuple[int, int]]:
    def task() -> tuple[int, int]:
        raise error

    return task


def logged(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


HEAD = """
import json, os, sys, threading, time
from pathlib import Path
import torch
from transformer_mt.machine.workers import READER, Workers, may_fork
def in_processes(tasks, num_workers):
    workers = Workers("the work", "Do less.")
    return workers._in_processes(lambda place: tasks[place](), range(len(tasks)), num_workers)
def in_parallel(tasks, device):
    return Workers("the work", "Do less.").map(lambda place: tasks[place](), range(len(tasks)), device)
def long():
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(2)
"""


def started(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A program of two processes at work that have begun; they write their numbers into the first argument."""
    program = HEAD + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", program, *arguments], text=True, **options)


# Each program that it reads is a copy of it, which need not import torch, and ends as any Python does.
COPIES = """
for line in sys.stdin:
    code, *outputs = json.loads(line)
    if os.fork() == 0:
        for descriptor, name in enumerate(outputs, 1):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), descriptor)
        exec(code)
        sys.exit()
    os.wait()
    print("ended", flush=True)
"""
Ended = Callable[[str], tuple[str, str]]  # what a program said until it ended, on standard output and standard error


@contextlib.contextmanager
def ended_programs(folder: Path) -> Generator[Ended]:
    """Lets programs run to their end, each in a process of its own."""
    names = itertools.count()
    with subprocess.Popen(
        [sys.executable, "-c", HEAD + COPIES], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def ended(code: str) -> tuple[str, str]:
            out, said = (folder / str(next(names)) for _ in range(2))
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps([textwrap.dedent(code), str(out), str(said)]), file=process.stdin, flush=True)
            assert process.stdout.readline() == "ended\n"
            return out.read_text(), said.read_text()

        yield ended


def is_alive(pid: str) -> bool:
    try:
        state = Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def pid_of(_argument: object) -> int:
    return os.getpid()


def pids(workers: Workers, number: int = 6) -> set[int]:
    return set(workers.map(pid_of, range(number), CPU))
