"""`--nearest`: of a line's translations the one that is most like its real one."""

import gzip
import json
import random
import re
import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from commands import call_tmt
from sacrebleu import sentence_bleu, sentence_chrf
from toy import toy_config, toy_pairs

from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.synthesis.make_pairs import Blank, PairMaker, Recipe
from transformer_mt.synthesis.nearest import Likeness, nearest

PAIRS = toy_pairs(150, seed=4)
REAL = [tgt for _, tgt in reversed(PAIRS)]
SMALL = ("--batch-size", "4")  # 64 lines are made at a time


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """The run of the toy language, and `mono.xx` of 150 lines that it reads. `real.xx` is to hold their translations,
    but the toy's model is always right: so that there is a choice, each line has another's.
    """
    (tmp_path / "runs").symlink_to(trained / "runs")
    (tmp_path / "data").symlink_to(trained / "data")
    (tmp_path / "toy.yaml").symlink_to(trained / "toy.yaml")
    (tmp_path / "mono.xx").write_text("".join(f"{src}\n" for src, _ in PAIRS))
    (tmp_path / "real.xx").write_text("".join(f"{line}\n" for line in REAL))
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


def few(folder: Path) -> str:
    """A config of `mono.xx` and `real.xx`, whose root is the folder."""
    config = (folder / "toy.yaml").read_text()
    (folder / "few.yaml").write_text(
        config.replace("src: train.en", "src: mono.xx").replace("tgt: train.es", "tgt: real.xx")
    )
    for name in ("valid.en", "valid.es"):
        shutil.copy(folder / "data" / name, folder / name)
    return "few.yaml"


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
    """Among those of `tmt translate --n-best`; the other files are those of the real lines, with the tag."""
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
    for number, (text, reference) in enumerate(zip(spanish, REAL, strict=True), start=1):
        candidates = [hypothesis(one) for one in found[number]]
        assert text == nearest(candidates, reference, Likeness.bleu, "es").text
    assert spanish != [of_line[0] for of_line in found.values()], "some lines have a nearer one than the likeliest"


@pytest.mark.parametrize("verb", ["distill", "backtranslate"])
def test_one_search_writes_the_likeliest_too(folder: Path, verb: str) -> None:
    """The pairs are those without the option, and the third file is that of a search without `--nearest`."""
    nearest_of = ("--nearest", "bleu", "--ref", "real.xx", "--n-best", "3")
    common = ("--input", "mono.xx", "--tag", "<ST>")
    pairs = made(folder, *common, *nearest_of, verb=verb, output="near")
    likeliest = made(folder, *common, "--beam-size", "3", verb=verb, output="likely")[1]
    assert made(folder, *common, *nearest_of, "--with-likeliest", verb=verb) == pairs
    assert (folder / "out/likeliest.es").read_text().split("\n")[:-1] == likeliest != pairs[1]


@pytest.mark.parametrize(
    ("verb", "sources"),
    [
        (
            "distill",
            "{src: o/train.en, tgt: o/train.es, weight: 1} and {src: o/train.en, tgt: o/likeliest.es, weight: 1}",
        ),
        (
            "backtranslate",
            "{src: o/train.es, tgt: o/train.en, weight: 1} and {src: o/likeliest.es, tgt: o/train.en, weight: 1}",
        ),
    ],
)
def test_both_kinds_are_told_and_blank_together(folder: Path, verb: str, sources: str) -> None:
    """The command says which two sources to train on; a line that makes no pair is blank in all three files."""
    (folder / "mono.xx").write_text("one two.\n\n" + "one " * 40 + "\nthree.\n")
    (folder / "real.xx").write_text("uno dos.\nx.\nuno.\n\n")
    arguments = ("--input", "mono.xx", "--nearest", "bleu", "--ref", "real.xx", "--with-likeliest", "--output", "o")
    result = call_tmt(folder, verb, *arguments)
    assert result.returncode == 0, result.stderr
    assert f"to train on them, in data.train: {sources}\n" in result.stdout
    assert re.search(r"^o/train.e. and o/train.e. and o/likeliest.es: 4 lines, 1 pair; blank in", result.stdout)
    for name in ("train.en", "train.es", "likeliest.es"):
        assert [bool(line) for line in (folder / "o" / name).read_text().split("\n")] == [True, *[False] * 4]
    assert call_tmt(folder, verb, *arguments).stdout.count("there before: 4 lines") == 1
    told = call_tmt(folder, verb, *arguments[:4], "--ref", "o/likeliest.es", "--output", "o").stderr
    assert "--ref o/likeliest.es is a file that is written in --output o. Name another folder" in told


