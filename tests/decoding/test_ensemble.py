"""An ensemble's hypotheses have the probabilities that its models' own, averaged by hand, give them."""

import json
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import call_tmt
from torch import Tensor
from toy import toy_pairs
from translators import ONE_STREAM, SMALL, make_translator, rules, small, write_run

from transformer_mt.config.presets import MODELS
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.ensemble import MODES, Ensemble
from transformer_mt.decoding.load_ensemble import Loaded, combined, load_models
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

FEW_PAIRS = [("a b", "c"), ("b a", "d"), ("a", "c d")]  # a vocabulary of four words
TWO_STACKS = {**SMALL, "num_encoder_layers": 1}
STREAM = {**SMALL, **ONE_STREAM, "d_model": 24, "num_heads": 2, "max_len": 20, "positions": "rotary"}
RECURRENT = {**small(MODELS["rnn-search"]), "rnn": {"d_embedding": 14, "d_readout": 10}}  # no size is d_model
TEXTS = [src for src, _ in toy_pairs(7)]


def ensemble_of(members: list[Translator], mode: str, precision: str = "fp32") -> Translator:
    one = combined([Loaded(t.config, t.model, t.src_tokenizer, t.tgt_tokenizer, []) for t in members], mode)
    return Translator(one.model, one.src, one.tgt, one.config, precision)


def unlike(pairs: list[tuple[str, str]] | None = None, first: dict[str, Any] | None = None) -> list[Translator]:
    """An encoder-decoder, or `first`, and a decoder-only model, with logits far apart."""
    found = [make_translator(model, pairs, noise) for model, noise in ((first or TWO_STACKS, 0.3), (STREAM, 0.4))]
    with torch.no_grad():
        for translator in found:
            translator.model.output.weight.mul_(3)
    return [Translator(t.model, t.src_tokenizer, t.tgt_tokenizer, t.config) for t in found]


def by_hand(members: list[Translator], mode: str, row: list[int], tokens: list[int]) -> float:
    """The log-probability of the tokens and EOS: all models read the whole of it at once, without a cache."""
    src, tgt_in = torch.tensor([[*row, EOS_ID]]), torch.tensor([[BOS_ID, *tokens]])
    probabilities = [torch.softmax(member.model(src, tgt_in)[0].double(), dim=-1) for member in members]
    if mode == "linear":
        mean = sum(probabilities, torch.zeros(())) / len(members)
    else:
        product: Tensor = math.prod(probabilities[1:], start=probabilities[0]) ** (1 / len(members))  # pyright: ignore
        mean = product / product.sum(dim=-1, keepdim=True)
    return sum(math.log(mean[i, token]) for i, token in enumerate([*tokens, EOS_ID]))


