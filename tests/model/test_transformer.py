"""The encoder-decoder Transformer: its parts, what they start as, and what is tied. Laws stand in test_laws.py."""

import math

import pytest
import torch
from plain_model import PLAIN, VOCAB, random_ids
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from translators import rules

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.masks import causal_mask, padding_mask
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.parts.dropout import Dropout
from transformer_mt.model.parts.feed_forward import FeedForward
from transformer_mt.model.parts.positions import sinusoidal_table
from transformer_mt.model.transformer import Transformer


def make_model(vocab_size: int = VOCAB, **changes) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(**{**PLAIN, **changes}), vocab_size, vocab_size).eval()


def test_attention_weights_are_those_of_the_fused_kernel() -> None:
    q, k, v = (torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    mask = causal_mask(5) & padding_mask(torch.tensor([[4, 4, 4, 4, 4], [4, 4, 4, PAD_ID, PAD_ID]]))
    weights = attention_weights(q, k, mask)
    torch.testing.assert_close(weights @ v, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))
    assert (weights.masked_select(~mask.expand_as(weights)) == 0).all()


def test_layers_do_not_share_weights() -> None:
    model = make_model(tie_embeddings="none")
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    assert len(set(pointers)) == len(pointers)
    one, two = (layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer))
    assert isinstance(one.feed_forward, FeedForward)
    assert isinstance(two.feed_forward, FeedForward)
    assert not torch.equal(one.feed_forward.in_proj.weight, two.feed_forward.in_proj.weight)


@pytest.mark.parametrize(("tie", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_tables_are_counted_once(tie: str, tables: int) -> None:
    """Parameters by hand: 4 d^2 + 4 d an attention, 2 d d_ff + d_ff + d a feed-forward, 2 d a norm."""
    d, d_ff = 32, 48
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * d_ff + d_ff + d, 2 * d
    encoder = 2 * (attention + feed_forward + 2 * norm) + norm
    decoder = 3 * (2 * attention + feed_forward + 3 * norm) + norm
    output_bias = VOCAB if tie == "none" else 0
    expected = encoder + decoder + tables * VOCAB * d + output_bias
    assert sum(p.numel() for p in make_model(tie_embeddings=tie).parameters()) == expected


@pytest.mark.parametrize(("tie", "tolerance"), [("none", 0.2), ("decoder", 1.5), ("all", 1.5)])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_initial_loss_is_that_of_a_uniform_guess(tie: str, tolerance: float, norm_position: str) -> None:
    vocab_size = 4000
    model = make_model(vocab_size, d_model=128, d_ff=256, tie_embeddings=tie, norm_position=norm_position)
    ids = torch.randint(4, vocab_size, (8, 20), generator=torch.Generator().manual_seed(3))
    loss = F.cross_entropy(model(ids, ids).flatten(0, 1), ids.roll(-1, 1).flatten())
    assert abs(loss.item() - math.log(vocab_size)) < tolerance


def test_embeddings_start_at_the_stated_deviation() -> None:
    model = make_model(4000, d_model=64)
    assert model.decoder.embedder.table.std().item() == pytest.approx(64**-0.5, rel=0.02)


def test_matrices_start_within_xaviers_bounds_and_fill_them() -> None:
    """Uniform in +-sqrt(6 / (in + out)), so of standard deviation sqrt(2 / (in + out))."""
    model = make_model(d_model=64, d_ff=256, tie_embeddings="none")
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            size = sum(module.weight.shape)
            assert module.weight.abs().max().item() <= math.sqrt(6 / size)
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / size), rel=0.05)
            assert module.bias is None or not module.bias.any()


def test_the_embedding_is_scaled_before_the_position_is_added() -> None:
    embedder = make_model(d_model=16, num_heads=2).encoder.embedder
    ids = torch.tensor([[7, 9]])
    expected = embedder.table[ids[0]] * 4.0 + sinusoidal_table(24, 16)[:2]
    torch.testing.assert_close(embedder(ids, torch.arange(2)[None])[0], expected)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_dropout_stands_where_the_paper_has_it(norm_position: str) -> None:
    """On each sum of embedding and position, each sublayer's output, inside each feed-forward; and on the weights."""
    model = make_model(dropout=0.4, norm_position=norm_position).train()
    sites: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda m, inputs, output, name=name: sites.append(name))
    model(random_ids(2, 5), random_ids(2, 6))
    expected = ["encoder.embedder.dropout", "decoder.embedder.dropout"]
    for stack, depth, sublayers in (("encoder", 2, 2), ("decoder", 3, 3)):
        names = ["self_attn_residual", "cross_attn_residual", "feed_forward_residual", "feed_forward"]
        if sublayers == 2:
            names.remove("cross_attn_residual")
        expected += [f"{stack}.layers.{i}.{name}.dropout" for i in range(depth) for name in names]
    assert sorted(sites) == sorted(expected)


def test_attention_weights_are_dropped_in_training_only() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 0.5, bias=False)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention.train()(x, x), attention(x, x))
    assert torch.equal(attention.eval()(x, x), attention(x, x))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_eight_pairs_are_learned_by_heart(norm_position: str) -> None:
    """Until a search, which starts with BOS alone and has to find EOS by itself, writes the targets."""
    model = make_model(dropout=0.0, norm_position=norm_position)
    src, targets = random_ids(8, 6), [random_ids(length, seed=length).tolist() for length in range(2, 10)]
    tgt_in = padded([[BOS_ID, *target] for target in targets])
    tgt_out = padded([[*target, EOS_ID] for target in targets])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def learn() -> None:
        model.train()
        for _ in range(50):
            optimizer.zero_grad()
            F.cross_entropy(model(src, tgt_in).flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID).backward()
            optimizer.step()
        model.eval()

    def written(beam_size: int) -> list[list[int]]:
        with torch.inference_mode():
            found = beam_search(ModelDecoder(model, src), [20] * 8, rules(beam_size), src.device)
        return [hypothesis.tokens for (hypothesis,) in found]

    for _ in range(5):
        learn()
        if written(1) == written(4) == targets:
            break
    assert written(1) == written(4) == targets


def padded(rows: list[list[int]]) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)
