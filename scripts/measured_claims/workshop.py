"""Small trainings on the built-in corpus for the claims that need them. What is trained stays, and is not trained
again.
"""

import random
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured_claims.claim import Settings
from transformer_mt.api import Evaluated, evaluate, train
from transformer_mt.config.loading import load_config, load_mapping
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.model.model_size import model_size
from transformer_mt.storage.run_folder import RunFolder

MAX_LEN = 128
SIZE = {"d_model": 64, "d_ff": 256, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
SMALL = {"d_model": 16, "d_ff": 32, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
DEEPEST_JOIN = 4


@dataclass(frozen=True)
class Variant:
    """A training: the changes to the sections `model` and `training`, and how many pairs one after the other may make a
    training pair; 0 takes the corpus as it is. `joint`: one vocabulary for both languages.
    """

    name: str
    model: dict[str, Any]
    training: dict[str, Any]
    joined: int = 0
    joint: bool = False


def variant(
    name: str, joined: int = 0, joint: bool = False, training: dict[str, Any] | None = None, **model: Any
) -> Variant:
    """Keys of the section `model` by name."""
    return Variant(name, model, training or {}, joined, joint)


BASE = variant("base")


def config_of(wanted: Variant, seed: int, settings: Settings) -> dict[str, Any]:
    """The whole config of a training as YAML would give it."""
    steps = settings.steps
    model: dict[str, Any] = {"norm_position": "pre", **(SMALL if settings.small else SIZE)}
    if "preset" in wanted.model:  # which says all that is not said here
        model = {}
    config: dict[str, Any] = {
        "extends": "base.yaml",
        "name": f"{wanted.name}_{steps}_seed_{seed}",
        "seed": seed,
        "data": {"check": "off", "cache_dir": str(settings.work / "cache")},
        "tokenizer": {"joint": wanted.joint},
        "model": {**model, "max_len": MAX_LEN, **wanted.model},
        "training": {
            "max_tokens": 256 if settings.small else 2048, "max_steps": steps, "warmup_steps": max(1, steps // 2),
            "checkpoint_every_steps": max(1, steps // 25), "keep_checkpoints": 5, "device": "cpu", **wanted.training,
        },
        "validation": {"every_steps": steps, "num_translated": 0, "metric": "nll", "patience": None},
    }  # fmt: skip
    if wanted.joined:
        folder = joined_files(settings.work, wanted.joined)
        config["data"] |= {
            "root": str(folder), "train": [{"src": "train.en", "tgt": "train.es"}],
            "validation": [{"src": "test_1.en", "tgt": "test_1.es"}], "test": [],
        }  # fmt: skip
    return config


def trained(wanted: Variant, seed: int, settings: Settings) -> Path:
    """The run's folder. A finished run is left as it is."""
    config = load_mapping(config_of(wanted, seed, settings))
    run = settings.work / config.name
    if not is_finished(run, config):
        with redirect_stdout(sys.stderr):
            train(config, runs=settings.work, resume=True, progress=False)
    return run


def is_finished(run: Path, config: RunConfig) -> bool:
    """Whether there is nothing to train. A run of another config is not: the training says what has changed."""
    if config.training.max_steps not in RunFolder(run).steps():
        return False
    return load_config(str(run / "config.yaml")).config == config


def scored(run: Path, checkpoint: str = "last", files: tuple[Path, Path] | None = None, **search: Any) -> Evaluated:
    """The scores of a run on the test split, or on two files; greedy unless told otherwise."""
    src, ref = files or (None, None)
    return evaluate(
        run, src=src, ref=ref, checkpoint=checkpoint, save=False, progress=False, **{"beam_size": 1, **search}
    )


def num_parameters(wanted: Variant, settings: Settings, run: Path) -> int:
    """Counted for the vocabularies of the run."""
    config = load_mapping(config_of(wanted, settings.seeds[0], settings))
    src, tgt = load_tokenizers(RunFolder(run).tokenizers, config.tokenizer)
    return model_size(config.model, src.vocab_size, tgt.vocab_size).parameters


def joined_files(work: Path, most: int) -> Path:
    """A folder of files made of the built-in corpus. `train`: lines of 1 to `most` pairs one after the other, as many
    lines of each number, as much text as the corpus has. `test_N`: the test split, N pairs a line.
    """
    folder = work / f"joined_{most}"
    if (folder / "whole").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    pairs = builtin_pairs("train")
    chosen.shuffle(pairs)
    lines, place = [], 0
    while place < len(pairs):
        number = 1 + len(lines) % most
        lines.append(pairs[place : place + number])
        place += number
    parts = {"train": lines}
    test = builtin_pairs("test")
    for number in range(1, DEEPEST_JOIN + 1):
        parts[f"test_{number}"] = [test[start : start + number] for start in range(0, len(test) - number + 1, number)]
    for name, part in parts.items():
        for place, language in enumerate(("en", "es")):
            text = "".join(" ".join(pair[place] for pair in line) + "\n" for line in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    (folder / "whole").touch()
    return folder
