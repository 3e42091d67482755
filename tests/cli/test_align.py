"""`tmt align`: a line of links for every pair of lines, by the aligner that is kept beside the run."""

import shutil
from pathlib import Path

import pytest
from commands import call_tmt

from transformer_mt.aligning.bitext import MAX_WORDS

PAIRS = [("one two three.", "uno tres dos."), ("seven eight.", "ocho siete."), ("", ""), ("six", "")]
LINKS = "0-0 1-2 2-1\n0-1 1-0\n\n\n"


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of its own, whose aligner is not there yet; and two aligned files."""
    folder = tmp_path_factory.mktemp("align")
    # Another test may have made the one of the run that all share.
    shutil.copytree(trained / "runs/toy", folder / "runs/toy", ignore=shutil.ignore_patterns("aligner"))
    shutil.copytree(trained / "data", folder / "data")
    for side, name in enumerate(("src", "ref")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    return folder


FILES = ("--src", "src", "--ref", "ref")


def test_lines_of_links_by_an_aligner_that_is_made_once(folder: Path) -> None:
    first = call_tmt(folder, "align", "--run", "runs/toy", *FILES)
    assert first.returncode == 0, first.stderr
    assert first.stdout == LINKS
    assert "training an aligner on the 6,000 pairs of runs/toy, once\n" in first.stderr
    second = call_tmt(folder, "align", "--run", "runs/toy", *FILES, "--output", "out")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert (folder / "out").read_text() == LINKS
    third = call_tmt(folder, "align", "--train")
    assert third.returncode == 0
    assert third.stdout == ""
    assert "the aligner is in runs/toy/aligner; it took " in third.stderr


def test_the_choices_of_a_line(folder: Path) -> None:
    (folder / "one").write_text("one two three four.\n")
    (folder / "uno").write_text("uno uno dos.\n")
    union, intersection = (
        set(call_tmt(folder, "align", "--src", "one", "--ref", "uno", "--symmetrise", name).stdout.split())
        for name in ("union", "intersection")
    )
    assert intersection < union
    soft = call_tmt(folder, "align", *FILES, "--soft").stdout.split("\n")
    assert len(soft) == len(PAIRS) + 1
    links = dict(link.split(":") for link in soft[0].split(" "))
    assert all(float(links[link]) > 0.8 for link in LINKS.split("\n")[0].split(" "))


def test_long_lines_stay_blank_and_are_told(folder: Path) -> None:
    (folder / "long.src").write_text("one\n" + "one " * (MAX_WORDS + 1) + "\n" + "o" * 2**21 + "\ntwo\u2028one\n")
    (folder / "long.ref").write_text("uno\nuno\nuno\ndos\u2028uno")
    result = call_tmt(folder, "align", "--src", "long.src", "--ref", "long.ref")
    assert result.stdout == "0-0\n\n\n0-0 1-1\n"
    assert result.stderr.split("\n")[-3:-1] == [
        "line 2: a side is longer than 2,000 words, left blank. Break it up.",
        "line 3: a side is longer than 1,048,576 bytes, left blank. Break it up.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--src", "src"], "--src and --ref go together."),
        ([], "There is nothing to align. Give --src FILE --ref FILE, or --train for the aligner alone."),
        (["--train", "--soft"], "--soft is for alignments of given lines. Give --src FILE --ref FILE too."),
        ([*FILES, "--soft", "--symmetrise", "union"], "--symmetrise and --soft were both given."),
        ([*FILES, "--symmetrise", "gdf"], "There is no symmetrisation 'gdf'. Use grow-diag-final-and, intersection"),
        (["--src", "-", "--ref", "-"], "--src and --ref are both -. Name a file for one of them."),
        (["--src", "none", "--ref", "ref"], "none cannot be read: No such file or directory. Check the name after"),
        ([*FILES, "--output", "src"], "--output src is the input itself."),
        ([*FILES, "--run", "nowhere"], "nowhere is not the folder of a run"),
    ],
)
def test_mistakes(arguments: list[str], message: str, folder: Path) -> None:
    result = call_tmt(folder, "align", *arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