def test_the_likeliest_sample_is_written(folder: Path) -> None:
    """Of all that are drawn with one seed, by the model's score; without the option nothing is scored."""
    search = ("--temperature", "2", "--n-best", "4", "--seed", "5", "--input", "mono.xx")
    listed = call_tmt(folder, "translate", *search, "--format", "jsonl", *SMALL).stdout.splitlines()
    found = [json.loads(line)["hypotheses"] for line in listed]
    made(folder, *search, "--nearest", "chrf", "--ref", "real.xx", "--with-likeliest")
    likeliest = [max((one for one in drawn if one["text"]), key=lambda one: one["score"])["text"] for drawn in found]
    assert (folder / "out/likeliest.es").read_text().split("\n")[:-1] == likeliest
    assert likeliest != [drawn[0]["text"] for drawn in found]


def test_the_likeliest_of_samples_and_of_whole_translations() -> None:
    """Samples come in the order drawn; a translation with half a character is none."""
    texts = [("un", -3.0), ("dos", -1.0), ("tres", -2.0), ("x\ufffd", -0.5)]
    translated = Translated("two", [replace(hypothesis(text), score=score) for text, score in texts])
    maker = PairMaker(
        Mock(config=toy_config(Path())), SearchOptions(n_best=4), Recipe(False), Mock(), "x", likeness=Likeness.chrf,
        with_likeliest=True,
    )  # fmt: skip
    assert maker._texts_of(translated, "un gato") == ["un", "dos"]
    assert maker._texts_of(replace(translated, hypotheses=[]), "un gato") == ["", ""]


def test_training_pairs_have_real_targets_of_their_own(folder: Path) -> None:
    search = ("--nearest", "chrf", "--n-best", "3")
    english, spanish = made(folder, "--config", few(folder), "data.root=.", *search)
    assert (english, spanish) == made(folder, "--input", "mono.xx", "--ref", "real.xx", *search, output="lines")
    assert "training pairs have targets of their own. Leave it out" in refused(folder, *search, "--ref", "real.xx")


@pytest.mark.parametrize("search", [("--with-likeliest",), ("--temperature", "1", "--n-best", "3", "--seed", "7")])
def test_gone_on_with_after_a_kill(folder: Path, search: tuple[str, ...]) -> None:
    """From the third part on, which has references of its own, and from the second, where one file lacks more."""
    arguments = ("--input", "mono.xx", "--nearest", "chrf", "--ref", "real.xx", *search)
    made(folder, *arguments)
    paths = sorted((folder / "out").glob("*.e[ns]"))
    whole = [path.read_bytes() for path in paths]
    assert len(paths) == (3 if "--with-likeliest" in search else 2)
    for lacking in (None, *paths):
        for path, content in zip(paths, whole, strict=True):
            path.write_bytes(b"".join(content.splitlines(keepends=True)[: 70 if path == lacking else 140]))
        if lacking is not None and lacking == paths[0]:
            lacking.unlink()
        made(folder, *arguments)
        assert [path.read_bytes() for path in paths] == whole
    assert "--nearest was chrf, is bleu" in refused(folder, *arguments, "--nearest", "bleu")
    if "--with-likeliest" in search:
        assert "--with-likeliest was given, is not given" in refused(folder, *arguments[:-1])
    (folder / "real.xx").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS))
    told = refused(folder, *arguments)
    assert "out was begun with other settings: the beginning of the real translations was " in told


def test_other_targets_of_training_pairs_are_not_gone_on_with(folder: Path) -> None:
    search = ("--config", few(folder), "data.root=.", "--nearest", "chrf", "--n-best", "3")
    made(folder, *search)
    (folder / "real.xx").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS))
    assert "the beginning of the real translations was " in refused(folder, *search)


def test_lines_whose_real_translation_is_of_no_use_are_blank_and_counted(folder: Path) -> None:
    """So are those whose real translation no pair may have."""
    lines = [line.encode() for line in REAL]
    lines[4], lines[70] = b"  ", b"\xff uno."
    (folder / "real.xx").write_bytes(b"\n".join(lines))
    (folder / "test.xx").write_text(f"{REAL[9].upper()}\n")
    left = sum(line == REAL[9] for line in REAL)
    arguments = ("--input", "mono.xx", "--nearest", "bleu", "--ref", "real.xx", "--output", "out", *SMALL)
    for there in ("", " (there before: 150 lines)"):
        result = call_tmt(folder, "distill", *arguments, "--without", "test.xx")
        counts = f"2 beside a real translation that is blank, too long or not UTF-8, {left} in a file of --without"
        assert f"150 lines, {148 - left} pairs; blank in all files: {counts}{there}\n" in result.stdout
        assert there or "real.xx, line 71: not UTF-8; it stays blank" in result.stderr
    spanish = (folder / "out/train.es").read_text().split("\n")
    assert [spanish[place] for place in (4, 70, 9)] == ["", "", ""]
    assert Recipe(False).refuses("one.", "x" * (LONGEST_LINE + 1)) is Blank.NO_REFERENCE
    assert Recipe(False).refuses("one.", "uno.") is Recipe(False).refuses("one.") is None


