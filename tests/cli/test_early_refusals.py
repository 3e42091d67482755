"""What an option says that makes no sense is told before weights are read, which may take a minute."""

from pathlib import Path

import pytest

from transformer_mt.config import loading
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

FILES = ("--src", "data/valid.en", "--ref", "data/valid.es")
INPUT = ("--input", "data/valid.en", "--output", "early")
VERBS = {
    "translate": ("translate", "one"),
    "score": ("score", *FILES),
    "evaluate": ("evaluate", *FILES),
    "compare": ("evaluate", "--compare", "runs/toy", "runs/toy", *FILES),
    "calibrate": ("calibrate",),
    "distill": ("distill", *INPUT),
    "backtranslate": ("backtranslate", *INPUT),
    "test": ("test", "runs/toy"),
}
OPTIONS = {
    ("--batch-size", "0"): "batch_size: 0 is not allowed",
    ("--length-penalty", "nan"): "length_penalty: nan is not allowed",
    ("--to", "fr"): "to is fr, and this model has no tags of languages",
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("verb", VERBS)
def test_no_weights_are_read_for_an_option_without_sense(
    verb: str, option: tuple[str, str], call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments, **options):
        raise AssertionError("weights were read")

    monkeypatch.setattr(Translator, "load", load)
    result = call(*VERBS[verb], *option)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert OPTIONS[option] in result.stderr
    assert not (trained / "early").exists()


@pytest.mark.parametrize("more", [(), ("--html", "early.html"), ("--compare", "runs/toy", "runs/toy")])
def test_no_weights_are_read_for_a_tokenizer_that_is_none(
    more: tuple[str, ...], call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments, **options):
        raise AssertionError("weights were read")

    monkeypatch.setattr(Translator, "load", load)
    result = call("evaluate", *more, "--bleu-tokenize", "14a")
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith("tmt: '14a' is not a BLEU tokenizer. Use one of 13a, ")
    assert not (trained / "early.html").exists()


@pytest.mark.parametrize("run", [(), ("--run", "runs/toy")])
def test_the_config_is_read_once_to_know_what_is_asked_for(
    run: tuple[str, ...], call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    load_config = loading.load_config

    def reading(file: str, *others):
        read.append(file)
        return load_config(file, *others)

    def load(*arguments, **options):
        raise UserError("the options are known")

    monkeypatch.setattr(loading, "load_config", reading)
    monkeypatch.setattr(Translator, "load", load)
    assert "the options are known" in call("translate", *run, "one").stderr
    assert read == [str((trained / "runs/toy/config.yaml").resolve())]
