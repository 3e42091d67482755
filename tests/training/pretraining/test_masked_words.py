"""Masked words (BERT): what is read, exact resuming, `tmt fill` against the model's own output, its encoder in a
translator, and what is refused.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from commands import call_tmt
from marks import slow
from measured_costs import measured_costs
from test_pretraining import PAIRS, write_config
from toy import toy_mapping, write_toy_corpus
from trainings import killed_and_resumed, metrics

from transformer_mt.config.loading import load_config
from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import plan_in_order
from transformer_mt.data.noise.epoch_split import split_by_epochs, validated_split
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.decoding.filling.masked_words import MaskedModel
from transformer_mt.decoding.load_model import build_model, load_run
from transformer_mt.evaluation.nll import batch_nlls, mean_nll
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training.costs.total import told

ALONE = {"architecture": "encoder_only", "num_decoder_layers": 0, "positions": "learned"}


def write_masked(folder: Path, name: str, **sections: dict) -> None:
    data = {"noise": {"kind": "masked"}, **sections.pop("data", {})}
    model = {**ALONE, **sections.pop("model", {})}
    write_config(folder, name, data=data, model=model, **sections)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`masked.yaml`, `runs/words` by it, and `runs/pieces` with subwords and without tags."""
    folder = tmp_path_factory.mktemp("masked")
    write_toy_corpus(folder / "data")
    write_masked(folder, "masked.yaml", training={"max_steps": 60})
    mono = {"train": [{"mono": "train.en"}], "validation": [{"mono": "valid.en"}]}
    write_masked(
        folder, "pieces.yaml", data=mono, tokenizer={"kind": "bpe", "vocab_size": 300, "tags": []},
        training={"max_steps": 4},
    )  # fmt: skip
    for config, name in (("masked", "words"), ("pieces", "pieces")):
        result = call_tmt(folder, "pretrain", "--config", f"{config}.yaml", f"name={name}")
        assert result.returncode == 0, result.stderr
        assert "proofs: gradients and loss hold, on 4 pairs" in result.stdout
        tag = "<2en> " if name == "words" else ""
        assert f'fill in words with: tmt fill --run runs/{name} "{tag}The [MASK] …"' in result.stdout
    return folder


def test_its_training_is_measured_and_no_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured_costs(folder, "masked.yaml", monkeypatch)
    assert found["decoding_bytes"] is None
    assert found["training_bytes"] > 100e6
    assert "decoding" not in told(load_config(str(folder / "masked.yaml")).config, found)


@pytest.mark.parametrize("stream", [{}, {"streaming": True, "shuffle_window": 300}], ids=["whole", "stream"])
def test_every_line_is_read_with_words_hidden_in_their_places(folder: Path, stream: dict) -> None:
    """The tag stays and nothing is told of it, nor of EOS; the update counts what is told."""
    write_masked(folder, "read.yaml", data=stream)
    config = load_config(str(folder / "read.yaml")).config
    data = prepare_training_data(config)
    encode = data.src_tokenizer.encode
    tags = {encode("<2en>")[0], encode("<2es>")[0]}
    lines = [
        encode(f"<2{name}> {text}")
        for name in ("en", "es")
        for text in (folder / f"data/train.{name}").read_text().split("\n")[:-1]
    ]
    allowed = {*data.src_tokenizer.text_ids(), encode("<mask_0>")[0]}
    epochs = []
    for epoch in (0, 1):
        split, found = split_by_epochs(data, config), {}
        plan, number = split.plan(64, 3, epoch), 0
        while (rows := plan.get(number)) is not None:
            batch = split.batch(rows)
            assert batch.num_tokens == split.tgt_lengths[rows].sum()
            for row, src, tgt in zip(rows, batch.src.tolist(), batch.tgt_out.tolist(), strict=True):
                length = src.index(EOS_ID)
                assert len(src) == len(tgt)
                assert length + 1 == split.src_lengths[row]
                assert src[0] in tags
                assert not any([tgt[0], *tgt[length:]])
                assert max(1, int(0.15 * (length - 1) + 0.5)) == sum(i != PAD_ID for i in tgt)
                assert set(src[1:length]) <= allowed
                found[split.where(int(row))] = src[:length], [t or s for s, t in zip(src, tgt, strict=True)][:length]
            number += 1
        assert sorted(whole for _, whole in found.values()) == sorted(lines), "what is shown and told is the line"
        epochs.append({where: src for where, (src, _) in found.items()})
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(
    "stream", [pytest.param((), id="whole"), slow(("data.streaming=true", "data.shuffle_window=100"), id="stream")]
)
def test_a_killed_training_is_resumed_to_the_same_run(folder: Path, stream: tuple[str, ...]) -> None:
    kind = "stream" if stream else "whole"
    arguments = ("pretrain", "--config", "masked.yaml", "training.max_steps=20", "training.max_tokens=128", *stream)
    assert killed_and_resumed(folder, *arguments, suffix=f"_{kind}").returncode == 0


