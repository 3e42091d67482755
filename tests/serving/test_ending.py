"""Signals, and processes that die."""

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from marks import slow
from servers import Answer, Serve, Served
from toy import toy_pairs
from waiting import wait_until

from transformer_mt import Translator

SENTENCES = [english for english, _ in toy_pairs(6, seed=7)]
VALUES = {"source": "en", "target": "es"}


def under_way(server: Served, pool: ThreadPoolExecutor) -> "Future[Answer]":
    """A request that the server has, and whose processes stand still."""
    server.signal_search(signal.SIGSTOP)
    answer = pool.submit(server.post, "/translate", {"q": SENTENCES, **VALUES})
    wait_until(lambda: "tmt_waiting_requests 1" in server.get("/metrics").body.decode())
    return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT)])
def test_a_signal_finishes_what_is_begun(serve: Serve, translator: Translator, number: int) -> None:
    server = serve("--workers", "1", anew=True)
    with ThreadPoolExecutor(1) as pool:
        answer = under_way(server, pool)
        # To all processes, as a terminal and a service manager do.
        server.signal_search(number)
        os.kill(server.process.pid, number)
        wait_until(lambda: _refuses(server))
        assert not answer.done()
        server.signal_search(signal.SIGCONT)
        assert answer.result().json == {"translatedText": translator.translate(SENTENCES)}
    status = server.process.wait(60)
    assert status == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert not any("Traceback" in line for line in server.told)


def _refuses(server: Served) -> bool:
    try:
        server.connect().close()
    except ConnectionError:
        return True
    return False


def test_processes_that_die_are_begun_again_and_none_outlives_the_server(serve: Serve, translator: Translator) -> None:
    server = serve("--workers", "2", anew=True)
    with ThreadPoolExecutor(1) as pool:
        answer = under_way(server, pool)
        died = server.signal_search(signal.SIGKILL)
        assert answer.result().json == {"translatedText": translator.translate(SENTENCES)}, "searched again"
    assert server.translate(SENTENCES) == translator.translate(SENTENCES)
    wait_until(lambda: "tmt_processes 2" in server.get("/metrics").body.decode())
    assert "tmt_processes_begun_again_total 2" in server.get("/metrics").body.decode()
    pids = server.search_processes()
    assert len(pids) == 2
    assert not set(died) & set(pids)
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
