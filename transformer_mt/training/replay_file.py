"""A recorded update replayed, with the weights that it met or those of a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_mt.config.loading import load_config
from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batching import Batch
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.decoding.checkpoint import WEIGHTS, build_model, find_checkpoint
from transformer_mt.decoding.weights import load_weights
from transformer_mt.errors import UserError
from transformer_mt.machine.device import choose_device, choose_precision, set_up
from transformer_mt.model.cpu.dropout import draws_with_numba
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.micro_batch import dropout_seed, goes_unpadded
from transformer_mt.training.replay import Replay, replay
from transformer_mt.training.update_record import UpdateRecord, read_record, weights_path


@dataclass(frozen=True)
class ReplayedFile:
    """`weights` says which they were. `notes` is what may make the numbers differ from those of the update."""

    record: UpdateRecord
    weights: str
    precision: str
    device: str
    notes: list[str]
    replay: Replay


def replay_file(
    path: Path, run: RunFolder, device: str = "auto", precision: str | None = None, checkpoint: str | None = None
) -> ReplayedFile:
    """Replay what a training wrote to `debug`, in its own precision unless another is given.

    Raises UserError where a file is missing, damaged or of another run.
    """
    record, batches = read_record(path)
    place = torch.device(choose_device(device).value)
    set_up(place)
    config = load_config(str(run.config.resolve())).config
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    _refuse_other_runs(path, run, batches, config, (src.vocab_size, tgt.vocab_size))
    chosen = choose_precision(precision or record.precision, place, config.model.d_model).value
    model = build_model(config, src, tgt)
    weights, name, missing = _weights(path, run, checkpoint)
    with torch.no_grad():
        load_weights(model, weights)
    found = replay(
        model.to(place),
        batches,
        [dropout_seed(record.seed, record.step, part.index, part.number) for part in record.parts],
        record.num_tokens,
        chosen,
        record.label_smoothing,
        record.loss_scale,
    )
    return ReplayedFile(record, name, chosen, str(place), missing + _differences(record, model, place, chosen), found)


def _refuse_other_runs(
    path: Path, run: RunFolder, batches: list[Batch], config: RunConfig, sizes: tuple[int, int]
) -> None:
    """UserError where the run's model has no such ids or positions."""
    largest = [max(int(ids.max()) for ids in side) for side in zip(*((b.src, b.tgt_out) for b in batches), strict=True)]
    length = max(ids.size(1) for batch in batches for ids in (batch.src, batch.tgt_out))
    if length > config.model.max_len or any(top >= size for top, size in zip(largest, sizes, strict=True)):
        raise UserError(
            f"{path} is not an update of {run.path}: it has tokens or lengths that its model does not know. "
            "Give the run that wrote it with --run."
        )


def _weights(path: Path, run: RunFolder, checkpoint: str | None) -> tuple[Path, str, list[str]]:
    """The file, what to call it, and a note where it is not what it should be."""
    beside = weights_path(path)
    if checkpoint is None and beside.is_file():
        return beside, "those of the update", []
    folder = find_checkpoint(run, checkpoint or "last")
    missing = [] if checkpoint else [f"note: there is no {beside}; the weights of the newest checkpoint stand in"]
    return folder / WEIGHTS, f"checkpoint {folder.name}", missing


def _differences(record: UpdateRecord, model: TranslationModel, place: torch.device, precision: str) -> list[str]:
    now = {
        "device": (record.device, str(place)),
        "precision": (record.precision, precision),
        "num_threads": (record.num_threads, torch.get_num_threads()),
        "torch_version": (record.torch_version, str(torch.__version__)),
        "numba": (record.numba, draws_with_numba(place)),
        "unpadded": (record.unpadded, goes_unpadded(model, precision)),
    }
    return [f"note: {name} was {was} and is {here}" for name, (was, here) in now.items() if was != here]
