"""The page on using a model: each command of it, as it stands, by the quickstart's model, trained for half a minute."""

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import combinations, pairwise
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import call_tmt
from pages import blocks, section, tables
from typer.main import get_command

from transformer_mt.cli.main import app
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.finishing import run_calibration

PAGE = "docs/translating.md"
SOURCES = "The cat sat\nThe girl is reading a book.\nI have a red car, and you have a house.\n"
REFERENCES = "El gato se sentó\nLa niña lee un libro.\nTengo un coche rojo, y tú tienes una casa.\n"
# What the page's commands read.
FILES = {
    "in.txt": SOURCES, "out.txt": REFERENCES, "new.en": SOURCES, "new.es": REFERENCES,
    "prefixes.txt": "\nLa niña\n\n", "words.txt": "coche\nse sentó\n",
    "terms.tsv": "girl|girls\tniña|niñas\nbook\tlibro\n",
    "paragraphs.txt": 9 * SOURCES.replace("\n", ". ") + "\n",
    "names.tsv": "cat\tfelino\n",
    "pages.html": "<p>The girl <b>is reading</b> a book.</p>\n",
}  # fmt: skip
# Of the built-in corpus as much as teaches a few sentences, and few to evaluate.
NUM_PAIRS = {"train": 5000, "validation": 60, "test": 60}
SMALLER = (
    *(f"data.{split}=[{{tsv: {split}.tsv}}]" for split in NUM_PAIRS),
    "model.d_model=64", "model.d_ff=128", "model.num_encoder_layers=1", "model.num_decoder_layers=1",
    "training.max_steps=300", "training.max_tokens=512", "training.warmup_steps=100", "training.precision=fp32",
    "training.compile=false", "training.checkpoint_every_steps=150", "validation.every_steps=300",
    "validation.num_translated=20", "decoding.beam_size=6",
)  # fmt: skip


def commands() -> Iterator[str]:
    """Every command of the page's blocks."""
    for block in blocks(PAGE, "bash"):
        yield from (line for line in block.split("\n") if line.startswith("tmt "))


@pytest.fixture(scope="module", autouse=True)
def few_pairs() -> Iterator[None]:
    """Confidences are learned from few pairs, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_calibration, "MOST_SENTENCES", 20)
        patch.setattr(run_calibration, "FEWEST_SENTENCES", 10)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder as the page takes it for granted."""
    return make_folder(tmp_path_factory)


def make_folder(tmp_path_factory: pytest.TempPathFactory, *changes: str) -> Path:
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    for split, number in NUM_PAIRS.items():
        lines = "".join(f"{src}\t{tgt}\n" for src, tgt in builtin_pairs(split)[:number])
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")
    for arguments in (
        ("train", "--config", "quickstart.yaml", *SMALLER, *changes),
        ("average", "runs/quickstart", "--last", "2"),
        ("evaluate", "--run", "runs/quickstart", "--split", "validation"),
    ):
        result = call_tmt(folder, *arguments)
        assert result.returncode == 0, result.stderr
    for name in ("a", "b"):
        shutil.copytree(folder / "runs/quickstart", folder / "runs" / name)
    checkpoints = folder / "runs/a/checkpoints"
    for step, name in ((150, "step_9000"), (300, "step_10000")):
        shutil.copytree(checkpoints / f"step_{step}", checkpoints / name)
    return folder


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_page_runs(command: str, folder: Path) -> None:
    parts = shlex.split(command)[1:]
    stdin, stdout = b"", None
    while {"<", ">"} & set(parts):
        place = next(i for i, part in enumerate(parts) if part in "<>")
        sign, name = parts[place : place + 2]
        if sign == "<":
            stdin = (folder / name).read_bytes()
        else:
            stdout = name
        del parts[place : place + 2]
    result = call_tmt(folder, *parts, stdin=stdin)
    assert result.returncode == 0, result.stderr
    written = re.search(r"--output (\S+)", command)
    if written:
        assert (folder / written[1]).read_text("utf-8").strip()
    elif "--train" not in command and "export" not in command:
        assert result.stdout.strip()
    if stdout:
        (folder / stdout).write_text(result.stdout, encoding="utf-8")


