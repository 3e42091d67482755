"""Trainings on text in one language: what is read, exact resuming, streams, pairs beside it, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import call_tmt
from marks import slow
from toy import ENGLISH, toy_mapping, write_toy_corpus
from trainings import killed_and_resumed, metrics

from transformer_mt import Translator, evaluate
from transformer_mt.aligning.run_aligner import train_run_aligner
from transformer_mt.behaviour.planning import validation_pairs
from transformer_mt.config.loading import load_config
from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.data.noise.epoch_split import split_by_epochs
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.decoding.search.options import search_options
from transformer_mt.finishing.run_calibration import calibrate_run
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors

PAIRS = {"train": [{"src": "train.en", "tgt": "train.es"}], "validation": [{"src": "valid.en", "tgt": "valid.es"}]}


def write_config(folder: Path, name: str, **sections: dict) -> None:
    data = {
        "train": [{"mono": "train.en", "tag": "<2en>"}, {"mono": "train.es", "tag": "<2es>"}],
        "validation": [{"mono": "valid.en", "tag": "<2en>"}],
        "noise": {"kind": "spans"},
        "cache_dir": str(folder / "cache"),
    } | sections.pop("data", {})
    tokenizer = {"joint": True, "tags": ["<2en>", "<2es>"], "masks": 8} | sections.pop("tokenizer", {})
    mapping = toy_mapping(folder / "data", data=data, tokenizer=tokenizer, **sections)
    (folder / name).write_text(yaml.safe_dump(mapping))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_toy_corpus(tmp_path / "data")
    write_config(tmp_path, "spans.yaml")
    return tmp_path


def sentences(split: TrainingSplit, epoch: int) -> dict[str, tuple[list[int], list[int]]]:
    """Source and target, by where the line stands, of a whole epoch; each line once."""
    found = {}
    plan = split.plan(64, 3, epoch)
    number = 0
    while (rows := plan.get(number)) is not None:
        batch = split.batch(rows)
        for i, row in enumerate(rows):
            src, tgt = ([x for x in ids[i].tolist() if x > 0] for ids in (batch.src, batch.tgt_out))
            assert (len(src), len(tgt)) == (split.src_lengths[row], split.tgt_lengths[row])
            assert src[-1] == tgt[-1] == EOS_ID
            where = split.where(int(row))
            assert where not in found
            found[where] = (src[:-1], tgt[:-1])
        number += 1
    return found


@pytest.mark.parametrize("kind", ["spans", "infilling", "causal"])
@pytest.mark.parametrize("streaming", [False, True])
def test_the_tag_stays_and_each_epoch_hides_other_words(folder: Path, kind: str, streaming: bool) -> None:
    stream = {"streaming": True, "shuffle_window": 300} if streaming else {}
    write_config(folder, "a.yaml", data={"noise": {"kind": kind}, **stream})
    config = load_config(str(folder / "a.yaml")).config
    data = prepare_training_data(config)
    split = split_by_epochs(data, config)
    first, second = (sentences(split, epoch) for epoch in (0, 1))
    assert len(first) == 240
    tags = {name: data.src_tokenizer.encode(f"<2{name}>")[0] for name in ("en", "es")}
    masks = set(data.src_tokenizer.encode(" ".join(f"<mask_{n}>" for n in range(8))))
    lines = {
        f"train.{name}, line {number}": data.tgt_tokenizer.encode(text)
        for name in tags
        for number, text in enumerate((folder / f"data/train.{name}").read_text().split("\n")[:-1], start=1)
    }
    for where, (src, tgt) in first.items():
        assert src[0] == tags[where[6:8]]
        assert tags[where[6:8]] not in [*src[1:], *tgt]
        if kind == "causal":
            assert (src[1:], tgt) == ([], lines[where])
        elif kind == "infilling":
            assert tgt == lines[where]
        else:
            hidden = [x for x in tgt if x not in masks]
            assert sorted([*hidden, *(x for x in src[1:] if x not in masks)]) == sorted(lines[where])
    assert (first == second) == (kind == "causal")
    assert sentences(split_by_epochs(prepare_training_data(config), config), 1) == second


@pytest.mark.parametrize("model", [{}, {"positions": "relative_bias"}, {"architecture": "rnn"}])
def test_proofs_hold_where_every_source_is_empty(folder: Path, model: dict) -> None:
    """An attention to the end of the sentence alone has no gradient for queries and keys, which is no fault."""
    data = {"train": [{"mono": "train.en"}], "validation": [{"mono": "valid.en"}], "noise": {"kind": "causal"}}
    write_config(folder, "a.yaml", data=data, tokenizer={"tags": []}, model=model, training={"max_steps": 1})
    result = call_tmt(folder, "pretrain", "--config", "a.yaml")
    assert result.returncode == 0, result.stderr
    assert "proofs: causality, padding, cache, batch order, gradients and loss hold, on 4 pairs" in result.stdout


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("tag", [None, "<2es>"])
def test_a_causal_source_is_empty_though_its_vocabulary_has_other_pieces(
    folder: Path, streaming: bool, tag: str | None
) -> None:
    """The source's vocabulary has learned English too, and cuts Spanish into more pieces than the target's."""
    pairs = {"src": "train.en", "tgt": "train.es", "tag": tag}
    stream = {"streaming": True, "shuffle_window": 300} if streaming else {}
    tokenizer = {"kind": "bpe", "vocab_size": 320, "joint": False, "tags": ["<2es>"], "masks": 0}
    write_config(
        folder, "a.yaml", tokenizer=tokenizer, model={"max_len": 60},
        data={"train": [pairs, {"mono": "train.es", "tag": tag}], "noise": {"kind": "causal"}, **stream},
    )  # fmt: skip
    config = load_config(str(folder / "a.yaml"), ["data.validation=[{mono: valid.es, tag: <2es>}]"]).config
    data = prepare_training_data(config)
    found = sentences(split_by_epochs(data, config), 0)
    sources = {tuple(src) for where, (src, _) in found.items() if where.startswith("train.es,")}
    assert sources == {tuple(data.src_tokenizer.encode(tag or ""))}


@pytest.mark.parametrize(
    "stream", [slow((), id="whole"), pytest.param(("data.streaming=true", "data.shuffle_window=100"), id="stream")]
)
def test_a_killed_training_is_resumed_to_the_same_run(folder: Path, stream: tuple[str, ...]) -> None:
    result = killed_and_resumed(folder, "pretrain", "--config", "spans.yaml", "training.max_tokens=128", *stream)
    validated = [line for line in metrics(folder / "runs" / "straight") if line["kind"] == "validation"]
    assert validated
    assert all("bleu" not in line for line in validated), "a line without a translation has no score"
    assert "training.init_from=runs/killed" in result.stdout


def test_pairs_go_on_from_what_was_learned(folder: Path) -> None:
    """Both sides' text first, pairs and text beside one another then, and at last pairs without masks."""
    assert call_tmt(folder, "pretrain", "--config", "spans.yaml", "name=first").returncode == 0
    write_config(
        folder, "both.yaml",
        data={
            "train": [{"src": "train.en", "tgt": "train.es", "tag": "<2es>"}, {"mono": "train.en", "tag": "<2en>"}],
            "validation": [{"src": "valid.en", "tgt": "valid.es", "tag": "<2es>"}, {"mono": "valid.es"}],
        },
        training={"init_from": "runs/first", "max_steps": 4},
    )  # fmt: skip
    both = call_tmt(folder, "train", "--config", "both.yaml", "name=both", "validation.num_translated=200")
    assert both.returncode == 0, both.stderr
    assert "tokenizers: those of runs/first, kept as they are" in both.stdout
    validated = [line for line in metrics(folder / "runs" / "both") if line["kind"] == "validation"]
    assert all("bleu" in line for line in validated)
    write_config(
        folder, "last.yaml", data={**PAIRS, "noise": None}, tokenizer={"masks": 0},
        training={"init_from": "runs/both", "max_steps": 2},
    )  # fmt: skip
    last = call_tmt(folder, "train", "--config", "last.yaml", "name=last")
    assert last.returncode == 0, last.stderr
    weights = [
        read_tensors(RunFolder(folder / "runs" / name).step(step) / "model.safetensors")
        for name, step in (("first", 20), ("last", 2))
    ]
    shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in weights]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("verb", "sections", "message"),
    [
        ("train", {"data": {"noise": None}}, "train.en is text in one language, of which noise says what is learned"),
        ("pretrain", {"data": {**PAIRS, "noise": None}}, "This config has no data.noise"),
        ("train", {"data": PAIRS}, "noise is for sources {mono: FILE}, and train has none"),
        ("train", {"data": {"test": [{"mono": "valid.en"}]}}, "test has text in one language"),
        ("train", {"data": {"both_directions_epochs": 1}}, "train.en is text in one language, and both_directions"),
        ("train", {"tokenizer": {"joint": False}}, "needs one vocabulary for both; set tokenizer.joint: true"),
        ("train", {"tokenizer": {"masks": 1}}, "tokenizer.masks is 1; set it to 2 or more"),
        ("train", {"tokenizer": {"tags": ["<2en>"]}}, "a source with tag: <2es>, which is none of tokenizer.tags"),
        ("train", {"validation": {"metric": "bleu", "num_translated": 4}}, "data.validation has text in one language"),
        ("train", {"data": {"train": [{"mono": "nothing.en"}]}}, "There is no file"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, verb: str, sections: dict, message: str) -> None:
    write_config(folder, "wrong.yaml", **sections)
    result = call_tmt(folder, verb, "--config", "wrong.yaml")
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "runs" / "toy" / "checkpoints").exists()


