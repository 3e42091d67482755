"""`tmt backtranslate` and `tmt distill`: line n of both files belongs to line n of the input, whatever ends them."""

import gzip
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import call_tmt, full_disk
from toy import toy_pairs, write_toy_corpus
from trainings import start
from translators import SMALL as TINY
from translators import make_translator, write_run

from transformer_mt.config.sections.section import as_typed
from transformer_mt.data.split import sentence_key
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.translator import Translator
from transformer_mt.synthesis.make_pairs import Blank, Recipe, parts_of

REAL = [src for src, _ in toy_pairs(150, seed=4)]
ODD = ["", "one two three.", "  ", "four\u2028five six.", "\ufffd seven.", "one " * 40, "eight  nine ten.\r", "dos"]
SMALL = ("--batch-size", "4")  # 64 lines are made at a time


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """The run of the toy language, and `mono.xx` of 150 lines in the language that it reads."""
    (tmp_path / "runs").symlink_to(trained / "runs")
    (tmp_path / "data").symlink_to(trained / "data")
    (tmp_path / "toy.yaml").symlink_to(trained / "toy.yaml")
    (tmp_path / "mono.xx").write_text("".join(f"{line}\n" for line in REAL))
    return tmp_path


def lines_of(folder: Path, output: str) -> tuple[list[str], list[str]]:
    """Of the Spanish file, which the run has written, and of the English one."""
    sides = [(folder / output / f"train.{language}").read_bytes().decode() for language in ("es", "en")]
    assert all(side.endswith("\n") for side in sides)
    return sides[0].split("\n")[:-1], sides[1].split("\n")[:-1]


def made(
    folder: Path, *arguments: str, verb: str = "backtranslate", output: str = "out"
) -> tuple[list[str], list[str]]:
    result = call_tmt(folder, verb, "--output", output, *SMALL, *arguments)
    assert result.returncode == 0, result.stderr
    return lines_of(folder, output)


def refused(folder: Path, *arguments: str, verb: str = "backtranslate", output: str = "out") -> str:
    result = call_tmt(folder, verb, "--output", output, *SMALL, *arguments)
    assert result.returncode == 2
    assert result.stderr.count("\n") <= 3
    return result.stderr


def test_synthetic_sources_of_real_targets(folder: Path) -> None:
    """What `tmt translate` makes of each line, with the tag before it; the other mode puts it before the real line."""
    translated = call_tmt(folder, "translate", "--input", "mono.xx").stdout.split("\n")[:-1]
    spanish, english = made(folder, "--input", "mono.xx", "--tag", "<BT>")
    assert english == REAL
    assert spanish == [f"<BT> {line}" for line in translated]
    spanish, english = made(folder, "--input", "mono.xx", "--tag", "<ST>", verb="distill", output="self")
    assert english == [f"<ST> {line}" for line in REAL]
    assert spanish == translated


def test_constraints_of_the_config_are_left_out(folder: Path) -> None:
    """No line has any here, and samples would be refused beside them."""
    (run,) = (folder / "runs").iterdir()
    shutil.copytree(run, folder / "constrained")
    config = folder / "constrained/config.yaml"
    config.write_text(config.read_text().replace("constraints: null", "constraints: unordered"))
    arguments = ("--run", "constrained", "--input", "mono.xx", "--temperature", "1", "--seed", "1")
    assert len(made(folder, *arguments)[0]) == len(REAL)


