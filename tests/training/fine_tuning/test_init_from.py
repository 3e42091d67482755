"""A training that begins with a finished run's weights: what it takes, what is fresh, and that it resumes exactly."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from commands import call_tmt
from marks import slow
from safetensors.torch import load_file
from torch import Tensor
from torchrun import run_together
from toy import SPANISH, toy_mapping, toy_pairs, write_toy_corpus
from trainings import assert_same_run, kill_at, metrics, start, tmt_here, to_the_end

from transformer_mt.config.loading import load_config
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.load_model import build_model, load_run
from transformer_mt.model.named_parts import belongs
from transformer_mt.storage.run_folder import RunFolder

WEIGHTS = "model.safetensors"
OLD_SIZES = (15, 15)  # ten numbers, the full stop and four special entries
LAST = 20


def write_new_corpus(folder: Path) -> None:
    """Other sentences, in which `one` and `uno` have become `eleven` and `once`, and `two` and `dos` are gone."""
    folder.mkdir()
    new: dict[str, str] = {"one": "eleven", "uno": "once", "two": "three", "dos": "tres"}
    pairs = toy_pairs(80, seed=5)
    for name, part in (("train", pairs[:60]), ("valid", pairs[60:])):
        for language, side in zip(("en", "es"), zip(*part, strict=True), strict=True):
            words = [[new.get(word) or word for word in text[:-1].split()] for text in side]
            (folder / f"{name}.{language}").write_text("".join(f"{' '.join(line)}.\n" for line in words), "utf-8")


def sources(folder: Path) -> dict[str, object]:
    return {
        "train": [{"src": str(folder / "train.en"), "tgt": str(folder / "train.es")}],
        "validation": [{"src": str(folder / "valid.en"), "tgt": str(folder / "valid.es")}],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`runs/old`; `fine.yaml`, which goes on from it on other text, with some parts frozen, two micro-batches an update
    and new words; and `runs/straight`, trained by it.
    """
    folder = tmp_path_factory.mktemp("fine")
    write_toy_corpus(folder / "toy")
    write_new_corpus(folder / "new")
    mapping = toy_mapping(folder / "toy", model={"tie_embeddings": "decoder"})
    mapping["name"] = "old"
    mapping["data"]["cache_dir"] = str(folder / "cache")
    (folder / "old.yaml").write_text(yaml.safe_dump(mapping))
    assert call_tmt(folder, "train", "--config", "old.yaml").returncode == 0
    fine = {
        "extends": "old.yaml",
        "name": "fine",
        "data": sources(folder / "new"),
        "training": {"init_from": {"run": "runs/old", "vocabulary": "extend"}, "freeze": ["encoder"], "grad_accum": 2},
    }
    (folder / "fine.yaml").write_text(yaml.safe_dump(fine))
    assert train(folder, "name=straight").returncode == 0
    return folder


def train(folder: Path, *arguments: str):
    return tmt_here(folder, "train", "--config", "fine.yaml", *arguments)


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step_{step}" / WEIGHTS)


def best_of_old(folder: Path) -> dict[str, Tensor]:
    state = json.loads((folder / "runs/old/checkpoints" / f"step_{LAST}" / "state.json").read_text())
    return weights(folder / "runs/old", state["best_step"])


def batch_of(src: tuple[Tokenizer, str], tgt: tuple[Tokenizer, str]) -> Batch:
    return make_batch(*([np.array(tokenizer.encode(text))] for tokenizer, text in (src, tgt)))


def nll_by_hand(run: Path, corpus: Path) -> float:
    """Of the validation's target tokens, pair by pair, from the logits of the best checkpoint."""
    _, model, src, tgt, _ = load_run(RunFolder(run), None)
    total, number = 0.0, 0
    for lines in zip(*((corpus / f"valid.{side}").read_text().splitlines() for side in ("en", "es")), strict=True):
        batch = batch_of((src, lines[0]), (tgt, lines[1]))
        with torch.no_grad():
            log_probs = model(batch.src, batch.tgt_in).double().log_softmax(-1)
        total -= float(log_probs.gather(-1, batch.tgt_out[..., None]).sum())
        number += batch.tgt_out.numel()
    return total / number


