"""Updates of small models, for tests of what an update does."""

import torch
from torch import Tensor

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.preparation import PreparedData
from transformer_mt.decoding.load_model import build_model
from transformer_mt.training.regularising.unigram import smoothing_prior
from transformer_mt.training.updates import Updater

CPU = torch.device("cpu")
REGULARISERS = {
    "weight_decay": 0.1, "label_smoothing_by": "unigram", "consistency": {"kind": "simcut", "cut": 0.2},
    "clip_norm": None,
}  # fmt: skip


def make_updater(config: RunConfig, data: PreparedData, precision: str = "fp32") -> Updater:
    """The updates of a config on a CPU, always from the same weights."""
    torch.manual_seed(0)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
    prior = smoothing_prior(config.training, data.train, data.tgt_tokenizer.vocab_size)
    return Updater(model, config.training, config.seed, precision, CPU, prior=prior)


def gradients(updater: Updater) -> list[Tensor]:
    """Those of the newest update, of each parameter that has one."""
    return [p.grad.clone() for p in updater.model.parameters() if p.grad is not None]
