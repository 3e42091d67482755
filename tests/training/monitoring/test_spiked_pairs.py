"""The pairs of an update whose loss stood out: their nll is that of each alone, in whatever form a pair is read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from toy import toy_config, write_toy_corpus

from transformer_mt.data.noise.epoch_split import split_by_epochs
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.evaluation.nll import batch_nlls
from transformer_mt.training.monitoring.spiked_pairs import spiked_pairs
from transformer_mt.training.running_update import RunningUpdate

MONO = {"train": [{"mono": "train.en"}], "validation": [{"mono": "valid.en"}]}
FORMS: dict[str, dict[str, Any]] = {
    "text": {},
    "picture": {"data": {"source_as": "picture"}, "model": {"patches": {"height": 8, "width": 6}, "max_len": 60}},
    "masked": {
        "data": {**MONO, "noise": {"kind": "masked"}},
        "model": {
            "architecture": "encoder_only",
            "num_decoder_layers": 0,
            "positions": "learned",
            "tie_embeddings": "all",
        },
        "tokenizer": {"joint": True, "masks": 1},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_each_pair_has_the_nll_that_it_has_alone(form: str, tmp_path: Path) -> None:
    config = toy_config(write_toy_corpus(tmp_path), **FORMS[form])
    data = prepare_training_data(config)
    split = split_by_epochs(data, config)
    batches = split.plan(1000, 1, 0).take(0, 2)
    assert max(map(len, batches)) > 32, "more than is computed at once"
    torch.manual_seed(1)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
    update = cast(RunningUpdate, SimpleNamespace(split=split, micro_batches=batches))
    found = spiked_pairs(model, update, data)
    assert model.training
    model.eval()
    alone = {}
    for row in np.concatenate(batches):
        ((nll, num_tokens),) = batch_nlls(model, cast(Any, split), [np.array([row])])
        alone[split.where(int(row))] = nll / num_tokens
    hardest = sorted(alone, key=lambda where: -alone[where])[: len(found)]
    assert len(found) == 50
    assert [pair["nll"] for pair in found] == pytest.approx([alone[where] for where in hardest], rel=1e-3)
    assert all(pair["nll"] == pytest.approx(alone[pair["where"]], rel=1e-3) for pair in found)
    assert all(bool(pair["src"]) == (form != "picture") and pair["tgt"] for pair in found)