def test_it_starts_as_the_old_model_and_at_its_nll(folder: Path) -> None:
    """Also on other text, whose unknown words are unknown to both."""
    said = train(
        folder, "name=kept", "training.init_from.vocabulary=keep", "training.max_steps=1", "training.freeze=[]"
    )
    assert said.returncode == 0
    assert "tokenizers: those of runs/old, kept as they are" in said.stdout
    assert "weights: those of runs/old, step_" in said.stdout
    taken, old = weights(folder / "runs/kept", 0), best_of_old(folder)
    assert taken.keys() == old.keys()
    assert all(torch.equal(taken[name], old[name]) for name in old)
    for file in ("src.json", "tgt.json"):
        kept, there = (folder / "runs" / run / "tokenizers" / file for run in ("kept", "old"))
        assert kept.read_bytes() == there.read_bytes()
    first = metrics(folder / "runs/kept")[0]
    assert (first["kind"], first["step"]) == ("validation", 0)
    by_hand = nll_by_hand(folder / "runs/old", folder / "new")
    assert first["nll"] == pytest.approx(by_hand, abs=1e-5)
    assert abs(by_hand - nll_by_hand(folder / "runs/old", folder / "toy")) > 0.1, "the texts should differ"
    after = weights(folder / "runs/kept", 1)
    assert all(not torch.equal(after[name], old[name]) for name in old if "k_proj.bias" not in name)


def test_an_end_says_that_no_step_was_better_than_the_model_it_began_with(folder: Path) -> None:
    keep = ("training.init_from.vocabulary=keep", "training.freeze=[]")
    more = ("training.max_steps=2", "training.schedule=constant", "training.lr=1", "training.warmup_steps=0")
    result = train(folder, "name=worse", *keep, *more)
    assert result.returncode == 0, result.stderr
    best = "no step was better than the model it began with, so that translating uses that one (step_0)"
    assert f"; {best}\ntranslate with: tmt translate --run runs/worse" in result.stdout


def test_new_words_have_new_rows_and_the_old_rows_are_untouched(folder: Path) -> None:
    run = RunFolder(folder / "runs/straight")
    config = load_config(str(run.config)).config
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    old_src, old_tgt = load_tokenizers(folder / "runs/old/tokenizers", config.tokenizer)
    assert (old_src.vocab_size, old_tgt.vocab_size) == OLD_SIZES
    assert (src.vocab_size, tgt.vocab_size) == (16, 16)
    for new, old, word in ((src, old_src, "eleven"), (tgt, old_tgt, "once")):
        assert new.backend.get_vocab() == {**old.backend.get_vocab(), word: 15}
    torch.manual_seed(config.seed)
    fresh = dict(build_model(config, src, tgt).named_parameters())
    taken, before = weights(run.path, 0), best_of_old(folder)
    for name, tensor in taken.items():
        rows = len(before[name])
        assert torch.equal(tensor[:rows], before[name]), name
        assert (len(tensor) > rows) == name.endswith("embedder.embedding.weight")
        assert torch.equal(tensor[rows:], fresh[name][rows:]), name


@pytest.mark.parametrize("part", ["embeddings", "tgt_embeddings", "output"])
def test_new_words_that_would_stay_random_are_refused(folder: Path, part: str) -> None:
    result = train(folder, "name=held", f"training.freeze=[encoder, {part}]")
    assert result.returncode == 2
    assert f"training.freeze has {part}, and the 1 new word of training.init_from.vocabulary: extend" in result.stdout
    assert not (folder / "runs/held").exists()


def test_the_costs_are_those_of_the_kept_vocabulary(folder: Path) -> None:
    """Of the text alone another vocabulary would be learned."""
    for vocabulary, run in (("keep", "old"), ("extend", "straight")):
        asked = f"training.init_from.vocabulary={vocabulary}"
        result = call_tmt(folder, "config", "explain", "fine.yaml", asked, "--no-measure", "--json")
        parameters = sum(weight.numel() for weight in weights(folder / "runs" / run, LAST).values())
        assert json.loads(result.stdout)["parameters"] == parameters
    result = call_tmt(folder, "config", "explain", "fine.yaml", "training.init_from.run=runs/none", "--no-measure")
    assert result.returncode == 2
    assert "training.init_from: runs/none" in result.stderr


