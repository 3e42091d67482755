"""`tmt runs`: what differs between runs, how far each is, and what is wrong with it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call_tmt
from filelock import FileLock
from safetensors.numpy import load_file
from trainings import edit_state, metrics

from transformer_mt.cli.options import Models
from transformer_mt.judging.runs.summary import summary_of


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: a whole one, one with another width, one that is trained, and damaged ones."""
    folder = tmp_path_factory.mktemp("many") / "runs"

    def copy(name: str) -> Path:
        shutil.copytree(trained / "runs/toy", folder / name, ignore=shutil.ignore_patterns("evaluations", "aligner"))
        return folder / name

    def edit(path: Path, change: Callable[[str], str]) -> None:
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    copy("whole")
    edit(copy("other") / "config.yaml", lambda text: text.replace("lr: 0.004", "lr: 0.002"))
    edit(copy("stopped") / "config.yaml", lambda text: text.replace("max_steps: 1200", "max_steps: 2000"))
    edit(copy("bad config") / "config.yaml", lambda text: text.replace("d_model:", "d_modle:"))
    edit(copy("bad state") / "checkpoints/step_1200/state.json", lambda text: text[:50])
    edit(copy("bad settings") / "checkpoints/step_1200/settings.yaml", lambda text: text[:50])
    shutil.rmtree(copy("no tokenizers") / "tokenizers")
    edit(copy("bad tokenizer") / "tokenizers/tgt.json", lambda text: text[:-9])
    edit(copy("bad metrics") / "metrics.jsonl", lambda text: text + '{"kind": "train", "st')
    shutil.rmtree(copy("new") / "checkpoints")
    copy("trained now")
    (folder / "no run").mkdir()
    (folder / "notes.txt").write_text("no run either")
    return folder


def told(call: Callable, folder: Path, *arguments: str) -> dict[str, dict]:
    """By the name of a run, what the JSON says."""
    result = call("runs", str(folder), "--format", "json", *arguments)
    assert result.returncode == 0, result.stderr
    return {row["run"]: row for row in json.loads(result.stdout)}