def test_there_are_commands_and_every_file_is_in_one() -> None:
    text = " ".join(commands())
    assert "tmt translate" in text
    assert [name for name in FILES if not re.search(rf"(?<![\w.]){re.escape(name)}\b", text)] == []


# Every option that changes what is searched, what is done to a line, or what is written, as it is given.
OPTIONS = {
    "--beam-size": ["4"], "--n-best": ["6"], "--format": ["moses"], "--prefix": ["tab"], "--avoid": ["words.txt"],
    "--constraints": ["ordered"], "--glossary": ["terms.tsv"], "--keep": ["numbers,urls"],
    "--no-repeat-ngram-size": ["2"], "--min-length": ["2"], "--max-length": ["9"], "--patience": ["2"],
    "--coverage-penalty": ["0.5"], "--length-norm": ["average"], "--allow-unk": [], "--precision": ["int8"],
    "--mbr": ["chrf"], "--mbr-candidates": ["5"], "--too-long": ["split"], "--html": [],
    "--ensemble-mode": ["log_linear"], "--alignment": ["soft"], "--alignment-from": ["attention"],
    "--alignment-layer": ["1"], "--replace-unk": [], "--unk-dictionary": ["names.tsv"],
    "--sampling-topk": ["5"], "--sampling-topp": ["0.9"], "--temperature": ["1.5"], "--seed": ["3"],
    "--diverse-beam-groups": ["3"], "--diverse-beam-strength": ["1"],
    "--confidence": [], "--reject-below": ["1e-9"],
}  # fmt: skip
MORE = {  # what an option needs beside it
    "--ensemble-mode": ["--run", "runs/b"], "--alignment-from": ["--alignment", "hard"],
    "--alignment-layer": ["--alignment", "soft", "--alignment-from", "attention"],
    "--mbr-candidates": ["--mbr", "bleu"], "--unk-dictionary": ["--replace-unk"],
    "--seed": ["--sampling-topk", "5"], "--diverse-beam-strength": ["--diverse-beam-groups", "3"],
}  # fmt: skip
NO_TREATMENT = {"--run", "--runs", "--checkpoint", "--device", "--input", "--output", "--batch-size", "--first-line"}
NO_TREATMENT |= {"--length-penalty", "--max-length-ratio", "--max-length-extra", "--help"}  # of a search, as others are
NO_TREATMENT |= {"--to", "--image"}  # of runs of other kinds


def refused() -> set[frozenset[str]]:
    """The pairs of the page's table."""
    (table,) = tables(section(PAGE, "What combines with what"))
    names = [[re.findall(r"`(--[\w-]+)", cell) for cell in row[:2]] for row in table[1:]]
    return {frozenset((one, other)) for ones, others in names for one in ones for other in others}


def test_all_options_are_tried() -> None:
    command = get_command(app).commands["translate"]  # pyright: ignore[reportAttributeAccessIssue]
    names = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert names - NO_TREATMENT == OPTIONS.keys()


EVERY_PAIR = {frozenset(pair) for pair in combinations(OPTIONS, 2)}
MOST_TOGETHER = 5


def words_of(option: str) -> list[str]:
    return [option, *OPTIONS[option], *MORE.get(option, [])]


def agree(one: str, other: str) -> bool:
    """Whether what one needs beside it is no other value of what the other gives, which would take its place."""
    ones, others = (dict(pairwise(words_of(option))) for option in (one, other))
    return all(ones[name] == others[name] for name in ones.keys() & others.keys() if name.startswith("--"))


def groups() -> list[tuple[str, ...]]:
    """Options that go together: each pair that the page's table lacks is in a group, a pair that disagrees alone."""
    allowed = EVERY_PAIR - refused()
    agreeing = {pair for pair in allowed if agree(*pair)}
    left, found = set(agreeing), [tuple(sorted(pair)) for pair in allowed - agreeing]
    while left:
        group = min(map(sorted, left))
        while len(group) < MOST_TOGETHER:
            new = {option: {frozenset((option, other)) for other in group} for option in OPTIONS if option not in group}
            best = max((one for one in new if new[one] <= agreeing), key=lambda one: len(new[one] & left), default=None)
            if best is None or not new[best] & left:
                break
            group.append(best)
        left -= {frozenset(pair) for pair in combinations(group, 2)}
        found.append(tuple(group))
    return sorted(found)