def test_old_texts_have_the_same_logits_over_the_old_words(folder: Path) -> None:
    _, old, src, tgt, _ = load_run(RunFolder(folder / "runs/old"), None)
    _, new, new_src, new_tgt, _ = load_run(RunFolder(folder / "runs/straight"), "step_0")
    for source, target in toy_pairs(5, seed=9):
        assert new_src.encode(source) == src.encode(source)
        assert new_tgt.encode(target) == tgt.encode(target)
        batch = batch_of((src, source), (tgt, target))
        with torch.no_grad():
            before, after = (model(batch.src, batch.tgt_in) for model in (old, new))
        torch.testing.assert_close(after[..., : OLD_SIZES[1]], before, rtol=0, atol=1e-6)
        assert after.size(-1) == OLD_SIZES[1] + 1


def test_frozen_parts_stay_bit_for_bit_and_the_others_move(folder: Path) -> None:
    run = folder / "runs/straight"
    before, after = weights(run, 0), weights(run, LAST)
    frozen = {name for name in before if belongs(name, "encoder")}
    assert len(frozen) > 10
    assert all(
        torch.equal(before[name], after[name]) == (name in frozen) for name in before if "k_proj.bias" not in name
    )
    moments = load_file(run / "checkpoints" / f"step_{LAST}" / "optimizer.safetensors")
    assert {name.rpartition(".")[0] for name in moments} == before.keys() - frozen


def test_killed_and_resumed_without_the_old_run_is_the_same_run(folder: Path) -> None:
    """SIGKILL after the first checkpoint, which is written before the first step, and after one in the middle."""
    checkpoints, resume = folder / "runs/killed/checkpoints", ("train", "--resume", "runs/killed")
    kill_at(checkpoints / "step_0", folder, "train", "--config", "fine.yaml", "name=killed")
    shutil.move(folder / "runs/old", folder / "runs/gone")
    try:
        kill_at(checkpoints / "step_10", folder, *resume)
        result = to_the_end(start(folder, *resume))
    finally:
        shutil.move(folder / "runs/gone", folder / "runs/old")
    assert result.returncode == 0
    assert "going on from step" in result.stdout
    assert_same_run(folder / "runs/straight", folder / "runs/killed", LAST)
    origins = [(folder / "runs" / name / "origin.json").read_text() for name in ("straight", "killed")]
    assert origins[0] == origins[1]


@pytest.mark.parametrize("changed", ["training.freeze=[]", "training.init_from=runs/other"])
def test_resuming_refuses_another_beginning_by_name(folder: Path, changed: str) -> None:
    result = train(folder, "name=straight", "--resume", "auto", "training.max_steps=25", changed)
    assert result.returncode == 2
    assert changed.partition("=")[0] in result.stdout


def test_parts_are_taken_and_the_rest_is_fresh_from_the_seed(folder: Path) -> None:
    taken = "training.init_from={run: runs/old, parts: [encoder, output]}"
    said = train(
        folder, "name=parts", taken, "training.max_steps=1", "training.freeze=[]", "model.num_decoder_layers=2"
    )
    assert said.returncode == 0
    assert "of it encoder, output (and so tgt_embeddings, by model.tie_embeddings: decoder); the rest is" in said.stdout
    run = RunFolder(folder / "runs/parts")
    config = load_config(str(run.config)).config
    torch.manual_seed(config.seed)
    fresh = dict(build_model(config, *load_tokenizers(run.tokenizers, config.tokenizer)).named_parameters())
    old = best_of_old(folder)
    for name, tensor in weights(run.path, 0).items():
        is_taken = belongs(name, "encoder") or name == "decoder.embedder.embedding.weight"
        assert torch.equal(tensor, old[name] if is_taken else fresh[name]), name
    assert [line["step"] for line in metrics(run.path) if line["kind"] == "validation"] == [1]


