"""What a user of a script can put right: one sentence, status 2, and nothing measured."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarking import SCRIPTS, stub
from translators import SMALL, make_translator, write_run

from transformer_mt.errors import UserError

# TEXT, NONE, RUN and PYTHON stand for paths.

TRAIN, DATA, DECODE = "bench_train.py", "bench_data.py", "bench_decode.py"
PRECISIONS, PRESETS = "compare_precisions.py", "compare_presets.py"
TOO_FEW = "argument {}: '{}' will not do. Give a whole number of {} or more."
INT4 = "training.precision: 'int4' is not one of fp32, bf16, fp16, auto"
NO_MEANING = "{} no meaning {}. Leave that out."
REFUSED: list[tuple[str, str, str]] = [
    (TRAIN, "", "the following arguments are required: --data. See bench_train.py --help."),
    (TRAIN, "--data NONE", "There is no folder NONE. Check the path."),
    (TRAIN, "--data NONE --join 8", "There is no folder NONE. Check the path."),
    (TRAIN, "--data EMPTY", "There is no file EMPTY/tok/train.lc.norm.tok.en. Check the path."),
    (TRAIN, "--data EMPTY --join 2", "There is no folder EMPTY/tok. Check the path."),
    (TRAIN, "--data TEXT --join 0", TOO_FEW.format("--join", 0, 1)),
    (TRAIN, "--data TEXT --join 5000", "--data with --join 5000 has text for "),
    (TRAIN, "--data TEXT --steps 0", TOO_FEW.format("--steps", 0, 1)),
    (TRAIN, "--data TEXT --steps x", TOO_FEW.format("--steps", "x", 1)),
    (TRAIN, "--data TEXT --steps 4", "--steps 4 is less than a window. Give 5 or more."),
    (TRAIN, "--data TEXT --rounds 0", TOO_FEW.format("--rounds", 0, 1)),
    (TRAIN, "--data TEXT --plain-loop NONE", "There is no file NONE. Check the path."),
    (TRAIN, "--data TEXT --plain-loop LOOP --d-model 512", "LOOP has no 'd_model=256', which is replaced in a copy."),
    (TRAIN, "--data TEXT --joey-python NONE", "NONE cannot be run: No such file or directory. Name a Python,"),
    (TRAIN, "--data TEXT --joey-python PYTHON", "PYTHON has no joeynmt. Name the Python of an environment that has."),
    (TRAIN, "--data TEXT --joey-config NONE", "There is no file NONE. Check the path."),
    (TRAIN, "--data TEXT --joey-config LOOP", NO_MEANING.format("--joey-config has", "without --joey-python")),
    (TRAIN, "--data TEXT --d-model 100", "num_heads is 8, which does not divide d_model 100"),
    (TRAIN, "--data TEXT --precisions auto int4", INT4),
    (TRAIN, "--data TEXT --precisions fp32", "--precisions needs auto, which is what is compared. Add it."),
    (TRAIN, "--data TEXT --against EMPTY", "EMPTY is no checkout of this project: it has no folder"),
    (TRAIN, "--data TEXT --against NONE", "There is no folder NONE. Check the path."),
    (
        TRAIN,
        "--data TEXT --against EMPTY --joey-python STUB --precisions auto",
        NO_MEANING.format("--joey-python and --precisions have", "with --against"),
    ),
    ("claims.py", "path nosuch", "There is no claim 'nosuch'. See claims.py --list"),
    ("claims.py", "--steps 0", TOO_FEW.format("--steps", 0, 1)),
    ("compare_architectures.py", "--steps 0", TOO_FEW.format("--steps", 0, 1)),
    ("compare_architectures.py", "--config NONE", "there is no file 'NONE'; looked in "),
    (TRAIN, "--data TEXT --profile", NO_MEANING.format("--profile has", "without --preset")),
    (TRAIN, "--data TEXT --max-tokens 25000", NO_MEANING.format("--max-tokens has", "without --preset")),
    (
        TRAIN,
        "--data TEXT --preset base --d-model 256 --against NONE --rounds 7",
        NO_MEANING.format("--against and --d-model and --rounds have", "with --preset"),
    ),
    (TRAIN, "--data EMPTY --preset base", "There is no file EMPTY/tok/train.lc.norm.tok.en. Check the path."),
    (TRAIN, "--data TEXT --preset base --device tpu", "'tpu' is not a device. Use auto, cpu, cuda, cuda:N or mps."),
    (TRAIN, "--data TEXT --preset base --device cuda:99", "The device cuda:99 was asked for, and torch sees "),
    (TRAIN, "--data TEXT --preset base --device cpu --set nosuch=1", "nosuch: unknown key; the keys here are "),
    (TRAIN, "--data TEXT --preset base --device cpu --precision int4", INT4),
    (TRAIN, "--data TEXT --preset base --device cpu --set name=other", "--set changes the name or leaves no step"),
    (TRAIN, "--data TEXT --preset base --warm-up -1", TOO_FEW.format("--warm-up", -1, 0)),
    (DATA, "--tatoeba NONE", "There is no folder NONE. Check the path."),
    (DATA, "--tatoeba EMPTY", "There is no file EMPTY/train.en. Check the path."),
    (DATA, "--tatoeba BLANK/no", "BLANK/no/train.en and BLANK/no/train.es are empty. Give files with text."),
    (DATA, "--tatoeba BLANK/lines", "BLANK/lines/train.en and BLANK/lines/train.es have blank lines alone. Give"),
    (DATA, "--tatoeba BLANK/unequal", "BLANK/unequal/train.en has 1 lines and BLANK/unequal/train.es has 2."),
    *[(DATA, f"--pairs {number}", TOO_FEW.format("--pairs", number, 100)) for number in (0, 2, -5)],
    (DECODE, "--run NONE --data TEXT", "There is no folder NONE. Check the path."),
    (DECODE, "--run EMPTY --data TEXT", "EMPTY is not the folder of a run: it has no config.yaml."),
    (DECODE, "--run RUN --data NONE", "There is no folder NONE. Check the path."),
    (DECODE, "--run RUN --data EMPTY", "There is no file EMPTY/tok/test_2016_flickr.lc.norm.tok.en. Check the path."),
    (DECODE, "--run RUN --data TEXT --hf-python NONE", "NONE cannot be run: No such file or directory."),
    (DECODE, "--run RUN --data TEXT --joey-python PYTHON", "PYTHON has no joeynmt. Name"),
    (DECODE, "--run RUN --data TEXT --threads 0", TOO_FEW.format("--threads", 0, 1)),
    (DECODE, "--run RUN --data TEXT --batch-sizes 8 0", TOO_FEW.format("--batch-sizes", 0, 1)),
    (DECODE, "--run RUN --data TEXT --rounds 0", TOO_FEW.format("--rounds", 0, 1)),
    (DECODE, "--run RUN --data TEXT --precisions fp32 int4", "'int4' is not a precision. Use auto, fp32,"),
    (DECODE, "--run RUN --data TEXT --precisions int8", "--precisions needs fp32, whose text all are held against."),
    (DECODE, "--run RUN --data TEXT --device tpu", "argument --device: invalid choice: 'tpu'"),
    ("bench_constraints.py", "--run NONE", "There is no folder NONE. Check the path."),
    ("bench_constraints.py", "--run EMPTY", "EMPTY is not the folder of a run: it has no config.yaml."),
    ("bench_constraints.py", "--run RUN --lines 0", TOO_FEW.format("--lines", 0, 1)),
    (PRECISIONS, "--data NONE", "There is no folder NONE. Check the path."),
    (PRECISIONS, "--data EMPTY", "There is no file EMPTY/tok/train.lc.norm.tok.en. Check the path."),
    (PRECISIONS, "--data TEXT --steps 0", TOO_FEW.format("--steps", 0, 1)),
    (PRECISIONS, "--data TEXT --seeds 4 4", "--seeds: one seed, or the same twice, has no standard deviation."),
    (PRECISIONS, "--data TEXT --precisions fp32 int4", INT4),
    (PRESETS, "--data EMPTY", "There is no file EMPTY/train.en. Check the path."),
    (PRESETS, "--data NONE", "There is no folder NONE. Check the path."),
    (PRESETS, "--data EMPTY --steps 0", TOO_FEW.format("--steps", 0, 1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def places(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for a path, and the path."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("empty", "blank", "blank/no", "blank/lines", "blank/unequal"):
        (folder / name).mkdir()
    for name, source, target in (("no", "", ""), ("lines", "\n \n", " \n\n"), ("unequal", "a\n", "a\nb\n")):
        (folder / "blank" / name / "train.en").write_text(source, encoding="utf-8")
        (folder / "blank" / name / "train.es").write_text(target, encoding="utf-8")
    (folder / "loop.py").write_text("print()\n", encoding="utf-8")
    names = {"NONE": folder / "none", "EMPTY": folder / "empty", "BLANK": folder / "blank", "LOOP": folder / "loop.py"}
    run = write_run(folder / "run", make_translator({"num_encoder_layers": 1, **SMALL}))
    names |= {"TEXT": text, "RUN": run, "PYTHON": Path(sys.executable), "STUB": stub(folder / "python", "")}
    return {name: str(path) for name, path in names.items()}


@pytest.mark.parametrize(("script", "arguments", "told"), REFUSED, ids=[f"{case[0]} {case[1]}" for case in REFUSED])
def test_a_mistake_is_told_in_one_sentence_before_anything_is_measured(
    script: str, arguments: str, told: str, places: dict[str, str], scripts: SimpleNamespace, capsys
) -> None:
    def filled(words: str) -> str:
        return re.sub("|".join(places), lambda found: places[found[0]], words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPTS / script), *filled(arguments).split()])
        patch.setattr(subprocess, "Popen", only_asks(subprocess.Popen))
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert re.fullmatch(rf"{script}: .*\n", printed.err)
    assert filled(told) in printed.err
    assert "with name=" not in printed.err


def only_asks(popen: Any) -> Any:
    """A Python may be asked for its modules, but nothing else begun."""

    def checked(arguments: list[Any], *others: Any, **options: Any) -> Any:
        assert arguments[1] == "-c", f"begun: {arguments}"
        return popen(arguments, *others, **options)

    return checked


def test_what_ends_a_script_has_the_status_of_tmt(scripts: SimpleNamespace, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench.py"])
    for error, status, told in (
        (UserError("It is so. Do that."), 2, "It is so. Do that."),
        (
            PermissionError(13, "Permission denied", "/a/path"),
            2,
            "/a/path: Permission denied. Put that right and start",
        ),
        (OSError(28, "No space left on device"), 2, "No space left on device. Put that right and start again."),
        (KeyboardInterrupt(), 130, "stopped"),
    ):

        def main(error: BaseException = error) -> None:
            raise error

        with pytest.raises(SystemExit) as ended:
            scripts.command.run(main)
        assert ended.value.code == status
        assert capsys.readouterr().err.startswith(f"bench.py: {told}")
    with pytest.raises(ZeroDivisionError):
        scripts.command.run(lambda: print(1 // 0))


def test_a_python_is_made_absolute_and_stays_a_link(scripts: SimpleNamespace, tmp_path: Path, monkeypatch) -> None:
    """A virtual environment's Python is a link, and which environment it is is told by where that stands."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert scripts.command.python("json")("bin/python") == tmp_path / "bin/python"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert scripts.command.python("json")("python") == tmp_path / "bin/python"
    with pytest.raises(UserError, match=r"has no nosuch1 and no nosuch2\. Name the Python"):
        scripts.command.python("nosuch1", "json", "nosuch2")("bin/python")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/__init__.py").write_text("")
    (tmp_path / "broken/part.py").write_text("raise OSError('undefined symbol.')")
    with pytest.raises(UserError, match=r"cannot import json and broken\.part: OSError: undefined symbol\. Install"):
        scripts.command.python("json", "broken.part")("bin/python")
    with pytest.raises(UserError, match="does not run as a Python"):
        scripts.command.python("json")("/bin/false")