def test_states_and_problems(call, folder: Path) -> None:
    with FileLock(folder / "trained now/train.lock"):
        (folder / "trained now/train.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
        rows = told(call, folder)
    assert {name: row["state"] for name, row in rows.items()} == {
        "whole": "finished", "other": "finished", "stopped": "stopped", "bad config": "damaged",
        "bad state": "damaged", "bad settings": "damaged", "no tokenizers": "damaged", "bad tokenizer": "damaged",
        "bad metrics": "finished", "new": "new", "trained now": "training",
    }  # fmt: skip
    problems = {name: row["problems"] for name, row in rows.items() if row["problems"]}
    assert set(problems) == {
        "bad config", "bad state", "bad settings", "no tokenizers", "bad tokenizer", "bad metrics",
    }  # fmt: skip
    assert "d_modle" in problems["bad config"][0]
    assert "state.json" in problems["bad state"][0]
    assert "settings.yaml is damaged: it was changed or cut short" in problems["bad settings"][0]
    assert "tokenizers/manifest.json is missing." in problems["no tokenizers"][0]
    assert "tgt.json is damaged" in problems["bad tokenizer"][0]
    assert problems["bad metrics"] == ["metrics.jsonl: 1 line cannot be read"]
    assert told(call, folder)["trained now"]["state"] == "finished"


def test_a_run_has_its_name_from_inside_it(folder: Path) -> None:
    run = folder / "whole"
    for inside, place in ((run, "."), (run / "checkpoints", "..")):
        result = call_tmt(inside, "runs", place, "--format", "json")
        assert [row["run"] for row in json.loads(result.stdout)] == ["whole"]


def test_a_config_that_is_a_link_to_itself_is_told(call, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs/r"
    shutil.copytree(folder / "whole", run)
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to("config.yaml")
    row = told(call, tmp_path / "runs")["r"]
    assert row["state"] == "damaged"
    assert "there is no file" in row["problems"][0]


def test_the_newest_run_is_looked_for_once(folder: Path, tmp_path: Path) -> None:
    """A training that writes its first checkpoint meanwhile does not change what is searched."""
    shutil.copytree(folder / "whole", tmp_path / "runs/r")
    models = Models(device="cpu", runs=tmp_path / "runs")
    models.search_options({})
    shutil.copytree(folder / "whole", tmp_path / "runs/newer")
    for path in (tmp_path / "runs/newer").rglob("*"):
        os.utime(path, (2**31, 2**31))
    ((run, _),) = models.load(None).checkpoints
    assert run.path.name == "r"
    assert Models(runs=tmp_path / "runs").folders[0].path.name == "newer"


def test_a_best_checkpoint_that_cannot_be_loaded_is_told(call, folder: Path, tmp_path: Path) -> None:
    """It is what verbs take by default, here one before the newest."""
    run = tmp_path / "runs/r"
    shutil.copytree(folder / "whole", run)
    newest, best = run / "checkpoints/step_1200", run / "checkpoints/step_600"
    shutil.copytree(newest, best)
    edit_state(newest, best_step=600)
    assert told(call, tmp_path / "runs")["r"]["problems"] == []
    weights = best / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    row = told(call, tmp_path / "runs")["r"]
    assert row["state"] == "damaged"
    assert "step_600/model.safetensors is missing or damaged" in row["problems"][0]


def test_a_file_that_a_training_takes_away_meanwhile_is_no_damage(folder: Path, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(folder / "whole", tmp_path / "r")
    (tmp_path / "r/swept").touch()
    is_file = Path.is_file

    def seen_at_last(path: Path) -> bool:
        found = is_file(path)
        if path.name == "swept":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", seen_at_last)
    summary = summary_of(tmp_path / "r")
    assert (summary.state, summary.problems) == ("finished", [])


def test_numbers_of_a_run(call, folder: Path) -> None:
    row = told(call, folder)["whole"]
    validations = [line for line in metrics(folder / "whole") if line["kind"] == "validation"]
    assert row["best bleu"] == max(line["bleu"] for line in validations)
    assert row["best nll"] == min(line["nll"] for line in validations)
    weights = load_file(folder / "whole/checkpoints/step_1200/model.safetensors")
    assert row["parameters"] == sum(tensor.size for tensor in weights.values())
    state = json.loads((folder / "whole/checkpoints/step_1200/state.json").read_text())
    assert row["minutes"] == state["elapsed_seconds"] / 60
    assert row["step"] == 1200


def test_the_test_bleu_is_what_an_evaluation_without_options_gives(call, trained: Path, tmp_path: Path) -> None:
    """Wherever the split lies; not that of a file whose name begins alike, of an ensemble, of characters, or of another
    search, however high they are.
    """
    run = tmp_path / "runs/r"
    shutil.copytree(trained / "runs/toy", run, ignore=shutil.ignore_patterns("evaluations", "aligner"))
    for language in ("en", "es"):
        shutil.copyfile(trained / f"data/valid.{language}", tmp_path / f"test_2016.{language}")
    files = ("--src", str(tmp_path / "test_2016.en"), "--ref", str(tmp_path / "test_2016.es"))
    others = (files, ("--run", str(run)), ("--bleu-tokenize", "char"), ("--lowercase",), ("--beam-size", "1"))
    for arguments in (*others, ("--data-root", "data")):
        result = call("evaluate", "--run", str(run), *arguments)
        assert result.returncode == 0, result.stderr
        if arguments in others:
            assert "test bleu" not in told(call, tmp_path / "runs")["r"]
    paths = list((run / "evaluations").glob("*.json"))
    assert len(paths) == len(others) + 1
    for path in paths:
        found = json.loads(path.read_text())
        path.write_text(json.dumps({**found, "bleu": 2.0 if path.name.startswith("test-") else 99.0}))
    assert told(call, tmp_path / "runs")["r"]["test bleu"] == 2
    for path in paths:  # as earlier versions wrote them
        found = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in found.items() if key != "split"}))
    assert "test bleu" not in told(call, tmp_path / "runs")["r"]  # its name says another folder, or files
    assert call("evaluate", "--run", str(run)).returncode == 0
    (plain,) = (run / "evaluations").glob("test_step_1200_beam2_lp0.6.json")
    found = json.loads(plain.read_text())
    plain.write_text(json.dumps({key: value for key, value in found.items() if key != "split"} | {"bleu": 3.0}))
    assert told(call, tmp_path / "runs")["r"]["test bleu"] == 3


def test_only_settings_that_differ_are_told_and_every_line_fits(call, folder: Path) -> None:
    rows = told(call, folder)
    assert rows["other"]["training.lr"] == "0.002"
    assert rows["whole"]["training.lr"] == "0.004"
    assert rows["bad config"]["training.lr"] is None
    settings = {name for name in rows["whole"] if "." in name}
    assert settings == {"training.lr", "training.max_steps"}
    result = call("runs", str(folder))
    lines = result.stdout.split("\n")
    table = lines[: lines.index(next(line for line in lines if line.startswith("bad config: ")))]
    assert all(len(line) <= 120 for line in table)
    assert re.search(r"^other +finished +1200 +0.002 ", result.stdout, re.MULTILINE)
    tsv = call("runs", str(folder), "--format", "tsv").stdout.removesuffix("\n").split("\n")
    assert len({line.count("\t") for line in tsv}) == 1
    assert len(tsv) == 12


