"""What a server takes on, and what it says to the others."""

import resource
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from commands import call_tmt
from servers import Answer, Answers, Serve, Served
from starlette.requests import Request

from transformer_mt.cli.verbs.serve import refuse_windows
from transformer_mt.errors import UserError
from transformer_mt.machine.listening import bound
from transformer_mt.serving import begin
from transformer_mt.serving.begin import MANY_FILES, allow_many_files
from transformer_mt.serving.pool import Pool
from transformer_mt.serving.refusal import Limits, Refusal
from transformer_mt.serving.service import Service
from transformer_mt.serving.web.endpoints import DEEPL, Server, check_key, key_from
from transformer_mt.serving.web.metrics import Metrics
from transformer_mt.serving.web.parameters import Parameters
from transformer_mt.storage.run_folder import RunFolder

VALUES = {"source": "en", "target": "es"}


@pytest.fixture(scope="module")
def limited(run: Path) -> Iterator[Served]:
    """A server that takes little of everything."""
    limits = ("--max-chars", "100", "--max-lines", "5", "--max-waiting", "2", "--timeout", "3")
    with Served(run, "--workers", "1", *limits) as served:
        yield served


def test_long_requests_are_refused_with_413(limited: Served) -> None:
    assert limited.translate("a" * 100)
    assert limited.translate("one\n" * 4 + "one")
    for text in ("a" * 101, ["a" * 60, "b" * 41], "one\n" * 5 + "one", ["one"] * 6):
        for path, values in (
            ("/translate", {"q": text, **VALUES}),
            ("/v2/translate", {"text": text, "target_lang": "ES"}),
        ):
            answer = limited.post(path, values)
            assert answer.status == 413
            assert "Send less." in next(iter(answer.json.values()))
    assert limited.post("/detect", {"q": "a" * 101}).status == 413
    assert limited.post("/translate", {"q": "one", **VALUES, "other": "x" * 10**7}).status == 413


def test_half_a_request_is_refused_in_time(limited: Served, still_answers: Answers) -> None:
    with limited.connect() as half, half.makefile("rb") as answer:
        half.sendall(b'POST /translate HTTP/1.1\r\nHost: tmt\r\nContent-Length: 100\r\n\r\n{"q": "one')
        assert limited.translate("one two.")
        assert answer.readline().split()[1] == b"408"
    still_answers(limited)


def test_waiting_requests_are_refused_with_429_and_late_ones_with_503(limited: Served) -> None:
    """The last one of this server: its process may have to be begun again."""
    limited.signal_search(signal.SIGSTOP)

    def ask(_: int) -> Answer:
        return limited.post("/translate", {"q": "one two.", **VALUES})

    with ThreadPoolExecutor(5) as pool:
        answers = sorted(pool.map(ask, range(5)), key=lambda answer: answer.status)
    assert [answer.status for answer in answers] == [429, 429, 429, 503, 503]
    assert "retry-after" in answers[0].headers
    assert "no more are taken" in answers[0].json["error"]
    assert "within 3 seconds" in answers[-1].json["error"]
    assert limited.get("/health").status == 200
    limited.signal_search(signal.SIGCONT)
    assert limited.translate("one two.")


def test_a_key_is_asked_for(serve: Serve) -> None:
    server = serve("--workers", "1", "--api-key", "schlüssel")
    values = {"q": "one", **VALUES}
    assert server.post("/translate", values).status == 403
    assert server.post("/translate", {**values, "api_key": "schlussel"}).status == 403
    assert "A key is needed" in server.form("/translate", {**values, "api_key": ""}).json["error"]
    assert server.post("/translate", {**values, "api_key": "schlüssel"}).status == 200
    assert server.form("/translate", {**values, "api_key": "schlüssel"}).status == 200
    texts = {"text": ["one"], "target_lang": "ES"}
    assert server.post("/v2/translate", texts).status == 403
    assert server.form("/v2/usage", {"auth_key": "schlüssel"}).status == 200
    assert set(server.get("/v2/usage").json) == {"message"}
    assert server.get("/languages").status == server.get("/health").status == server.get("/").status == 200
    assert "schl" not in server.get("/metrics").body.decode()
    assert not any("schl" in line for line in server.told)


def test_the_key_may_stand_in_the_environment_or_a_header(run: Path) -> None:
    with Served(run, "--workers", "1", environment={"TMT_API_KEY": "secret"}) as server:
        texts = {"text": ["one"], "target_lang": "ES"}
        assert server.post("/v2/translate", texts).status == 403
        for scheme in ("DeepL-Auth-Key", "Bearer"):
            assert server.post("/v2/translate", texts, {"Authorization": f"{scheme} secret"}).status == 200
        assert server.post("/v2/translate", texts, {"Authorization": "DeepL-Auth-Key other"}).status == 403