def test_what_tmt_refuses_within_a_benchmark_is_told_in_its_words(scripts: SimpleNamespace, tmp_path: Path) -> None:
    refusing = "import sys; print('Traceback: not this'); print('tmt: No. Yes.', file=sys.stderr); sys.exit(int('{}'))"
    several = "import sys; sys.exit(print('run: a\\ntmt: b.yaml:\\n  c: no\\n  ... and 14 more', file=sys.stderr) or 2)"
    with pytest.raises(UserError, match=r"^b\.yaml:\n  c: no\n  \.\.\. and 14 more$"):
        scripts.training_opponents.run_measured([sys.executable, "-c", several], tmp_path)
    with pytest.raises(UserError, match=r"^No\. Yes\.$"):
        scripts.training_opponents.run_measured([sys.executable, "-c", refusing.format(2)], tmp_path)
    with pytest.raises(SystemExit, match="Traceback: not this"):
        scripts.training_opponents.run_measured([sys.executable, "-c", refusing.format(1)], tmp_path)


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("multi30k_task2.sh", [], "Name the folder with the data: bash scripts/multi30k_task2.sh FOLDER"),
        ("multi30k_task2.sh", ["NONE"], "There is no folder NONE. Name the one with the data."),
        ("multi30k_task2.sh", ["EMPTY"], "There is no file EMPTY/train.lc.norm.tok.en. See the beginning of"),
        (
            "diversify.sh",
            ["base.yaml"],
            "Name a config and a folder for the new pairs: bash scripts/diversify.sh CONFIG",
        ),
    ],
)
def test_a_script_without_its_files_says_which(script: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    paths = {"EMPTY": str(empty), "NONE": str(tmp_path / "none")}
    done = subprocess.run(
        ["bash", str(SCRIPTS / script), *(paths.get(one, one) for one in arguments)], capture_output=True, text=True
    )
    assert done.returncode == 2
    for name, path in paths.items():
        said = said.replace(name, path)
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