def test_lines_that_would_do_harm_are_blank_on_both_sides_and_counted(folder: Path) -> None:
    (folder / "mono.xx").write_bytes("\n".join(ODD).encode() + b"\n\xff one two.\n")
    (folder / "test.xx").write_text("DOS\nnever\n\n")
    result = call_tmt(
        folder, "backtranslate", "--input", "mono.xx", "--output", "out", "--without", "test.xx", "--tag=<BT>"
    )
    assert result.returncode == 0, result.stderr
    spanish, english = lines_of(folder, "out")
    assert english == ["", ODD[1], "", ODD[3], "", "", "eight  nine ten.", "", ""]
    assert [bool(line) for line in spanish] == [bool(line) for line in english]
    assert "mono.xx, line 6: too long for the model; left blank in all files\n" in result.stderr
    assert "mono.xx, line 9: not UTF-8; it stays blank" in result.stderr
    assert "the model does not know" not in result.stderr, "of lines that make no pair"
    counts = "2 blank in the input, 2 not UTF-8, 1 too long for the model, 1 in a file of --without"
    assert "9 lines, 3 pairs; blank in all files: " in result.stdout
    assert all(count in result.stdout for count in counts.split(", "))
    assert "{src: out/train.es, tgt: out/train.en, weight: 1}, with tokenizer.tags: ['<BT>']" in result.stdout


