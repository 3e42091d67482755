"""A toy language for tests that train: numbers in words, the last two of a sentence changing places."""

from pathlib import Path

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.presets import MODELS
from transformer_mt.config.schema import RunConfig

# An encoder alone fills in hidden words.
TRANSLATING = [name for name, model in MODELS.items() if model["architecture"] != "encoder_only"]

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SPANISH = ["uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez"]


def toy_pairs(num: int, seed: int = 0) -> list[tuple[str, str]]:
    """`num` distinct pairs of 2 to 7 words."""
    state, pairs = seed * 7919 + 17, {}
    while len(pairs) < num:
        words = []
        for _ in range(2 + state // 65536 % 6):
            state = (state * 1103515245 + 12345) % 2**31
            words.append(state // 65536 % 10)
        state = (state * 1103515245 + 12345) % 2**31
        turned = [*words[:-2], words[-1], words[-2]]
        pairs[" ".join(ENGLISH[w] for w in words) + "."] = " ".join(SPANISH[w] for w in turned) + "."
    return list(pairs.items())


def write_toy_corpus(folder: Path, num: int = 120) -> Path:
    """train.en, train.es and valid.en, valid.es."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = toy_pairs(num + 20)
    for name, part in (("train", pairs[:num]), ("valid", pairs[num:])):
        for language, side in zip(("en", "es"), zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    return folder


def all_entries(kind: str) -> dict:
    """The setting under which nothing is too rare for an entry; unigram has none, and takes it at its default alone."""
    return {"min_frequency": 2 if kind == "unigram" else 1}


def toy_mapping(folder: Path, **sections: dict) -> dict:
    """A config as YAML would give it; `sections` are merged into it."""
    mapping = {
        "name": "toy",
        "seed": 3,
        "data": {
            "src_lang": "en", "tgt_lang": "es", "root": str(folder),
            "train": [{"src": "train.en", "tgt": "train.es"}], "validation": [{"src": "valid.en", "tgt": "valid.es"}],
        },
        "tokenizer": {"kind": "word", "vocab_size": 100, "min_frequency": 1},
        "model": {
            "d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1,
            "dropout": 0.1, "max_len": 16,
        },
        "training": {
            "max_tokens": 64, "max_steps": 20, "warmup_steps": 10, "checkpoint_every_steps": 10, "log_every_steps": 3,
            "precision": "fp32", "device": "cpu",
        },
        "validation": {"every_steps": 7, "num_translated": 6, "metric": "nll"},
        "decoding": {"beam_size": 2},
    }  # fmt: skip
    for name, values in sections.items():
        mapping[name] = {**mapping[name], **values} if isinstance(values, dict) else values
    if mapping["model"].get("architecture") == "rnn":  # which has no such things, and refuses their keys
        mapping["model"] = {key: value for key, value in mapping["model"].items() if key not in ("d_ff", "num_heads")}
    return mapping


def toy_config(folder: Path, **sections: dict) -> RunConfig:
    """`toy_mapping`, validated."""
    return parse_run_config(toy_mapping(folder, **sections), "toy")
