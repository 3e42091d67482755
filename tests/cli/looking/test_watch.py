"""`tmt watch`: the page of a run, as a program asks for it and in Chromium."""

import asyncio
import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, until
from commands import call_tmt
from filelock import FileLock
from servers import Answer, Served
from trainings import metrics, metrics_with_clock, rewrite_manifest

from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.watching.live_run import REST_SECONDS, LiveRun

pytest.importorskip("starlette", reason="tmt watch needs the extra serve")
from transformer_mt.watching.application import FOLDER, application


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The folder of a finished run of its own."""
    shutil.copytree(trained / "runs/toy", tmp_path / "a <b> run")
    return tmp_path / "a <b> run"


def asker(run: Path, host: str = "127.0.0.1") -> Callable[..., Answer]:
    """What asks the page's application for a path, by ASGI alone."""
    live = LiveRun(RunFolder(run))
    app = application(live, host)

    def ask(path: str, query: str = "", name: str = "localhost") -> Answer:
        live._looked = -REST_SECONDS  # as if enough time had gone by
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"host", name.encode())], "http_version": "1.1", "scheme": "http", "root_path": "",
            "server": (name, 80), "client": ("127.0.0.1", 1), "asgi": {"version": "3.0"},
        }  # fmt: skip
        asyncio.run(app(scope, receive, send))
        headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]))

    return ask