def test_a_translation_with_half_a_character_makes_no_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a model of subwords writes it at times, above all in samples: bytes that are no UTF-8."""
    translate_lines = Translator.translate_lines

    def broken(self: Translator, *arguments: Any) -> Any:
        for number, result in enumerate(translate_lines(self, *arguments)):
            damaged = [replace(hypothesis, text="uno \ufffd") for hypothesis in result.hypotheses]
            yield replace(result, hypotheses=damaged) if number == 1 else result

    monkeypatch.setattr(Translator, "translate_lines", broken)
    (folder / "mono.xx").write_text("one two.\none.\ntwo.\n")
    result = call_tmt(folder, "backtranslate", "--input", "mono.xx", "--output", "out")
    assert result.returncode == 0, result.stderr
    assert [bool(line) for side in lines_of(folder, "out") for line in side] == [True, False, True] * 2
    assert "mono.xx, line 2: translated into half a character; left blank in all files\n" in result.stderr
    assert "3 lines, 2 pairs; blank in all files: 1 translated into half a character" in result.stdout


@pytest.mark.parametrize("search", [("--beam-size", "2"), ("--sampling-topk", "0", "--seed", "7")])
def test_whatever_a_kill_leaves_is_completed_to_the_same_files(search: tuple[str, ...], folder: Path) -> None:
    """Each file cut at any byte, as a kill between or amid two writes leaves it."""
    arguments = ("--input", "mono.xx", "--tag", "<BT>", *search)
    whole = made(folder, *arguments, output="straight")
    paths = [Path("train.es"), Path("train.en")]
    straight = [(folder / "straight" / path).read_bytes() for path in paths]
    shutil.copytree(folder / "straight", folder / "cut")
    for left in ((0, 0), (10**6, 0), (3000, 2000), (len(straight[0]) - 1, 10**6), (10**6, 10**6)):
        for path, content, size in zip(paths, straight, left, strict=True):
            (folder / "cut" / path).write_bytes(content[:size])
        assert made(folder, *arguments, output="cut") == whole
        assert [(folder / "cut" / path).read_bytes() for path in paths] == straight


def test_killed_and_gone_on_with(folder: Path) -> None:
    """SIGKILL at whatever moment follows the first lines that are on the disk."""
    arguments = ("backtranslate", "--input", "mono.xx", *SMALL, "--output")
    process = start(folder, *arguments, "killed")
    while process.poll() is None and not (folder / "killed/train.en").exists():
        pass
    process.kill()
    process.communicate()
    assert call_tmt(folder, *arguments, "killed").returncode == 0
    assert lines_of(folder, "killed") == made(folder, "--input", "mono.xx", output="straight")


def test_the_same_command_once_more_changes_nothing(folder: Path) -> None:
    first = made(folder, "--input", "mono.xx")
    result = call_tmt(folder, "backtranslate", "--input", "mono.xx", "--output", "out", *SMALL)
    assert "150 lines, 150 pairs (there before: 150 lines)" in result.stdout
    (folder / "mono.xx.gz").write_bytes(gzip.compress((folder / "mono.xx").read_bytes()))
    assert made(folder, "--input", "mono.xx.gz") == first
    (folder / "mono.xx").write_text("".join(f"{line}\n" for line in [*REAL, "\ufffd."]))
    assert made(folder, "--input", "mono.xx")[1] == [*REAL, ""]  # text that has grown
    (folder / "mono.xx").write_text("".join(f"{line}\n" for line in [*REAL, "one two."]))
    assert made(folder, "--input", "mono.xx")[1] == [*REAL, ""]  # a blank pair says nothing of its line


def test_other_settings_and_other_text_are_refused_by_name(folder: Path) -> None:
    first = made(folder, "--input", "mono.xx")
    for arguments, told in (
        (["--beam-size", "3"], "out was begun with other settings: --beam-size was 2, is 3. Give the same"),
        (["--tag", "<BT>"], "--tag was not given, is <BT>"),
        (["--without", "mono.xx"], "the lines of --without was not given, is 150 ("),
        (["--checkpoint", "step_1"], "step_1"),
    ):
        assert told in refused(folder, "--input", "mono.xx", *arguments)
    assert "the command was backtranslate, is distill" in refused(folder, "--input", "mono.xx", verb="distill")
    (folder / "other.xx").write_text("".join(f"{line}\n" for line in [*REAL[:100], "other", *REAL]))
    assert "other.xx, line 101, is not the line that out was begun with" in refused(folder, "--input", "other.xx")
    (folder / "short.xx").write_text("".join(f"{line}\n" for line in REAL[:128]))
    assert "short.xx has 128 lines, and out was begun with more. Give the same" in refused(
        folder, "--input", "short.xx"
    )
    told = refused(folder, "--input", "out/train.en", verb="distill")
    assert "--input out/train.en is a file that is written in --output out. Name another folder" in told
    assert lines_of(folder, "out") == first


@pytest.mark.parametrize(("option", "lines"), [("avoid", "dos\n"), ("glossary", "two\tdos\n")])
def test_other_lines_of_a_file_that_an_option_names_are_refused(folder: Path, option: str, lines: str) -> None:
    (folder / "words.txt").write_text(lines)
    made(folder, "--input", "mono.xx", f"--{option}", "words.txt")
    made(folder, "--input", "mono.xx", f"--{option}", "words.txt")
    (folder / "words.txt").write_text(lines.replace("dos", "tres"))
    told = refused(folder, "--input", "mono.xx", f"--{option}", "words.txt")
    assert f"out was begun with other settings: the lines of --{option} was " in told
    (folder / "words.txt").unlink()
    assert f"There is no file words.txt. Check the name after --{option}" in refused(
        folder, "--input", "mono.xx", f"--{option}", "words.txt", output="new"
    )
    assert not (folder / "new").exists()


@pytest.mark.parametrize("tag", ["a b", "BT", "<BT>\n", " <BT>", "", "<BT> <BT>", "<s>"])
@pytest.mark.parametrize("verb", ["backtranslate", "distill"])
def test_a_tag_that_no_config_could_name_is_refused(folder: Path, verb: str, tag: str) -> None:
    told = refused(folder, "--input", "mono.xx", "--tag", tag, verb=verb)
    assert f"--tag is {tag!r}, which tokenizer.tags cannot hold" in told
    assert not (folder / "out").exists()


def test_bad_input_is_refused(folder: Path) -> None:
    for verb in ("backtranslate", "distill"):
        for name in ("mono.es", "mono.es.gz"):
            told = refused(folder, "--input", name, verb=verb)
            assert f"{name} is text of es by its name, and the run translates en to es" in told
    assert "nothing.xx cannot be read: No such file" in refused(folder, "--input", "nothing.xx")
    assert "--input and --without are both -. Name a file" in refused(folder, "--input", "-", "--without", "-")
    (folder / "packed").write_bytes(b"BZh91AY&SY and so on\n")
    for options in (("--input", "packed"), ("--input", "mono.xx", "--without", "packed")):
        assert "packed is bzip2. Unpack it: bzcat FILE > TEXT_FILE." in refused(folder, *options)
    (folder / "full").mkdir()
    (folder / "full" / "train.es").write_text("mine\n")
    assert "full holds files, and no settings.json" in refused(folder, "--input", "mono.xx", output="full")
    assert [path.name for path in (folder / "full").iterdir()] == ["train.es"], "it is as it was, without a lock"
    assert (folder / "full" / "train.es").read_text() == "mine\n"
    assert "--output is empty. Name a folder." in refused(folder, "--input", "mono.xx", output="")
    (folder / "many.yaml").write_text(tagged_config(folder, "<2de>"))
    assert (
        "many.yaml has a source with tag: <2de>, which is none of the teacher's tokenizer.tags. Take a teacher"
        in refused(folder, "--config", "many.yaml", verb="distill")
    )
    turn_config(folder)
    assert "The teacher translates en to es, and toy.yaml trains es to en. Take a teacher of that direction" in refused(
        folder, "--config", "toy.yaml", verb="distill"
    )
    assert "data.root=x would be a setting of --config, and none was given" in refused(
        folder, "data.root=x", "--input", "mono.xx", verb="distill"
    )
    assert "--config and --input were both given" in refused(
        folder, "--config", "toy.yaml", "--input", "mono.xx", verb="distill"
    )


def tagged_config(folder: Path, tag: str) -> str:
    mapping = yaml.safe_load((folder / "toy.yaml").read_text())
    mapping["data"]["train"] = [{"src": "mono.xx", "tgt": "mono.xx", "tag": tag}]
    mapping["data"]["root"] = "."
    mapping["tokenizer"]["tags"] = [tag]
    return yaml.safe_dump(mapping)


def turn_config(folder: Path) -> None:
    text = (folder / "toy.yaml").read_text()
    (folder / "toy.yaml").unlink()
    (folder / "toy.yaml").write_text(
        text.replace("src_lang: en", "src_lang: es").replace("tgt_lang: es", "tgt_lang: en")
    )


@pytest.mark.parametrize("name", ["out, 2: #1", "{out}", 'it\'s ["new"]', "&out", "- out", "señal"])
def test_what_to_write_into_a_config_is_yaml_whatever_the_folder_is_called(folder: Path, name: str) -> None:
    (folder / "mono.xx").write_text("one two.\n")
    result = call_tmt(folder, "distill", "--input", "mono.xx", "--output", name)
    told = re.findall(r"^to train on them, in data.train: (.*)$", result.stdout, re.MULTILINE)
    assert yaml.safe_load(told[0]) == {"src": f"{name}/train.en", "tgt": f"{name}/train.es", "weight": 1}
    assert (folder / name / "train.en").read_text() == "one two.\n"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run `both`, of both directions of the toy language with tags, and `mono.xx`."""
    folder = tmp_path_factory.mktemp("many")
    write_toy_corpus(folder / "data", 30)
    train = [
        {"src": f"train.{src}", "tgt": f"train.{tgt}", "tag": f"<2{tgt}>"} for src, tgt in (("en", "es"), ("es", "en"))
    ]
    made = make_translator(TINY, data={"root": "data", "train": train}, tokenizer={"tags": ["<2es>", "<2en>"]})
    write_run(folder / "both", made)
    (folder / "mono.xx").write_text("one two.\n")
    return folder


