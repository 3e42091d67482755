"""Nothing is left behind, whoever dies first, and processes are for whoever computes alone."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from marks import on_linux, slow
from tasks import Ended, is_alive, started
from waiting import wait_until

from transformer_mt.machine.workers import may_fork


@on_linux
def test_processes_that_cannot_be_begun_are_one_message(ended: Ended) -> None:
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
    out, _ = ended(code)
    assert out == "No process could be started for the work: Too many open files. Take fewer, with OMP_NUM_THREADS=1.\n"


@on_linux
def test_a_generator_that_nobody_closes_ends_its_processes_quietly(ended: Ended) -> None:
    code = """
        results = in_processes([os.getpid] * 9, 2)
        print(next(results), flush=True)
    """
    out, said = ended(code)
    assert not is_alive(out.strip())
    assert said == ""


@on_linux
def test_a_copy_of_the_first_process_leaves_the_others_alone(ended: Ended) -> None:
    code = """
        results = in_processes([os.getpid] * 9, 2)
        pids = [next(results)]
        if os.fork() == 0:
            results.close()
            os._exit(0)
        os.wait()
        print(len([*pids, *results]))
    """
    out, said = ended(code)
    assert (out, said) == ("9\n", "")


@on_linux
def test_a_process_of_a_pool_works_in_threads(ended: Ended) -> None:
    code = """
        import multiprocessing
        torch.set_num_threads(1)
        def search(_):
            torch.set_num_threads(2)
            return list(in_parallel([os.getpid] * 4, torch.device("cpu"))) == [os.getpid()] * 4
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map(search, [0]))
    """
    out, _ = ended(code)
    assert out == "[True]\n"


@on_linux
@pytest.mark.parametrize("ending", [signal.SIGKILL, slow(signal.SIGTERM), signal.SIGINT])
def test_no_process_outlives_the_first(ending: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C goes to all of them, and only the first says something. One that it could not end sees to its task."""
    program = started(
        "list(in_processes([long] * 30, 3))", str(tmp_path), start_new_session=True, stderr=subprocess.PIPE
    )
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
    if ending == signal.SIGINT:
        os.killpg(program.pid, ending)
    else:
        program.send_signal(ending)
    _, said = program.communicate()
    assert said.count("Traceback") == (ending == signal.SIGINT), "of the first process alone"
    wait_until(lambda: not any(is_alive(path.name) for path in tmp_path.iterdir()))


@on_linux
def test_processes_are_for_whoever_computes_alone(ended: Ended) -> None:
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
    out, _ = ended(code)
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
