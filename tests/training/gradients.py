"""Run by `torchrun` in tests: the gradients of one update, by as many processes as there are, into files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor
from toy import toy_config

from transformer_mt.data.noise.epoch_split import split_by_epochs
from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.evaluation.nll import tokens_at_once
from transformer_mt.machine.joining import joined_world
from transformer_mt.machine.world import ALONE, World
from transformer_mt.training import compiling
from transformer_mt.training.regularising.unigram import smoothing_prior
from transformer_mt.training.updates import Updater

CPU = torch.device("cpu")
MODELS = {
    "encoder_decoder": {"norm_position": "post", "tie_embeddings": "all"},
    "experts": {"num_experts": 3, "experts_per_token": 2, "positions": "relative_bias", "activation": "swiglu"},
    "unpadded": {"num_heads": 1, "positions": "rotary", "bias": False},
    "decoder_only": {"architecture": "decoder_only", "num_encoder_layers": 0, "tie_embeddings": "all", "bias": False},
    "frozen": {"tie_embeddings": "none"},
    "frozen_decoder": {},
    "compiled": {"dropout": 0.0},  # by several that do not shard; compiled or not, without dropout it is the same
    "simcut": {"num_heads": 1, "src_word_dropout": 0.2, "tgt_word_dropout": 0.1},
    "rdrop": {"num_experts": 3, "experts_per_token": 2},
    "encoder_only": {"architecture": "encoder_only", "num_decoder_layers": 0, "positions": "learned"},
    "rnn": {"architecture": "rnn", "num_decoder_layers": 2, "rnn": {"cell": "lstm", "attention": "luong_general"}},
    "rnn_simcut": {"architecture": "rnn", "src_word_dropout": 0.2, "tgt_word_dropout": 0.1},
    "skipping": {"num_encoder_layers": 2, "num_decoder_layers": 2, "layer_drop": 0.5},
}
TRAINING = {
    "rnn_simcut": {"consistency": {"kind": "simcut", "cut": 0.2}},
    "simcut": {"consistency": {"kind": "simcut", "cut": 0.2}, "label_smoothing_by": "unigram"},
    "rdrop": {"consistency": {"kind": "rdrop"}, "weight_decay": 0.1},
    "frozen": {"freeze": ["encoder", "embeddings"]},
    "frozen_decoder": {"freeze": ["decoder", "output"], "consistency": {"kind": "simcut", "cut": 0.2}},
    "compiled": {"freeze": ["encoder"]},
}
MASKED = {"noise": {"kind": "masked"}, "train": [{"mono": "train.en"}], "validation": [{"mono": "valid.en"}]}
NUM_MICRO_BATCHES = (3, 1)  # one of two processes has a pass that counts nothing; it has nothing else
EVEN = {"encoder_decoder": 4}  # two each, which tells nothing of another model that 3 does not


def gradients(corpus: Path, sharding: str, world: World = ALONE) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """By name, the gradients of first updates; dropout is on, clipping off."""
    for name, model in MODELS.items():
        # Every process needs every layer, and an RNN is not sharded.
        if sharding == "full" and ("layer_drop" in model or model.get("architecture") == "rnn"):
            continue
        masked = MASKED if name == "encoder_only" else {}
        config = toy_config(
            corpus, tokenizer={"joint": True, "masks": int(masked != {})}, model={"dropout": 0.3, **model}, data=masked,
            training={"clip_norm": None, "sharding": sharding, **TRAINING.get(name, {})},
        )  # fmt: skip
        data = prepare_data(config)
        split = split_by_epochs(data, config)
        plan = split.plan(tokens_at_once(config), 3, 0).known()
        for number in (*NUM_MICRO_BATCHES, *([EVEN[name]] if name in EVEN else [])):
            torch.manual_seed(world.rank)  # the weights are those of the first process
            made = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
            compiled = name == "compiled" and sharding == "none" and world.size > 1
            with patch.object(compiling, "BACKEND", "eager"):  # no compiler of C++
                prior = smoothing_prior(config.training, data.train, data.tgt_tokenizer.vocab_size)
                updater = Updater(made, config.training, config.seed, "fp32", CPU, world, compiled, prior)
            result = updater.update(split, plan[:number], 1, "").result()
            found = {
                name: updater.sharing.whole(parameter.grad).contiguous()
                for name, parameter in updater.model.named_parameters()
                if parameter.grad is not None
            }
            numbers = [result.loss, result.nll, result.grad_norm, result.num_tokens, result.num_cells]
            sums = torch.tensor([*numbers, result.divergence or 0.0])
            yield f"{name}_{number}", {**found, "sums": sums}


if __name__ == "__main__":
    corpus, target, *shardings = sys.argv[1:]
    with joined_world(CPU, timeout_minutes=2) as world:
        for sharding in shardings:
            for name, found in gradients(Path(corpus), sharding, world):
                if world.is_first:
                    save_file(found, Path(target, sharding, f"{name}.safetensors"))
