"""Work on several cores: the same results in the same order, and nothing left behind, whoever dies first."""

import contextlib
import copy
import errno
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_mt.errors import UserError
from transformer_mt.machine import workers as module
from transformer_mt.machine.workers import Workers, may_fork

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


both = pytest.mark.parametrize(
    "way",
    [
        in_threads,
        pytest.param(
            in_processes, marks=pytest.mark.skipif(sys.platform != "linux", reason="processes begin as copies on Linux")
        ),
    ],
)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes begin as copies on Linux")


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2, "given back"
    assert not multiprocessing.active_children()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("workers")]
    torch.set_num_threads(before)


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


@both
@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_results_come_in_order_each_of_one_thread(way: Way, num_workers: int, tmp_path: Path) -> None:
    found = list(way([slow(i, tmp_path / "log") for i in range(20)], num_workers))
    assert [i for i, _ in found] == list(range(20))
    assert {threads for _, threads in found} == {2 if (way, num_workers) == (in_threads, 1) else 1}
    assert sorted(logged(tmp_path / "log")) == list(range(20))


@both
def test_arguments_are_asked_for_as_they_are_needed(way: Way) -> None:
    asked: list[int] = []

    def numbers() -> Iterator[Callable[[], int]]:
        for number in itertools.count():
            asked.append(number)
            yield functools.partial(int, number)

    results = way(numbers(), 2)
    for number in range(30):
        assert next(results) == number
        assert len(asked) <= number + 3 + 2 * module.MAX_AHEAD
    results.close()


@on_linux
def test_nobody_runs_far_ahead_of_a_slow_one(tmp_path: Path) -> None:
    """What waits to be fetched takes memory."""

    def work(number: int) -> int:
        if number == 0:
            wait_for(lambda: len(list(tmp_path.iterdir())) == 2 * module.MAX_AHEAD - 1)
            time.sleep(0.1)  # in which the other one could begin what it must not
            assert len(list(tmp_path.iterdir())) == 2 * module.MAX_AHEAD - 1
        else:
            Path(tmp_path, str(number)).touch()
        return number

    assert list(Workers("the work", "Do less.").map(work, iter(range(30)), CPU)) == list(range(30))


@both
def test_a_failure_among_the_arguments_is_the_caller_s(way: Way) -> None:
    def numbers() -> Iterator[Callable[[], int]]:
        for number in range(5):
            yield functools.partial(int, number)
        raise UserError("No sixth. Write one.")

    results = way(numbers(), 2)
    found = []
    with pytest.raises(UserError, match="No sixth"):
        found.extend(results)
    assert found == list(range(len(found)))


@both
def test_what_is_computed_is_the_same(way: Way) -> None:
    torch.manual_seed(0)
    weight = torch.randn(300, 300)
    inputs = [torch.randn(50, 300) for _ in range(6)]
    tasks = [lambda x=x: (x @ weight).softmax(dim=1).tolist() for x in inputs]
    torch.set_num_threads(1)
    expected = [task() for task in tasks]
    torch.set_num_threads(2)
    assert list(way(tasks, 2)) == expected


def test_one_task_has_all_threads(tmp_path: Path) -> None:
    assert list(in_parallel([slow(0, tmp_path / "log")], CPU)) == [(0, 2)]


def test_another_device_has_one_task_at_a_time(tmp_path: Path) -> None:
    found = list(in_parallel([slow(i, tmp_path / "log") for i in range(3)], torch.device("cuda")))
    assert found == [(0, 2), (1, 2), (2, 2)]
    assert logged(tmp_path / "log") == [0, 1, 2]


@both
@pytest.mark.parametrize("error", [ValueError("no"), UserError("No. Say yes.")])
def test_a_failure_is_the_caller_s_and_ends_the_others(way: Way, error: Exception, tmp_path: Path) -> None:
    log = tmp_path / "log"
    results = way([slow(0, log), fail(error), *(slow(i, log) for i in range(2, 50))], 2)
    assert next(results)[0] == 0
    with pytest.raises(type(error), match=str(error)):
        next(results)
    assert len(logged(log)) < 20