ONE_WAY = "--config both/config.yaml 'data.train=[{src: train.es, tgt: train.en, tag: <2en>}]'"


@pytest.mark.parametrize(
    ("arguments", "names", "keys", "tags"),
    [
        ("distill --input mono.xx --to es", "en es", {"tag": "<2es>", "weight": 1}, ["<2es>"]),
        ("distill --input mono.xx --to en --tag <ST>", "es en", {"tag": "<2en>", "weight": 1}, ["<ST>", "<2en>"]),
        ("distill --input mono.xx", "en es", {"weight": 1}, []),
        ("backtranslate --input mono.xx --to en", "en es", {"tag": "<2es>", "weight": 1}, ["<2es>"]),
        ("distill", "src tgt", {}, ["<2en>", "<2es>"]),
        (f"distill {ONE_WAY}", "es en", {}, ["<2en>"]),
    ],
)
def test_what_is_printed_of_several_languages_trains(
    many: Path, arguments: str, names: str, keys: dict[str, Any], tags: list[str], tmp_path: Path
) -> None:
    """Each source with the tag of its targets, unless that stands in the lines."""
    out, sides = tmp_path / "out", names.split()
    (many / "mono.xx").write_text("one two.\n" if "--to" in arguments else "<2es> one two.\n")
    result = call_tmt(many, *shlex.split(arguments), "--run", "both", "--output", str(out), "--max-length", "4")
    assert result.returncode == 0, result.stderr
    source = as_typed({"src": f"{out}/train.{sides[0]}", "tgt": f"{out}/train.{sides[1]}"} | keys)
    alone = "" if "weight" in keys else " alone"
    told = f"to train on them{alone}, in data.train: {source}" + (f", with tokenizer.tags: {tags}" if tags else "")
    assert result.stdout.endswith(f"{told}\n")
    first = (out / f"train.{sides[0]}").read_text()
    assert first.startswith("<2") is ("tag" not in keys and "backtranslate" not in arguments)


