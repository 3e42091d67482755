"""The benchmarks run, and what they print is what they measured. Never how fast anything is."""

import importlib
import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from toy import toy_mapping, toy_pairs, write_toy_corpus

from transformer_mt.config.loading import load_config, parse_run_config
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.errors import UserError
from transformer_mt.model.transformer import Transformer
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.run import start_or_resume

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
SCRIPTS = REPOSITORY / "scripts"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPTS / script), *arguments], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A folder in the layout of Multi30k, with text enough for twenty batches."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "tok").mkdir()
    pairs = toy_pairs(9000)
    for split, part in (("train", pairs), ("val", pairs[:50]), ("test_2016_flickr", pairs[:50])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            lines = "".join(f"{line.removesuffix('.')} .\n" for line in side)
            (folder / "tok" / f"{split}.lc.norm.tok.{language}").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Modules of scripts/ by their names, which no test after this one finds."""
    monkeypatch.syspath_prepend(SCRIPTS)
    before = set(sys.modules)
    names = ("command", "bench_train", "bench_decode", "foreign_decoders", "preset_speed", "training_opponents")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in {path.stem for path in SCRIPTS.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


def stub(path: Path, code: str) -> Path:
    """What stands for a Python that has other toolkits: asked for its modules it names none that it lacks."""
    asked = "import json, sys\nif sys.argv[1] == '-c':\n    sys.exit()\n"
    path.write_text(f"#!{sys.executable}\n{asked}{code}", encoding="utf-8")
    path.chmod(0o755)
    return path


JOEY_LOGS = """
print("2026-01-01 INFO - joeynmt.training - Epoch   1, Step:       10, Batch Loss: 9.1, Tokens per Sec:     7, Lr: 0.1")
for speed in (300, 100, 250):
    print(f"Epoch   1, Step:       20, Batch Loss: 8.2, Batch Acc: 0.1, Tokens per Sec: {speed:8.0f}, Lr: 0.000300")
"""


def row(table: str, side: str) -> float:
    (speed,) = re.findall(rf"^\| {side} \| ([\d,]+) \| \d+% \| [\d,]+ MiB \| (?:[\d.]+%)? \|$", table, re.MULTILINE)
    return float(speed.replace(",", ""))


@pytest.mark.parametrize(
    "shape",
    [pytest.param((), marks=pytest.mark.slow), ("--d-model", "32", "--join", "4")],
    ids=["as given", "another shape"],
)
def test_bench_train_measures_ours_and_the_plain_loop(shape: tuple[str, ...], text: Path, tmp_path: Path) -> None:
    if not SHARED.exists():
        pytest.skip(f"the opponent is needed: there is no folder {SHARED}")
    opponent = ("--plain-loop", str(SHARED / "bench/plain_loop.py"))
    joey = stub(tmp_path / "python", JOEY_LOGS)
    table = run("bench_train.py", "--data", str(text), *opponent, "--joey-python", str(joey), *shape, "--smoke")
    assert f"d_model {32 if shape else 256}\n" in table
    ours, plain = row(table, "ours, auto"), row(table, "plain loop, fp32")
    wait = re.findall(r"^\| ours, auto \|.* MiB \| ([\d.]+)% \|$", table, re.MULTILINE)
    assert 0 <= float(wait[0]) < 100
    shares = re.findall(r"^  \w.* ([\d.]+) % +[\d.]+ ms$", table, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)
    last = re.fullmatch(r"(\d+\.\d\d) x plain loop", table.rstrip("\n").split("\n")[-1])
    assert last is not None
    assert float(last[1]) == pytest.approx(ours / plain, rel=0.01, abs=0.01)
    assert row(table, "Joey NMT, fp32") == 250
    joey_ratio, loop_ratio, *_ = table.split("\n")
    # The table rounds tokens a second to whole ones, which moves a 250th of them by at most 0.002.
    assert float(joey_ratio.removesuffix(" x Joey NMT")) == pytest.approx(ours / 250, abs=0.008)
    assert loop_ratio == last[0]


@pytest.mark.slow
def test_bench_train_measures_another_checkout(text: Path) -> None:
    table = run("bench_train.py", "--data", str(text), "--against", str(REPOSITORY), "--d-model", "32", "--smoke")
    here, there = row(table, "ours, auto"), row(table, f"{REPOSITORY}, auto")
    *_, rounds, last = table.rstrip("\n").split("\n")
    each, _, ratio = rounds.rpartition(": ")
    assert each == f"rounds: {here:,.0f} and {there:,.0f}"
    assert float(ratio) == pytest.approx(here / there, abs=0.008)
    found = re.fullmatch(rf"(\d+\.\d\d) x {REPOSITORY}", last)
    assert found is not None
    assert float(found[1]) == pytest.approx(here / there, abs=0.02)
    assert table.split("\n")[0] == last


# What a user can put right: one sentence, status 2, and nothing measured. TEXT, NONE, RUN and PYTHON stand for paths.

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
def places(text: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for a path, and the path."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("empty", "blank", "blank/no", "blank/lines", "blank/unequal"):
        (folder / name).mkdir()
    for name, source, target in (("no", "", ""), ("lines", "\n \n", " \n\n"), ("unequal", "a\n", "a\nb\n")):
        (folder / "blank" / name / "train.en").write_text(source, encoding="utf-8")
        (folder / "blank" / name / "train.es").write_text(target, encoding="utf-8")
    (folder / "loop.py").write_text("print()\n", encoding="utf-8")
    names = {"NONE": folder / "none", "EMPTY": folder / "empty", "BLANK": folder / "blank", "LOOP": folder / "loop.py"}
    names |= {"TEXT": text, "RUN": trained, "PYTHON": Path(sys.executable), "STUB": stub(folder / "python", "")}
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
    with pytest.raises(UserError, match="does not run as a Python"):
        scripts.command.python("json")("/bin/false")


def test_what_tmt_refuses_within_a_benchmark_is_told_in_its_words(scripts: SimpleNamespace, tmp_path: Path) -> None:
    refusing = "import sys; print('Traceback: not this'); print('tmt: No. Yes.', file=sys.stderr); sys.exit(int('{}'))"
    with pytest.raises(UserError, match=r"^No\. Yes\.$"):
        scripts.training_opponents.run_measured([sys.executable, "-c", refusing.format(2)], tmp_path)
    with pytest.raises(SystemExit, match="Traceback: not this"):
        scripts.training_opponents.run_measured([sys.executable, "-c", refusing.format(1)], tmp_path)


# Other toolkits


def test_joey_is_measured_by_its_log_and_given_our_text_and_widths(
    scripts: SimpleNamespace, text: Path, tmp_path: Path
) -> None:
    config = tmp_path / "joey.yaml"
    settings = "root: FOLDER\nembedding_dim: 256\nhidden_size: 256\nff_size: 1024\nmax_length: 100\n"
    on_a_gpu = "use_cuda: False\nfp16: False\nbatch_size: 4096\nnum_layers: 3\nnum_heads: 8\n"
    config.write_text(settings + on_a_gpu, encoding="utf-8")
    python = stub(tmp_path / "python", f"assert sys.argv[1:3] == ['-m', 'joeynmt']\n{JOEY_LOGS}")
    shape = scripts.training_opponents.Shape(64, 128, num_heads=4, num_layers=2, max_tokens=9000, device="cuda")
    measured = scripts.training_opponents.joey(text, python, config, shape, tmp_path)
    assert measured.speed == 250  # the median of what comes after the first
    place = tmp_path / "joey"
    assert (place / "config.yaml").read_text(encoding="utf-8").split("\n") == [
        f"root: {place}", "embedding_dim: 64", "hidden_size: 64", "ff_size: 128", "max_length: 512", "use_cuda: True",
        "fp16: True", "batch_size: 9000", "num_layers: 2", "num_heads: 4", "",
    ]  # fmt: skip
    assert (place / "test.de").read_bytes() == (text / "tok/test_2016_flickr.lc.norm.tok.de").read_bytes()
    vocabulary = (place / "vocab.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert vocabulary[:4] == ["<unk>", "<pad>", "<s>", "</s>"]
    assert len(vocabulary) == len(set(vocabulary)) == 4 + 10 + 1  # the numbers and the full stop


def test_a_foreign_decoder_writes_as_many_tokens_as_ours(scripts: SimpleNamespace, monkeypatch, capsys) -> None:
    """The decoder is a stand-in that notes what it is given."""
    module: ModuleType = scripts.foreign_decoders
    calls: list[tuple[list[list[int]], int]] = []
    monkeypatch.setattr(
        module, "SIDES", {"hf": lambda job: (lambda src, length: calls.append((src.tolist(), length)), 9)}
    )
    monkeypatch.setattr(module, "peak_memory", lambda work: work() or 77)
    rows = [([5, 3], 4), ([6, 7, 8, 3], 2), ([5, 6, 3], 7)]
    job = {"side": "hf", "device": "cpu", "threads": torch.get_num_threads(), "sizes": [2], "rows": rows}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([job])))
    module.main()
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["batch_size"], found["num_tokens"], found["memory"], found["texts"]) == (2, 13, 77, [])
    batches = [([[6, 7, 8, 3], [5, 6, 3, 9]], 7), ([[5, 3]], 4)]  # long ones first, padded
    assert calls == batches * 3  # to warm up, for the time, for the memory


def test_bench_train_measures_a_preset_and_what_it_uses_of_the_device(text: Path) -> None:
    """What a GPU would run, on a CPU."""
    opponent = ("--plain-loop", str(SHARED / "bench/plain_loop.py")) if SHARED.exists() else ()
    arguments = ("--preset", "base", "--device", "cpu", "--precision", "fp32", "--profile", "--smoke", *opponent)
    said = run("bench_train.py", "--data", str(text), *arguments, "--set", "seed=5")
    needed, peak = re.findall(r"needed: ([\d,.]+) MFLOP a target token; device: ([\d.]+) TFLOP/s, measured here", said)[
        0
    ]
    row = re.findall(
        r"^\| fp32 \| ([\d,]+) \| ([\d.]+) \| ([\d.]+)% \| [\d,]+ MiB \| [\d.]+% \| 0 \|$", said, re.MULTILINE
    )
    speed, used, share = (float(number.replace(",", "")) for number in row[0])
    assert used == pytest.approx(speed * float(needed) / 1e6, rel=0.05, abs=0.001)
    assert share == pytest.approx(100 * used / float(peak), rel=0.05, abs=0.2)
    assert "matrix products" in said
    if opponent:
        ((plain, ratio),) = re.findall(
            r"^\| plain loop, fp32 \| ([\d,]+) \|.*\n\n([\d.]+) x plain loop, fp32$", said, re.MULTILINE
        )
        assert float(ratio) == pytest.approx(speed / float(plain.replace(",", "")), rel=0.01, abs=0.01)


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", (989e12, "published for H100, dense bf16")),
        ("NVIDIA H100 PCIe", "fp16", (756e12, "published for H100 PCIe, dense fp16")),
        ("NVIDIA H200 NVL", "bf16", (835e12, "published for H200 NVL, dense bf16")),
        ("NVIDIA H200", "fp16", (989e12, "published for H200, dense fp16")),
        ("NVIDIA H100 80GB HBM3", "fp32", (32.0, "float32")),
        ("Tesla T4", "fp16", (16.0, "float16")),
        ("Tesla T4", "bf16", (16.0, "bfloat16")),
    ],
)
def test_the_peak_is_that_of_the_precision(
    name: str, precision: str, expected: tuple[float, str], scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.preset_speed, "machine_name", lambda device: name)
    measured: list[torch.dtype] = []
    monkeypatch.setattr(
        scripts.preset_speed,
        "measured_peak",
        lambda device, dtype, size: measured.append(dtype) or 8.0 * dtype.itemsize,
    )
    peak, source = scripts.preset_speed.peak_of(torch.device("cuda"), precision)
    if measured:
        assert source == f"measured here: a product of 8192 x 8192 matrices in {precision}"
        source = str(measured[0]).removeprefix("torch.")
    assert (peak, source) == expected


def test_needed_operations_by_hand(scripts: SimpleNamespace) -> None:
    """d 8, d_ff 16, 1 + 1 layers, 10 words; 3 source and 2 target positions, twice."""
    config = ModelConfig(d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    with torch.device("meta"):
        model = Transformer(config, 10, 10)
    encoder = (
        3 * 4 * 2 * 8 * 8 + 2 * 2 * 9 * 8 + 3 * 2 * 2 * 8 * 16
    )  # projections, 3 x 3 scores and values, feed-forward
    decoder = 2 * 4 * 2 * 8 * 8 + 2 * 2 * 3 * 8 + 2 * 2 * 2 * 8 * 16  # of the 2 x 2 scores 3 are allowed
    cross = 2 * 2 * 2 * 8 * 8 + 3 * 2 * 2 * 8 * 8 + 2 * 2 * 6 * 8
    forward = encoder + decoder + cross + 2 * 2 * 8 * 10
    assert forward == 7296
    lengths = (np.array([3, 3], np.int32), np.array([2, 2], np.int32))
    assert scripts.preset_speed.flops_per_target_token(model, *lengths) == 3 * 7296 / 2


def test_bench_data_measures_every_size_and_how_it_grows() -> None:
    table = run("bench_data.py", "--tokenizers", "word", "--smoke")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.split("\n")
        if line.startswith("| built-in, word |")
    ]
    assert [row[1] for row in rows] == ["300", "1,200"]
    counts = [int(row[2]) for row in rows]
    assert 1 <= counts[0] < counts[1]
    for row in rows:
        cost = re.fullmatch(r"([\d,]+) \+ ([\d,]+) = ([\d,]+) µs", row[-1])
        assert cost is not None
        planning, making, both = (int(number.replace(",", "")) for number in cost.groups())
        assert abs(planning + making - both) <= 1
    ratios = re.findall(r"^built-in, word, 300 -> 1,200 pairs \(4\.0 x\): (.*)$", table, re.MULTILINE)
    assert len(ratios) == 1
    assert table.index(ratios[0]) < table.index("| text, tokenizer |")
    memory = [float(row[-2].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"second memory ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(memory[1] / memory[0], abs=0.02)
    speed = [float(row[3].replace(",", "")) for row in rows]
    told = float(re.findall(r"^sentences/s ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(speed[1] / speed[0], rel=0.02, abs=0.01)
    starts = [float(row[4].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"first start ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(starts[1] / starts[0], rel=0.1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned enough for a search to have no ties."""
    folder = tmp_path_factory.mktemp("trained")
    write_toy_corpus(folder / "data")
    training = {"max_steps": 600, "checkpoint_every_steps": 600, "max_tokens": 256, "warmup_steps": 50}
    validation = {"every_steps": 600, "num_translated": 0, "metric": "nll"}
    mapping = toy_mapping(folder / "data", training=training, validation=validation, model={"dropout": 0.0})
    start_or_resume(parse_run_config(mapping, "toy"), RunFolder(folder / "run"), resume=False)
    return folder / "run"


HF_ANSWERS = """
(job,) = json.load(sys.stdin)
assert (job["side"], job["layers"], job["d_model"], job["num_heads"], job["d_ff"]) == ("hf", 1, 16, 2, 32)
assert len(job["rows"]) == len(job["lines"]) == 20 and all(ids[-1] == 3 for ids, _ in job["rows"])
print("a progress bar, say")
num_tokens = sum(written for _, written in job["rows"])
print(json.dumps([{"seconds": 2.0, "batch_size": 8, "num_tokens": num_tokens, "memory": 3 * 2**20, "texts": []}]))
"""


def test_bench_decode_measures_sides_that_agree(text: Path, trained: Path, tmp_path: Path) -> None:
    python = stub(tmp_path / "python", HF_ANSWERS)
    arguments = ("--run", str(trained), "--data", str(text), "--threads", "1", "--hf-python", str(python), "--smoke")
    said = run("bench_decode.py", *arguments)
    assert len(re.findall(r"^\| (?:from a loaded model, \w+|`tmt .*) \| [\d,.]+ \|$", said, re.MULTILINE)) == 5
    _, greedy, beam = re.split(r"^(?:greedy|beam 5), 20 sentences, .*\n", said, flags=re.MULTILINE)
    ours = ["ours, fp32", "ours, int8", "ours, bf16"]
    for searched in (greedy, beam):
        rows = decode_rows(searched)
        if "CTranslate2, float32" in rows:
            engines = ["CTranslate2, float32", "CTranslate2, int8"]
        else:
            pytest.importorskip("ctranslate2", reason="without CTranslate2 the benchmark leaves it out")
            raise AssertionError("CTranslate2 is there, and was left out")
        hf = "transformers generate, fp32"
        assert list(rows) == [*ours, *engines, "ours without a cache, fp32", hf]
        assert {rows[name]["same"] for name in ["ours, fp32", "ours without a cache, fp32"]} == {"20"}
        # CTranslate2 ends a beam earlier, so that it may miss the best: test_export_verb.py compares the scores there.
        assert int(rows["CTranslate2, float32"]["same"]) >= (20 if searched is greedy else 18)
        assert len({rows[name]["bleu"] for name, row in rows.items() if row["same"] == "20"}) == 1
        assert float(rows["ours, fp32"]["bleu"]) > 30  # of 100: it has learned, so that 20 is no count of empty lines
        assert all(10 <= int(rows[name]["same"]) <= 20 for name in [*ours, *engines])
        assert (rows[hf]["speed"], rows[hf]["memory"], rows[hf]["bleu"], rows[hf]["same"]) == (10, "3", "", "")
        assert rows[hf]["tokens"] == pytest.approx(num_tokens(rows["ours, fp32"]) / 2, rel=0.02)
        ratios = {name: float(told) for told, name in re.findall(r"^([\d.]+) x (.*)$", searched, re.MULTILINE)}
        for opponent in [*engines, "ours without a cache, fp32", hf]:
            expected = rows["ours, fp32"]["speed"] / rows[opponent]["speed"]
            assert ratios[f"{opponent} (ours, fp32)"] == pytest.approx(expected, rel=0.05, abs=0.02)
        assert searched.index(" x ours without a cache") < searched.index("| side |")


def decode_rows(said: str) -> dict[str, dict[str, Any]]:
    """Of a search's table, by side."""
    cells = r"^\| (.*?) \| ([\d,.]+) \| ([\d,]+) \| 8 \| ([\d,]+) MiB \| ([\d.]*) \| (\d*) \|$"
    return {
        name: {"speed": number(speed), "tokens": number(tokens), "memory": memory, "bleu": bleu, "same": same}
        for name, speed, tokens, memory, bleu, same in re.findall(cells, said, re.MULTILINE)
    }


def number(text: str) -> float:
    return float(text.replace(",", ""))


def num_tokens(row: dict[str, Any]) -> float:
    """Of 20 sentences."""
    return 20 * row["tokens"] / row["speed"]


def test_bench_decode_leaves_out_ctranslate2_for_what_that_has_not(
    scripts: SimpleNamespace, tmp_path: Path, capsys
) -> None:
    pytest.importorskip("ctranslate2", reason="what CTranslate2 has not is asked of it")
    write_toy_corpus(tmp_path / "data")
    mapping = toy_mapping(tmp_path / "data", training={"max_steps": 1}, model={"num_experts": 2})
    start_or_resume(parse_run_config(mapping, "toy"), RunFolder(tmp_path / "run"), resume=False)
    capsys.readouterr()
    assert scripts.bench_decode.export_for_ct2(tmp_path / "run", tmp_path / "ct2") is False
    said = capsys.readouterr().err
    assert said.startswith("without CTranslate2: model.num_experts is 2, and CTranslate2 has no mixture of experts. ")


def test_compare_precisions_keeps_finished_runs_and_tells_what_it_trained(text: Path, tmp_path: Path) -> None:
    """Both seeds in fp32 are there by hand, with a mean of 5.1 and a variance of 0.02; those in bf16 are trained."""
    for seed, nll in ((1, 5.0), (2, 5.2)):
        run_dir = tmp_path / f"d32_256_tokens_4_steps_fp32_seed_{seed}"
        run_dir.mkdir()
        line = {"kind": "validation", "step": 4, "nll": nll, "elapsed_seconds": 10 * seed}
        (run_dir / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    said = run("compare_precisions.py", "--data", str(text), "--work", str(tmp_path), "--smoke")
    assert "| fp32 | 5.0000 | 5.2000 | 5.1000 | 0.1414 | 15 |\n" in said

    nlls = []
    for seed in (1, 2):
        run_dir = tmp_path / f"d32_256_tokens_4_steps_bf16_seed_{seed}"
        training = load_config(str(run_dir / "config.yaml")).config.training
        assert (training.precision, training.max_steps) == ("bf16", 4)
        lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        nlls += [line["nll"] for line in map(json.loads, lines) if line["kind"] == "validation"]
    assert len(set(nlls)) == 2
    mean, variance = sum(nlls) / 2, (nlls[0] - nlls[1]) ** 2 / 2
    cells = f"| bf16 | {nlls[0]:.4f} | {nlls[1]:.4f} | {mean:.4f} | {variance**0.5:.4f} |"
    assert cells in said
    told = re.findall(r"^bf16 - fp32: ([+-][\d.]+) nll, ([+-][\d.]+) standard deviations$", said, re.MULTILINE)
    expected = (mean - 5.1, (mean - 5.1) / ((0.02 + variance) / 2) ** 0.5)
    assert [float(number) for number in told[0]] == pytest.approx(expected, abs=0.006)


@pytest.mark.slow
def test_bench_kernels_measures_each_side(text: Path) -> None:
    table = run("bench_kernels.py", "--data", str(text), "--smoke")
    rows = re.findall(r"^\| (.*) \| 64 \| fp32 \| ([\d,]+) \| ([\d.]+) \| [\d,]+ MiB \|$", table, re.MULTILINE)
    speeds = {name: float(speed.replace(",", "")) for name, speed, _ in rows}
    assert len(speeds) == len(rows) == 5
    for name, _, gain in rows:
        assert float(gain) == pytest.approx(speeds["nothing"] / speeds[name], rel=0.02)


@pytest.mark.slow
def test_bench_load_measures_each_load(text: Path, trained: Path) -> None:
    arguments = ("--data", str(text), "--run", str(trained), "--against", str(REPOSITORY), "--smoke")
    table = run("bench_load.py", *arguments)
    rows = re.findall(r"^\| ([\w ]+) \| ([\w ]+) \| ([\d,.]+) \| ([\d.]+) \| [\d.]* ?\|$", table, re.MULTILINE)
    assert [(name, beside) for name, beside, *_ in rows] == [
        *(
            (name, f"{load} busy processes")
            for load in (0, 1, 2, 4)
            for name in ("train", "translate", "translate one")
        ),
        ("train", "a training"),
    ]
    speeds = {(name, beside): float(speed.replace(",", "")) for name, beside, speed, _ in rows}
    for name, beside, _, share in rows:
        expected = speeds[name, beside] / speeds[name, "0 busy processes"]
        assert float(share) == pytest.approx(expected, rel=0.02, abs=0.01)
    assert re.search(r"^[\d.]+ x .*, both training alone", table, re.MULTILINE)
