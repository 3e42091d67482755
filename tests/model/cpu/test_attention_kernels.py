"""Training's attention as numba compiles it against the plain formula: values, gradients, masks and shapes."""

import hashlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attending import BATCH, HEADS, KINDS, inputs, mask_of
from numba import njit
from numba.core.errors import TypingError
from threads import torch_threads
from torch import Tensor

from transformer_mt.machine import numba_compile as jit
from transformer_mt.machine import numba_modules
from transformer_mt.model.cpu import attention as cpu_attention
from transformer_mt.model.cpu import attention_kernels, head_passes, lanes
from transformer_mt.model.cpu.attention import training_attention
from transformer_mt.model.cpu.attention_kernels import attention, takes
from transformer_mt.model.masks import causal_mask
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.parts.dropout import dropout

SCALE = 0.3


def ours(tensors: list[Tensor], mask: Tensor | None, p: float) -> Tensor:
    """What is tested."""
    q, k, v = tensors
    return attention(q, k, v, mask, p, SCALE)


def plain(tensors: list[Tensor], mask: Tensor | None, p: float) -> Tensor:
    """The formula in float64, with the same factors of dropout."""
    q, k, v = tensors
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.double()
    weights = attention_weights(q.double(), k.double(), mask, SCALE)
    if p:
        weights = weights * dropout(torch.ones(weights.shape), p)
    return weights @ v.double()


LENGTHS = [(1, 1), (5, 3), (4, 16), (7, 17), (14, 33), (33, 14)]
# Of causal attention and a hidden key such as leave no query without any.
CASES = [
    (kind, lengths)
    for kind in KINDS
    for lengths in LENGTHS
    if not (kind == "causal" and lengths[0] > lengths[1]) and not (kind == "bias" and lengths[1] == 1)
]


@pytest.mark.parametrize(("kind", "lengths"), CASES)
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_values_and_gradients_are_the_formulas(kind: str, lengths: tuple[int, int], p: float) -> None:
    tensors, mask = inputs(*lengths, size=32), mask_of(kind, *lengths)
    results = []
    for of in (ours, plain):
        torch.manual_seed(2)
        out = of(tensors, mask, p)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
        results.append([x.float() for x in (out, *torch.autograd.grad(out, tensors, upstream, retain_graph=True))])
        again = torch.autograd.grad(out, tensors, upstream)  # nothing that was kept is used up
        assert all(torch.equal(x.float(), y) for x, y in zip(again, results[-1][1:], strict=True))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [16, 48, 64])
@pytest.mark.parametrize("heads_first", [False, True])
def test_any_size_of_head_and_either_layout(size: int, heads_first: bool) -> None:
    tensors = inputs(9, 12, size, heads_first=heads_first)
    out, expected = ours(tensors, None, 0.0), plain(tensors, None, 0.0)
    torch.testing.assert_close(out, expected.float(), rtol=1e-5, atol=1e-5)
    upstream = torch.randn(BATCH, HEADS, size, 9).transpose(2, 3)  # in neither layout
    found = torch.autograd.grad(out, tensors, upstream)
    torch.testing.assert_close(found, torch.autograd.grad(expected, tensors, upstream.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_in_bfloat16_only_what_comes_in_and_goes_out_is_rounded(p: float) -> None:
    tensors = inputs(14, 18, 32, torch.bfloat16)
    mask = mask_of("padding", 14, 18)
    torch.manual_seed(2)
    out = ours(tensors, mask, p)
    torch.manual_seed(2)
    expected = plain(tensors, mask, p)
    upstream = torch.randn(out.shape).bfloat16()
    found = [out, *torch.autograd.grad(out, tensors, upstream)]
    exact = [expected, *torch.autograd.grad(expected, tensors, upstream.double())]
    assert all(x.dtype == torch.bfloat16 for x in found)
    for x, y in zip(found, exact, strict=True):
        # Half of a last place of bfloat16's 8 bits, and what float32 adds where much cancels.
        torch.testing.assert_close(x.double(), y.double(), rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    tensors = inputs(14, 14, 32)
    results = []
    for number in (torch.get_num_threads(), threads):
        with torch_threads(number):
            torch.manual_seed(5)
            out = ours(tensors, causal_mask(14), 0.2)
            results.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    assert all(map(torch.equal, *results))


def test_numbers_that_are_none_do_what_they_do_in_the_formula() -> None:
    """A query that sees no key, a score that is nan or infinite: nan where the formula has it, and nowhere else."""
    q, k, v = inputs(5, 6, 16)
    mask = torch.ones(BATCH, 1, 5, 6, dtype=torch.bool)
    mask[0, 0, 2] = False
    with torch.no_grad():
        q[1, 0, 3, 7] = math.nan
        k[2, 1, 4, 0] = math.inf
        v[2, 0, 1, 1] = math.inf
    found, expected = attention(q, k, v, mask, 0.0, SCALE), plain([q, k, v], mask, 0.0).float()
    assert expected.isnan().any(dim=-1).sum() >= 1 + 1 + 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_large_and_far_apart_scores_lose_nothing() -> None:
    q, k, v = inputs(5, 40, 16)
    scores = [1.0, 30.0, 300.0, 3e4]
    for factor in scores:
        found, expected = attention(factor * q, k, v, None, 0.0, SCALE), plain([factor * q, k, v], None, 0.0)
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4 * max(1.0, factor / 30))


def test_what_it_is_not_made_for_goes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Tensor:
        raise AssertionError(arguments)

    monkeypatch.setattr(attention_kernels, "attention", refuse)
    trained = torch.zeros(1, 1, 5, 6, requires_grad=True)
    for size, dtype, mask in ((16, torch.float64, None), (8, torch.float32, None), (16, torch.float32, trained)):
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs(5, 6, size))
        assert not takes(q, mask)
        out = training_attention(q, k, v, mask, 0.0, SCALE)
        torch.testing.assert_close(out.double(), plain([q, k, v], mask, 0.0), rtol=1e-5, atol=1e-5)


def test_passes_that_do_not_compile_are_told_of_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(attention_kernels, "_backward", broken)
    attention_kernels.works.cache_clear()
    numba_modules._tell.cache_clear()  # as if nothing had been told
    q, k, v = inputs(5, 6, 16)
    try:
        with caplog.at_level(logging.WARNING):
            outs = [training_attention(q, k, v, None, 0.0, SCALE) for _ in range(2)]
    finally:
        attention_kernels.works.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "numba does not work here (no such instruction): going on without it, which is slower."
    ]
    torch.testing.assert_close(outs[1], plain([q, k, v], None, 0.0).float(), rtol=1e-5, atol=1e-5)


