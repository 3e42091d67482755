"""scripts/ablation.py: rows build on each other, runs are shared, and what is done is not done again."""

import json
import re
import statistics
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from ablation import Row, main, refuse_other_work, rows_of
from toy import toy_mapping, write_toy_corpus

from transformer_mt.api import evaluate
from transformer_mt.config.loading import load_config
from transformer_mt.errors import UserError

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/ablation.py"
ROWS = [
    {"name": "plain", "set": ["training.max_steps=7"]},
    {"name": "wider", "set": ["model.d_ff=64"], "why": "a wider model"},
    {"name": "averaged", "average": 2, "why": "two checkpoints"},
    {"name": "together", "from": "plain", "ensemble": True},
]


def arguments(folder: Path, rows: list[dict] | None, *more: str) -> list[str]:
    experiment = {"config": str(folder / "toy.yaml"), "evaluate": {"beam_size": 1}, "rows": rows}
    (folder / "rows.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    return [str(folder / "rows.yaml"), "--data", str(folder / "data"), "--work", str(folder / "work"), *more]


def ablation(folder: Path, rows: list[dict], *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments(folder, rows, *more)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ablation")
    mapping = toy_mapping(write_toy_corpus(place / "data"), training={"max_steps": 14, "checkpoint_every_steps": 3})
    mapping["data"]["test"] = mapping["data"]["validation"]
    (place / "toy.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    return place


@pytest.mark.slow
def test_rows_build_on_each_other_and_nothing_is_done_twice(folder: Path) -> None:
    done = ablation(folder, ROWS, "--seeds", "1", "2", "--at-a-time", "2")
    assert done.returncode == 0, done.stderr
    runs = sorted(path for path in (folder / "work").iterdir() if path.is_dir() and path.name != "cache")
    configs = [load_config(str(run / "config.yaml")).config for run in runs]
    told = sorted((config.model.d_ff, config.training.max_steps, config.seed) for config in configs)
    assert told == [(32, 7, 1), (32, 7, 2), (64, 7, 1), (64, 7, 2)], "averages and ensembles train nothing"
    table = dict(re.findall(r"^\| (\w+) \| .*? \| (.*) \| [\d ±.]+ \|$", done.stdout, re.MULTILINE))
    assert list(table) == [row["name"] for row in ROWS]
    plain = [run for run, config in zip(runs, configs, strict=True) if config.model.d_ff == 32]
    scores = [evaluate(run, split="test", beam_size=1, save=False).scores.bleu for run in plain]
    expected = f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"
    assert table["plain"] == f"{expected} | {expected}"  # the test's files are those of the validation
    together = evaluate(plain, split="test", beam_size=1, save=False).scores.bleu
    assert table["together"] == f"{together:.2f} | {together:.2f}"

    scores_file = folder / "work/scores.json"
    changed = dict.fromkeys(json.loads(scores_file.read_text(encoding="utf-8")), 50.0)
    scores_file.write_text(json.dumps(changed), encoding="utf-8")
    again = ablation(folder, ROWS, "--seeds", "1", "2")
    assert "| plain |  | 50.00 ± 0.00 | 50.00 ± 0.00 |" in again.stdout
    assert "nothing" not in again.stdout
    assert again.stdout.count("| plain |") == len(ROWS), "the table is printed after each row"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"name": "a", "sets": []}], "row 1: give it a name of its own, and no key but"),
        ([{"name": "a"}, {"name": "a"}], "row 2: give it a name of its own"),
        ([{"name": "a", "from": "b"}], "row 1: from is b, which no row before it is called."),
        ([{"name": "a", "set": ["model.width=3"]}], "model.width: unknown key"),
        (None, "does not say what is compared"),
    ],
)
def test_a_row_that_says_nothing_is_refused_before_anything_is_trained(
    rows: list[dict] | None, expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablation.py", *arguments(folder, rows)])
    monkeypatch.setattr("ablation.trained", None)  # whoever calls it fails
    with pytest.raises(UserError) as error:
        main()
    assert expected in str(error.value)


def test_what_is_left_empty_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text("config: c\nevaluate:\nrows:\n  - {name: a, set: null, evaluate: null}\n")
    assert rows_of(tmp_path / "rows.yaml") == ("c", [Row("a")])


def test_a_folder_of_other_data_is_refused(tmp_path: Path) -> None:
    """Its scores would be printed as those of these."""
    refuse_other_work(tmp_path / "work", {"config": "a.yaml", "--data": "/one"})
    refuse_other_work(tmp_path / "work", {"config": "a.yaml", "--data": "/one"})
    with pytest.raises(UserError, match="work was begun with --data /one, not /two"):
        refuse_other_work(tmp_path / "work", {"config": "a.yaml", "--data": "/two"})


@pytest.mark.parametrize("number", [1, 2])
def test_so_many_trainings_run_at_once_and_one_that_fails_ends_all(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, both, running = [], threading.Barrier(number), threading.Semaphore(number)

    def trained(_config: str, row: Row, seed: int, _args: object) -> float:
        assert running.acquire(blocking=False), "one more than asked for"
        begun.append(row.run_name(seed))
        if len(begun) <= number:
            both.wait(60)  # for as many as there are to be at once
        running.release()
        if len(begun) > 2:
            sys.exit(3)
        return 1.0

    monkeypatch.setattr("ablation.trained", trained)
    monkeypatch.setattr("ablation.judged", lambda *_: 40.0)
    rows = [{"name": name, "set": [f"model.d_ff={i}"]} for i, name in enumerate("abcdefgh", start=8)]
    chosen = "--seeds", "1", "2", "--at-a-time", str(number)
    monkeypatch.setattr(sys, "argv", ["ablation.py", *arguments(folder, [*rows, {"name": "i", "from": "a"}], *chosen)])
    with pytest.raises(SystemExit, match="3"):
        main()
    assert len(set(begun)) == len(begun) < 16


def test_every_row_that_is_shipped_can_be_trained() -> None:
    """`both-directions`, `less dropout` and `two ways` are shipped configs. The others say how they differ, and none
    trains what another does, unless it is judged in another way.
    """
    config, rows = rows_of(SCRIPT.with_name("ablation_multi30k.yaml"))
    trained = {}
    for row in rows:
        found = load_config(config, row.settings).config
        trained.setdefault(found.model_dump_json(), []).append(row.name)
    assert [names for names in trained.values() if len(names) > 1] == [
        ["plain", "averaged"], ["narrow", "narrow ensemble"], ["less dropout", "wider beam", "greedy", "ensemble"],
        ["two ways", "two ways greedy"],
    ]  # fmt: skip
    configs = {
        "both-directions": config, "less dropout": "multi30k_diverse.yaml", "two ways": "multi30k_diverse_two_ways.yaml"
    }  # fmt: skip
    for name, shipped in configs.items():
        assert name in trained[load_config(shipped, ["name=multi30k_en_de_tok"]).config.model_dump_json()]