def translate(folder: Path, options: Iterable[str]) -> CompletedProcess[str]:
    words = [word for option in options for word in words_of(option)]
    return call_tmt(folder, "translate", "--run", "runs/a", *words, "--", "The cat sat\tEl gato")


def assert_translated(result: CompletedProcess[str]) -> None:
    assert result.returncode == 0, f"{result.args}: {result.stderr}"
    assert re.search(r"[a-z]", result.stdout), f"{result.args}: {result.stderr}"


@pytest.mark.parametrize("group", groups(), ids=" ".join)
def test_options_that_may_go_together_do(group: tuple[str, ...], folder: Path) -> None:
    try:
        assert_translated(translate(folder, group))
    except AssertionError:
        for pair in combinations(group, 2):  # a pair says more
            assert_translated(translate(folder, pair))
        raise


@pytest.mark.slow
@pytest.mark.parametrize("one", OPTIONS)
def test_every_pair_that_may_go_together_does(one: str, folder: Path) -> None:
    """Without a third option beside it, which may hide what is wrong."""
    others = list(OPTIONS)[list(OPTIONS).index(one) + 1 :]
    for other in others:
        if frozenset((one, other)) not in refused():
            assert_translated(translate(folder, (one, other)))


@pytest.mark.parametrize("pair", sorted(map(sorted, EVERY_PAIR & refused())), ids=" ".join)
def test_a_pair_of_the_table_is_refused_by_both_names(pair: list[str], folder: Path) -> None:
    result = translate(folder, pair)
    assert result.returncode == 2, f"{result.args} is not refused, as the page says"
    for option in pair:  # by its name here, or as a key of the config; or what it needs
        names = {option, *MORE.get(option, [])}
        names |= {name[2:].replace("-", "_") for name in names}
        assert names & set(re.findall(r"[\w-]+", result.stderr)), result.stderr


@pytest.fixture(scope="module")
def decoder_only_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(
        tmp_path_factory, "model.architecture=decoder_only", "model.num_encoder_layers=0", "tokenizer.joint=true"
    )


# Models and checkpoints, the precision on the GPU, and how like the texts of fp32 on a CPU its texts are at least.
ON_A_GPU = [
    ("folder", "step_150", "fp32", 1.0), ("folder", "last", "fp16", 0.6),
    ("decoder_only_folder", "last", "fp32", 1.0), ("decoder_only_folder", "last", "bf16", 0.6),
]  # fmt: skip


NUMBER = r"-?\d+\.\d+"


@pytest.mark.gpu
@pytest.mark.parametrize("one", sorted(OPTIONS.keys() - {"--precision", "--format"}))
@pytest.mark.parametrize(("kind", "checkpoint", "precision", "alike"), ON_A_GPU)
def test_an_option_does_on_a_gpu_what_it_does_on_a_cpu(
    one: str, kind: str, checkpoint: str, precision: str, alike: float, request: pytest.FixtureRequest
) -> None:
    """The text; in fp32 also the numbers in it, scores and shares, but for their last digits."""
    arguments = ["--run", "runs/a", "--checkpoint", checkpoint, one, *OPTIONS[one]]
    if "--run" in MORE.get(one, []):
        arguments += ["--checkpoint", checkpoint]  # of the other run
    lines = [f"{src}\t{tgt}" for src, tgt in zip(SOURCES.split("\n"), REFERENCES.split("\n"), strict=True) if src]
    words, numbers = [], []
    for device, itself in (("cpu", "fp32"), ("cuda", precision)):
        chosen = ["--device", device, "--precision", itself, *MORE.get(one, [])]
        result = call_tmt(request.getfixturevalue(kind), "translate", *arguments, *chosen, "--", *lines)
        assert result.returncode == 0, result.stderr
        words.append(re.sub(NUMBER, "0.0", result.stdout).split())
        numbers.append([float(number) for number in re.findall(NUMBER, result.stdout)])
    assert SequenceMatcher(None, *words, autojunk=False).ratio() >= alike, words
    if alike == 1.0:
        assert numbers[1] == pytest.approx(numbers[0], abs=2e-3)