def test_what_was_compiled_with_other_parts_is_compiled_anew() -> None:
    """numba looks at the file of the passes alone: a change of their parts has to change that file too."""
    parts = b"".join(Path(name).read_bytes() for name in (lanes.__file__, head_passes.__file__))
    state = hashlib.sha256(parts.replace(b"\r\n", b"\n")).hexdigest()[:16]
    assert state == attention_kernels.PARTS, f'write PARTS = "{state}" in attention_kernels.py'


def test_another_default_type_changes_nothing() -> None:
    tensors, mask = inputs(5, 6, 16), mask_of("padding", 5, 6)
    expected = ours(tensors, mask, 0.0)
    torch.set_default_dtype(torch.float64)
    try:
        for hidden in (mask, None):
            torch.testing.assert_close(ours(tensors, hidden, 0.0), plain(tensors, hidden, 0.0).float())
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(ours(tensors, mask, 0.0), expected)


def test_numbers_that_would_be_taken_for_others_are_refused() -> None:
    summed = njit(lambda x: lanes.sum_of(lanes.load(x, 0)))
    assert summed(np.ones(16, np.float32)) == 16
    with pytest.raises(TypingError, match="float64 is not among"):
        summed(np.ones(16))


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("shape", [(1, HEADS, 6, 16), (BATCH, HEADS, 5, 16), (BATCH, HEADS, 6, 32)])
def test_keys_and_values_of_other_shapes_are_refused(which: int, shape: tuple[int, ...]) -> None:
    tensors = inputs(5, 6, 16)
    tensors[which] = torch.zeros(shape)
    with pytest.raises(AssertionError, match="the passes would read anywhere"):
        ours(tensors, None, 0.0)


def test_a_first_use_where_nothing_has_a_gradient_is_no_failure() -> None:
    attention_kernels.works.cache_clear()
    with torch.inference_mode():
        q = torch.zeros(1, 1, 3, 16)
        assert takes(q, None)
        assert torch.equal(training_attention(q, q, q, None, 0.0, SCALE), q)
    assert takes(q, None)


def test_a_single_core_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba without OpenMP and TBB: torch's products have all cores."""
    q = torch.zeros(1, 1, 3, 16)
    assert takes(q, None)
    monkeypatch.setattr(jit, "threading_layer", lambda: "workqueue")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(jit, "MOST_THREADS", 4)  # as on a machine with as many cores
    assert not takes(q, None)


def test_a_gradient_of_the_gradient_is_refused() -> None:
    q, k, v = inputs(5, 6, 16)
    (grad,) = torch.autograd.grad(attention(q, k, v, None, 0.0, SCALE).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_takes_it_and_evaluation_agrees(
    dropout: float, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[torch.dtype] = []
    real = attention_kernels.attention

    def counted(q: Tensor, *others: Any) -> Tensor:
        calls.append(q.dtype)
        return real(q, *others)

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    assert attention_kernels.works(dtype)
    monkeypatch.setattr(attention_kernels, "attention", counted)
    torch.manual_seed(0)
    module, x = MultiHeadAttention(64, 4, dropout, bias=True, num_kv_heads=2), torch.randn(3, 40, 64)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        in_training = module.train()(x, x, causal_mask(40))
        assert calls == [dtype]
        expected = module.eval()(x, x, causal_mask(40))
    assert calls == [dtype]
    if dropout == 0:
        tolerance = 0.02 if precision == "bf16" else 1e-5
        torch.testing.assert_close(in_training, expected, rtol=tolerance, atol=tolerance)


def test_fewer_numbers_are_kept_for_the_gradient_than_there_are_weights() -> None:
    kept: list[int] = []
    q, k, v = inputs(200, 200, 16)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attention(q, k, v, None, 0.1, SCALE)
    assert sum(kept) < 1.2 * (q.numel() + k.numel() + v.numel()) < BATCH * HEADS * 200 * 200


def test_without_numba_it_is_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """For torch's fused kernel takes ten times as long going back in bf16."""

    def refuse(*arguments: Any, **settings: Any) -> Tensor:
        raise AssertionError

    monkeypatch.setattr(cpu_attention, "loaded_kernels", lambda: None)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    q, k, v = inputs(40, 40, 16, torch.bfloat16)
    out = training_attention(q, k, v, None, 0.0, SCALE)
    torch.testing.assert_close(out.double(), plain([q, k, v], None, 0.0), rtol=0.03, atol=0.03)