def test_the_page_has_everything_before_any_script_runs(run: Path) -> None:
    ask = asker(run)
    page = ask("/").body.decode()
    assert "<title>a &lt;b&gt; run</title>" in page
    assert "finished: max_steps 1,200 reached" in page
    best = max(line["bleu"] for line in metrics(run) if line["kind"] == "validation")
    assert f"<dd>{best:.2f} at step" in page
    assert page.count("<figure>") >= 7
    assert page.count("<article>") == 5
    assert not re.search("@[A-Z]+@", page)
    for path in ("/", "/watch.css", "/watch.js"):
        answer = ask(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(", answer.body.decode())
    assert {path.name for path in FOLDER.iterdir()} == {"index.html", "watch.css", "watch.js"}


def test_pictures_are_those_that_the_page_names(run: Path) -> None:
    ask = asker(run)
    names = re.findall(r'src="picture\?([^"]+)"', ask("/").body.decode())
    assert names
    for name in names:
        assert ask("/picture", name.replace("&amp;", "&")).body.startswith(b"\x89PNG")
    assert ask("/picture", "name=another").status == 404


def test_only_what_is_new_is_sent(run: Path) -> None:
    ask = asker(run)
    told = ask("/parts").json
    assert ask("/parts", f"have={told['version']}").status == 204
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 1300, "loss": 7.5, "nll": 7.25, "elapsed_seconds": 99.0}\n')
    new = ask("/parts", f"have={told['version']}").json
    assert "train/nll 7.25 at step 1,300" in new["parts"]["curves"]
    assert [name for name in told["parts"] if told["parts"][name] != new["parts"][name]] == ["state", "curves"]


def test_diagnoses_are_those_of_tmt_diagnose(run: Path) -> None:
    assert "None." in asker(run)("/parts").json["parts"]["diagnoses"]
    lines = metrics_with_clock(run)
    lines += [{**lines[0], "step": 1200 + step} for step in range(50, 1050, 50)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = call_tmt(run.parent, "diagnose", str(run), "--json")
    names = [one["name"] for one in json.loads(said.stdout)["diagnoses"]]
    assert names == ["lr_too_high"], "the loss is again what it was at the start"
    shown = asker(run)("/parts").json["parts"]["diagnoses"]
    assert re.findall("<strong>(.*?)</strong>", shown) == names


def test_the_state_is_that_of_the_folder(run: Path) -> None:
    ask = asker(run)

    def state() -> str:
        return re.sub("<[^>]+>", " ", ask("/parts").json["parts"]["state"])

    with FileLock(run / "train.lock"):
        (run / "train.lock").write_text("process of another kind")
        assert "training" in state()
        assert "minutes left" in state()
    assert "finished" in state()
    shutil.rmtree(run / "checkpoints")
    assert "stopped before its first checkpoint" in state()
    run.rename(run.with_name("elsewhere"))
    assert "is gone. What it said last stands below." in state()
    assert "target tokens a second" in state()


@pytest.mark.parametrize("changed", [{"step": {}}, {"elapsed_seconds": None}, {"step": 10**6}])
def test_a_state_that_was_changed_is_told_and_not_believed(run: Path, changed: dict[str, Any]) -> None:
    state = run / "checkpoints/step_1200/state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), **changed}))
    found = asker(run)("/parts").json["parts"]
    assert "state.json is damaged: it was changed or cut short" in found["state"]
    assert "<dt>step</dt><dd>1,200 of 1,200</dd>" in found["state"]


def test_a_run_is_watched_before_its_first_checkpoint(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    with Served(run, verb="watch") as served:
        page = served.get("/")
    assert page.status == 200
    assert "stopped before its first checkpoint" in page.body.decode()


def test_epochs_and_a_training_that_was_made_longer(run: Path) -> None:
    """36 steps of a minute each were 3 epochs and 12 micro-batches of the next, 2 a step: 10 steps an epoch."""
    ask = asker(run)
    config = (run / "config.yaml").read_text()
    state = json.loads((run / "checkpoints/step_1200/state.json").read_text())
    state |= {"step": 36, "epoch": 3, "micro_batch": 12, "micro_batches_per_update": 2}
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints/step_36").mkdir(parents=True)
    (run / "checkpoints/step_36/state.json").write_text(json.dumps(state))
    rewrite_manifest(run / "checkpoints/step_36")
    line = {"kind": "train", "nll": 1.0, "epoch": 3, "tokens_per_second": 9.0}
    lines = [{**line, "step": step, "elapsed_seconds": 60.0 * step} for step in range(1, 37)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))

    def told(limits: str) -> str:
        (run / "config.yaml").write_text(re.sub("max_steps: .*\n *max_epochs: .*", limits, config))
        return re.sub("<[^>]+>", " ", ask("/parts").json["parts"]["state"])

    with FileLock(run / "train.lock"):
        (run / "train.lock").write_text("process of another kind")
        for limits, steps, epochs, left in (
            ("max_steps: 5000\n  max_epochs: 8", "36 of 5,000", "4 of 8", "44"),  # 8 * 30 / 3 - 36 minutes
            ("max_steps: 5000\n  max_epochs: null", "36 of 5,000", "4", "4,964"),
            ("max_steps: 1200\n  max_epochs: 200", "36 of 1,200", "4 of 200", "1,164"),
        ):
            said = " ".join(told(limits).split())
            assert f"step {steps} epoch {epochs} minutes of" in said
            assert f"minutes left, about {left}" in said
        # Two of the 3 epochs were of both directions: 6 steps a pass, and 10 passes in 8 epochs.
        plain = config
        config = plain.replace("both_directions_epochs: 0", "both_directions_epochs: 2")
        config = config.replace("joint: false", "joint: true")
        assert "minutes left, about 24" in " ".join(told("max_steps: 5000\n  max_epochs: 8").split())
        config = plain
        # 201 of the steps to come have two passes; then all, and six of the nineteen that the pace is taken from.
        for start_step, left in ((1000, "1,365"), (31, f"{1164 * 2 * 19 / 25:,.0f}")):
            config = re.sub("consistency: .*", f"consistency: {{kind: simcut, start_step: {start_step}}}", config)
            said = " ".join(told("max_steps: 1200\n  max_epochs: 200").split())
            assert f"minutes left, about {left}" in said


def test_text_is_never_markup_and_no_place_of_the_page(run: Path) -> None:
    from transformer_mt.watching.event_files import SampleText
    from transformer_mt.watching.page_parts import Now, parts

    live = LiveRun(RunFolder(run))
    live.events.samples = {1: {5: SampleText("<script>alert(1)</script>", "@STATE@", "<img src=x>")}}
    found = parts(Now("name", "training", live.config, live.metrics, live.events, None, [], "<b>"))
    assert "<script>" not in found["samples"]
    assert "<img" not in found["samples"]
    assert "@STATE@" in found["samples"]
    assert "&lt;b&gt;" in found["state"]


def test_names_from_elsewhere_are_refused_where_it_listens_here_alone(run: Path) -> None:
    for host in ("127.0.0.1", "127.0.0.2", "::1"):
        assert asker(run, host)("/", name="elsewhere.example").status == 400
        assert asker(run, host)("/", name=f"[{host}]" if ":" in host else host).status == 200
    assert asker(run, "0.0.0.0")("/", name="elsewhere.example").status == 200


def test_mistakes_get_a_sentence(tmp_path: Path, run: Path) -> None:
    missing = call_tmt(tmp_path, "watch", "nothing")
    assert missing.returncode == 2
    assert "nothing" in missing.stderr
    assert "Traceback" not in missing.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = call_tmt(tmp_path, "watch", str(run), "--port", port)
    assert refused.returncode == 2
    assert "Give another --port." in refused.stderr
    (run / "config.yaml").write_text("no: config")
    assert "unknown key" in call_tmt(tmp_path, "watch", str(run)).stderr


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_follows_and_survives(run: Path, width: int) -> None:
    from torch.utils.tensorboard.writer import SummaryWriter

    board = SummaryWriter(str(run))
    board.add_text("sample 1", "**source**: one\n\n**reference**: uno\n\n**translation**: dos", 600)
    board.close()

    with chromium(width) as page:
        with Served(run, verb="watch") as served:
            page.get(f"http://127.0.0.1:{served.port}/")
            until(page, "return document.querySelectorAll('article').length === 5")
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
            page.execute_script("document.querySelector('summary').click()")
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"kind": "train", "step": 1300, "loss": 7.5, "nll": 7.25, "elapsed_seconds": 99.0}\n')
            until(page, "return document.getElementById('curves').innerHTML.includes('step 1,300')")
            assert page.execute_script("return document.querySelector('details').open")
            page.refresh()
            until(page, "return document.getElementById('curves').innerHTML.includes('step 1,300')")
            until(page, "return document.querySelectorAll('article').length === 5")
        until(page, "return !document.getElementById('away').hidden")
        with Served(run, "--port", str(served.port), verb="watch"):
            until(page, "return document.getElementById('away').hidden")
        assert not [one for one in page.get_log("browser") if "Refused" in one["message"]]
