"""A frozen part gets no gradient, and the others get the gradient that they had."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import toy_config

from transformer_mt.data.preparation import PreparedData
from transformer_mt.decoding.load_model import build_model
from transformer_mt.model.named_parts import PARTS, parameters_of
from transformer_mt.training.memory.probe import probe
from transformer_mt.training.updates import Updater

CPU = torch.device("cpu")


def updater_of(
    corpus: Path, data: PreparedData, freeze: list[str], weight_decay: float = 0.0, **model: object
) -> Updater:
    training = {"clip_norm": None, "freeze": freeze, "weight_decay": weight_decay}
    config = toy_config(corpus, model=model, training=training)
    torch.manual_seed(1)
    return Updater(build_model(config, data.src_tokenizer, data.tgt_tokenizer), config.training, 3, "fp32", CPU)


@pytest.mark.parametrize(
    "freeze", [*([part] for part in PARTS if part != "head"), ["encoder", "embeddings"], ["decoder", "output"]]
)
@pytest.mark.parametrize(
    "model",
    [{"tie_embeddings": "none"}, {"num_heads": 1, "positions": "learned", "num_experts": 2}],
    ids=["untied", "unpadded"],
)
def test_the_others_have_the_gradients_that_they_had(
    corpus: Path, data: PreparedData, freeze: list[str], model: dict[str, Any]
) -> None:
    """Of two micro-batches, dropout on; and the norm is that of what is trained."""
    whole, partly = (updater_of(corpus, data, parts, **model) for parts in ([], freeze))
    frozen = parameters_of(partly.model, freeze, "").keys()
    before = {name: parameter.detach().clone() for name, parameter in partly.model.named_parameters()}
    batches = [np.arange(6), np.arange(6, 12)]
    assert probe(partly, data.train, batches, False) is None
    whole.update(data.train, batches, 1, "").result()
    result = partly.update(data.train, batches, 1, "").result()
    theirs = dict(whole.model.named_parameters())
    squares = 0.0
    for name, parameter in partly.model.named_parameters():
        if name in frozen:
            assert parameter.grad is None, name
            assert torch.equal(parameter, before[name]), name
            assert parameter not in partly.optimizer.state, name
        else:
            assert parameter.grad is not None, name
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-5, atol=1e-7, msg=name)
            squares += float(parameter.grad.double().square().sum())
            assert len(partly.optimizer.state[parameter]) == 3, name
    assert result.grad_norm == pytest.approx(squares**0.5, rel=1e-5)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_optimizer_comes_back_where_parts_are_frozen(corpus: Path, data: PreparedData, weight_decay: float) -> None:
    """The encoder's parameters stand before those that are trained, so places must be counted without them. They do not
    decay either.
    """
    one, other = (updater_of(corpus, data, ["encoder"], weight_decay, dropout=0.0) for _ in range(2))
    frozen = {name: p.detach().clone() for name, p in parameters_of(one.model, ["encoder"], "").items()}
    one.update(data.train, [np.arange(8)], 1, "").result()
    other.restore(*({name: tensor.clone() for name, tensor in tensors.items()} for tensors in one.tensors()))
    for updater in (one, other):
        updater.update(data.train, [np.arange(8, 16)], 2, "").result()
    for name, parameter in one.model.named_parameters():
        assert torch.equal(parameter, dict(other.model.named_parameters())[name]), name
        assert name not in frozen or torch.equal(parameter, frozen[name]), name
