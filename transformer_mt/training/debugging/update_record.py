"""The files of an update that is to be replayed: `debug/step_N.safetensors`, and its weights beside it.

The ids are tensors; everything else is JSON in the header of the same file. There is no pickle.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, int64, nn, uint8

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.errors import UserError
from transformer_mt.paths import is_file
from transformer_mt.storage.files import make_file, replace_file
from transformer_mt.storage.weights import save_tensors, unique_weights

HEADER = "tmt_update"
SIDES = ("src", "tgt_in", "tgt_out")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartRecord(_Frozen):
    """Part `number` of micro-batch `index` of the update (see `Part`), and the place of each pair in the data."""

    index: int
    number: int
    origins: list[str]


class UpdateRecord(_Frozen):
    """Everything that a replay needs beside ids and weights, and why the update was kept.

    `reason` says what was not finite and where in the data, `finding` where in the model.
    """

    reason: str
    finding: str
    step: int
    seed: int
    label_smoothing: float
    prior: list[float] | None = None  # by which targets are smoothed; None: uniform
    consistency: ConsistencyConfig | None = None
    loss_scale: float
    num_tokens: int
    computed_with: dict[str, str | int | bool]
    parts: list[PartRecord]


def weights_path(path: Path) -> Path:
    """The path of the weights of a recorded update."""
    return path.with_name(f"{path.stem}_weights{path.suffix}")


def write_record(path: Path, record: UpdateRecord, batches: list[Batch]) -> None:
    """Write an update, its ids as int64 (rows, length). Raises OSError."""
    tensors = {f"{i}.{side}": getattr(batch, side).cpu() for i, batch in enumerate(batches) for side in SIDES}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, save(tensors, metadata={HEADER: record.model_dump_json()}))


def write_weights(path: Path, model: nn.Module) -> None:
    """Write the weights of the update at `path`, whole or not at all. Raises OSError."""
    make_file(weights_path(path), lambda file: save_tensors(unique_weights(model), file))


def read_record(path: Path) -> tuple[UpdateRecord, list[Batch]]:
    """Read what `write_record` wrote. Raises UserError where the file is missing, damaged or something else."""
    if not is_file(path):
        raise UserError(f"There is no file {path}. Training writes one to runs/NAME/debug when a loss is not finite.")
    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged, or no safetensors file ({error}). Give another.") from error
    if header is None:
        raise UserError(f"{path} holds no update. Give a file of runs/NAME/debug, such as step_7.safetensors.")
    try:
        record = UpdateRecord.model_validate_json(header)
        batches = [_batch(tensors, i, len(part.origins)) for i, part in enumerate(record.parts)]
        if not batches or len(tensors) != len(SIDES) * len(batches):
            raise ValueError("its tensors are not those of its header")
    except (ValidationError, ValueError, KeyError) as error:
        what = str(error).split("\n")[0]
        raise UserError(f"{path} is damaged, or of another version of tmt ({what}). Give another.") from error
    return record, batches


def _batch(tensors: dict[str, Tensor], index: int, num_rows: int) -> Batch:
    src, tgt_in, tgt_out = (tensors[f"{index}.{side}"] for side in SIDES)
    of_patches = src.dim() == 3 and src.dtype == uint8
    for ids in (tgt_in, tgt_out) if of_patches else (src, tgt_in, tgt_out):
        if ids.dtype != int64 or ids.dim() != 2 or len(ids) != num_rows or ids.numel() == 0 or int(ids.min()) < 0:
            raise ValueError(f"the ids of micro-batch {index} are not those of {num_rows} pairs")
    if of_patches and (len(src) != num_rows or src.numel() == 0):
        raise ValueError(f"the patches of micro-batch {index} are not those of {num_rows} pairs")
    if tgt_in.shape != tgt_out.shape:
        raise ValueError(f"the targets of micro-batch {index} differ in length")
    return Batch.of(src, tgt_in, tgt_out)
