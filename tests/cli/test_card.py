"""`tmt card`: what it says is what the run's own files say."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from commands import call_tmt
from trainings import metrics, rewrite_manifest
from translators import MODELS_BY_NAME, PICTURES, make_translator, write_run


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A folder with runs/toy, which nobody has evaluated, and the data."""
    shutil.copytree(trained / "runs/toy", tmp_path / "runs/toy", ignore=shutil.ignore_patterns("evaluations"))
    shutil.copytree(trained / "data", tmp_path / "data")
    return tmp_path


def card(folder: Path, *arguments: str) -> str:
    result = call_tmt(folder, "card", "--run", "runs/toy", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_card_has_what_the_run_says_of_itself(folder: Path) -> None:
    text = card(folder, "--license", "cc-by-4.0")
    assert text.startswith("---\n")
    assert yaml.safe_load(text.split("---\n")[1]) == {
        "language": ["en", "es"], "license": "cc-by-4.0", "library_name": "transformer_mt",
        "pipeline_tag": "translation", "tags": ["translation", "transformer_mt"],
    }  # fmt: skip
    assert "| train | 6,000 | train.en / train.es |" in text
    assert "| validation | 20 | valid.en / valid.es |" in text
    assert "tmt translate --run runs/toy --checkpoint step_1200" in text
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    config = yaml.safe_load((folder / "runs/toy/config.yaml").read_text())
    for section, keys in yaml.safe_load(settings).items():
        assert keys.items() <= config[section].items()
    assert yaml.safe_load(settings)["model"] == config["model"]
    assert "A word that its vocabulary lacks" in text  # the toy's tokenizer is of whole words
    headings = ["How to run it", "Data", "Scores", "Settings", "Limits", "Licence"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == headings
    assert str(folder) not in text


def test_the_name_of_a_file_is_one_cell_of_the_table(folder: Path) -> None:
    for path in (folder / "runs/toy").rglob("*.yaml"):
        path.write_text(path.read_text(encoding="utf-8").replace("src: valid.en", "src: v|<b>.en"), encoding="utf-8")
    rewrite_manifest(folder / "runs/toy/checkpoints/step_1200")
    rows = re.findall(r"^\| (?:split|train|validation) \|.*$", card(folder), re.MULTILINE)
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [4, 4, 4]
    assert r"v\|\<b>.en / valid.es" in rows[-1]


@pytest.mark.parametrize("place", ["runs/toy", "my runs/the toy", "."])
@pytest.mark.parametrize("whole", [False, True], ids=["as a relative path", "as a whole path"])
def test_its_command_translates_where_the_card_was_asked_for(folder: Path, place: str, whole: bool) -> None:
    here, run = folder, folder / place
    if place == ".":
        here = run = folder / "runs/toy"
    elif not run.exists():
        run.parent.mkdir()
        (folder / "runs/toy").rename(run)
    text = call_tmt(here, "card", "--run", str(run) if whole else place).stdout
    assert str(folder) not in text
    (code,) = re.findall(r"```bash\n(.*?)\n```", text, re.DOTALL)
    program, *arguments = shlex.split(code)
    result = call_tmt(here, *arguments)
    assert (program, result.returncode, result.stdout.count("\n")) == ("tmt", 0, 1), result.stderr


def test_scores_come_from_the_evaluations_of_this_checkpoint_alone(folder: Path) -> None:
    last = [line for line in metrics(folder / "runs/toy") if line["kind"] == "validation"][-1]
    assert f"bleu {last['bleu']:.2f}, chrf {last['chrf']:.2f}" in card(folder)
    assert call_tmt(folder, "average", "runs/toy", "--last", "1").returncode == 0
    assert "None: `tmt evaluate` was not run" in card(folder, "--checkpoint", "average")
    assert call_tmt(folder, "evaluate", "--run", "runs/toy", "--beam-size", "1").returncode == 0
    (path,) = (folder / "runs/toy/evaluations").glob("*.json")
    saved = json.loads(path.read_text())
    text = card(folder)
    numbers = f"{saved['bleu']:.2f} | {saved['chrf']:.2f} | {saved['ppl']:.2f}"
    assert f"| valid.en / valid.es | 20 | greedy, fp32 | {numbers} | 1 |" in text
    assert f"\n1. BLEU `{saved['bleu_signature']}`, chrF `{saved['chrf_signature']}`\n" in text
    assert "None: `tmt evaluate` was not run" in card(folder, "--checkpoint", "average")


def test_scores_of_other_words_or_case_name_their_signatures(folder: Path) -> None:
    """The rows would differ in nothing but the scores."""
    for arguments in ((), ("--bleu-tokenize", "char"), ("--lowercase",)):
        assert call_tmt(folder, "evaluate", "--run", "runs/toy", "--beam-size", "1", *arguments).returncode == 0
    text = card(folder)
    signatures = re.findall(r"^(\d)\. BLEU `(.*)`, chrF `(.*)`$", text, re.MULTILINE)
    assert [number for number, *_ in signatures] == ["1", "2", "3"]
    by_number = {number: signed for number, *signed in signatures}
    rows = re.findall(r"^\| valid.*\| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| (\d) \|$", text, re.MULTILINE)
    shown = {(bleu, chrf, *by_number[number]) for bleu, chrf, number in rows}
    saved = [json.loads(path.read_text()) for path in (folder / "runs/toy/evaluations").glob("*.json")]
    keys = ("bleu_signature", "chrf_signature")
    assert shown == {(f"{one['bleu']:.2f}", f"{one['chrf']:.2f}", *(one[key] for key in keys)) for one in saved}
    assert len(shown) == 3


def test_a_card_without_a_licence_says_so(folder: Path) -> None:
    text = card(folder)
    assert yaml.safe_load(text.split("---\n")[1])["license"] == "unknown"
    assert "None was named." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "nowhere"], "nowhere is not the folder of a run"),
        (["--run", "runs/toy", "--checkpoint", "step_7"], "has no checkpoint 'step_7'; there are "),
    ],
)
def test_mistakes_get_one_clear_sentence(folder: Path, arguments: list[str], message: str) -> None:
    result = call_tmt(folder, "card", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test_step_1200_beam1.json", "{"), ("test_step_1200_beam1.json", "[]"),
        ("test_step_1200_beam1.json", '{"bleu": 1}'),
        ("test_step_1200_beam1.json", '{"checkpoint": "step_1200", "ensemble": []}'),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named(folder: Path, name: str, text: str) -> None:
    (folder / "runs/toy/evaluations").mkdir()
    (folder / "runs/toy/evaluations" / name).write_text(text)
    result = call_tmt(folder, "card", "--run", "runs/toy")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{name} cannot be read" in result.stderr
    assert "delete it and run `tmt evaluate` again" in result.stderr


def test_a_state_that_became_another_is_not_told(folder: Path) -> None:
    (state,) = folder.glob("runs/toy/checkpoints/step_1200/state.json")
    state.write_text(state.read_text().replace('"num_pairs": 6000', '"num_pairs": 6001'))
    result = call_tmt(folder, "card", "--run", "runs/toy")
    assert (result.returncode, result.stdout) == (2, "")
    assert "state.json is damaged: it was changed or cut short since it was written." in result.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"bleu": 1}'])
def test_a_damaged_evaluation_of_another_checkpoint_is_left_out_with_a_remark(
    folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert call_tmt(folder, "evaluate", "--run", "runs/toy", "--beam-size", "1").returncode == 0
    whole = card(folder)
    (folder / "runs/toy/evaluations/test_step_600_beam1.json").write_text(text)
    result = call_tmt(folder, "card", "--run", "runs/toy")
    assert (result.returncode, result.stdout) == (0, whole)
    (said,) = caplog.messages
    assert said.startswith("left out of the card, since its name is of another checkpoint: runs/toy/evaluations/test_")


@pytest.mark.parametrize("torn", ["garbage", "{}", '{"kind": "validation", "step": 120', "\x00\x00", '{"step": "x"}'])
def test_a_torn_line_of_the_metrics_takes_nothing_from_the_card(folder: Path, torn: str) -> None:
    """Not from the exports either, which have a card: the history is no price for it."""
    whole = card(folder)
    metrics = folder / "runs/toy/metrics.jsonl"
    lines = metrics.read_text().split("\n")
    metrics.write_text("\n".join([*lines[:1], torn, *lines[1:], torn]))
    assert card(folder) == whole
    assert ", chrf " in whole


def test_a_score_that_was_not_finite_is_left_out(folder: Path) -> None:
    with (folder / "runs/toy/metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "step": 1200, "nll": 1.5, "ppl": null, "bleu": 7.0}\n')
        file.flush()
        assert "while it was trained: bleu 7.00, nll 1.50. BLEU" in card(folder)
        file.write('{"kind": "validation", "step": 1200, "nll": 1.5}\n')
    assert "while it was trained: nll 1.50. `tmt evaluate` would" in card(folder)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (PICTURES, "It reads pictures of text: 8 x 6 pixels at a time"),
        (MODELS_BY_NAME["lstm without feeding"], "\nA recurrent network with attention that translates en to es"),
    ],
    ids=["picture", "rnn"],
)
def test_a_card_says_what_kind_of_model_it_is(model: dict, said: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs/toy", make_translator(model))
    text = card(tmp_path)
    assert said in text
    assert ("vocabulary lacks" in text) == (model is MODELS_BY_NAME["lstm without feeding"])
