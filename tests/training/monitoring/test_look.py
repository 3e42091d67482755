"""What a validation looks at beside its scores."""

from pathlib import Path

import pytest
import torch
from torch import nn
from toy import toy_config
from translators import SMALL, make_translator

from transformer_mt.training.monitoring.look import every_word_comes, unmoved_rows


@torch.enable_grad()
def test_rows_that_every_vocabulary_has_do_not_count_as_unmoved() -> None:
    """Of 300 rows 30 move. Under subwords 256 bytes and 4 special tokens are there whatever the text."""
    tables = [nn.Embedding(300, 2), nn.Embedding(5, 2)]
    model = nn.ModuleList(tables)
    optimizer = torch.optim.Adam(model.parameters())
    assert unmoved_rows(model, optimizer, 4, joint=False) is None
    for table in tables:
        table(torch.arange(len(table.weight) // 10)).square().sum().backward()
    optimizer.step()
    assert unmoved_rows(model, optimizer, 0, joint=False) == {"0": 0.9, "1": 1.0}
    assert unmoved_rows(model, optimizer, 4, joint=False) == {"0": pytest.approx(266 / 296, abs=1e-4), "1": 1.0}
    assert unmoved_rows(model, optimizer, 260, joint=False) == {"0": 0.25, "1": 0.0}


@torch.enable_grad()
def test_words_of_one_language_move_in_one_table_of_a_joint_vocabulary() -> None:
    model = nn.ModuleList([nn.Embedding(10, 2), nn.Embedding(10, 2)])
    optimizer = torch.optim.Adam(model.parameters())
    for table, words in zip(model, (range(5), range(3, 9)), strict=True):
        table(torch.tensor(words)).square().sum().backward()
    optimizer.step()
    assert unmoved_rows(model, optimizer, 0, joint=False) == {"0": 0.5, "1": 0.4}
    assert unmoved_rows(model, optimizer, 0, joint=True) == {"0": 0.1, "1": 0.1}
    other = torch.optim.Adam(model[0].parameters())
    other.step()
    assert unmoved_rows(model, other, 0, joint=False) == {"0": 0.5}
    assert unmoved_rows(model, other, 0, joint=True) is None, "the other table is frozen"


@torch.enable_grad()
@pytest.mark.parametrize("positions", ["learned", "relative_bias"])
def test_positions_that_no_sentence_reaches_are_no_words(positions: str) -> None:
    """A pre-training with 64 learned positions on lines of ten words was told that its vocabulary is too large."""
    model = make_translator({**SMALL, "positions": positions, "max_len": 60}).model.train()
    optimizer = torch.optim.Adam(model.parameters())
    rows = torch.arange(4, 16).repeat(2, 1)
    model.hidden_states(rows, rows).square().sum().backward()
    optimizer.step()
    found = unmoved_rows(model, optimizer, 4, joint=False)
    assert found
    assert not [name for name in found if "positions" in name]


PAIRS = {"src": "train.en", "tgt": "train.es"}


@pytest.mark.parametrize(
    ("sections", "comes"),
    [
        ({}, True),
        ({"data": {"train": [{**PAIRS, "weight": 1}, {**PAIRS, "weight": 99}]}}, False),
        ({"training": {"init_from": "runs/old"}}, False),
        ({"training": {"init_from": {"run": "runs/old", "vocabulary": "extend"}}}, False),
        ({"training": {"init_from": {"run": "runs/old", "vocabulary": "new", "parts": ["encoder"]}}}, True),
    ],
)
def test_an_epoch_need_not_bring_every_word(sections: dict, comes: bool) -> None:
    """With shares a large source may take many epochs to pass, and a kept vocabulary is that of other text."""
    assert every_word_comes(toy_config(Path("data"), **sections)) == comes
