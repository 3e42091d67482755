"""Small models with random weights, as ours and as CTranslate2's."""

from pathlib import Path
from typing import Any

import torch
import translators
from torch import Tensor

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.translator import Translator
from transformer_mt.export.ctranslate2 import ExportedTranslator, write_model
from transformer_mt.export.expressible import OPTIONS
from transformer_mt.model.interface import TranslationModel


def expressible(key: str) -> list[str]:
    """The values of a key of `model` of which their table says how CTranslate2 computes them."""
    return [name for name, option in OPTIONS[key].items() if option.ctranslate2 is not None]


def make_translator(
    model: dict[str, Any], pairs: list[tuple[str, str]] | None = None, **sections: dict[str, Any]
) -> Translator:
    """One that has learned nothing, with weights far enough apart that what is left out shows."""
    return translators.make_translator(model, pairs, noise=0.3, training={"max_tokens": 512}, **sections)


def export(translator: Translator, folder: Path, quantization: str | None = None) -> ExportedTranslator:
    """The same model through CTranslate2."""
    write_model(
        translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config, folder, quantization
    )
    return ExportedTranslator(folder, threads=1)


def _parts(translator: Translator) -> tuple[TranslationModel, Tokenizer, Tokenizer, RunConfig]:
    return translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config


@torch.no_grad()
def our_log_probs(translator: Translator, src: list[int], tgt: list[int]) -> Tensor:
    """The log-probability of each token of tgt and of EOS, teacher-forced: (len(tgt) + 1,)."""
    tgt_in, tgt_out = torch.tensor([[BOS_ID, *tgt]]), torch.tensor([[*tgt, EOS_ID]])
    log_probs = translator.model(torch.tensor([[*src, EOS_ID]]), tgt_in).log_softmax(dim=-1)
    return log_probs.gather(2, tgt_out[:, :, None])[0, :, 0]


def their_log_probs(exported: ExportedTranslator, pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    """The same from CTranslate2, for pairs of source and target."""
    vocabulary = {i: token for token, i in exported.tgt_tokenizer.backend.get_vocab().items()}
    targets = [[vocabulary[i] for i in tgt] for _, tgt in pairs]
    sources = [exported.src_tokens(src) for src, _ in pairs]
    if exported.decoder_only:
        streams = [[*src, *tgt, vocabulary[EOS_ID]] for src, tgt in zip(sources, targets, strict=True)]
        results = exported.engine.score_batch(streams, max_input_length=0)
    else:
        results = exported.engine.score_batch(sources, targets, max_input_length=0)
    return [torch.tensor(r.log_probs[-len(t) - 1 :]) for r, t in zip(results, targets, strict=True)]
