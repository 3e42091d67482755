"""How often an update asks the device for a number or for a shape that depends on numbers.

On a GPU each such question makes the process wait until everything that it has ordered is done, so there an update asks
nothing before the next one is ordered. Here, on a CPU, questions are counted: by what Python asks of tensors, and by
the operations whose result has a shape that nobody knows before.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from toy import toy_config

from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.model.cpu import attention as cpu_attention
from transformer_mt.model.cpu import chunked_loss
from transformer_mt.model.loss import batch_loss
from transformer_mt.training import updates
from transformer_mt.training.running_update import RunningUpdate
from transformer_mt.training.updates import Updater

CPU = torch.device("cpu")

ASKED = {"tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__"}
OF_UNKNOWN_SHAPE = {"_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "bincount", "equal",
                    "repeat_interleave", "is_nonzero"}  # fmt: skip


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numba has nothing to do, to which numbers on a CPU are handed over."""
    monkeypatch.setattr(chunked_loss, "kernels_for", lambda dtype: None)
    monkeypatch.setattr(cpu_attention, "loaded_kernels", lambda: None)


class Asked(TorchFunctionMode):
    """Counts what Python asks of tensors; `tolist` never reaches the operations."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if (name := getattr(func, "__name__", "")) in ASKED:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Counts operations that end in the memory of the CPU, or whose shape depends on numbers, masks as indices too."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in OF_UNKNOWN_SHAPE or by_mask:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def asked_by(work) -> Counter[str]:
    counts: Counter[str] = Counter()
    with Asked(counts), Operations(counts):
        work()
    # Without the mode for Python, `item` is counted once more as the operation that it is.
    return counts - Counter({"_local_scalar_dense": counts["item"] + counts["__int__"] + counts["__float__"]})


SHAPES = {
    "pre": {},
    "post": {"norm_position": "post", "tie_embeddings": "all"},
    "window": {"attention_window": 3, "positions": "relative_bias"},
    "decoder_only": {"architecture": "decoder_only", "num_encoder_layers": 0, "positions": "rotary"},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num", [1, 3])
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "in_step"])
def test_an_update_asks_once_however_many_micro_batches_it_has(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, shape: str, num: int, ahead: bool
) -> None:
    """Only for its result, where we run ahead. Without dropout, whose random numbers a CPU has from elsewhere."""
    monkeypatch.setattr(updates, "RUNS_AHEAD", ("cpu",) if ahead else ())
    config = toy_config(corpus, tokenizer={"joint": True}, model={**SHAPES[shape], "dropout": 0.0})
    data = prepare_data(config)
    updater = Updater(
        build_model(config, data.src_tokenizer, data.tgt_tokenizer), config.training, config.seed, "bf16", CPU
    )
    micro_batches = [np.arange(8 * i, 8 * i + 8) for i in range(num)]
    batches = [data.train.batch(rows) for rows in micro_batches]
    for step in (1, 2):  # the first makes the optimizer's moments
        ordered: list[RunningUpdate] = []

        def update(step: int = step, ordered: list[RunningUpdate] = ordered) -> None:
            ordered.append(updater.update(data.train, micro_batches, step, "", lambda part: batches[part.index]))

        once = Counter(tolist=1)
        assert asked_by(update) == (Counter() if ahead else once)
        assert asked_by(lambda ordered=ordered: ordered[0].result()) == (once if ahead else Counter())


@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_is_ordered_of_a_device_that_can_answer_nothing(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """torch's meta device, whose tensors have no numbers, goes the way of a GPU through the model, dropout and all; it
    has no kernel of Adam's. What would bring a number to the CPU, or mix it with one that lies there, raises.
    """
    monkeypatch.setattr(updates, "RUNS_AHEAD", ("meta",))
    is_enabled = torch.is_autocast_enabled
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device != "meta" and is_enabled(device))
    config = toy_config(corpus, tokenizer={"joint": True}, model={**SHAPES[shape], "dropout": 0.2})
    data = prepare_data(config)
    meta = torch.device("meta")
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer).to(meta)
    updater = Updater(model, config.training, config.seed, "fp32", meta)
    monkeypatch.setattr(updater.optimizer, "step", lambda: None)
    ordered = updater.update(data.train, [np.arange(8), np.arange(8, 16)], 1, "")
    assert all(p.grad is not None and p.grad.is_meta for p in model.parameters())
    with pytest.raises(NotImplementedError, match="meta"):
        ordered.result()


def test_a_question_that_is_there_is_counted(corpus: Path) -> None:
    """The loss without the places of real tokens, and what else would make a GPU wait."""
    config = toy_config(corpus, model={"dropout": 0.0})
    data = prepare_data(config)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
    batch = data.train.batch(np.arange(8))
    assert asked_by(lambda: batch_loss(model, batch.src, batch.tgt_in, batch.tgt_out, 0.1)) == Counter(nonzero=1)
    assert asked_by(lambda: batch.src[batch.src == 0]).total() == 1
    assert asked_by(lambda: bool(batch.src.sum() > 3)).total() >= 1
    assert asked_by(lambda: batch.src.sum().item()).total() >= 1
