"""Training over tokens without padding: against the formula sentence by sentence, and against padded batches."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.batches.batching import pad_rows
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.cpu import attention as cpu_attention
from transformer_mt.model.cpu.attention import prepare_attention, unpadded_attention
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums, batch_loss
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.parts.dropout import dropout
from transformer_mt.model.parts.positions import POSITIONS, Positions
from transformer_mt.model.transformer import Transformer
from transformer_mt.model.unpadded import ROWS, BlockDiagonal, Unpadded

VOCAB, SIZE, SCALE = 40, 16, 0.3
SRC_LENGTHS, TGT_LENGTHS = [5, 1, 20, 7], [3, 18, 1, 7]


def ids_of(lengths: list[int], surplus: int = 0, seed: int = 1) -> Tensor:
    """Ids of sentences of these lengths, with so many columns of padding more than the longest needs."""
    torch.manual_seed(seed)
    ids = pad_rows([torch.randint(4, VOCAB, (n,)).numpy() for n in lengths])
    return torch.nn.functional.pad(ids, (0, surplus), value=PAD_ID)


# The row


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 3))
def test_a_row_has_every_token_in_order_with_its_place(lengths: list[int], surplus: int) -> None:
    ids = ids_of(lengths, surplus)
    tokens = Unpadded.of(ids)
    expected = [(int(ids[i, j]), j, i) for i, n in enumerate(lengths) for j in range(n)]
    total = len(expected)
    assert tokens.num_tokens == total
    found = zip(tokens.ids[0, :total].tolist(), tokens.at[0, :total].tolist(), tokens.sentences().tolist(), strict=True)
    assert list(found) == expected
    assert tokens.lengths.tolist() == lengths
    assert tokens.real[0].tolist() == [True] * total + [False] * (-total % ROWS)
    assert tokens.ids.shape == tokens.at.shape == tokens.real.shape
    assert (tokens.ids[0, total:] == PAD_ID).all()


def test_blocks_lie_one_behind_the_other() -> None:
    mask = BlockDiagonal.of(torch.tensor([3, 0, 7]), torch.tensor([5, 2, 4]))
    assert mask.blocks.tolist() == [[0, 3, 0, 5], [3, 0, 5, 2], [3, 7, 7, 4]]
    assert mask.most == (7, 5)


# The attention


def heads_of(lengths: list[int], num_heads: int, dtype: torch.dtype, surplus: int = 0) -> Tensor:
    """(1, num_heads, tokens and surplus, SIZE), in memory as the projections leave it."""
    return torch.randn(1, sum(lengths) + surplus, num_heads, SIZE).to(dtype).transpose(1, 2).requires_grad_()


def ours(tensors: list[Tensor], mask: BlockDiagonal, p: float = 0.0) -> Tensor:
    """What is tested."""
    q, k, v = tensors
    return unpadded_attention(q, k, v, mask, p, SCALE)


def plain(tensors: list[Tensor], mask: BlockDiagonal, p: float) -> Tensor:
    """The formula in float64, one sentence after the other, with the same factors of dropout."""
    q, k, v = tensors
    num_heads, most_keys = q.size(1), mask.most[1]
    k, v = (x.repeat_interleave(num_heads // x.size(1), dim=1) for x in (k, v))
    factors = torch.ones(num_heads * int(mask.blocks[:, 1].sum()), most_keys)
    if p:
        factors = dropout(factors, p)
    outs = []
    for first_query, queries, first_key, keys in mask.blocks.tolist():
        own = slice(first_query, first_query + queries)
        others = slice(first_key, first_key + keys)
        visible = torch.ones(queries, keys, dtype=torch.bool)
        weights = attention_weights(q[:, :, own], k[:, :, others], visible.tril() if mask.causal else visible, SCALE)
        rows = factors[first_query * num_heads : (first_query + queries) * num_heads, :keys]
        outs.append((weights * rows.view(num_heads, queries, keys)) @ v[:, :, others])
    return torch.cat(outs, dim=2)


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_are_the_formulas(p: float, dtype: torch.dtype, kv_heads: int, causal: bool) -> None:
    key_lengths = TGT_LENGTHS if causal else SRC_LENGTHS
    mask = BlockDiagonal.of(torch.tensor(TGT_LENGTHS), torch.tensor(key_lengths), causal)
    torch.manual_seed(0)
    tensors = [heads_of(TGT_LENGTHS, 4, dtype), *(heads_of(key_lengths, kv_heads, dtype) for _ in range(2))]
    torch.manual_seed(2)
    out = ours(tensors, mask, p)
    torch.manual_seed(2)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    expected = plain(doubles, mask, p)
    upstream = torch.randn(out.shape).to(dtype)
    found = [out, *torch.autograd.grad(out, tensors, upstream)]
    exact = [expected, *torch.autograd.grad(expected, doubles, upstream.double())]
    for x, y in zip(found, exact, strict=True):
        assert x.dtype == dtype
        # Half of a last place of bfloat16's 8 bits, and what float32 adds where much cancels.
        torch.testing.assert_close(x.double(), y, rtol=1e-5 if dtype == torch.float32 else 2**-8, atol=1e-5)


def test_rows_that_are_no_sentences_take_no_part_whatever_is_in_them() -> None:
    mask = BlockDiagonal.of(torch.tensor(TGT_LENGTHS), torch.tensor(SRC_LENGTHS))
    torch.manual_seed(0)
    exact = [heads_of(n, 2, torch.float32) for n in (TGT_LENGTHS, SRC_LENGTHS, SRC_LENGTHS)]
    longer = [
        torch.cat((x.detach(), torch.full((1, 2, surplus, SIZE), torch.nan)), dim=2).requires_grad_()
        for x, surplus in zip(exact, (5, 3, 3), strict=True)
    ]
    outs = [ours(tensors, mask) for tensors in (exact, longer)]
    upstreams = [torch.ones(outs[0].shape), torch.ones(outs[1].shape)]
    upstreams[1][:, :, sum(TGT_LENGTHS) :] = torch.nan
    results = [
        (out, *torch.autograd.grad(out, tensors, upstream))
        for out, tensors, upstream in zip(outs, (exact, longer), upstreams, strict=True)
    ]
    for short, long in zip(*results, strict=True):
        assert torch.equal(long[:, :, : short.size(2)], short)
        assert not long[:, :, short.size(2) :].any()


def test_a_sentence_of_nothing_leaves_the_others_alone() -> None:
    torch.manual_seed(0)
    tensors = [heads_of(n, 2, torch.float32) for n in ([4, 3], [6, 5], [6, 5])]
    expected = ours(tensors, BlockDiagonal.of(torch.tensor([4, 3]), torch.tensor([6, 5])))
    mask = BlockDiagonal.of(torch.tensor([4, 0, 3]), torch.tensor([6, 0, 5]))
    assert torch.equal(ours(tensors, mask), expected)


@pytest.mark.parametrize(("queries", "keys", "what"), [([9], [6], "queries"), ([4], [12], "keys")])
def test_blocks_beyond_the_rows_are_refused(queries: list[int], keys: list[int], what: str) -> None:
    tensors = [heads_of(n, 2, torch.float32) for n in ([4], [6], [6])]
    with pytest.raises(AssertionError, match=f"fewer rows than {what}"):
        ours(tensors, BlockDiagonal.of(torch.tensor(queries), torch.tensor(keys)))


# The model


def make_model(dropout: float = 0.0, **options: Any) -> TranslationModel:
    """With heads that are wide enough."""
    config = ModelConfig(**{
        "d_model": 64, "d_ff": 48, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "max_len": 32,
        "dropout": dropout, **options,
    })  # fmt: skip
    torch.manual_seed(0)
    model = ARCHITECTURES[config.architecture](config, VOCAB, VOCAB)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[BlockDiagonal]:
    """The masks of unpadded tokens that any attention gets."""
    seen: list[BlockDiagonal] = []
    real = MultiHeadAttention.attend

    def watched(self: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Any, *more: Any) -> Tensor:
        if isinstance(mask, BlockDiagonal):
            seen.append(mask)
        return real(self, q, k, v, mask, *more)

    monkeypatch.setattr(MultiHeadAttention, "attend", watched)
    return seen


def passed(model: TranslationModel, surplus: int = 0, label_smoothing: float = 0.1) -> tuple[LossSums, list[Tensor]]:
    """Loss and gradients of one batch with so many columns of padding too many; dropout as drawn from one seed."""
    src, tgt = ids_of(SRC_LENGTHS, surplus), ids_of(TGT_LENGTHS, surplus, seed=2)
    model.zero_grad()
    torch.manual_seed(7)
    sums = batch_loss(model, src, tgt, tgt, label_smoothing)
    sums.loss.backward()
    return sums, [p.grad for p in model.parameters() if p.grad is not None]


UNPADDED: list[dict] = [
    *({"positions": name} for name, option in POSITIONS.items() if option.make.bias is Positions.bias),
    {"norm_position": "post"},
    {"norm": "rmsnorm", "activation": "swiglu", "bias": False, "positions": "rotary", "num_kv_heads": 2},
    {"positions": "learned", "tie_embeddings": "all", "scale_attention": False},
    {"positions": "none", "num_kv_heads": 1, "tie_embeddings": "none"},
    {"num_experts": 4, "experts_per_token": 2},
]
PADDED: list[dict] = [
    *({"positions": name} for name, option in POSITIONS.items() if option.make.bias is not Positions.bias),
    {"attention_window": 3},
    {"num_heads": 8},  # too narrow
    {"architecture": "decoder_only", "num_encoder_layers": 0},
]


def name_of(options: dict) -> str:
    return "-".join(f"{key}={value}" for key, value in options.items()) or "plain"


@pytest.mark.parametrize("options", UNPADDED, ids=name_of)
def test_a_batch_has_the_loss_and_the_gradients_of_the_padded_one(
    options: dict, blocks: list[BlockDiagonal], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(**options)
    sums, gradients = passed(model)
    assert len(blocks) == 2 + 2 * 2  # every attention
    monkeypatch.setattr(Transformer, "goes_unpadded", lambda self: False)
    expected, expected_gradients = passed(model)
    assert len(blocks) == 6
    for name in ("loss", "nll"):
        torch.testing.assert_close(getattr(sums, name), getattr(expected, name), rtol=1e-5, atol=0)
    if "num_experts" in options:
        assert sums.load_balancing is not None
        torch.testing.assert_close(sums.load_balancing, expected.load_balancing, rtol=1e-5, atol=0)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()) + 1e-6)


@pytest.mark.parametrize("options", PADDED, ids=name_of)
def test_what_needs_more_than_blocks_stays_padded(options: dict, blocks: list[BlockDiagonal]) -> None:
    model = make_model(**options)
    passed(model)
    assert not model.goes_unpadded()
    assert blocks == []


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("options", UNPADDED, ids=name_of)
def test_columns_of_padding_change_no_bit(options: dict, precision: str) -> None:
    """Dropout included, which draws nothing for them."""
    model = make_model(dropout=0.3, **options)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        assert model.goes_unpadded()
        (sums, gradients), (others, other_gradients) = passed(model), passed(model, surplus=5)
    assert torch.equal(sums.loss, others.loss)
    assert all(map(torch.equal, gradients, other_gradients))
    assert sums.loss.isfinite()


def test_validation_and_search_are_padded(blocks: list[BlockDiagonal]) -> None:
    model = make_model().eval()
    with torch.no_grad():
        src, tgt = ids_of(SRC_LENGTHS), ids_of(TGT_LENGTHS)
        batch_loss(model, src, tgt, tgt, 0.0)
        model(src, tgt)
        model.decode_step(tgt[:, 0], model.start(src))
    assert blocks == []


def test_without_numba_it_is_the_padded_batch(monkeypatch: pytest.MonkeyPatch, blocks: list[BlockDiagonal]) -> None:
    assert prepare_attention(torch.float32, SIZE)
    monkeypatch.setattr(cpu_attention, "loaded_kernels", lambda: None)
    model = make_model()
    sums, _ = passed(model)
    assert not model.goes_unpadded()
    assert blocks == []
    assert sums.loss.isfinite()


def test_an_fp64_model_is_padded(blocks: list[BlockDiagonal]) -> None:
    model = make_model().double()
    passed(model)
    assert blocks == []