def test_a_blank_key_in_the_environment_is_not_taken_for_none(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for blank in ("", "\n"):
        monkeypatch.setenv("TMT_API_KEY", blank)
        result = call_tmt(run, "serve", "--run", str(run))
        assert (result.returncode, "--api-key is blank" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("key", ["schlüssel", "à", "ключ", "a b"])
def test_a_key_is_the_same_in_a_header_whatever_its_encoding(run: Path, key: str) -> None:
    """And what stands around it, as at the end of a file, is none of it."""
    server = Server(cast(Service, None), Metrics(), key_from(f" {key}\n"))

    def status(sent: bytes) -> int:
        head = {"type": "http", "headers": [(b"authorization", b"Bearer " + sent)]}
        try:
            check_key(server, DEEPL, Request(head), Parameters({}))
        except Refusal as refusal:
            return refusal.status
        return 200

    assert status(key.encode()) == status(key.encode() + b" ") == 200
    assert status(key.encode("latin-1", "replace")) == (403 if key == "ключ" else 200)
    assert status(key.encode("ascii", "replace")) == (200 if key.isascii() else 403)
    assert status(key.encode() + b"x") == status(b"") == status(b"\xff") == 403


def test_two_runs_of_one_pair_are_refused_by_name(run: Path) -> None:
    result = call_tmt(run.parent.parent, "serve", "--run", "runs/toy", "--run", str(run))
    assert result.returncode == 2
    assert f"runs/toy and {run} both translate en to es" in result.stderr


def test_a_port_that_is_taken_is_told(server: Served, run: Path) -> None:
    result = call_tmt(run, "serve", "--run", str(run), "--port", str(server.port))
    assert result.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {server.port}" in result.stderr
    assert "Give another --port." in result.stderr


def test_a_port_that_another_server_takes_while_the_models_are_loaded_is_told(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux gives both the place, until one of them listens."""
    with bound("127.0.0.1", 0) as other:
        port = other.getsockname()[1]

        class Loading(Pool):
            def begin(self) -> None:
                pass

            def wait_until_ready(self) -> list[str]:
                other.listen()
                return [""]

        monkeypatch.setattr(begin, "Pool", Loading)
        options = begin.Options("127.0.0.1", port, Limits(), device="cpu", num_processes=1)
        with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1, port {port}: .* Give another --port\."):
            begin.serve([RunFolder(run)], {}, options, lambda said: None)


def test_on_windows_too_a_place_is_one_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """There two may have the place of a socket that asks for what lets a server begin at once elsewhere."""
    for platform, asks in (("linux", True), ("win32", False)):
        monkeypatch.setattr(sys, "platform", platform)
        with bound("127.0.0.1", 0) as listener:
            assert (listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0) == asks


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "a..b"])
def test_an_address_that_is_not_of_this_machine_is_told(host: str, run: Path) -> None:
    result = call_tmt(run, "serve", "--run", str(run), "--port", "0", "--host", host)
    assert result.returncode == 2
    assert f"cannot listen on {host}, port 0: " in result.stderr
    assert "Give another --host." in result.stderr


def test_files_of_the_search_are_read_before_anybody_asks(run: Path) -> None:
    for option in ("--avoid", "--glossary"):
        result = call_tmt(run, "serve", "--run", str(run), "--port", "0", "--workers", "1", option, "nothing.txt")
        assert result.returncode == 2
        assert f"There is no file nothing.txt. Check the name after {option}." in result.stderr


def test_options_that_make_no_sense_are_refused_before_anything_is_loaded(run: Path) -> None:
    for arguments, said in (
        (("--beam-size", "0"), "beam_size"),
        (("--seed", "3"), "nothing is drawn by chance"),
        (("--api-key", ""), "--api-key is blank"),
        (("--api-key", " \n"), "--api-key is blank"),
        (("--api-key", "one\ntwo"), "--api-key has a line end"),
        (("--api-key", "x" * 201), "--api-key has 201 characters"),
        (("--timeout", "inf"), "'--timeout'"),
    ):
        result = call_tmt(run, "serve", "--run", str(run), *arguments)
        assert (result.returncode, said in result.stderr) == (2, True), result.stderr


def test_a_checkpoint_that_is_not_there_is_told_before_an_aligner_is_trained(backwards: Path) -> None:
    result = call_tmt(backwards, "serve", "--run", str(backwards), "--port", "0", "--checkpoint", "step_7")
    assert result.returncode == 2
    assert result.stderr.startswith(f"tmt: {backwards} has no checkpoint 'step_7'; there are ")


def test_a_missing_library_is_told_with_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    result = call_tmt(run, "serve", "--run", str(run))
    assert result.returncode == 2
    assert "starlette" in result.stderr
    assert 'pip install "transformer-mt[serve]"' in result.stderr


def test_metrics_name_no_address_and_no_key(server: Served) -> None:
    server.post("/translate?api_key=hidden", {"q": "one two.", **VALUES})
    server.get("/nowhere/hidden")
    text = server.get("/metrics").body.decode()
    assert "hidden" not in text
    assert "127.0.0.1" not in text
    assert 'tmt_requests_total{endpoint="other",status="404"}' in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) > 5
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rpartition(" ")[2]) >= 0


@pytest.mark.parametrize(
    ("limits", "allowed", "then"),
    [
        ((256, 2**63 - 1), MANY_FILES, MANY_FILES),  # of macOS
        ((256, 2**63 - 1), 128, 256),
        ((1024, 524_288), 524_288, 524_288),  # of Linux
        ((524_288, 524_288), 524_288, 524_288),
        ((1024, 4096), 4096, 4096),
    ],
)
def test_a_server_takes_as_many_open_files_as_it_may(
    limits: tuple[int, int], allowed: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS says that there is no limit, and refuses more than it has."""
    now = [limits]

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > min(wanted[1], allowed):
            raise ValueError("current limit exceeds maximum limit")
        now.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    allow_many_files()
    assert now[-1] == (then, limits[1])


def test_windows_is_refused_with_a_way_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is loaded that Windows lacks."""
    refuse_windows()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UserError, match=r"^tmt serve does not run on Windows itself\. Start it in the"):
        refuse_windows()