@torch.no_grad()
def test_a_validation_is_the_nll_of_what_is_hidden(folder: Path) -> None:
    """By the rows one by one, from the model's own output; it learns, and nothing is translated."""
    validated = [line for line in metrics(folder / "runs/words") if line["kind"] == "validation"]
    assert validated[-1]["nll"] < validated[0]["nll"]
    assert all("bleu" not in line for line in validated)
    masked = MaskedModel.load(RunFolder(folder / "runs/words"), "last", "cpu")
    split, _ = validated_split(prepare_training_data(masked.config), masked.config)
    nlls = []
    for row in range(len(split)):
        batch = split.batch(np.array([row]))
        logits = masked.model(batch.src, batch.tgt_in)[0].log_softmax(-1)
        nlls += [-float(logits[i, t]) for i, t in enumerate(batch.tgt_out[0].tolist()) if t != PAD_ID]
    batches = plan_in_order(split.src_lengths, split.tgt_lengths, 64)
    found = mean_nll(batch_nlls(masked.model, split, batches))
    assert found.num_tokens == len(nlls)
    assert found.nll == pytest.approx(sum(nlls) / len(nlls), rel=1e-5)
    assert validated[-1]["nll"] == pytest.approx(found.nll, rel=1e-4)


@torch.no_grad()
def test_each_mask_has_the_probabilities_of_the_models_output(folder: Path) -> None:
    masked = MaskedModel.load(RunFolder(folder / "runs/words"), device="cpu")
    encode = masked.tokenizer.encode
    (mask,) = encode("<mask_0>")
    ids = [*encode("<2en> one"), mask, *encode("two"), mask, encode("two.")[1]]  # the full stop touches its word
    assert masked.ids("<2en> one [MASK] two [MASK].") == ids
    src = torch.tensor([[*ids, EOS_ID]])
    probabilities = masked.model(src, src)[0].softmax(-1)
    for place, candidates in zip((2, 4), masked.candidates("<2en> one [MASK] two [MASK].", 1000), strict=True):
        assert [candidate.id for candidate in candidates] == sorted(
            masked.tokenizer.text_ids(), key=lambda i, place=place: -float(probabilities[place, i])
        )
        for candidate in candidates:
            assert candidate.probability == pytest.approx(float(probabilities[place, candidate.id]), rel=1e-5)
    assert not {PAD_ID, EOS_ID, mask, *encode("<2en> <2es>")}.intersection(masked.tokenizer.text_ids())


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("one [MASK].", "one two."), ("“[MASK] one”", "“two one”"), ("[MASK], [MASK]", "two, two"),
        ("one-[MASK]-one", "one-two-one"), ("[MASK]", "two"), ("(one [MASK])", "(one two)"),
    ],
)  # fmt: skip
def test_a_mask_stands_where_a_word_would(folder: Path, text: str, plain: str) -> None:
    masked = MaskedModel.load(RunFolder(folder / "runs/words"), device="cpu")
    (two,) = masked.tokenizer.encode("two")
    expected = [masked.mask_id if i == two else i for i in masked.tokenizer.encode(f"<2en> {plain}")]
    assert masked.ids(f"<2en> {text}") == expected


def test_the_command_lists_words_for_each_mask(folder: Path) -> None:
    result = call_tmt(folder, "fill", "--run", "runs/words", "-n", "3", "<2en> one [MASK] two [MASK].")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert (lines[0], lines[4], len(lines)) == ("[MASK] 1 of 2", "[MASK] 2 of 2", 8)
    for part in (lines[1:4], lines[5:]):
        numbers = [float(line.split()[0]) for line in part]
        assert numbers == sorted(numbers, reverse=True)
    assert "piece" not in result.stderr
    pieces = call_tmt(folder, "fill", "--run", "runs/pieces", "-n", "2", "one [MASK] two")
    assert len(pieces.stdout.splitlines()) == 2, "one mask needs no number"
    assert "[MASK] is one piece of a word; ▁ begins a word. A word of several pieces needs a [MASK]" in pieces.stderr