def test_a_new_target_language_has_a_new_tokenizer(folder: Path) -> None:
    """The targets are now the numbers' digits; encoder and source are those of the old run."""
    digits = folder / "digits"
    shutil.copytree(folder / "new", digits)
    for name in ("train", "valid"):
        text = (digits / f"{name}.es").read_text()
        for number, word in enumerate([*SPANISH, "once"], start=1):
            text = text.replace(word, str(number))
        (digits / f"{name}.es").write_text(text)
    asked = "training.init_from={run: runs/old, parts: [encoder, src_embeddings], vocabulary: new}"
    said = train(
        folder, "name=digits", asked, f"data={json.dumps(sources(digits))}", "training.max_steps=1",
        "tokenizer.min_frequency=2",
    )  # fmt: skip
    assert said.returncode == 0
    assert "tokenizers: the source's is that of runs/old, the target's is new" in said.stdout
    config = load_config(str(folder / "runs/digits/config.yaml")).config
    src, tgt = load_tokenizers(folder / "runs/digits/tokenizers", config.tokenizer)
    old = load_tokenizers(folder / "runs/old/tokenizers", config.tokenizer)[0]
    assert src.backend.to_str() == old.backend.to_str()
    assert {"3", "11"} <= tgt.backend.get_vocab().keys()
    assert "tres" not in tgt.backend.get_vocab()


@pytest.mark.parametrize(("tied", "joint"), [("none", False), slow("decoder", True), ("all", True)])
def test_every_weight_with_a_row_for_each_word_is_extended(folder: Path, tied: str, joint: bool) -> None:
    """Projection and bias among them. With a joint vocabulary the new words of both sides come behind."""
    settings = (f"model.tie_embeddings={tied}", f"tokenizer.joint={joint}".lower(), "training.max_steps=1")
    names = f"of_{tied}_{joint}", f"more_of_{tied}_{joint}"
    assert tmt_here(folder, "train", "--config", "old.yaml", f"name={names[0]}", *settings).returncode == 0
    asked = f"training.init_from={{run: runs/{names[0]}, vocabulary: extend}}"
    assert train(folder, f"name={names[1]}", asked, *settings).returncode == 0
    old, new = weights(folder / "runs" / names[0], 1), weights(folder / "runs" / names[1], 0)
    grown = {name for name in new if new[name].shape != old[name].shape}
    source, target, output = (f"{part}.weight" for part in ("encoder.embedder.embedding", "decoder.embedder.embedding",
                                                            "output"))  # fmt: skip
    assert grown == {
        "none": {source, target, output, "output.bias"}, "decoder": {source, target}, "all": {source},
    }[tied]  # fmt: skip
    for name in grown:
        assert len(new[name]) == len(old[name]) + 1 + joint
    assert all(torch.equal(new[name][: len(tensor)], tensor) for name, tensor in old.items())


def test_a_stream_goes_on_from_a_model_too(folder: Path) -> None:
    keep = ("training.init_from.vocabulary=keep", "training.max_steps=1")
    assert train(folder, "name=stream", "data.streaming=true", *keep).returncode == 0
    first = metrics(folder / "runs/stream")[0]
    assert first["nll"] == pytest.approx(nll_by_hand(folder / "runs/old", folder / "new"), abs=1e-5)


def test_what_a_run_began_with_counts_when_the_best_is_found_anew(folder: Path) -> None:
    """A rate that is too high makes the old model worse, and few checkpoints are kept."""
    config = ("name=too_fast", "training.factor=30", "training.init_from.vocabulary=keep", "validation.metric=chrf")
    assert train(folder, *config, "training.keep_checkpoints=5").returncode == 0
    run = RunFolder(folder / "runs/too_fast")
    scores = {line["step"]: line["nll"] for line in metrics(run.path) if line["kind"] == "validation"}
    assert min(scores, key=lambda step: scores[step]) == 0
    more = ("validation.metric=nll", "training.max_steps=30", "training.keep_checkpoints=1")
    said = train(folder, *config, *more, "--resume", "auto")
    assert "validation.metric is nll now; of the checkpoints that are left the best is step 0\n" in said.stdout
    assert run.steps() == [0, 30]


def test_what_a_run_began_with_is_none_of_those_that_are_averaged(folder: Path) -> None:
    steps = [step for step in RunFolder(folder / "runs/straight").steps() if step > 0]
    assert len(steps) < len(RunFolder(folder / "runs/straight").steps())
    shutil.copytree(folder / "runs/straight", folder / "runs/averaged")
    result = call_tmt(folder, "average", "runs/averaged", "--last", str(len(steps) + 1))
    assert (result.returncode, f"has {len(steps)} checkpoints" in result.stderr) == (2, True)
    assert call_tmt(folder, "average", "runs/averaged", "--last", str(len(steps))).returncode == 0
    assert json.loads((folder / "runs/averaged/checkpoints/average/steps.json").read_text()) == steps