def test_a_language_is_not_asked_for_where_the_sources_name_theirs(many: Path) -> None:
    told = refused(many, "--run", "both", "--to", "es", verb="distill")
    assert "--to is es, and the sources of data.train have tags of their own, such as <2en>. Leave --to out" in told


def test_of_blank_lines_alone_there_is_nothing_to_train_on(folder: Path) -> None:
    (folder / "mono.xx").write_text("\n\n")
    result = call_tmt(folder, "distill", "--input", "mono.xx", "--output", "nothing")
    assert result.returncode == 0
    assert result.stdout.endswith("there is no pair to train on\n")


def test_training_targets_by_a_teacher_and_by_an_ensemble(folder: Path) -> None:
    """Those of the run's own config, and of another; line n belongs to pair n."""
    text = (folder / "toy.yaml").read_text()
    (folder / "few.yaml").write_text(
        text.replace("src: train.en", "src: few.en").replace("tgt: train.es", "tgt: few.es")
    )
    for name in ("few.en", "few.es"):
        (folder / name).write_text("".join(f"{line}\n" for line in ["", *REAL[:20]]))
    for name in ("valid.en", "valid.es"):
        shutil.copy(folder / "data" / name, folder / name)
    here = ("--config", "few.yaml", "data.root=.")
    spanish, english = made(folder, *here, verb="distill")
    assert english == ["", *REAL[:20]]
    expected = call_tmt(folder, "translate", "--input", "few.en").stdout.split("\n")[:-1]
    assert spanish == expected
    both = ("--run", "runs/toy", "--run", "runs/toy")
    assert made(folder, *here, *both, verb="distill", output="both") == (spanish, english)


def test_the_pairs_of_another_output_are_translated_and_those_of_this_one_are_not(folder: Path) -> None:
    """Each line that is read of what is written would make another, without end."""
    made(folder, "--input", "mono.xx", verb="distill")
    files = {"src": "out/train.en", "tgt": "out/train.es"}
    mapping = yaml.safe_load((folder / "toy.yaml").read_text())
    mapping["data"] |= {"root": ".", "train": [{"src": "mono.xx", "tgt": "mono.xx"}, files]}
    mapping["data"]["validation"] = [{"src": "mono.xx", "tgt": "mono.xx"}]
    (folder / "student.yaml").write_text(yaml.safe_dump(mapping))
    student = ("--config", "student.yaml")
    told = refused(folder, *student, verb="distill")
    assert "data.train: out/train.en is a file that is written in --output out. Name another folder" in told
    assert made(folder, *student, verb="distill", output="again")[1] == [*REAL, *REAL]
    with (folder / "out" / "train.es").open("a") as file:
        file.write("uno.\n")
    told = refused(folder, *student, verb="distill", output="third")
    assert "out/train.en has 150 lines and out/train.es has 151. Line n of one must translate line n" in told
    assert not (folder / "third").exists()