def test_its_attention_is_drawn(folder: Path) -> None:
    result = call_tmt(folder, "attention", "--run", "runs/words", "--output", "drawn", "<2en> one [MASK].")
    assert result.returncode == 0, result.stderr
    assert "text: <2en> one <mask_0> ￭." in result.stdout
    assert result.stdout.endswith("drawn/encoder_layer_0.png: a picture\n"), "one needs no number"
    assert {path.name for path in (folder / "drawn").iterdir()} == {"attention.html", "encoder_layer_0.png"}


def test_a_mean_of_its_checkpoints_is_for_filling_in(folder: Path) -> None:
    result = call_tmt(folder, "average", "runs/words", "--last", "1")
    assert result.returncode == 0, result.stderr
    assert 'use it with: tmt fill --run runs/words --checkpoint average "<2en> The [MASK] …"' in result.stdout


NO_TRANSLATION = "model.architecture is encoder_only, which fills in hidden words and writes no translation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fill", "--run", "runs/words", "one [MASK]"), "begin with a tag: <2en>, <2es>. Begin the text with it"),
        (("fill", "--run", "runs/words", "<2en> one"), "no [MASK] in the text"),
        (("fill", "--run", "runs/pieces", "one"), "no [MASK] in the text"),
        (("fill", "--run", "runs/words", "<2en> [MASK]" + " one" * 20), "has 22 tokens, and the model reads 15"),
        (("attention", "--run", "runs/pieces", "--output", "no", " "), "The text is blank"),
        (
            ("attention", "--run", "runs/pieces", "--output", "no", "--target", "x", "one"),
            "--target is for a model that",
        ),
        (("translate", "--run", "runs/words", "one"), NO_TRANSLATION),
        (("trace", "--run", "runs/words", "one"), NO_TRANSLATION),
        (("score", "--run", "runs/words", "--src", "data/valid.en", "--ref", "data/valid.es"), NO_TRANSLATION),
        (("evaluate", "--run", "runs/words", "--split", "validation"), NO_TRANSLATION),
        (("distill", "--run", "runs/words", "--input", "data/valid.en", "--output", "distilled"), NO_TRANSLATION),
        (("backtranslate", "--run", "runs/words", "--input", "data/valid.en", "--output", "made"), NO_TRANSLATION),
        (("serve", "--run", "runs/words"), NO_TRANSLATION),
        (("card", "--run", "runs/words"), NO_TRANSLATION),
        *(
            (("export", "--run", "runs/pieces", "--to", engine, f"made.{engine}model"), NO_TRANSLATION)
            for engine in ("ctranslate2", "onnx", "huggingface", "argos")
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else "",
)
def test_what_it_cannot_do_is_told(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    result = call_tmt(folder, *arguments)
    assert result.returncode == 2, result.stdout
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_target_is_refused_before_weights_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskedModel, "load", None)
    result = call_tmt(folder, "attention", "--run", "runs/pieces", "--output", "no", "--target", "x", "one")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--target is for a model that translates" in result.stderr


def write_pairs(folder: Path, **model: object) -> None:
    mapping = toy_mapping(
        folder / "data", data={**PAIRS, "cache_dir": str(folder / "cache")},
        tokenizer={"joint": True, "tags": ["<2en>", "<2es>"]}, model={"positions": "learned", **model},
    )  # fmt: skip
    (folder / "pairs.yaml").write_text(yaml.safe_dump(mapping))


