"""`tmt attention`: a page and pictures of the sentence that was given, or one sentence on what is wrong."""

import json
import re
from pathlib import Path

import pytest
from commands import full_disk

from transformer_mt import Translator
from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.errors import UserError
from transformer_mt.inspect.sentence_pair import sentence_pair

SENTENCE = "one two three."


def page_data(folder: Path) -> dict:
    """The JSON inside attention.html."""
    text = (folder / "attention.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_a_page_and_a_picture_for_each_attention_and_layer(tmt, call, trained: Path, tmp_path: Path) -> None:
    result = tmt("attention", SENTENCE, "--output", str(tmp_path / "new" / "out"))
    assert result.returncode == 0
    assert result.stderr.startswith("run: runs/toy\n")
    assert result.stdout.startswith(call("translate", SENTENCE).stdout.join(["target: ", ""]))
    pictures = {f"{name}_layer_0.png" for name in ("encoder", "decoder", "cross")}
    assert {path.name for path in (tmp_path / "new" / "out").iterdir()} == {"attention.html", *pictures}
    assert "attention.html: open it in a browser" in result.stdout
    encoder, decoder, cross = page_data(tmp_path / "new" / "out")["attentions"]
    assert encoder["keys"] == ["one", "two", "three", "￭.", "</s>"]
    assert decoder["keys"] == ["<s>", "uno", "tres", "dos", "￭."]
    assert cross["queries"] == ["uno", "tres", "dos", "￭.", "</s>"]
    assert len(cross["weights"][0]) == 4


def test_a_given_target_run_and_checkpoint(call, tmp_path: Path) -> None:
    options = ("--run", "runs/toy", "--checkpoint", "step_1200", "--device", "cpu", "--output", str(tmp_path))
    result = call("attention", SENTENCE, "--target", "diez nueve", *options)
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("target: diez nueve\n")
    data = page_data(tmp_path)
    assert data["model"] == "runs/toy, checkpoint step_1200"
    assert data["attentions"][2]["queries"] == ["diez", "nueve", "</s>"]


def test_earlier_pictures_are_replaced_only_when_asked(call, tmp_path: Path) -> None:
    assert call("attention", SENTENCE, "--output", str(tmp_path)).returncode == 0
    before = page_data(tmp_path)
    (tmp_path / "encoder_layer_5.png").write_text("of a deeper model")
    result = call("attention", "seven", "--output", str(tmp_path))
    assert (result.returncode, result.stdout, page_data(tmp_path)) == (2, "", before)
    assert "attention.html is there already. Name another folder with --output, or replace" in result.stderr
    assert call("attention", "seven", "--output", str(tmp_path), "--force").returncode == 0
    assert page_data(tmp_path)["attentions"][0]["keys"] == ["seven", "</s>"]
    assert not (tmp_path / "encoder_layer_5.png").exists()


def test_a_word_that_the_model_does_not_know_is_shown(call, tmp_path: Path) -> None:
    call("attention", "one Zebra.", "--target", "uno cebra.", "--output", str(tmp_path))
    encoder, _, cross = page_data(tmp_path)["attentions"]
    assert encoder["keys"] == ["one", "Zebra <unk>", "￭.", "</s>"]
    assert cross["queries"] == ["uno", "cebra <unk>", "￭.", "</s>"]


def test_bytes_and_markup_on_the_command_line(call, tmp_path: Path) -> None:
    """A byte that is not UTF-8 comes as half a surrogate pair."""
    result = call("attention", "one </script> <b>\udcff", "--target", "uno \"dos'", "--output", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert page_data(tmp_path)["attentions"][0]["keys"][0] == "one"


def test_no_control_character_reaches_the_terminal(call, tmp_path: Path) -> None:
    """The subword kind hands back the very bytes of a target; `tmt attention` shows them to a person."""
    tokenizer = ("tokenizer.kind=bpe", "tokenizer.vocab_size=400")
    options = ("name=bytes", *tokenizer, "training.max_steps=2", "training.warmup_steps=1", "--runs", str(tmp_path))
    assert call("train", "--config", "toy.yaml", *options).returncode == 0
    arguments = ("one \x1b[31m", "--target", "uno \x1b[31m\x07\x9b dos", "--run", str(tmp_path / "bytes"))
    result = call("attention", *arguments, "--output", str(tmp_path / "out"))
    assert result.returncode == 0
    assert result.stdout.startswith("target: uno \ufffd[31m\ufffd\ufffd dos\n")
    assert not set("\x1b\x07\x9b") & set(result.stdout + result.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "--output", "o"], "The sentence is blank. Give at least one word."),
        ([" \u2028 ", "--output", "o"], "The sentence is blank"),
        (["one", "--target", " ", "--output", "o"], "The translation is blank"),
        ([" ".join(["one"] * 24), "--output", "o"], "The sentence has 24 tokens, and the model reads 23"),
        (["one", "--target", "uno " * 24, "--output", "o"], "The translation has 24 tokens, and the model reads 23"),
        (["one", "--output", "toy.yaml"], "toy.yaml is a file, not a folder. Name another with --output."),
        (["one", "--output", "toy.yaml/below"], "cannot be written: Not a directory. Check --output and the disk."),
        (["one", "--output", "/proc/none"], "/proc/none/attention.html cannot be written: "),
        (["one", "--output", "o", "--run", "nowhere"], "nowhere is not the folder of a run"),
        (["one", "--output", "o", "--runs", "data"], "There is no trained run in"),
        (["one", "--output", "o", "--checkpoint", "step_7"], "has no checkpoint 'step_7'"),
        (["one", "--output", "o", "--device", "tpu"], "is not a device"),
        (["one"], "--output"),
    ],
)
def test_mistakes_get_one_clear_sentence(call, trained: Path, arguments: list[str], message: str) -> None:
    result = call("attention", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert not (trained / "o").exists()


@pytest.mark.parametrize(
    ("target", "max_tokens", "message"),
    [
        (None, 4, "The sentence has 4 tokens, and 3 can be shown. Give a shorter one."),
        ("uno dos tres cuatro cinco", 5, "The translation has 5 tokens, and 4 can be shown. Give a shorter one."),
    ],
)
def test_more_than_a_picture_can_show(trained: Path, target: str | None, max_tokens: int, message: str) -> None:
    translator = Translator.load(trained / "runs" / "toy", device="cpu")
    with pytest.raises(UserError, match=re.escape(message)):
        sentence_pair(translator, SENTENCE, target, max_tokens)
    src, tgt = sentence_pair(translator, SENTENCE, None, 5)
    assert translator.src_tokenizer.decode(src) == SENTENCE
    assert [translator.tgt_tokenizer.decode(tgt)] == translator.translate([SENTENCE])


def test_a_translation_of_more_than_a_picture_can_show(trained: Path) -> None:
    translator = Translator.load(trained / "runs" / "toy", device="cpu")
    translator.search = lambda rows, options: [[Hypothesis([5] * 9, 0.0, 0.0)]]
    with pytest.raises(UserError, match="The model's translation has 9 tokens, and 4 can be shown"):
        sentence_pair(translator, SENTENCE, None, 5)


def test_a_disk_that_takes_no_more(call, tmp_path: Path) -> None:
    """Whatever is there is whole."""
    with full_disk(24576):
        result = call("attention", SENTENCE, "--output", str(tmp_path))
    assert result.returncode == 2
    assert re.search(r"_layer_0.png cannot be written: File too large. Check --output and the disk.", result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]
    assert len(page_data(tmp_path)["attentions"]) == 3