def test_references_are_compared_as_the_model_writes() -> None:
    """A model of lower case writes no capital, and every model writes composed letters."""
    options = SearchOptions(n_best=2)
    parted = unicodedata.normalize("NFD", "äöü")
    for lowercase, reference, expected in (
        (True, "DER MANN", "der mann"), (False, "DER MANN", "DER SEE"), (False, parted, "äöü")
    ):  # fmt: skip
        texts = ["DER SEE", "äöü", "der mann"]
        translator = Mock(config=toy_config(Path(), tokenizer={"lowercase": lowercase}))
        maker = PairMaker(translator, options, Recipe(False), Mock(), "x", likeness=Likeness.chrf)
        translated = Translated("the man", [hypothesis(text) for text in texts])
        assert maker._texts_of(translated, reference) == [expected]


def test_the_language_of_a_line_is_that_of_its_tag() -> None:
    """BLEU cuts Chinese into characters."""
    languages = TargetLanguages(("de", "zh"), None, is_needed=True, lowercase=False)
    maker = PairMaker(
        Mock(config=toy_config(Path())), SearchOptions(n_best=2), Recipe(False, languages=languages), Mock(), "x",
        likeness=Likeness.bleu,
    )  # fmt: skip
    translated = [
        Translated(f"<2{to}> The cat sat.", [hypothesis("狗坐下了"), hypothesis("猫坐下。")]) for to in ("zh", "de")
    ]
    assert [maker._texts_of(one, "猫坐下了。") for one in translated] == [["猫坐下。"], ["狗坐下了"]]


def test_references_that_are_fewer_or_more(folder: Path) -> None:
    """Of plain files before anything is made; else what was made is kept, and gone on with when the file is mended."""
    arguments = ("--input", "mono.xx", "--nearest", "bleu", "--ref")
    whole = (folder / "real.xx").read_text()
    for wrong, number in ((whole.rsplit("\n", 3)[0], 148), (whole + "más", 151)):
        (folder / "real.xx").write_text(wrong)
        told = f"mono.xx has 150 lines, and real.xx {number} lines. Line n of one must translate line n of the other"
        assert told in refused(folder, *arguments, "real.xx")
        assert not (folder / "out").exists()
    (folder / "real.xx").write_text(whole)
    (folder / "few.xx.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in REAL[:148]).encode()))
    assert "few.xx.gz ends after line 148, and mono.xx goes on" in refused(folder, *arguments, "few.xx.gz")
    assert made(folder, *arguments, "real.xx") == made(folder, *arguments, "real.xx", output="anew")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "--ref real.xx",
            "--ref is real.xx, and nothing is chosen by a real translation. Give --nearest too, or leave",
        ),
        (
            "--with-likeliest",
            "--with-likeliest is given, and the likeliest translations make the pairs. Give --nearest",
        ),
        ("--n-best 4", "--n-best is 4, and nothing is chosen by a real translation"),
        ("--nearest bleu", "--nearest is bleu, and no file has the real translations of mono.xx. Give one with --ref"),
        ("--nearest bleu --ref real.xx --mbr chrf", "--nearest is bleu and --mbr is chrf, and each chooses"),
        ("--nearest bleu --ref real.xx --mbr-candidates 9", "--nearest is bleu and --mbr-candidates is 9, and each"),
        ("--nearest bleu --ref real.xx --beam-size 1", "and the search finds one translation of a line. Give a larger"),
        ("--nearest bleu --ref real.xx --temperature 1", "or for samples a larger --n-best"),
        ("--nearest bleu --ref real.xx --n-best 0", "n_best"),
        ("--nearest bleu --ref real.xx --n-best 4 --beam-size 2", "n_best is 4, and beam_size 2 finds no more"),
        ("--nearest bleu --ref nothing.xx", "There is no file nothing.xx. Check the name after --ref"),
        ("--nearest bleu --ref -", "There is no file -. Check the name after --ref; a pipe cannot be read twice"),
        ("--nearest bleu --ref mono.xx", "--ref and --input are both mono.xx. Give the file of the real translations"),
        ("--nearest bleu --ref data/train.en", "--ref data/train.en is text of en by its name, and so are the lines"),
        ("--nearest bleu --ref packed", "packed is bzip2. Unpack it: bzcat FILE > TEXT_FILE."),
        ("--nearest wer --ref real.xx", "'wer' is not one of"),
    ],
)
@pytest.mark.parametrize("verb", ["distill", "backtranslate"])
def test_what_makes_no_sense_is_refused(folder: Path, verb: str, arguments: str, told: str) -> None:
    (folder / "packed").write_bytes(b"BZh91AY&SY and so on\n")
    result = call_tmt(folder, verb, "--output", "out", "--input", "mono.xx", *arguments.split())
    assert result.returncode == 2
    assert told in re.sub(r"\s*│\s*", " ", result.stderr)
    assert not (folder / "out").exists()
