"""A minimal valid configuration, with whole sections replaced."""

from typing import Any

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.schema import RunConfig


def parse(**sections: Any) -> RunConfig:
    """A minimal valid configuration with whole sections replaced."""
    minimal = {
        "name": "probe",
        "data": {"train": [{"src": "train.en", "tgt": "train.es"}], "validation": [{"tsv": "val.tsv"}]},
        "training": {"max_steps": 100},
    }
    return parse_run_config({**minimal, **sections}, "c.yaml")


def data_with(source: dict) -> dict:
    return {"train": [source], "validation": [{"tsv": "val.tsv"}]}