def test_a_command_without_a_config_says_which_one_it_wants(folder: Path) -> None:
    result = call_tmt(folder, "pretrain")
    assert result.returncode == 2
    assert "Which model? Give a config with data.noise: `tmt pretrain --config FILE.yaml`." in result.stderr
    assert "`tmt train --config quickstart.yaml`" in call_tmt(folder, "train").stderr
    for verb in ("train", "pretrain"):
        said = call_tmt(folder, verb, "spans.yaml", "seed=5").stderr
        assert f"spans.yaml stands where settings stand. Did you mean `tmt {verb} --config spans.yaml`?" in said


def test_what_comes_after_goes_by_what_was_learned(folder: Path) -> None:
    """Text alone asks for pairs; where pairs stand beside it, the model translates."""
    first = call_tmt(folder, "pretrain", "--config", "spans.yaml", "training.max_steps=1")
    assert "train on pairs from here with: training.init_from=runs/toy" in first.stdout
    train = [{"mono": "train.en", "tag": "<2en>"}, {**PAIRS["train"][0], "tag": "<2es>"}]
    write_config(folder, "both.yaml", data={"train": train})
    both = call_tmt(folder, "pretrain", "--config", "both.yaml", "training.max_steps=1", "name=both")
    assert 'translate with: tmt translate --run runs/both "..."' in both.stdout


