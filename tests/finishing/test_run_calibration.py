"""The calibration of a run: made once, read again, and made anew where it would speak of another model."""

import json
import re
from pathlib import Path

import pytest
from commands import call_tmt
from toy import toy_pairs
from translators import SMALL, make_translator, write_run

from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing.confidence import Calibration
from transformer_mt.finishing.run_calibration import RunCalibration, calibrate_run, calibration_of_run

NUM = 100  # the fewest that there may be


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has learned nothing, with its data."""
    return write_small_run(tmp_path, NUM)


def write_small_run(folder: Path, num: int) -> Path:
    pairs = toy_pairs(num)
    for name, side in zip(("valid.en", "valid.es"), zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    model = {"num_encoder_layers": 1, **SMALL}
    data = {
        "src_lang": "en", "tgt_lang": "es", "root": str(folder), "train": [{"src": "valid.en", "tgt": "valid.es"}],
        "validation": [{"src": "valid.en", "tgt": "valid.es"}],
    }  # fmt: skip
    return write_run(folder / "run", make_translator(model, data=data, decoding={"beam_size": 1}))


def calibrated(run: Path, told: list[str], **changes: object) -> RunCalibration:
    translator = Translator.load(run, device="cpu")
    return calibration_of_run(translator, search_options(translator.config.decoding, **changes), told.append)


def test_it_is_made_once_for_each_way_to_translate(run: Path) -> None:
    told: list[str] = []
    first = calibrated(run, told)
    assert len(told) == 3, "that it is made, of few pairs, and where it is"
    assert "100 pairs are few" in told[1]
    assert str(run / "confidence") in told[2]
    again = calibrated(run, told, batch_size=5)
    assert len(told) == 3
    assert (again.made_with, again.word_error, again.num_words) == (first.made_with, first.word_error, first.num_words)
    lines = Translator.load(run).translate_lines(
        ["one two"], search_options(Translator.load(run).config.decoding, evidence=True)
    )
    parts = lines[0].hypotheses[0].evidence
    assert again.calibration.of_parts(parts) == first.calibration.of_parts(parts)
    calibrated(run, told, beam_size=2)
    assert len(told) == 6
    calibrated(run, told)
    assert len(told) == 6, "one does not take the place of another"
    (run.parent / "elsewhere").mkdir()
    moved = run.rename(run.parent / "elsewhere" / "moved")
    calibrated(moved, told)
    assert len(told) == 6, "a run may move"


@pytest.mark.parametrize(("key", "lines"), [("avoid", ["dos", "tres"]), ("glossary", ["two\tdos", "two\ttres"])])
def test_it_is_made_for_the_lines_of_a_file_and_not_for_its_name(key: str, lines: list[str], run: Path) -> None:
    told: list[str] = []
    file = run.parent / "lines.txt"
    for number, line in enumerate([*lines, lines[0]]):
        file.write_text(f"{line}\n")
        calibrated(run, told, **{key: str(file)})
        assert len(told) == 3 * min(number + 1, len(lines)), "of lines that were there before it is kept"
    calibrated(run, told, **{key: str(file.rename(run.parent / "renamed.txt"))})
    assert len(told) == 3 * len(lines)


def first_options(run: Path):
    return Translator.load(run).config.decoding


def test_the_errors_are_those_on_the_half_that_was_not_learned_from(run: Path) -> None:
    made = calibrated(run, [])
    translator = Translator.load(run, device="cpu")
    options = search_options(translator.config.decoding, evidence=True)
    pairs = toy_pairs(NUM)
    evidence = [line.hypotheses[0].evidence[0] for line in translator.translate_lines([s for s, _ in pairs], options)]
    references = [tgt for _, tgt in pairs]
    learned = Calibration.fit(evidence[::2], references[::2])
    assert learned.errors(evidence[1::2], references[1::2]) == pytest.approx((made.word_error, made.sentence_error))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("weights", "other weights"), ("pairs", "other validation pairs"), ("order", "other validation pairs"),
        ("damage", "damaged"), ("version", "damaged"),
    ],
)  # fmt: skip
def test_it_is_made_again_where_it_is_of_something_else(change: str, reason: str, run: Path) -> None:
    told: list[str] = []
    calibrated(run, told)
    (path,) = (run / "confidence").iterdir()
    if change == "weights":
        translator = Translator.load(run)
        next(translator.model.parameters()).data += 0.1
        (run / "checkpoints").rename(run / "gone")
        write_run(run, translator)
    elif change == "pairs":
        for name in ("valid.en", "valid.es"):
            with (run.parent / name).open("a") as file:
                file.write("ten\n")
    elif change == "order":  # which leaves the files as large as they were
        for name in ("valid.en", "valid.es"):
            lines = (run.parent / name).read_text().split("\n")[:-1]
            (run.parent / name).write_text("\n".join([*lines[::-1], ""]))
    elif change == "damage":
        path.write_text(path.read_text()[:300])
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 0}))
    again: list[str] = []
    calibrated(run, again)
    assert reason in again[0]
    assert str(path) in again[0]
    after: list[str] = []
    calibrated(run, after)
    assert after == []


def test_a_run_whose_data_has_gone_keeps_its_calibration_and_says_what_to_do_without(run: Path) -> None:
    told: list[str] = []
    calibrated(run, told)
    (run.parent / "data").mkdir()
    for name in ("valid.en", "valid.es"):
        (run.parent / name).rename(run.parent / "data" / name)
    calibrated(run, told)
    assert len(told) == 3
    translator = Translator.load(run)
    with pytest.raises(UserError, match=r"valid\.en"):
        calibrate_run(translator, search_options(translator.config.decoding), told.append)
    calibrate_run(translator, search_options(translator.config.decoding), told.append, str(run.parent / "data"))


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="validation pairs 99 are there, too few"):
        calibrated(write_small_run(tmp_path, 99), [])


def test_it_is_not_made_where_no_confidence_is_low_enough_to_be_rejected(tmp_path: Path) -> None:
    """99 pairs are too few for one."""
    run = write_small_run(tmp_path, 99)
    plain = call_tmt(run.parent, "translate", "--run", "run", "one two")
    config = run / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("reject_below: null", "reject_below: 0.0"), encoding="utf-8")
    result = call_tmt(run.parent, "translate", "--run", "run", "one two")
    assert (result.returncode, result.stdout) == (0, plain.stdout)
    assert not (run / "confidence").exists()
    rejecting = call_tmt(run.parent, "translate", "--run", "run", "--reject-below", "0.1", "one two")
    assert rejecting.returncode == 2
    assert "too few" in rejecting.stderr


def test_the_command_line_makes_it_says_how_far_it_is_off_and_leaves_lines_to_a_person(run: Path) -> None:
    made = call_tmt(run.parent, "calibrate", "--run", "run")
    assert re.search(r"^words 0\.\d{4}  sentences 0\.\d{4}$", made.stdout, re.M)
    rejected = call_tmt(run.parent, "translate", "--run", "run", "--reject-below", "1", "one two", "", "three")
    assert (rejected.returncode, rejected.stdout) == (0, "\n\n\n")
    told = re.findall(r"^line (\d): confidence 0\.\d\d; left to a person$", rejected.stderr, re.M)
    assert told == ["1", "3"]
    assert "calibrating" not in rejected.stderr, "it was made by the command before"
    sure = call_tmt(run.parent, "translate", "--run", "run", "--reject-below", "1", "--format", "jsonl", "one two")
    line = json.loads(sure.stdout)
    assert line["rejected"] is True
    assert 0 < line["hypotheses"][0]["confidence"] < 1
    accepted = call_tmt(run.parent, "translate", "--run", "run", "--reject-below", "0", "one two")
    assert accepted.stdout == line["hypotheses"][0]["text"] + "\n"


def test_the_command_makes_that_of_the_lines_that_the_config_asks_for(run: Path) -> None:
    config = run / "config.yaml"
    text = config.read_text().replace("n_best: 1", "n_best: 3").replace("replace_unk: false", "replace_unk: true")
    config.write_text(text.replace("beam_size: 1", "beam_size: 2"))
    assert call_tmt(run.parent, "calibrate", "--run", "run").returncode == 0
    (name,) = [path.name for path in (run / "confidence").iterdir()]
    assert "_beam3_" in name
    translated = call_tmt(run.parent, "translate", "--run", "run", "--confidence", "--format", "jsonl", "one two")
    assert translated.returncode == 0, translated.stderr
    assert [path.name for path in (run / "confidence").iterdir()] == [name]
    assert call_tmt(run.parent, "calibrate", "--run", "run", "--beam-size", "2").returncode == 0


def test_a_number_that_is_no_confidence_is_refused(run: Path) -> None:
    result = call_tmt(run.parent, "translate", "--run", "run", "--reject-below", "1.5", "one")
    assert result.returncode == 2
    assert "reject_below: 1.5 is not allowed; must be at most 1." in result.stderr
