"""Attention rollout beside products worked out by hand, and beside one joint matrix of source and target."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from translators import MODELS_BY_NAME, make_translator, model_names

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.explaining.rollout import of_decoder, of_stack, rollout
from transformer_mt.inspect.attention import pair_attention

SRC, TGT = [5, 6, 7, 8], [9, 5, 6]


def test_a_stack_by_hand() -> None:
    first = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])  # mean [[.5, .5], [.5, .5]]
    second = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    # with the residual: [[.75, .25], [.25, .75]], then [[.5, .5], [.5, .5]]
    assert of_stack([first]).tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert of_stack([first, second]).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_a_decoder_by_hand() -> None:
    memory = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    own = [torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])] * 2
    cross = [torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])] * 2
    first = [[0.375, 0.125], [0.125, 0.375]]  # half of the memory, and of the target nothing but itself
    assert of_decoder(memory, own[:1], cross[:1]).tolist() == first
    # self-attention: row 0 stays, row 1 is 1/4 row 0 and 3/4 row 1; then half of that and half of the memory
    assert of_decoder(memory, own, cross).tolist() == [[0.5625, 0.1875], [0.21875, 0.53125]]


def joint(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Mixing matrices over source and target at once, the first first, multiplied."""
    product = np.eye(len(layers[0]))
    for layer in layers:
        product = layer @ product
    return product


@pytest.mark.parametrize("name", model_names())
def test_models_beside_one_joint_matrix(name: str) -> None:
    translator = make_translator(MODELS_BY_NAME[name])
    src, tgt_in = torch.tensor([[*SRC, EOS_ID]]), torch.tensor([[BOS_ID, *TGT]])
    seen = rollout(translator.model, src, tgt_in)
    architecture = translator.config.model.architecture
    if architecture == "rnn":
        assert seen is None
        return
    assert seen is not None
    found = pair_attention(translator.model, SRC, TGT, translator.src_tokenizer, translator.tgt_tokenizer)
    weights = {one.kind.name: one.weights.double().numpy().mean(axis=1) for one in found}
    num_src, num = src.size(1), src.size(1) + tgt_in.size(1)
    if architecture == "decoder_only":
        layers = [(np.eye(num) + layer) / 2 for layer in weights["stream"]]
    else:
        layers = []
        for layer in weights["encoder"]:
            layers.append(np.eye(num))
            layers[-1][:num_src, :num_src] = (np.eye(num_src) + layer) / 2
        for own, cross in zip(weights["decoder"], weights["cross"], strict=True):
            for columns, of in ((slice(num_src, None), own), (slice(num_src), cross)):
                layers.append(np.eye(num))
                layers[-1][num_src:] /= 2
                layers[-1][num_src:, columns] += of / 2
    np.testing.assert_allclose(joint(layers).sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(seen.numpy(), joint(layers)[num_src:, :num_src], atol=1e-6)
