"""An encoder over patches of a picture: its projection against torch's convolution, and the laws that ids obey too."""

import pytest
import torch
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.parts.patches import MEAN_INK, SPREAD, PatchEmbedding
from transformer_mt.model.transformer import Transformer
from transformer_mt.model.unpadded import Unpadded

VOCAB, HEIGHT, WIDTH = 30, 8, 6
CONFIG = ModelConfig(
    d_model=32, d_ff=24, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0, max_len=20,
    patches=PatchesConfig(height=HEIGHT, width=WIDTH),
)  # fmt: skip


def make_model(**changes: object) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(CONFIG.model_copy(update=changes), 256, VOCAB)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def batch_of(*lengths: int) -> Batch:
    dice = torch.Generator().manual_seed(len(lengths))
    src = [torch.randint(4, 256, (n, HEIGHT * WIDTH), generator=dice).to(torch.uint8).numpy() for n in lengths]
    tgt = [torch.randint(4, VOCAB, (n + 1,), generator=dice).numpy() for n in reversed(lengths)]
    return make_batch(src, tgt)


@pytest.mark.parametrize("step", [WIDTH, 2])
def test_the_projection_is_a_convolution_over_the_picture(step: int) -> None:
    """The oracle sees the whole strip, and one number of the matrix for each pixel of its kernel."""
    torch.manual_seed(1)
    embedding = PatchEmbedding(PatchesConfig(height=HEIGHT, width=WIDTH, step=step), 16)
    strip = torch.randint(4, 256, (HEIGHT, WIDTH + 4 * step))
    patches = strip.unfold(1, WIDTH, step).permute(1, 0, 2).reshape(1, -1, HEIGHT * WIDTH).to(torch.uint8)
    ink = ((255 - strip) / 251 - MEAN_INK) / SPREAD
    convolution = torch.nn.Conv2d(1, 16, (HEIGHT, WIDTH), stride=step)
    with torch.no_grad():
        convolution.weight.copy_(embedding.projection.weight.view(16, 1, HEIGHT, WIDTH))
        convolution.bias.copy_(embedding.projection.bias)  # pyright: ignore[reportOptionalMemberAccess]
        expected = convolution(ink[None, None])[0, :, 0].T
        assert patches.shape[1] == 5
        torch.testing.assert_close(embedding(patches)[0], expected, atol=1e-5, rtol=1e-5)


def test_the_patch_of_eos_has_a_vector_of_its_own() -> None:
    embedding = PatchEmbedding(PatchesConfig(height=HEIGHT, width=WIDTH), 16)
    patches = torch.full((1, 2, HEIGHT * WIDTH), EOS_ID, dtype=torch.uint8)
    patches[0, 1] = 255
    found = embedding(patches)[0]
    assert torch.equal(found[0], embedding.eos.weight[0])
    assert not torch.allclose(found[1], found[0])


def test_a_batch_has_eos_behind_the_patches_and_then_padding() -> None:
    batch = batch_of(2, 5)
    assert batch.src.dtype == torch.uint8
    assert batch.src.shape == (2, 6, HEIGHT * WIDTH)
    assert [set(patch.tolist()) for patch in batch.src[0, 2:]] == [{EOS_ID}, {PAD_ID}, {PAD_ID}, {PAD_ID}]
    assert batch.src[0, :2].min() >= 4
    assert batch.num_padding == 3 + 3
    assert batch.num_cells == 2 * 6 + batch.tgt_out.numel()
    again = Batch.of(batch.src, batch.tgt_in, batch.tgt_out)
    assert (again.num_padding, again.num_tokens) == (batch.num_padding, batch.num_tokens)


@torch.no_grad()
def test_neither_padding_nor_the_batch_changes_anything() -> None:
    model, batch = make_model(), batch_of(2, 9, 5)
    logits = model(batch.src, batch.tgt_in)
    wide = batch.widened(3, 2)
    assert (wide.src[:, -3:] == PAD_ID).all()
    torch.testing.assert_close(model(wide.src, wide.tgt_in)[:, : logits.size(1)], logits, atol=1e-5, rtol=1e-5)
    for i, length in enumerate((2, 9, 5)):
        alone = model(batch.src[i : i + 1, : length + 1], batch.tgt_in[i : i + 1])
        torch.testing.assert_close(alone[0], logits[i], atol=1e-5, rtol=1e-5)


def losses(model: Transformer, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = batch_loss(model, batch.src, batch.tgt_in, batch.tgt_out, 0.1, batch.real).loss
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_training_without_padding_computes_the_same() -> None:
    """Over all patches in one row, and over the padded batch: loss and every gradient."""
    batch, plain = batch_of(3, 9, 1), make_model().train()
    row = Unpadded.of(batch.src)
    assert row.ids.shape == (1, 64, HEIGHT * WIDTH)
    assert torch.equal(row.ids[0, :4], batch.src[0, :4])
    assert row.lengths.tolist() == [4, 10, 2]
    assert plain.goes_unpadded()
    found = losses(plain, batch)
    plain.encoder.is_compiled = True  # which goes padded
    expected = losses(plain, batch)
    torch.testing.assert_close(found[0], expected[0], atol=1e-3, rtol=1e-5)
    assert len(found[1]) == len(list(plain.parameters()))
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_a_step_over_the_cache_is_the_pass_over_all() -> None:
    model, batch = make_model(), batch_of(4, 7)
    expected = model(batch.src, batch.tgt_in)
    cache = model.start(batch.src)
    for t in range(batch.tgt_in.size(1)):
        step = model.decode_step(batch.tgt_in[:, t], cache)
        torch.testing.assert_close(step, expected[:, t], atol=1e-4, rtol=1e-4)
