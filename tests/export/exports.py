"""Small models with random weights, as ours and as CTranslate2's."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from toy import toy_mapping, toy_pairs

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.tokenizers import train_tokenizers
from transformer_mt.decoding.checkpoint import build_model
from transformer_mt.decoding.translator import Translator
from transformer_mt.export.ctranslate2 import ExportedTranslator, write_model

SMALL = {"d_model": 16, "d_ff": 24, "num_heads": 4, "num_decoder_layers": 2, "max_len": 24}


def make_translator(
    model: dict[str, Any], pairs: list[tuple[str, str]] | None = None, **sections: dict[str, Any]
) -> Translator:
    """A translator that has learned nothing, no weight of which is left at zero or one."""
    tokenizer = {"joint": True, **sections.pop("tokenizer", {})}
    mapping = toy_mapping(Path("."), tokenizer=tokenizer, **sections)
    mapping["model"] = model
    mapping["training"]["max_tokens"] = 512
    config = parse_run_config(mapping, "toy")
    src, tgt = train_tokenizers(pairs or toy_pairs(50), config.tokenizer)
    torch.manual_seed(4)
    network = build_model(config, src, tgt).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Translator(network, src, tgt, config)


def export(translator: Translator, folder: Path, quantization: str | None = None) -> ExportedTranslator:
    """The same model through CTranslate2."""
    write_model(
        translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config, folder, quantization
    )
    return ExportedTranslator(folder, threads=1)


@torch.no_grad()
def our_log_probs(translator: Translator, src: list[int], tgt: list[int]) -> Tensor:
    """Of each token of tgt and of EOS, teacher-forced: (len(tgt) + 1,)."""
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