@both
def test_a_caller_who_leaves_ends_the_others(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"
    results = way([slow(i, log) for i in range(50)], 2)
    next(results)
    results.close()
    assert len(logged(log)) < 20


@on_linux
def test_where_a_failure_was_is_told() -> None:
    def at_this_place() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as raised:
        list(in_processes([at_this_place] * 3, 2))
    assert "at_this_place" in "".join(raised.value.__notes__)


@on_linux
def test_a_result_that_cannot_be_sent_is_a_failure() -> None:
    with pytest.raises(Exception, match="pickle"):
        list(in_processes([lambda: threading.Lock()] * 2, 2))


@on_linux
@pytest.mark.parametrize("status", ["-9", "3"])
def test_a_process_that_is_gone_is_said(status: str) -> None:
    def leave() -> None:
        if status == "-9":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(int(status))

    killed = ", killed perhaps for want of memory" if status == "-9" else ""
    with pytest.raises(UserError, match=f"ended with exit status {status}{killed}. Do less.$"):
        list(in_processes([lambda: 1, leave, lambda: 2, lambda: 3], 2))


class TwoPartError(Exception):
    """One that cannot be unpickled, as many of libraries."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@on_linux
@pytest.mark.parametrize(
    ("error", "comes_as"),
    [(TwoPartError("a", "b"), RuntimeError), (ConnectionError("no"), ConnectionError), (OSError(5, "x"), OSError)],
)
def test_any_error_of_a_task_arrives(error: Exception, comes_as: type[Exception]) -> None:
    with pytest.raises(comes_as, match="TwoPartError" if comes_as is RuntimeError else "no|x"):
        list(in_processes([fail(error)] * 3, 2))


@on_linux
def test_processes_that_cannot_be_begun_are_one_message() -> None:
    code = """
        import resource
        from transformer_mt.errors import UserError
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        keep = []
        try:
            while True:
                keep.append(open("/dev/null"))
        except OSError:
            keep.pop()
        try:
            list(in_processes([os.getpid] * 4, 2))
        except UserError as error:
            keep.clear()
            print(error)
    """
    out, _ = started(code, stdout=subprocess.PIPE).communicate()
    assert out == "No process could be started for the work: Too many open files. Take fewer, with OMP_NUM_THREADS=1.\n"


@on_linux
def test_a_generator_that_nobody_closes_ends_its_processes_quietly() -> None:
    code = """
        results = in_processes([os.getpid] * 9, 2)
        print(next(results), flush=True)
    """
    out, said = started(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE).communicate()
    assert not is_alive(out.strip())
    assert said == ""


@on_linux
def test_a_copy_of_the_first_process_leaves_the_others_alone() -> None:
    code = """
        results = in_processes([os.getpid] * 9, 2)
        pids = [next(results)]
        if os.fork() == 0:
            results.close()
            os._exit(0)
        os.wait()
        print(len([*pids, *results]))
    """
    out, said = started(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE).communicate()
    assert (out, said) == ("9\n", "")


@on_linux
def test_a_process_of_a_pool_works_in_threads() -> None:
    code = """
        import multiprocessing
        torch.set_num_threads(1)
        def search(_):
            torch.set_num_threads(2)
            return list(in_parallel([os.getpid] * 4, torch.device("cpu"))) == [os.getpid()] * 4
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map(search, [0]))
    """
    out, _ = started(code, stdout=subprocess.PIPE).communicate()
    assert out == "[True]\n"


def started(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A program of two processes at work that have begun; they write their numbers into the first argument."""
    head = """
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
    program = textwrap.dedent(head) + textwrap.dedent(code)
    # A shell has its background jobs, these tests among them, ignore Ctrl-C, and they leave that to their children.
    heeds = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], text=True, **heeds, **options)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: str) -> bool:
    try:
        state = Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@on_linux
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_first(ending: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C goes to all of them, and only the first says something. One that it could not end sees to its task."""
    program = started(
        "list(in_processes([long] * 30, 3))", str(tmp_path), start_new_session=True, stderr=subprocess.PIPE
    )
    wait_for(lambda: len(list(tmp_path.iterdir())) == 3)
    if ending == signal.SIGINT:
        os.killpg(program.pid, ending)
    else:
        program.send_signal(ending)
    _, said = program.communicate()
    assert said.count("Traceback") == (ending == signal.SIGINT), "of the first process alone"
    wait_for(lambda: not any(is_alive(path.name) for path in tmp_path.iterdir()))


