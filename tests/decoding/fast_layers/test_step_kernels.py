"""The compiled passes of a step in float32 against torch's own operations."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from greedy_choices import CHOICES, assert_chooses_as_torch_does, assert_equal_logits_are_decided_by_the_token
from marks import with_numba
from torch import Tensor

from transformer_mt.config import special_ids
from transformer_mt.decoding.fast_layers import packed_layers
from transformer_mt.decoding.fast_layers.find_kernels import compiled_passes, kernels_for
from transformer_mt.decoding.fast_layers.packed_layers import PackedLinear, PackedSelfAttention, Packing
from transformer_mt.decoding.search.greedy_rows import Choice, GreedyRows
from transformer_mt.model.parts.attention import MultiHeadAttention

pytestmark = with_numba
CPU = torch.device("cpu")


@pytest.fixture
def kernels() -> Iterator[ModuleType]:
    from transformer_mt.decoding.fast_layers import step_kernels

    with compiled_passes(True):
        yield step_kernels


def attention_of(num_heads: int, group: int, head_dim: int) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(num_heads * head_dim, num_heads, 0.0, True, num_heads // group).eval()


def inputs(num_heads: int, group: int, num_rows: int, bias_heads: int, head_dim: int, width: int) -> list[Tensor]:
    """q, k, v and bias of six sentences. The slots are the first of more, and each row sees some of them."""
    generator = torch.Generator().manual_seed(num_rows)
    q = torch.randn(6, num_rows, num_heads, head_dim, generator=generator).transpose(1, 2)
    k = 2 * torch.randn(6, num_heads // group, 2 * width, head_dim, generator=generator)
    v = torch.randn(6, 2 * width, num_heads // group, head_dim, generator=generator).transpose(1, 2)
    bias = torch.randn(6, bias_heads, num_rows, width, generator=generator)
    hidden = torch.rand(6, 1, num_rows, width, generator=generator) < 0.6
    hidden[..., 3] = False
    return [q, k[:, :, :width], v[:, :, :width], bias.masked_fill(hidden, -torch.inf)]


@pytest.mark.parametrize(("head_dim", "width"), [(16, 16), (64, 48), (32, 5)])
@pytest.mark.parametrize(
    ("num_heads", "num_rows", "group", "bias_heads"),
    [(1, 1, 1, 1), (4, 5, 1, 1), (4, 3, 2, 1), (4, 1, 4, 4), (4, 5, 2, 4)],
)
@torch.inference_mode()
def test_attention_is_that_of_torch(
    num_heads: int, num_rows: int, group: int, bias_heads: int, head_dim: int, width: int, kernels: ModuleType
) -> None:
    attention = attention_of(num_heads, group, head_dim)
    q, k, v, bias = inputs(num_heads, group, num_rows, bias_heads, head_dim, width)
    assert kernels.can_attend(q, k, v, bias)
    assert not kernels.can_attend(q, k, v, bias.double())
    found = kernels.attend(q, k, v, bias, attention.scale)
    expected = MultiHeadAttention.attend_to_slots(attention, q, k, v, bias)
    torch.testing.assert_close(attention.out_proj(found.flatten(2)), expected, atol=1e-5, rtol=1e-5)
    alone = kernels.attend(q[2:3], k[2:3], v[2:3], bias[2:3], attention.scale)
    assert torch.equal(alone, found[2:3]), "nothing of another sentence"


@torch.inference_mode()
def test_attention_far_apart_in_score_is_finite_and_what_is_no_number_stays_none(kernels: ModuleType) -> None:
    values = torch.arange(16.0).expand(1, 1, 16, 16).transpose(2, 3).contiguous()
    keys = torch.zeros(1, 1, 16, 16)
    keys[0, 0, 5, 0] = 1
    nothing = torch.zeros(1, 1, 1, 16)
    for large, expected in ((1e3, 5.0), (1e30, 5.0), (-1e30, 115 / 15)):
        found = kernels.attend(torch.full((1, 1, 1, 16), large), keys, values, nothing, 1.0)
        assert found.flatten().tolist() == pytest.approx([expected] * 16)
    for bad in (torch.nan, torch.inf):
        keys[0, 0, 5, 0] = bad
        assert kernels.attend(torch.ones(1, 1, 1, 16), keys, values, nothing, 1.0).isnan().all()
    nowhere = torch.full((1, 1, 1, 16), -torch.inf)
    assert kernels.attend(torch.ones(1, 1, 1, 16), keys, values, nowhere, 1.0).isnan().all()


@pytest.mark.parametrize(("vocab_size", "num_blocks"), [(36, 32), (100, 32), (2043, 64), (8000, 512), (4 + 96, 96)])
@pytest.mark.parametrize("spread", [0.1, 5.0, 60.0])
def test_a_survey_sees_every_logit(vocab_size: int, num_blocks: int, spread: float, kernels: ModuleType) -> None:
    logits = spread * torch.randn(9, vocab_size, generator=torch.Generator().manual_seed(vocab_size))
    logits[1] = -torch.inf
    logits[1, vocab_size - 1] = 2.0
    logits[2, :4] += 1000
    normalizers, maxima = kernels.survey(logits, 4, num_blocks)
    torch.testing.assert_close(normalizers, logits.logsumexp(dim=1), atol=2e-6, rtol=1e-6)
    whole = (vocab_size - 4) // num_blocks * num_blocks
    assert torch.equal(maxima, logits[:, 4 : 4 + whole].unflatten(1, (-1, num_blocks)).amax(dim=1))
    for number, place in [(torch.nan, 0), (torch.nan, vocab_size - 1), (-torch.nan, 7), (torch.inf, 5), (torch.inf, 3)]:
        bad = logits.clone()
        bad[0, place] = number
        assert kernels.survey(bad, 4, num_blocks)[0].isfinite().tolist() == [False] + 8 * [True]
    assert not kernels.survey(torch.full((1, vocab_size), -torch.inf), 4, num_blocks)[0].isfinite()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("vocab_size", [4 + 256, 5003, 30])
def test_a_pass_chooses_as_torch_does(vocab_size: int, choice: Choice) -> None:
    assert_chooses_as_torch_does(GreedyRows, choice, CPU, vocab_size, bad=vocab_size - 2, strided=False)


@pytest.mark.usefixtures("kernels")
def test_equal_logits_are_decided_by_the_token() -> None:
    assert_equal_logits_are_decided_by_the_token(GreedyRows, CPU)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("vocab_size", [4, 4 + 256, 300])
def test_where_no_logit_is_a_number_the_token_is_one_of_the_vocabulary(vocab_size: int) -> None:
    for scored in (False, True):
        rows = GreedyRows.begin(torch.tensor([9, 9]), 12, scored)
        nothing = torch.full((2, vocab_size), torch.nan)
        assert rows.choose(nothing, Choice(allow_unk=False, scored=scored))[1] == 2
        assert int(rows.tokens.max()) < vocab_size


def test_only_the_inside_of_a_search_that_takes_passes_has_them() -> None:
    assert kernels_for(torch.zeros(1)) is None
    with compiled_passes(True):
        assert kernels_for(torch.zeros(1)) is not None
        assert kernels_for(torch.zeros(1, dtype=torch.bfloat16)) is None
        assert kernels_for(torch.zeros(1, device="meta")) is None
        with compiled_passes(False):
            assert kernels_for(torch.zeros(1)) is None
    assert kernels_for(torch.zeros(1)) is None


@pytest.mark.parametrize(("head_dim", "num_rows", "is_used"), [(16, 2, True), (16, 1, True), (8, 2, False)])
@torch.inference_mode()
def test_a_packed_attention_takes_the_pass_where_it_fits(
    head_dim: int, num_rows: int, is_used: bool, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = attention_of(4, 1, head_dim)
    packed = PackedSelfAttention(attention, Packing(PackedLinear))
    tensors = inputs(4, 1, num_rows, 1, head_dim, 16)
    calls = []
    attend = kernels.attend
    monkeypatch.setattr(kernels, "attend", lambda *rest: calls.append(1) or attend(*rest))
    found = packed.attend_to_slots(*tensors)
    monkeypatch.setattr(packed_layers, "kernels_for", lambda *_: None)
    torch.testing.assert_close(found, packed.attend_to_slots(*tensors), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, attention.attend_to_slots(*tensors), atol=1e-5, rtol=1e-5)
    assert len(calls) == is_used


def test_a_numba_that_was_told_to_compile_nothing_is_none() -> None:
    asked = "from transformer_mt.decoding.fast_layers.find_kernels import step_kernels; print(step_kernels())"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert found.stdout == "None\n"
    assert "numba does not work here (NUMBA_DISABLE_JIT is set)" in found.stderr


def test_what_was_compiled_with_other_parts_is_compiled_anew(kernels: ModuleType) -> None:
    """numba looks at the file of the passes alone: a change of their parts has to change that file too."""
    from transformer_mt.model.cpu import lanes

    parts = b"".join(Path(module.__file__ or "").read_bytes() for module in (lanes, special_ids))
    state = hashlib.sha256(parts.replace(b"\r\n", b"\n")).hexdigest()[:16]
    assert state == kernels.PARTS, f'write PARTS = "{state}" in step_kernels.py'