def test_where_there_is_only_what_a_run_began_with_there_is_no_average(folder: Path) -> None:
    run = folder / "runs/begun"
    shutil.copytree(folder / "runs/straight", run)
    for step in RunFolder(run).steps()[1:]:
        shutil.rmtree(run / f"checkpoints/step_{step}")
    way_out = (
        "It has only step_0, the weights of another run that it began with. Train it first with `tmt train --resume"
    )
    averaged = call_tmt(folder, "average", "runs/begun")
    assert (averaged.returncode, averaged.stderr) == (
        2, f"tmt: There is nothing to average in runs/begun. {way_out} runs/begun`.\n"
    )  # fmt: skip
    asked = call_tmt(folder, "translate", "--run", "runs/begun", "--checkpoint", "average", "three")
    assert "runs/begun has no checkpoint 'average'; there are best, last, step_0. " + way_out in asked.stderr
    (run / "checkpoints/step_0").rename(run / "checkpoints/step_7")
    asked = call_tmt(folder, "translate", "--run", "runs/begun", "--checkpoint", "average", "three")
    assert "Make one with `tmt average runs/begun --last 1`." in asked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["full", "none"])
def test_two_processes_go_on_as_one_does(folder: Path, sharding: str) -> None:
    name = f"two_{sharding}"
    status, said = run_together(
        2, folder, "train", "--config", "fine.yaml", f"name={name}", f"training.sharding={sharding}",
        "training.grad_accum=1",
    )  # fmt: skip
    assert status == 0
    assert said.count("weights: those of runs/old") == said.count("frozen: encoder") == 1
    one, two = (metrics(folder / "runs" / run) for run in ("straight", name))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for a, b in zip(one, two, strict=True):
        assert {key: a[key] for key in ("nll", "epoch")} == pytest.approx({k: b[k] for k in ("nll", "epoch")}, abs=1e-4)
    before, after = weights(folder / "runs/straight", 0), weights(folder / "runs" / name, LAST)
    frozen = [n for n in before if belongs(n, "encoder")]
    assert all(torch.equal(before[n], after[n]) for n in frozen)
    straight = weights(folder / "runs/straight", LAST)
    # Adam makes steps of a gradient that is rounding alone, as that of a key's bias, which the softmax does not see.
    for name in (name for name in after if "k_proj.bias" not in name):
        torch.testing.assert_close(after[name], straight[name], rtol=0, atol=1e-4)


def test_the_run_and_its_card_know_where_it_came_from(folder: Path) -> None:
    """Also over two generations, and without the older runs."""
    more = ("training.init_from={run: runs/straight, checkpoint: last}", "training.max_steps=1", "training.freeze=[]")
    assert train(folder, "name=grandchild", *more).returncode == 0
    shutil.copytree(folder / "runs/grandchild", folder / "elsewhere")
    origin = json.loads((folder / "elsewhere/origin.json").read_text())
    assert (origin["name"], origin["checkpoint"], origin["before"]["name"]) == ("straight", f"step_{LAST}", "old")
    manifest = json.loads((folder / "runs/straight/checkpoints" / f"step_{LAST}" / "manifest.json").read_text())
    assert origin["weights"] == manifest[WEIGHTS]["blake2b"]
    assert Path(origin["run"]) == (folder / "runs/straight").resolve()
    card = call_tmt(folder, "card", "--run", "elsewhere").stdout
    assert f"from the weights of `straight` (step_{LAST}, blake2b {origin['weights']}), trained on " in card
    assert "which began with the weights of `old` (step_" in card
    assert str(folder) not in card
    assert call_tmt(folder, "config", "show", "elsewhere/config.yaml").returncode == 0
    assert call_tmt(folder, "runs").returncode == 0
    assert call_tmt(folder, "translate", "--run", "elsewhere", "three eleven.").stdout.strip()
    assert math.isfinite(nll_by_hand(folder / "elsewhere", folder / "new"))