def test_best_scores_of_runs_that_got_worse(call, tmp_path: Path) -> None:
    """Best is the lowest nll and the highest BLEU, wherever they stand."""
    run = tmp_path / "runs/r"
    run.mkdir(parents=True)
    scores = [(10, 3.0, 5.0), (20, 1.5, 30.0), (30, 1.7, 25.0), (40, None, 0.0)]
    lines = [{"kind": "validation", "step": step, "nll": nll, "bleu": bleu} for step, nll, bleu in scores]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = told(call, tmp_path / "runs")["r"]
    assert (row["best nll"], row["at step (nll)"]) == (1.5, 20)
    assert (row["best bleu"], row["at step (bleu)"]) == (30.0, 20)
    assert row["state"] == "damaged"  # its config is gone


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"-inf"'])
def test_numbers_that_are_not_finite_are_left_out(call, tmp_path: Path, number: str) -> None:
    """As another tool may have written them; JSON has no name for them, and a chart no place."""
    run = tmp_path / "runs/r"
    run.mkdir(parents=True)
    lines = [{"kind": "validation", "step": step, "nll": 5.0 - step, "bleu": 1.0 * step} for step in (1, 2, 3)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    odd = f'{{"kind": "validation", "step": 4, "nll": {number}, "bleu": {number}}}\n'
    (run / "metrics.jsonl").write_text(odd + text + odd)

    def no_json(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    result = call("runs", str(tmp_path / "runs"), "--format", "json")
    (row,) = json.loads(result.stdout, parse_constant=no_json)
    assert (row["best nll"], row["best bleu"]) == (2.0, 3.0)
    assert not [problem for problem in row["problems"] if "metrics.jsonl" in problem]
    for name in ("x.html", "x.png"):
        result = call("runs", str(tmp_path / "runs"), "--curves", str(tmp_path / name), "--metric", "bleu")
        assert result.returncode == 0, result.stderr
    points = re.findall(r"<title>r, step (\d+): ([\d.]+)</title>", (tmp_path / "x.html").read_text(encoding="utf-8"))
    assert points == [("1", "1"), ("2", "2"), ("3", "3")]


@pytest.mark.parametrize(
    "line",
    ['{"kind": "train", "step": Infinity, "loss": 1.0}', '{"kind": "train", "step": NaN, "loss": 1.0}',
     f'{{"kind": "train", "step": 1, "loss": 1{"0" * 400}}}'],
    ids=["infinite step", "no step", "beyond every float"],
)  # fmt: skip
def test_a_line_whose_numbers_are_beyond_reading_is_told(call, tmp_path: Path, line: str) -> None:
    run = tmp_path / "runs/r"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(line + "\n")
    assert "metrics.jsonl: 1 line cannot be read" in told(call, tmp_path / "runs")["r"]["problems"]


def test_curves_as_a_page_hold_every_value(call, folder: Path) -> None:
    result = call("runs", str(folder), "--curves", str(folder / "c.html"), "--metric", "bleu", "--metric", "train/lr")
    assert result.returncode == 0
    page = (folder / "c.html").read_text(encoding="utf-8")
    assert re.findall("<figcaption>(.*?)</figcaption>", page) == ["validation/bleu", "train/lr"]
    assert "<script" not in page
    assert "://" not in page
    for line in metrics(folder / "whole"):
        if line["kind"] == "train":
            assert f"<title>whole, step {line['step']:,}: {line['lr']:.4g}</title>" in page


@pytest.mark.parametrize("value", [3.0, 2.35e17, -1e17, 1e300])
def test_a_single_value_has_its_place_however_large(call, tmp_path: Path, value: float) -> None:
    """As the ppl of a training that has diverged: beside 1e17 a half is nothing, and a chart needs some width."""
    run = tmp_path / "runs/r"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(json.dumps({"kind": "validation", "step": 20, "ppl": value}) + "\n")
    result = call("runs", str(tmp_path / "runs"), "--curves", str(tmp_path / "x.html"), "--metric", "ppl")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert f"<title>r, step 20: {value:.4g}</title>" in page
    at, *ticks = (float(y) for y in re.findall(r'(?:points="[\d.]+,|<line [^>]*y1=")([\d.]+)', page)[::-1])
    assert min(ticks) <= at <= max(ticks)


def test_curves_as_a_picture(call, folder: Path) -> None:
    result = call("runs", str(folder), "--curves", str(folder / "c.png"))
    assert result.returncode == 0
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "There is no folder none."),
        (["data"], "There is no run in"),
        (["runs", "--metric", "bleu"], "--metric says what --curves draws."),
        (["runs", "--curves", "c.svg"], "ends neither in .png nor in .html"),
        (["runs", "--curves", "c.png", "--metric", "blue"], "No run has the metric 'blue'. There are train/"),
        (["runs", "--curves", "none/c.png"], "cannot be written"),
    ],
)
def test_mistakes(call, trained: Path, arguments: list[str], message: str) -> None:
    result = call("runs", *arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_it_loads_no_torch(trained: Path) -> None:
    code = "import sys; from transformer_mt.judging.runs.summary import summaries_of; from pathlib import Path; "
    code += "summaries_of(Path('runs')); assert not {'torch', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=trained, check=True)