@on_linux
def test_processes_are_for_whoever_computes_alone() -> None:
    code = """
        told = [may_fork()]
        end = threading.Event()
        for name in (READER, "other"):
            threading.Thread(target=end.wait, name=name).start()
            told.append(may_fork())
        end.set()
        for thread in threading.enumerate():
            thread is threading.main_thread() or thread.join()
        thread = threading.Thread(target=lambda: told.append(may_fork()))
        thread.start()
        thread.join()
        torch.set_num_threads(2)
        pids = list(in_parallel([os.getpid] * 4, torch.device("cpu")))
        print(json.dumps([*told, len(set(pids)), os.getpid() in pids]))
    """
    out, _ = started(code, stdout=subprocess.PIPE).communicate()
    assert json.loads(out) == [True, True, False, False, 2, False]


def test_a_thread_of_somebody_else_forbids_processes() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not may_fork()
    finally:
        end.set()
        thread.join()


# Processes that stay


def pid_of(_argument: object) -> int:
    return os.getpid()


def pids(workers: Workers, number: int = 6) -> set[int]:
    return set(workers.map(pid_of, range(number), CPU))


@on_linux
def test_processes_end_with_their_call_or_with_whoever_keeps_them() -> None:
    workers = Workers("the work", "Do less.")
    before = pids(workers)
    assert os.getpid() not in before
    assert not multiprocessing.active_children()
    with workers.keep():
        first = pids(workers)
        assert not first & before
        with workers.keep():
            assert pids(workers) <= first
        assert len(multiprocessing.active_children()) == 2
    assert not multiprocessing.active_children()
    with contextlib.suppress(ValueError), workers.keep():
        assert not pids(workers) & first
        raise ValueError("of the caller")
    assert not multiprocessing.active_children()


@on_linux
def test_none_outlives_the_object_that_they_work_for() -> None:
    workers = Workers("the work", "Do less.")
    keeping = workers.keep()
    keeping.__enter__()
    pids(workers)
    assert len(multiprocessing.active_children()) == 2
    del workers, keeping
    assert not multiprocessing.active_children()


@on_linux
def test_who_is_at_work_when_nobody_keeps_any_more_goes_on_to_the_end() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        results = workers.map(pid_of, range(20), CPU)
        next(results)
    assert len(list(results)) == 19
    assert not multiprocessing.active_children()


@on_linux
def test_one_process_of_a_training_has_the_cores_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one by `torchrun`, and a thread that watches the others."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    torch.set_num_threads(1)
    done = threading.Event()
    watch = threading.Thread(target=done.wait, name=module.WATCH)
    watch.start()
    try:
        found = set(module.on_all_cores(lambda _: (time.sleep(0.1), os.getpid())[1], range(9), "the work"))
    finally:
        done.set()
        watch.join()
        torch.set_num_threads(2)
    assert len(found) == 3
    assert os.getpid() not in found


