"""Attention weights of a trained model on one sentence pair."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.batches.batching import pad_sources
from transformer_mt.data.pictures.pictures import WHITE
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.coverage import source_weights
from transformer_mt.errors import UserError
from transformer_mt.inspect.hooks import hooked
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.attention import Attention as AttentionModule

MAX_TOKENS = 128  # of a side, EOS or BOS counted: a larger picture cannot be read


@dataclass(frozen=True)
class Kind:
    """One of the attentions of an architecture: the stack and the module that have it, the words of queries and keys.

    The words of an axis are `src` (x EOS), `tgt_in` (BOS y), `tgt_out` (y EOS) or `stream` (x EOS BOS y).
    """

    name: str
    title: str
    caption: str
    stack: str
    module: str
    queries: str
    keys: str


def _cross(title: str) -> Kind:
    said = "Each row is a target word as it is chosen, each column a source word that is looked at to choose it."
    return Kind("cross", title, said, "decoder", "cross_attn", "tgt_out", "src")


ATTENTIONS = {
    "encoder_decoder": (
        Kind("encoder", "Encoder self-attention", "Each row is a source word, each column a source word it looks at.",
             "encoder", "self_attn", "src", "src"),
        Kind("decoder", "Decoder self-attention",
             "Each row is a target word as it is read, each column a target word up to it that it looks at.",
             "decoder", "self_attn", "tgt_in", "tgt_in"),
        _cross("Cross-attention"),
    ),
    "decoder_only": (
        Kind("stream", "Self-attention over source and target",
             "Each row is a word as it is read, each column a word up to it that it looks at. The target is brown.",
             "decoder", "self_attn", "stream", "stream"),
    ),
    "encoder_only": (
        Kind("encoder", "Encoder self-attention", "Each row is a word, each column a word it looks at.",
             "encoder", "self_attn", "src", "src"),
    ),
    "rnn": (_cross("Attention to the source"),),
}  # fmt: skip


@dataclass(frozen=True)
class Attention:
    """One kind of attention on one pair of sentences, every layer and head.

    weights (num_layers, num_heads, num_queries, num_keys), on the CPU, each row a distribution. `num_src` is the number
    of source words where both axes hold source and target, else 0. The patches (num_words, height, width) are grey,
    where an axis is a picture; EOS is white.
    """

    kind: Kind
    query_words: list[str]
    key_words: list[str]
    num_src: int
    weights: Tensor
    query_patches: NDArray[np.uint8] | None = None
    key_patches: NDArray[np.uint8] | None = None

    def for_a_page(self, digits: int) -> dict[str, Any]:
        """What goes into JSON: names, words, and the weights rounded to so many digits."""
        return {
            "name": self.kind.name,
            "title": self.kind.title,
            "caption": self.kind.caption,
            "queries": self.query_words,
            "keys": self.key_words,
            "weights": self.weights.double().numpy().round(digits).tolist(),
        }


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While inside, every full (not cached) attention adds its weights under its module name.

    `decoder.layers.0.cross_attn` -> (batch, num_heads, query_len, key_len). A loop over positions calls a module for
    each, and their rows are joined. The fused kernel returns no weights, so they are computed beside it, from the
    module's own projections of the same inputs.
    """
    recorded: dict[str, Tensor] = {}

    def record(name: str, module: AttentionModule, inputs: tuple) -> None:
        weights = module.weights_of(inputs)
        recorded[name] = torch.cat((recorded[name], weights), dim=2) if name in recorded else weights

    attentions = [(name, module) for name, module in model.named_modules() if isinstance(module, AttentionModule)]
    with hooked(attentions, record, before=True):
        yield recorded


@torch.inference_mode()
def pair_attention(
    model: TranslationModel,
    src: list[int],
    tgt: list[int],
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    texts: tuple[str | None, str | None] = (None, None),
) -> list[Attention]:
    """Every attention of a model as it reads one source and predicts one target, both given as ids without BOS and EOS.

    `texts` are the sentences of the ids, or None: unknown words are named after them. Raises UserError where a weight
    is not a number.
    """
    sources, tgt_in, tgt_out = pad_sources([src]), [BOS_ID, *tgt], [*tgt, EOS_ID]
    device = next(model.parameters()).device
    with recorded_attention(model) as recorded:
        model.hidden_states(sources.to(device), torch.tensor([tgt_in], device=device))
    if any(weights.isnan().any() for weights in recorded.values()):
        raise UserError("The model's attention is not a number. Use an earlier checkpoint (--checkpoint step_N).")
    words = {
        "src": src_tokenizer.tokens(sources[0].tolist(), texts[0]),
        "tgt_in": tgt_tokenizer.tokens(tgt_in, texts[1]),
        "tgt_out": tgt_tokenizer.tokens(tgt_out, texts[1]),
    }
    words["stream"] = words["src"] + words["tgt_in"]
    strips = {"src": patches_drawn(sources[0], model)}
    return [
        Attention(
            kind, words[kind.queries], words[kind.keys], len(words["src"]) if kind.keys == "stream" else 0,
            torch.cat([
                weights.float().cpu()
                for name, weights in recorded.items()
                if name.startswith(f"{kind.stack}.") and name.endswith(f".{kind.module}")
            ]),
            strips.get(kind.queries), strips.get(kind.keys),
        )
        for kind in ATTENTIONS[model.config.architecture]
    ]  # fmt: skip


def patches_drawn(src: Tensor, model: TranslationModel) -> NDArray[np.uint8] | None:
    """src (src_len, pixels) -> the patches as grey pictures (src_len, height, width), EOS white; None of words."""
    patches = model.config.patches
    if patches is None:
        return None
    grey = src.cpu().numpy().astype(np.uint8)
    return np.where(grey == EOS_ID, WHITE, grey).reshape(-1, patches.height, patches.width)


@torch.inference_mode()
def cross_attention(model: TranslationModel, src: Tensor, tgt_in: Tensor) -> Tensor:
    """How the target attends to the source in the last layer, averaged over heads.

    src (1, src_len), tgt_in (1, tgt_len) -> (tgt_len, src_len). In a decoder-only model a row also attends to the
    target so far, so its weights on the source sum to less than 1.
    """
    return source_weights(model, src, tgt_in)[0]


def looks_at_source(model: TranslationModel, recorded: dict[str, Tensor], src: Tensor, tgt_in: Tensor) -> Tensor:
    """`cross_attention` of a forward pass that `recorded_attention` has recorded."""
    (last,) = (name for name, module in model.named_modules() if module is model.source_attentions[-1])
    return recorded[last][0].mean(dim=0)[-tgt_in.size(1) :, : src.size(1)]
