"""What goes with pictures of the source, and what is refused by its key."""

from pathlib import Path

import pytest
from toy import toy_mapping

from transformer_mt.config.loading import load_mapping
from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.errors import UserError

DRAWN = ["data.source_as=picture", "model.patches={}"]


def test_the_sizes_by_default() -> None:
    patches = PatchesConfig()
    assert (patches.height, patches.width, patches.stride, patches.pixels) == (16, 8, 8, 128)
    assert PatchesConfig(width=24, step=12).stride == 12


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["data.source_as=picture"], "data.source_as is picture, and model.patches says into which pieces"),
        (["model.patches={}"], "model.patches is set, and data.source_as is text"),
        (["data.font=Arial"], "font is Arial and has no meaning without source_as: picture"),
        ([*DRAWN, "tokenizer.joint=true"], "tokenizer.joint is true, and with data.source_as: picture"),
        ([*DRAWN, "model.tie_embeddings=all"], "patches is set, and tie_embeddings is all"),
        (
            [*DRAWN, "model.architecture=decoder_only", "model.num_encoder_layers=0"],
            "patches is set, and architecture is decoder_only",
        ),
        ([*DRAWN, "model.patches.step=9"], "step is 9, more than width 8"),
        ([*DRAWN, "data.both_directions_epochs=1"], "both_directions_epochs is 1 and has no meaning with source_as"),
        (
            [*DRAWN, "data.noise={kind: causal}"],
            "noise is {kind: causal} and has no meaning with source_as: picture; leave it out, or at null",
        ),
        (["data.source_as=picture", "model.preset=rnn-small"], "source_as is picture, and model.architecture is rnn;"),
        (["data.source_as=picture", "model.preset=bert-small"], "picture, and model.architecture is encoder_only; .*"),
        (["data.source_as=picture", "model.preset=llama"], "picture, and model.architecture is decoder_only; pictures"),
        (
            [*DRAWN, "tokenizer.kind=bpe", "tokenizer.vocab_size=400", "tokenizer.bpe_dropout=0.1"],
            "tokenizer.bpe_dropout_sides is both, and with data.source_as: picture",
        ),
        ([*DRAWN, "decoding.lines.alignment_from=attention"], "decoding.lines.alignment_from is attention, which with"),
        (
            [*DRAWN, "training.init_from={run: runs/a, vocabulary: extend}", "tokenizer.kind=word"],
            "training.init_from.vocabulary is extend, and with data.source_as: picture",
        ),
    ],
)
def test_what_does_not_go_with_pictures(changes: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_mapping(toy_mapping(Path(".")), changes)


def test_what_does() -> None:
    changes = [*DRAWN, "tokenizer.kind=bpe", "tokenizer.vocab_size=400", "tokenizer.bpe_dropout=0.1"]
    config = load_mapping(toy_mapping(Path(".")), [*changes, "tokenizer.bpe_dropout_sides=tgt"])
    assert config.model.patches == PatchesConfig()