def test_a_teacher_reads_no_tag_that_it_does_not_know(folder: Path) -> None:
    (folder / "tagged.yaml").write_text(tagged_config(folder, "<BT>"))
    (folder / "test.xx").write_text(f"{REAL[1].upper()}\n")
    plain = made(folder, "--input", "mono.xx", "--without", "test.xx", verb="distill", output="plain")
    tagged = made(folder, "--config", "tagged.yaml", "--without", "test.xx", verb="distill", output="tagged")
    assert tagged == (plain[0], [f"<BT> {line}" if line else "" for line in plain[1]])
    assert not plain[1][1]


def test_a_disk_that_fills_up(folder: Path) -> None:
    """Both files hold the same lines, and the same command goes on."""
    with full_disk(3072):
        said = refused(folder, "--input", "mono.xx")
    told = "cannot be written: File too large. Free some space or choose another --output; the same command goes on"
    assert told in said
    spanish, english = lines_of(folder, "out")
    assert 0 < len(spanish) == len(english) < 150
    assert made(folder, "--input", "mono.xx") == made(folder, "--input", "mono.xx", output="straight")


def test_ctrl_c_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translate_lines = Translator.translate_lines
    calls: list[int] = []

    def stopped(self: Translator, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return translate_lines(self, *arguments)

    monkeypatch.setattr(Translator, "translate_lines", stopped)
    result = call_tmt(folder, "backtranslate", "--input", "mono.xx", "--output", "out", *SMALL)
    assert result.returncode == 130
    assert result.stderr.endswith(
        "tmt: stopped. out holds the pairs of the first 64 lines. The same command goes on from there\n"
    )
    assert len(lines_of(folder, "out")[0]) == 64


@pytest.mark.parametrize("line", ["<BT> The cat sat.", "the cat  sat.", "<BT>", "<ST> The cat sat."])
def test_the_tag_of_a_source_hides_no_line_from_without(line: str) -> None:
    recipe = Recipe(False, without=frozenset([sentence_key("The cat sat.")]), source_tags=frozenset(["<BT>"]))
    assert recipe.refuses(line) == (Blank.WITHOUT if line in ("<BT> The cat sat.", "the cat  sat.") else None)


def test_the_tag_that_a_line_is_typed_behind_is_no_part_of_a_target() -> None:
    """Nor does it hide a line from --without."""
    languages = TargetLanguages(("es", "en"), None, is_needed=True, lowercase=False)
    recipe = Recipe(True, without=frozenset([sentence_key("Se sentó.")]), languages=languages)
    assert recipe.row("<2en> El gato", "The cat") == ("The cat", "El gato")
    assert recipe.is_of(("The cat", "El gato"), "<2en> El gato")
    assert recipe.row("<2fr> El gato", "The cat") == ("The cat", "<2fr> El gato")
    assert Recipe(False, languages=languages).row("<2es> The cat", "El gato") == ("<2es> The cat", "El gato")
    assert recipe.refuses("<2en> Se sentó.") is Blank.WITHOUT


def test_parts_depend_on_the_lines_alone() -> None:
    lines = ["a", "b" * 3000, "c", "d", "e"]
    assert list(parts_of(lines, 3)) == [lines[:2], lines[2:]]
    assert list(parts_of(iter([]), 3)) == []