@pytest.mark.parametrize(
    ("tied", "parts", "table"),
    [("decoder", ["encoder"], False), ("none", ["encoder", "src_embeddings"], True),
     ("all", ["encoder", "embeddings"], True)],
)  # fmt: skip
def test_a_translator_begins_with_its_encoder(folder: Path, tied: str, parts: list[str], table: bool) -> None:
    """What is named is taken bit for bit, the rest is that of a fresh model of the seed, and it trains from there."""
    write_pairs(folder, tie_embeddings=tied)
    run, asked = RunFolder(folder / f"runs/{tied}"), f"training.init_from={{run: runs/words, parts: {parts}}}"
    result = call_tmt(folder, "train", "--config", "pairs.yaml", f"name={tied}", "training.max_steps=1", asked)
    assert result.returncode == 0, result.stderr
    config, _, src, tgt, _ = load_run(run, "step_0")
    torch.manual_seed(config.seed)
    fresh = dict(build_model(config, src, tgt).named_parameters())
    old = MaskedModel.load(RunFolder(folder / "runs/words"), device="cpu").model.state_dict()
    begun = read_tensors(run.step(0) / "model.safetensors")
    for name, tensor in begun.items():
        taken = name.startswith("encoder.") and (table or name != "encoder.embedder.embedding.weight")
        assert torch.equal(tensor, (old if taken else fresh)[name]), name
    translated = call_tmt(folder, "translate", "--run", f"runs/{tied}", "one two.")
    assert translated.returncode == 0, translated.stderr


@pytest.mark.parametrize(
    ("model", "parts", "message"),
    [
        (
            {"d_ff": 48},
            "[encoder]",
            "the part encoder of runs/words does not fit .*d_ff is 48 and was 32, so that enco",
        ),
        ({"num_encoder_layers": 2}, "[encoder]", "num_encoder_layers is 2 and was 1"),
        ({"positions": "sinusoidal"}, "[encoder]", "positions is 'sinusoidal' and was 'learned', so that encoder"),
        (
            {},
            "[encoder, embeddings]",
            "part embeddings .*'encoder_decoder' and was 'encoder_only', so that decoder.*miss",
        ),
        (
            {},
            "[decoder]",
            "the part decoder .*architecture is 'encoder_decoder' and was 'encoder_only', .* so that decoder",
        ),
        ({}, "[head]", "parts names head, which a model of model.architecture: encoder_decoder has not"),
        (
            {"architecture": "decoder_only", "num_encoder_layers": 0},
            "[decoder]",
            "architecture is 'decoder_only' and was",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(folder: Path, model: dict, parts: str, message: str) -> None:
    write_pairs(folder, **model)
    asked = f"training.init_from={{run: runs/words, parts: {parts}}}"
    result = call_tmt(folder, "train", "--config", "pairs.yaml", "name=refused", asked)
    assert result.returncode == 2
    assert re.search(message, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "runs/refused").exists()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"noise": {"kind": "infilling"}}}, "encoder_only learns hidden words and no translation, and "
         "data.noise.kind is infilling; set data.noise: {kind: masked}"),
        ({"data": {**PAIRS, "noise": None}}, "encoder_only learns hidden words and no translation, and data.noise is"),
        ({"model": {"architecture": "encoder_decoder", "num_decoder_layers": 1}},
         "data.noise.kind: masked is for an encoder alone, and model.architecture is encoder_decoder; set "
         "model.architecture: encoder_only"),
        ({"model": {"num_decoder_layers": 1}}, "num_decoder_layers is 1; an encoder_only model has no decoder: set it"),
        ({"model": {"architecture": "encoder_decoder"}}, "num_decoder_layers is 0; an encoder_decoder model needs 1"),
        ({"model": {"tgt_word_dropout": 0.1}}, "tgt_word_dropout is 0.1 and has no meaning under architecture: encod"),
        ({"data": {"train": [{"mono": "train.en"}, *PAIRS["train"]]}}, "and data.train has pairs; name {mono: FILE}"),
        ({"data": {"validation": PAIRS["validation"]}}, "and data.validation has pairs; name {mono: FILE}"),
        ({"data": {"test": PAIRS["validation"]}}, "and data.test has pairs; name {mono: FILE} in their place, or test"),
        ({"tokenizer": {"masks": 0}}, "puts masks in the place of what it hides, and tokenizer.masks is 0; set it to"),
        ({"tokenizer": {"joint": False}}, "needs one vocabulary for both; set tokenizer.joint: true"),
        ({"validation": {"metric": "bleu"}}, "validation.metric is bleu, and data.validation has text in one language"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_config_that_cannot_be_is_refused(folder: Path, sections: dict, message: str) -> None:
    write_masked(folder, "wrong.yaml", **sections)
    result = call_tmt(folder, "pretrain", "--config", "wrong.yaml", "name=refused")
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