@pytest.mark.parametrize("first", [TWO_STACKS, RECURRENT], ids=["two stacks", "recurrent"])
@pytest.mark.parametrize("mode", MODES)
@torch.inference_mode()
def test_a_wide_beam_ranks_all_that_can_be_said_as_the_averaged_probabilities_do(mode: str, first: dict) -> None:
    members = unlike(FEW_PAIRS, first)
    translator = ensemble_of(members, mode)
    words = range(4, translator.tgt_tokenizer.vocab_size)
    options = search_options(rules(200, 20), max_length_ratio=0, max_length_extra=4)
    rows = translator.src_tokenizer.encode_batch(["a b b", "b"])
    for row, found in zip(rows, translator.search(rows, options), strict=True):
        said = [list(tokens) for length in range(4) for tokens in product(words, repeat=length)]
        log_probs = {tuple(tokens): by_hand(members, mode, row, tokens) for tokens in said}
        best = sorted(log_probs, key=lambda tokens: -log_probs[tokens])[:20]
        assert [tuple(hypothesis.tokens) for hypothesis in found] == best
        assert [h.log_prob for h in found] == pytest.approx([log_probs[tokens] for tokens in best], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("mode", MODES)
@torch.inference_mode()
def test_a_batch_scores_as_by_hand_and_as_teacher_forcing_does(mode: str, beam_size: int) -> None:
    members = unlike()
    translator = ensemble_of(members, mode)
    rows = translator.src_tokenizer.encode_batch(TEXTS)
    found = translator.search(rows, rules(beam_size, beam_size))
    assert len({len(hypotheses[0].tokens) for hypotheses in found}) > 1
    for row, hypotheses in zip(rows, found, strict=True):
        for hypothesis in hypotheses:
            expected = by_hand(members, mode, row, hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-3)
            (forced,) = token_log_probs(translator.search_model, [(row, hypothesis.tokens)])
            assert sum(forced) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_copies_of_one_model_say_what_it_says(mode: str, beam_size: int, precision: str) -> None:
    alone = unlike()[0]
    options = rules(beam_size, beam_size)
    plain = Translator(alone.model, alone.src_tokenizer, alone.tgt_tokenizer, alone.config, precision)
    expected = plain.translate_lines(TEXTS, options)
    for num_copies in (1, 2, 3):
        found = ensemble_of([alone] * num_copies, mode, precision).translate_lines(TEXTS, options)
        for ours, theirs in zip(found, expected, strict=True):
            assert [h.text for h in ours.hypotheses] == [h.text for h in theirs.hypotheses]
            assert [h.score for h in ours.hypotheses] == pytest.approx([h.score for h in theirs.hypotheses], abs=1e-4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/stacks and runs/stream, which have one vocabulary."""
    folder = tmp_path_factory.mktemp("runs")
    for name, translator in zip(("stacks", "stream"), unlike(), strict=True):
        write_run(folder / "runs" / name, translator)
    (folder / "in.en").write_text("".join(f"{src}\n" for src, _ in toy_pairs(7)))
    (folder / "in.es").write_text("".join(f"{tgt}\n" for _, tgt in toy_pairs(7)))
    return folder


def test_an_ensemble_is_loaded_with_the_smallest_number_of_positions(runs: Path) -> None:
    paths = [runs / "runs" / name for name in ("stacks", "stream")]
    translator = Translator.load(paths, device="cpu")
    assert translator.config.model.max_len == translator.model.config.max_len == 20
    assert translator.config.model.architecture == "encoder_decoder"
    expected = ensemble_of(unlike(), "linear").translate(TEXTS, beam_size=2)
    assert translator.translate(TEXTS, beam_size=2) == expected
    assert translator.translate(["one " * 22], beam_size=2) == [""]


def test_several_checkpoints_of_one_run_are_an_ensemble(runs: Path) -> None:
    path = runs / "runs" / "stacks"
    twins = load_models(path, ["step_1", "last"], "log_linear")
    assert isinstance(twins.model, Ensemble)
    assert [checkpoint.name for _, checkpoint in twins.checkpoints] == ["step_1", "step_1"]


def renamed(tokenizer: Tokenizer) -> Tokenizer:
    """The same with two entries in each other's place."""
    text = tokenizer.backend.to_str()
    swapped = text.replace('"uno"', '"?"').replace('"dos"', '"uno"').replace('"?"', '"dos"')
    assert swapped != text
    return type(tokenizer)(type(tokenizer.backend).from_str(swapped), tokenizer.lowercase)


UNLIKE: dict[str, dict[str, Any]] = {
    "word and bpe": {"tokenizer": {"kind": "bpe", "vocab_size": 300}},
    "any case and lower case": {"tokenizer": {"lowercase": True}},
    "25 and 20 entries": {"tokenizer": {"vocab_size": 20}},
}


@pytest.mark.parametrize(("difference", "sections"), UNLIKE.items())
def test_other_vocabularies_are_refused_by_name(
    difference: str, sections: dict[str, Any], runs: Path, tmp_path: Path
) -> None:
    other = write_run(tmp_path / "other", make_translator(TWO_STACKS, **sections))
    with pytest.raises(UserError) as refused:
        Translator.load([runs / "runs" / "stacks", other])
    message = str(refused.value)
    assert message.startswith(
        f"{runs / 'runs' / 'stacks'} and {other} have not the same source vocabulary ({difference}"
    )


def test_a_run_and_its_reverse_are_refused_though_they_have_one_table(runs: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", make_translator(TWO_STACKS, data={"src_lang": "es", "tgt_lang": "en"}))
    with pytest.raises(UserError, match=r"stacks translates en to es and .*other translates es to en, so they"):
        Translator.load([runs / "runs" / "stacks", other])


def test_one_entry_in_anothers_place_is_another_vocabulary(runs: Path, tmp_path: Path) -> None:
    translator = make_translator(TWO_STACKS)
    apart = translator.config.tokenizer.model_copy(update={"joint": False})
    translator.config = translator.config.model_copy(update={"tokenizer": apart})
    translator.tgt_tokenizer = renamed(translator.tgt_tokenizer)
    other = write_run(tmp_path / "other", translator)
    with pytest.raises(UserError, match=r"the same target vocabulary \(entry \d+ is '(uno|dos)' and '(uno|dos)'\)"):
        Translator.load([runs / "runs" / "stacks", other])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--run runs/stacks --ensemble-mode linear", "ensemble mode linear is for several runs, and there is one"),
        ("--run runs/stacks --run runs/stream --ensemble-mode mean", "'mean' is not an ensemble mode. Use linear or"),
        ("--run runs/stacks --run runs/none", "runs/none is not the folder of a run"),
        ("--run runs/stacks --run runs/stream --checkpoint step_2", "runs/stacks has no checkpoint 'step_2'"),
        (
            "--run runs/stacks --run runs/stream --checkpoint last --checkpoint last --checkpoint last",
            "3 checkpoints for 2 runs: give one checkpoint for all runs or one for each.",
        ),
    ],
)
def test_mistakes(arguments: str, message: str, runs: Path) -> None:
    result = call_tmt(runs, "translate", *arguments.split(), "one two.")
    assert result.returncode == 2
    assert message in result.stderr


@pytest.mark.parametrize("mode", [["linear"], ("linear",), {"linear"}, 1, "mean"])
def test_what_is_no_mode_is_refused(mode: Any, runs: Path) -> None:
    for paths in ([runs / "runs" / "stacks"], [runs / "runs" / name for name in ("stacks", "stream")]):
        with pytest.raises(UserError, match=re.escape(f"{mode!r} is not an ensemble mode. Use linear or log_linear.")):
            Translator.load(paths, ensemble_mode=mode)


def test_every_verb_that_uses_a_search_takes_an_ensemble(runs: Path) -> None:
    both = ["--run", "runs/stacks", "--run", "runs/stream", "--beam-size", "2", "--device", "cpu"]
    mode = ["--ensemble-mode", "log_linear"]
    translated = call_tmt(runs, "translate", *both, *mode, "--format", "jsonl", "--input", "in.en")
    lines = [json.loads(line) for line in translated.stdout.splitlines()]
    paths = [runs / "runs" / name for name in ("stacks", "stream")]
    translator = Translator.load(paths, device="cpu", ensemble_mode="log_linear")
    assert [line["hypotheses"][0]["text"] for line in lines] == translator.translate(TEXTS, beam_size=2)
    (runs / "out.es").write_text("".join(f"{line['hypotheses'][0]['text']}\n" for line in lines))
    scored = call_tmt(runs, "score", *both[:4], *mode, "--src", "in.en", "--ref", "out.es", "--format", "jsonl")
    same = 0
    for ours, line in zip(lines, map(json.loads, scored.stdout.splitlines()), strict=True):
        if ours["hypotheses"][0]["tokens"] == line["tokens"]:  # text of random tokens may be read as others
            assert line["score"] == pytest.approx(ours["hypotheses"][0]["score"], abs=1e-3)
            same += 1
    assert same > len(lines) / 2
    saved = set()
    for arguments in (both, [*both, *mode], [*both[2:4], *both[:2], *both[4:]], both[2:]):
        result = call_tmt(runs, "evaluate", *arguments, "--src", "in.en", "--ref", "in.es")
        assert result.returncode == 0, result.stderr
        saved.add(result.stdout.split("saved: ")[1].strip())
    assert len(saved) == 4
    assert sum("_ensemble2-" in path for path in saved) == 3
