"""A model that no memory would hold is refused before it is made."""

from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage], documented there
from toy import toy_config

from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import memory
from transformer_mt.machine.memory import memory_of_machine
from transformer_mt.machine.world import World
from transformer_mt.model.model_size import model_size
from transformer_mt.training.memory import fits_memory as model_room
from transformer_mt.training.memory.fits_memory import refuse_what_never_fits

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
VOCAB_SIZES = 50, 60


def config_of(folder: Path, model: dict, **training: object) -> RunConfig:
    return toy_config(folder, model=model, training={"max_tokens": 2**31 - 1, **training})


@pytest.mark.parametrize(
    ("device", "world", "sharding", "numbers_a_weight"),
    [
        (CPU, World(), "none", 4),
        (CPU, World(), "full", 4),
        (CPU, World(0, 2, store=HashStore()), "none", 4),
        (CPU, World(0, 2, store=HashStore()), "full", 1),
        (CUDA, World(), "none", 1),
    ],
)
def test_what_fits_to_the_byte_is_trained_and_what_does_not_is_refused(
    device: torch.device, world: World, sharding: str, numbers_a_weight: int, tmp_path: Path, monkeypatch
) -> None:
    config = config_of(tmp_path, {}, sharding=sharding)
    parameters, tables = model_size(config.model, *VOCAB_SIZES)
    needed = 4 * (numbers_a_weight * parameters + tables)
    monkeypatch.setattr(model_room, "memory_of_machine", lambda: needed)
    refuse_what_never_fits(config, *VOCAB_SIZES, device, world)
    monkeypatch.setattr(model_room, "memory_of_machine", lambda: needed - 1)
    with pytest.raises(UserError, match=f"^This model has {parameters:,} parameters"):
        refuse_what_never_fits(config, *VOCAB_SIZES, device, world)
    monkeypatch.setattr(model_room, "memory_of_machine", lambda: None)
    refuse_what_never_fits(config, *VOCAB_SIZES, device, world)


def test_the_sentence_says_what_it_is_and_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_room, "memory_of_machine", lambda: 8 * 2**30)
    config = config_of(tmp_path, {"max_len": 10**9})
    parameters, tables = model_size(config.model, *VOCAB_SIZES)
    with pytest.raises(UserError) as refused:
        refuse_what_never_fits(config, *VOCAB_SIZES, CPU, World())
    assert str(refused.value) == (
        f"This model has {parameters:,} parameters and {tables:,} numbers in its tables of positions. Training it "
        f"takes {4 * (4 * parameters + tables) / 2**30:,.1f} GiB at least, and this machine has 8.0 GiB. Lower "
        "model.d_model, model.d_ff, the numbers of layers, model.max_len or tokenizer.vocab_size."
    )
    store = HashStore()
    for rank, error in ((0, UserError), (1, ToldElsewhereError)):
        with pytest.raises(error):
            refuse_what_never_fits(config, *VOCAB_SIZES, CPU, World(rank, 2, store=store))


def test_a_container_has_what_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (limit,))
    everything = memory_of_machine()
    if everything is None:
        pytest.skip("this system does not say how much memory it has")
    for text, expected in (("max\n", everything), ("1073741824\n", 2**30), (f"{2**62}\n", everything)):
        limit.write_text(text)
        assert memory_of_machine() == expected