def test_text_in_one_language_is_no_test_set(folder: Path) -> None:
    assert call_tmt(folder, "pretrain", "--config", "spans.yaml", "training.max_steps=2").returncode == 0
    result = call_tmt(folder, "evaluate", "--run", "runs/toy", "--split", "validation")
    assert result.returncode == 2
    assert "valid.en is text in one language, without translations" in result.stderr


@pytest.mark.parametrize("streaming", [False, True])
def test_beside_pairs_text_is_passed_over_where_pairs_are_needed(folder: Path, streaming: bool) -> None:
    """Text that stands first, in a direction of its own, and that a teacher would translate into itself."""
    write_config(
        folder, "both.yaml", tokenizer={"tags": ["<2en>"]}, training={"max_steps": 1},
        data={"train": [{"mono": "train.en", "tag": "<2en>"}, *PAIRS["train"]], "streaming": streaming,
              "validation": [{"mono": "valid.es"}, *PAIRS["train"]]},
    )  # fmt: skip
    assert call_tmt(folder, "train", "--config", "both.yaml", "name=both").returncode == 0
    run = RunFolder(folder / "runs" / "both")
    texts = (folder / "data/train.en").read_text().splitlines()
    translator = Translator.load(run.path, device="cpu")
    found = evaluate(translator, split="validation", beam_size=1)
    assert [row["src"] for row in found.rows] == texts
    assert found.scores.directions == {}
    assert [src for src, _ in validation_pairs(translator.config, None)] == texts
    said: list[str] = []
    calibrate_run(translator, search_options(translator.config.decoding, to="en"), said.append)
    assert "on 120 validation pairs" in said[0]
    aligner = train_run_aligner(run, said.append)
    assert not {*ENGLISH} & {*aligner.tgt_vocabulary.words}
    if not streaming:
        distilled = call_tmt(folder, "distill", "--run", "runs/both", "--output", "distilled")
        assert distilled.returncode == 0, distilled.stderr
        assert "distilled/train.en and distilled/train.es: 120 lines" in distilled.stdout


@pytest.mark.parametrize("metric", ["nll", "ppl"])
def test_the_best_is_chosen_by_a_metric_that_needs_no_translations(folder: Path, metric: str) -> None:
    write_config(folder, "best.yaml", validation={"metric": metric, "every_steps": 1}, training={"max_steps": 2})
    assert call_tmt(folder, "pretrain", "--config", "best.yaml", "name=best").returncode == 0
    scores = {line["step"]: line["ppl"] for line in metrics(folder / "runs/best") if line["kind"] == "validation"}
    state = json.loads((folder / "runs/best/checkpoints/step_2" / STATE).read_text())
    assert state["best_step"] == min(scores, key=lambda step: scores[step])


def test_validation_hides_the_same_each_time(folder: Path) -> None:
    from transformer_mt.data.noise.epoch_split import validated_split

    config = load_config(str(folder / "spans.yaml")).config
    data = prepare_training_data(config)
    (one, translated), (two, _) = validated_split(data, config), validated_split(data, config)
    assert len(translated) == 0
    assert np.array_equal(one.ids.src.ids, two.ids.src.ids)
    assert not np.array_equal(one.ids.src.ids, data.validation.ids.src.ids)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_vocabulary_counts_a_line_once_though_it_is_source_and_target(folder: Path, streaming: bool) -> None:
    """`rare` is in one line of text, `seldom` on either side of a pair."""
    for name, lines in (("text", ["one two rare.", "one two."]), ("a.en", ["seldom."]), ("a.es", ["seldom."])):
        (folder / "data" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    source = [{"mono": "text"}, {"src": "a.en", "tgt": "a.es"}]
    data = {"train": source, "validation": [{"mono": "text"}], "streaming": streaming}
    write_config(folder, "rare.yaml", data=data, tokenizer={"tags": [], "min_frequency": 2})
    tokenizer = prepare_training_data(load_config(str(folder / "rare.yaml")).config).src_tokenizer
    assert {"one", "two", "seldom"} <= tokenizer.backend.get_vocab().keys()
    assert "rare" not in tokenizer.backend.get_vocab()