@on_linux
@pytest.mark.parametrize("before", ["true", None])
def test_the_tokenizers_library_has_one_core_in_a_process(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are not in a copy, which waited for them for good where the variable was true."""
    name = "TOKENIZERS_PARALLELISM"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    found = list(Workers("the work", "Do less.").map(lambda _: os.environ.get(name), range(4), CPU))
    assert found == ["false"] * 4
    assert os.environ.get(name) == before


def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", begin)


@on_linux
def test_where_no_process_can_be_begun_the_first_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_process(monkeypatch)
    assert list(module.on_all_cores(lambda i: (i, os.getpid()), iter(range(9)), "the work")) == [
        (i, os.getpid()) for i in range(9)
    ]
    (said,) = caplog.messages
    assert said == "No process could be started for the work: Resource temporarily unavailable; this one goes on alone."
    with pytest.raises(UserError, match=r"Take fewer, with OMP_NUM_THREADS=1.$"):
        list(in_parallel([functools.partial(int, 1)] * 3, CPU))


@on_linux
@pytest.mark.parametrize(("processes", "way_out"), [("1", "with OMP_NUM_THREADS=1"), ("2", "a start without torchrun")])
def test_what_to_do_where_one_is_killed_can_be_done(
    processes: str, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torchrun` has set the variable."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    with pytest.raises(UserError, match=rf"killed perhaps for want of memory. Free some memory, or .*{way_out}.$"):
        list(module.on_all_cores(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(4), "the work"))


@on_linux
def test_a_thread_that_the_arguments_begin_forbids_processes_and_brings_no_others() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)

    def numbers() -> Iterator[int]:
        thread.start()
        yield from range(4)

    try:
        found = list(module.on_all_cores(lambda _: threading.current_thread().name, numbers(), "the work"))
    finally:
        done.set()
        thread.join()
    assert found == [threading.current_thread().name] * 4


@on_linux
def test_what_holds_the_lock_of_python_has_processes_or_nothing() -> None:
    def work(_: int) -> tuple[int, str]:
        return os.getpid(), threading.current_thread().name

    found = list(module.on_all_cores(work, range(4), "the work"))
    assert os.getpid() not in [process for process, _ in found]
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: list(module.on_all_cores(work, range(4), "the work"))).result()
    assert {process for process, _ in found} == {os.getpid()}
    assert len(set(found)) == 1


@on_linux
def test_as_many_are_begun_as_have_work() -> None:
    workers = Workers("the work", "Do less.")
    torch.set_num_threads(4)
    with workers.keep():
        assert len(pids(workers, number=2)) <= 2
        assert len(multiprocessing.active_children()) == 2
        pids(workers, number=3)
        assert len(multiprocessing.active_children()) == 3
        torch.set_num_threads(2)
        assert len(pids(workers)) <= 2
        assert pids(workers, number=1) == {os.getpid()}, "one alone is not sent to another"


@on_linux
def test_one_that_died_at_rest_is_replaced() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        pids(workers)
        killed = multiprocessing.active_children()[0]
        killed.kill()
        killed.join()
        found = pids(workers, number=20)
        assert killed.pid not in found
        assert len(multiprocessing.active_children()) == 2


@on_linux
def test_after_a_failure_and_after_a_caller_who_left_it_goes_on() -> None:
    workers = Workers("the work", "Do less.")

    def fail_at(place: int) -> int:
        if place == 3:
            raise ValueError("no")
        return place

    with workers.keep():
        with pytest.raises(ValueError, match="no"):
            list(workers.map(fail_at, range(6), CPU))
        assert not multiprocessing.active_children()
        results = workers.map(pid_of, range(50), CPU)
        next(results)
        results.close()
        assert not multiprocessing.active_children()
        assert list(workers.map(lambda place: place, range(6), CPU)) == list(range(6))


@on_linux
def test_who_may_still_be_at_work_is_never_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C comes before the processes of a call that was broken off have been ended."""
    workers = Workers("the work", "Do less.")

    def interrupted(_workers: object) -> None:
        raise KeyboardInterrupt

    with workers.keep():
        results = workers.map(lambda place: time.sleep(0.05) or -place, range(1, 50), CPU)
        next(results)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                results.close()
        assert list(workers.map(lambda place: place, range(6), CPU)) == list(range(6))


@on_linux
def test_a_call_within_a_call_has_processes_of_its_own() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        outer = workers.map(pid_of, range(6), CPU)
        of_outer = {next(outer)}
        of_inner = pids(workers)
        of_outer |= set(outer)
        assert not of_outer & of_inner
        assert pids(workers) <= of_outer, "which are the ones that stay"
        assert len(multiprocessing.active_children()) == 2


def test_a_copy_has_nobody_at_work() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        pids(workers)
        for copied in (pickle.loads(pickle.dumps(workers)), copy.deepcopy(workers)):
            assert not copied._workers
            assert not copied._num_keeping


@on_linux
def test_a_copy_of_the_first_process_leaves_those_at_rest_alone() -> None:
    code = """
        workers = Workers("the work", "Do less.")
        find = lambda: set(workers.map(lambda place: os.getpid(), range(6), torch.device("cpu")))
        torch.set_num_threads(2)
        with workers.keep():
            first = find()
            if os.fork() == 0:
                of_copy = find()
                os._exit(len(of_copy & first))
            _, status = os.wait()
            print(status, find() <= first)
    """
    out, said = started(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE).communicate()
    assert (out, said) == ("0 True\n", "")


@on_linux
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, None])
def test_none_at_rest_outlives_the_first(ending: signal.Signals | None) -> None:
    code = """
        workers = Workers("the work", "Do less.")
        torch.set_num_threads(2)
        keeping = workers.keep()
        keeping.__enter__()
        print(*set(workers.map(lambda place: time.sleep(0.05) or os.getpid(), range(6), torch.device("cpu"))))
        sys.stdout.flush()
        sys.argv[1:] and time.sleep(60)
    """
    arguments = () if ending is None else ("stay",)
    program = started(code, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    numbers = program.stdout.readline().split()
    assert len(numbers) == 2
    if ending is not None:
        program.send_signal(ending)
    _, said = program.communicate()
    assert said == ""
    wait_for(lambda: not any(map(is_alive, numbers)))
