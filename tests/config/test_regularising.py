"""What is refused of the keys that regularise, each in one sentence, and what none of them changes when left out."""

from pathlib import Path
from typing import Any

import pytest
from toy import toy_config

from transformer_mt.config.sections.consistency import CONSISTENCIES, ConsistencyConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.errors import UserError
from transformer_mt.training.resuming.resume_rules import allowed_changes
from transformer_mt.training.resuming.verify_resume import shortening

SIMCUT = {"kind": "simcut"}
PAIR = {"src": "a", "tgt": "b"}


def training(**changes: Any) -> dict[str, Any]:
    return {"training": changes}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            training(consistency={**SIMCUT, "alpha": -1.0}),
            "consistency.alpha: -1.0 is not allowed; must be more than 0",
        ),
        (training(consistency={**SIMCUT, "alpha": 0}), "consistency.alpha: 0 is not allowed"),
        (training(consistency={**SIMCUT, "cut": 1.5}), "consistency.cut: 1.5 is not allowed; must be less than 1"),
        (training(consistency={"kind": "simcutt"}), "did you mean simcut?"),
        (training(consistency={"alpha": 3.0}), "training.consistency.kind: missing"),
        (training(consistency={"kind": "rdrop", "cut": 0.05}), "cut has no meaning under kind: rdrop; leave it out"),
        (training(consistency={**SIMCUT, "start_step": 0}), "consistency.start_step: 0 is not allowed"),
        (
            training(consistency={**SIMCUT, "start_step": 21}),
            "training: consistency.start_step is 21, and max_steps 20 end the training before it; lower",
        ),
        (training(weight_decay=-0.1), "training.weight_decay: -0.1 is not allowed"),
        (training(label_smoothing_by="bigram"), "training.label_smoothing_by: 'bigram' is not one of uniform, unigram"),
        (
            training(label_smoothing_by="unigram", label_smoothing=0.0),
            "training: label_smoothing_by is unigram and label_smoothing 0, which smooths nothing",
        ),
        *(
            (
                {**training(label_smoothing_by="unigram"), **sections},
                f"goes by the shares of tokens in the targets of data.train, and {name} trains on others; use",
            )
            for name, sections in {
                "data.streaming: true": {"data": {"streaming": True}},
                "data.both_directions_epochs": {"data": {"both_directions_epochs": 2}, "tokenizer": {"joint": True}},
                "a weight in data.train": {"data": {"train": [{**PAIR, "weight": 1}]}},
                "data.temperature": {"data": {"train": [PAIR, PAIR], "temperature": 5}},
                "data.noise": {
                    "data": {"train": [{"mono": "a"}], "noise": {"kind": "spans"}},
                    "tokenizer": {"masks": 9, "joint": True},
                },
                "tokenizer.bpe_dropout": {"tokenizer": {"kind": "bpe", "vocab_size": 300, "bpe_dropout": 0.1}},
            }.items()
        ),
        (
            {"data": {"both_directions_epochs": 4}, "tokenizer": {"joint": True}, **training(max_epochs=4)},
            "data.both_directions_epochs is 4, and training.max_epochs is 4, so that the wanted direction never",
        ),
        (
            {**training(consistency={**SIMCUT, "cut": 0}), "model": {"dropout": 0.0}},
            "training.consistency.cut is 0, so that only dropout tells the two passes apart, and model.dropout is 0",
        ),
        (
            {**training(sharding="full"), "model": {"layer_drop": 0.1}},
            "model.layer_drop is 0.1, and training.sharding: full needs every layer in every process",
        ),
        (
            {**training(consistency={"kind": "rdrop"}), "model": {"dropout": 0.0, "layer_drop": 0.1}},
            "training.consistency.kind is rdrop, which compares two draws of dropout, and model.dropout is 0; raise",
        ),
        ({"model": {"layer_drop": 1.0}}, "model.layer_drop: 1.0 is not allowed; must be less than 1"),
        ({"model": {"src_word_dropout": -0.1}}, "model.src_word_dropout: -0.1 is not allowed"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        toy_config(Path("data"), **sections)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "sections",
    [
        training(consistency=SIMCUT),
        training(weight_decay=0.1),
        training(label_smoothing_by="unigram"),
        {"model": {"src_word_dropout": 0.1}},
        {"model": {"tgt_word_dropout": 0.1}},
        {"model": {"layer_drop": 0.1}},
    ],
    ids=lambda sections: next(iter(next(iter(sections.values())))),
)
def test_a_run_that_goes_on_keeps_each_of_them(sections: dict[str, Any]) -> None:
    ((section, values),) = sections.items()
    plain, other = toy_config(Path("data")), toy_config(Path("data"), **sections)
    for before, now in ((plain, other), (other, plain)):
        with pytest.raises(UserError, match=rf"{section}\.{next(iter(values))}(\.\w+)?: was "):
            allowed_changes(before, now, change_lr=True)


def test_each_part_of_a_consistency_stays_too() -> None:
    before = toy_config(Path("data"), **training(consistency=SIMCUT))
    for key, value in {"alpha": 2.0, "cut": 0.1, "start_step": 5}.items():
        now = toy_config(Path("data"), **training(consistency={**SIMCUT, key: value}))
        with pytest.raises(UserError, match=rf"training\.consistency\.{key}: was "):
            allowed_changes(before, now, change_lr=True)


def test_two_passes_begin_with_their_first_step() -> None:
    config = TrainingConfig(max_steps=9, consistency=ConsistencyConfig(kind="rdrop", start_step=5))
    assert [config.consistency_at(step) is not None for step in range(1, 10)] == [False] * 4 + [True] * 5
    assert TrainingConfig(max_steps=9).consistency_at(9) is None


@pytest.mark.parametrize("kind", CONSISTENCIES)
def test_a_proof_of_resuming_has_both_kinds_of_steps(kind: str) -> None:
    late = toy_config(Path("data"), training={"max_steps": 900, "consistency": {"kind": kind, "start_step": 800}})
    assert "training.consistency.start_step=6" in shortening(late, 12)
    early = toy_config(Path("data"), training={"consistency": {"kind": kind}})
    assert "training.consistency.start_step=1" in shortening(early, 12)
