"""`--to LANG` of the verbs that look into a model: the tag typed before the sentence, refused where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from commands import call_tmt
from toy import toy_mapping, write_toy_corpus

SENTENCE = "one two three."
VERBS = {
    "trace": ("trace", "--format", "json"),
    "explain": ("explain", "--json", "-n", "0"),
    "attention": ("attention", "--force", "--output", "drawn"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs/both`, which was trained for two steps on pairs with tags of two languages."""
    folder = tmp_path_factory.mktemp("both")
    write_toy_corpus(folder / "data", 80)
    pairs = [
        {"src": "train.en", "tgt": "train.es", "tag": "<2es>"},
        {"src": "train.es", "tgt": "train.en", "tag": "<2en>"},
    ]
    mapping = toy_mapping(
        Path("data"),
        data={"train": pairs, "validation": [{"src": "valid.en", "tgt": "valid.es", "tag": "<2es>"}]},
        tokenizer={"joint": True, "tags": ["<2es>", "<2en>"]},
        training={"max_steps": 2, "checkpoint_every_steps": 2, "warmup_steps": 1},
    )
    (folder / "both.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    trained = call_tmt(folder, "train", "--config", "both.yaml", "name=both")
    assert trained.returncode == 0, trained.stderr
    return folder


def looked(folder: Path, verb: str, *arguments: str) -> str:
    """What is printed, and the page that is drawn."""
    result = call_tmt(folder, *VERBS[verb], "--run", "runs/both", *arguments)
    assert result.returncode == 0, result.stderr
    page = (folder / "drawn/attention.html").read_text("utf-8") if verb == "attention" else ""
    return result.stdout + page


@pytest.mark.parametrize("verb", VERBS)
def test_to_is_the_tag_typed_before_the_sentence(folder: Path, verb: str) -> None:
    spanish, english = (looked(folder, verb, "--to", to, SENTENCE) for to in ("es", "en"))
    assert spanish == looked(folder, verb, f"<2es> {SENTENCE}")
    assert english == looked(folder, verb, f"<2en> {SENTENCE}")
    assert spanish == looked(folder, verb, "--to", "en", f"<2es> {SENTENCE}")  # its own tag is stronger
    assert spanish != english


@pytest.mark.parametrize("verb", VERBS)
def test_a_language_that_is_not_there_or_not_said_is_refused(folder: Path, verb: str) -> None:
    for arguments, said in (
        (("--to", "fr"), "to is fr, which this model has not learned. It has es, en."),
        ((), "This model translates to es, en, and 'one two three.' does not say to which."),
        (("--to", "none"), "This model translates to es, en, and 'one two three.' does not say to which."),
    ):
        result = call_tmt(folder, *VERBS[verb], "--run", "runs/both", *arguments, SENTENCE)
        assert (result.returncode, result.stdout) == (2, "")
        assert said in result.stderr


@pytest.mark.parametrize("verb", [*VERBS.values(), ("fill",)], ids=lambda verb: verb[0])
def test_a_model_without_tags_refuses_it_by_name(verb: tuple[str, ...], call: Callable) -> None:
    result = call(*verb, "--to", "es", SENTENCE)
    assert (result.returncode, result.stdout) == (2, "")
    assert "to is es, and this model has no tags of languages" in result.stderr


def test_a_line_that_says_no_language_loses_none_before_it(folder: Path) -> None:
    """With more lines than are translated at once: the message says how far it came, and how to go on."""
    lines = [*[f"<2es> {SENTENCE}"] * 40, SENTENCE, f"<2en> {SENTENCE}"]
    (folder / "mixed.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = ("translate", "--run", "runs/both", "--batch-size", "1", "--input", "mixed.txt", "--output", "out.txt")
    stopped = call_tmt(folder, *command)
    assert stopped.returncode == 2
    done = (folder / "out.txt").read_text(encoding="utf-8").count("\n")
    assert 0 < done <= 40
    (said,) = [line for line in stopped.stderr.splitlines() if line.startswith("tmt: ")]
    assert "'one two three.' does not say to which. Give one with to (--to es), or" in said
    assert f"out.txt holds the translations of the first {done} lines. Go on with the same options: tail -n +" in said
    whole = call_tmt(folder, *command, "--to", "en")
    assert whole.returncode == 0, whole.stderr
    assert (folder / "out.txt").read_text(encoding="utf-8").count("\n") == len(lines)


def test_a_line_of_another_language_is_left_blank_with_its_number(folder: Path) -> None:
    (folder / "other.txt").write_text(f"{SENTENCE}\n<2fr> {SENTENCE}\n{SENTENCE}\n", encoding="utf-8")
    result = call_tmt(folder, "translate", "--run", "runs/both", "--to", "es", "--input", "other.txt")
    assert result.returncode == 0, result.stderr
    assert [bool(line) for line in result.stdout.split("\n")] == [True, False, True, False]
    assert "other.txt, line 2: it begins with <2fr>, which this model has not learned; it has es, en;" in result.stderr


def test_negations_are_looked_for_in_the_languages_that_are_asked_for(folder: Path) -> None:
    """`jamás` negates in Spanish alone, which this run reads where it translates to English."""
    own = "- {name: own, kind: negation_kept, sources: [jamás uno dos.]}"
    (folder / "own.yaml").write_text(own, encoding="utf-8")
    result = call_tmt(folder, "test", "runs/both", "--to", "en", "--tests", "own.yaml")
    assert result.returncode == 0, result.stderr
    assert call_tmt(folder, "test", "runs/both", "--to", "es", "--tests", "own.yaml").returncode == 2
