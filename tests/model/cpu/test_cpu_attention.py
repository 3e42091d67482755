"""Training's attention on a CPU against the plain formula: values and gradients, every kind of mask, short rows too."""

import pytest
import torch
from attending import BATCH, HEADS, KINDS, inputs, mask_of
from torch import Tensor

from transformer_mt.model.cpu.attention import REGISTER, training_attention
from transformer_mt.model.masks import causal_mask
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.parts.dropout import dropout

QUERIES, SIZE = 5, 4


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float) -> Tensor:
    """The formula, with the same factors of dropout."""
    weights = attention_weights(q, k, mask, scale)
    if p:
        drawn = max(k.size(2), REGISTER // q.element_size())
        weights = weights * dropout(torch.ones(BATCH, HEADS, QUERIES, drawn, dtype=q.dtype), p)[..., : k.size(2)]
    return weights @ v


@pytest.mark.parametrize("num_keys", [3, 8, 11])
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_the_formulas(kind: str, p: float, num_keys: int) -> None:
    q, k, v = inputs(QUERIES, num_keys, SIZE, torch.float64)
    mask = mask_of(kind, QUERIES, num_keys, torch.float64, trained=True)
    asked = [q, k, v] if mask is None or not mask.requires_grad else [q, k, v, mask]
    results = []
    for attention in (training_attention, plain):
        torch.manual_seed(2)
        out = attention(q, k, v, mask, p, 0.3)
        upstream = torch.randn(out.shape, dtype=out.dtype)
        results.append((out, *torch.autograd.grad(out, asked, upstream, retain_graph=True)))
        again = torch.autograd.grad(out, asked, upstream)  # nothing that was kept is used up
        assert all(map(torch.equal, again, results[-1][1:]))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_grouped_queries_attend_as_with_repeated_keys(num_kv_heads: int, dropout: float) -> None:
    """In training: shared keys give the same as copies of them, and without dropout the same as the fused kernel."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4, dropout, bias=True, num_kv_heads=num_kv_heads).double()
    x = torch.randn(3, 6, 16, dtype=torch.float64)
    mask = causal_mask(6)
    q, (k, v) = attention.project_query(x), attention.project_key_value(x)
    group = 4 // num_kv_heads
    repeated = MultiHeadAttention(16, 4, dropout, bias=True).double()
    repeated.out_proj.load_state_dict(attention.out_proj.state_dict())
    outs = []
    for module, keys, values in (
        (attention, k, v),
        (repeated, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)),
    ):
        torch.manual_seed(4)
        outs.append(module.train().attend(q, keys, values, mask))
    torch.testing.assert_close(*outs)
    if dropout == 0:
        torch.testing.assert_close(outs[0], attention.eval().attend(q, k, v, mask))


@pytest.mark.parametrize("training", [True, False])
def test_under_autocast_one_cast_serves_queries_keys_and_values(training: bool) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4, 0.0, bias=True).train(training)
    x, memory = torch.randn(3, 6, 16, requires_grad=True), torch.randn(3, 5, 16)
    gradients = []
    for key_value in (x, memory):
        with torch.autocast("cpu", torch.bfloat16):
            once = attention(x, key_value)
            q, (k, v) = attention.project_query(x), attention.project_key_value(key_value)
            assert torch.equal(once, attention.attend(q, k, v, None))
        gradients.append(torch.autograd.grad(once.float().square().sum(), x)[0])
        exact = torch.autograd.grad(attention(x, key_value).square().sum(), x)[0]
        assert (gradients[-1] - exact).norm() < 0.03 * exact.norm()
    assert all(gradient.dtype == torch.float32 for gradient in gradients)
