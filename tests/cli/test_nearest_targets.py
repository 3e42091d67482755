"""`--nearest`: of a line's translations the one that is most like its real one."""

import random
import re
import shutil
from pathlib import Path

import pytest
from commands import call_tmt
from sacrebleu import sentence_bleu, sentence_chrf
from toy import toy_pairs

from transformer_mt.decoding.translation import Translation
from transformer_mt.synthesis.make_pairs import Blank, Recipe
from transformer_mt.synthesis.nearest import Likeness, nearest

PAIRS = toy_pairs(70, seed=4)
SMALL = ("--batch-size", "4")  # 64 lines are made at a time


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """The run of the toy language, `mono.xx` of 70 lines that it reads, and `real.xx` of what they mean."""
    (tmp_path / "runs").symlink_to(trained / "runs")
    (tmp_path / "data").symlink_to(trained / "data")
    (tmp_path / "toy.yaml").symlink_to(trained / "toy.yaml")
    for name, side in (("mono.xx", 0), ("real.xx", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return tmp_path


def made(folder: Path, *arguments: str, verb: str = "distill", output: str = "out") -> tuple[list[str], list[str]]:
    """The lines of the English and of the Spanish file."""
    result = call_tmt(folder, verb, "--output", output, *SMALL, *arguments)
    assert result.returncode == 0, result.stderr
    english, spanish = ((folder / output / f"train.{side}").read_text().split("\n")[:-1] for side in ("en", "es"))
    return english, spanish


def refused(folder: Path, *arguments: str, verb: str = "distill") -> str:
    result = call_tmt(folder, verb, "--output", "out", *SMALL, *arguments)
    assert result.returncode == 2
    assert result.stderr.count("\n") <= 3
    return result.stderr


def hypothesis(text: str) -> Translation:
    return Translation(text, 0.0, 0.0, [])


@pytest.mark.parametrize("language", ["es", "zh"])
@pytest.mark.parametrize("likeness", Likeness)
def test_the_nearest_is_the_first_with_the_highest_score_of_a_sentence(likeness: Likeness, language: str) -> None:
    """By sacreBLEU's own functions, over all."""
    rng = random.Random(3)
    words = ["el", "gato,", "se", "sentó.", "猫坐下", "了。", "a", ""]
    for _ in range(40):
        reference, *texts = (" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(6))
        tokenize = "zh" if language == "zh" else "13a"
        scores = [
            sentence_bleu(text, [reference], tokenize=tokenize).score
            if likeness is Likeness.bleu
            else sentence_chrf(text, [reference]).score
            for text in texts
        ]
        hypotheses = [hypothesis(text) for text in texts]
        assert nearest(hypotheses, reference, likeness, language) is hypotheses[scores.index(max(scores))]


@pytest.mark.parametrize("verb", ["distill", "backtranslate"])
def test_each_line_gets_its_nearest_translation(folder: Path, verb: str) -> None:
    """Among those of `tmt translate --n-best`; the other files are those of the real lines, with the tag. The toy's
    model is always right, so here each line is to be like another's translation.
    """
    real = [tgt for _, tgt in reversed(PAIRS)]
    (folder / "real.xx").write_text("".join(f"{line}\n" for line in real))
    listed = call_tmt(folder, "translate", "--input", "mono.xx", "--n-best", "3").stdout.split("\n")[:-1]
    found: dict[int, list[str]] = {}
    for number, text, _ in (line.split(" ||| ") for line in listed):
        found.setdefault(int(number), []).append(text)
    arguments = ("--input", "mono.xx", "--nearest", "bleu", "--ref", "real.xx", "--n-best", "3", "--tag", "<ST>")
    english, spanish = made(folder, *arguments, verb=verb)
    tagged = spanish if verb == "backtranslate" else english
    assert all(line.startswith("<ST> ") for line in tagged)
    tagged[:] = [line.removeprefix("<ST> ") for line in tagged]
    assert english == [src for src, _ in PAIRS]
    for number, (text, reference) in enumerate(zip(spanish, real, strict=True), start=1):
        candidates = [hypothesis(one) for one in found[number]]
        assert text == nearest(candidates, reference, Likeness.bleu, "es").text
    assert spanish != [of_line[0] for of_line in found.values()], "some lines have a nearer one than the likeliest"


def test_training_pairs_have_real_targets_of_their_own(folder: Path) -> None:
    config = (folder / "toy.yaml").read_text()
    (folder / "few.yaml").write_text(
        config.replace("src: train.en", "src: mono.xx").replace("tgt: train.es", "tgt: real.xx")
    )
    for name in ("valid.en", "valid.es"):
        shutil.copy(folder / "data" / name, folder / name)
    search = ("--nearest", "chrf", "--n-best", "3")
    english, spanish = made(folder, "--config", "few.yaml", "data.root=.", *search)
    assert (english, spanish) == made(folder, "--input", "mono.xx", "--ref", "real.xx", *search, output="lines")
    assert "training pairs have targets of their own. Leave it out" in refused(folder, *search, "--ref", "real.xx")


@pytest.mark.parametrize("search", [(), ("--temperature", "1", "--n-best", "3", "--seed", "7")])
def test_gone_on_with_after_a_kill(folder: Path, search: tuple[str, ...]) -> None:
    arguments = ("--input", "mono.xx", "--nearest", "chrf", "--ref", "real.xx", *search)
    whole = made(folder, *arguments)
    for name in ("train.en", "train.es"):
        path = folder / "out" / name
        path.write_bytes(path.read_bytes()[:-700])
    assert made(folder, *arguments) == whole
    (folder / "real.xx").write_text("".join(f"{tgt}\n" for _, tgt in reversed(PAIRS)))
    assert "out was begun with other settings: the lines of --ref was " in refused(folder, *arguments)
    assert "--nearest was chrf, is bleu" in refused(folder, *arguments, "--nearest", "bleu")


def test_lines_beside_a_blank_real_translation_are_blank_and_counted(folder: Path) -> None:
    lines = [pair[1] for pair in PAIRS]
    lines[4] = "  "
    (folder / "real.xx").write_text("".join(f"{line}\n" for line in lines))
    arguments = ("distill", "--input", "mono.xx", "--nearest", "bleu", "--ref", "real.xx", "--output", "out", *SMALL)
    for there in ("", " (there before: 70 lines)"):
        result = call_tmt(folder, *arguments)
        assert f"70 lines, 69 pairs; blank on both sides: 1 beside a blank real translation{there}\n" in result.stdout
    assert (folder / "out/train.es").read_text().split("\n")[4] == ""
    assert Recipe(False).refuses("one.", " ") is Blank.NO_REFERENCE
    assert Recipe(False).refuses("one.", "uno.") is Recipe(False).refuses("one.") is None


def test_references_that_are_fewer_or_more(folder: Path) -> None:
    """What was made before is kept, and gone on with when the file is mended."""
    arguments = ("--input", "mono.xx", "--nearest", "bleu", "--ref", "real.xx")
    whole = (folder / "real.xx").read_text()
    for wrong, told in (
        (whole.split("\n", 2)[2], r"real.xx ends after line 68, and mono.xx goes on. Line n of one must translate"),
        (whole + "más\n", r"mono.xx ends after line 70, and real.xx goes on"),
    ):
        (folder / "real.xx").write_text(wrong)
        assert told in refused(folder, *arguments)
        shutil.rmtree(folder / "out", ignore_errors=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--ref real.xx", "--ref is real.xx, and a line has one translation here, the best by the model. Give --near"),
        ("--n-best 4", "--n-best is 4, and a line has one translation here"),
        ("--nearest bleu", "--nearest is bleu, and no file has the real translations of mono.xx. Give one"),
        ("--nearest bleu --ref real.xx --mbr chrf", "--nearest is bleu and --mbr is chrf, and each chooses"),
        ("--nearest bleu --ref real.xx --beam-size 1", "--nearest is bleu, and the search finds one translation of"),
        ("--nearest bleu --ref real.xx --temperature 1", "--nearest is bleu, and the search finds one translation of"),
        ("--nearest bleu --ref real.xx --n-best 0", "n_best"),
        ("--nearest bleu --ref real.xx --n-best 4 --beam-size 2", "n_best is 4, and beam_size 2 finds no more"),
        ("--nearest bleu --ref nothing.xx", "There is no file nothing.xx. Check the name after --ref"),
        ("--nearest bleu --ref -", "There is no file -. Check the name after --ref; a pipe cannot be read twice"),
        ("--nearest wer --ref real.xx", "'wer' is not one of"),
    ],
)
@pytest.mark.parametrize("verb", ["distill", "backtranslate"])
def test_what_makes_no_sense_is_refused(folder: Path, verb: str, arguments: str, told: str) -> None:
    said = re.sub(r"\s*│\s*", " ", refused_whatever(folder, verb, "--input", "mono.xx", *arguments.split()))
    assert told in said
    assert not (folder / "out").exists()


def refused_whatever(folder: Path, verb: str, *arguments: str) -> str:
    result = call_tmt(folder, verb, "--output", "out", *arguments)
    assert result.returncode == 2
    return result.stderr
