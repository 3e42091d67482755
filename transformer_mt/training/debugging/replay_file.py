"""`tmt debug batch`: a recorded update replayed, and the result as a page for a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.inspect.text_table import ELLIPSIS, GAP, Paint, wrapped
from transformer_mt.machine.device import choose_device, choose_precision, set_up
from transformer_mt.model.named_parts import freeze
from transformer_mt.paths import is_file
from transformer_mt.storage.checkpoint_files import WEIGHTS, find_checkpoint, way_out_of_damage
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import load_weights
from transformer_mt.training.debugging.replay import (
    Measured,
    MicroBatchReplay,
    Replay,
    finding,
    first_not_finite,
    replay,
)
from transformer_mt.training.debugging.update_record import UpdateRecord, read_record, weights_path

NUMBER, COUNT = 9, 12  # widths of columns, in cells
MARKS = ("  ", "> ")


@dataclass(frozen=True)
class ReplayedFile:
    """`weights` says which weights were taken. `notes` tell what may make the numbers differ from the update's."""

    record: UpdateRecord
    weights: str
    notes: list[str]
    replay: Replay


def replay_file(
    path: Path, run: RunFolder, device: str = "auto", precision: str | None = None, checkpoint: str | None = None
) -> ReplayedFile:
    """Replay an update that a training wrote to `debug`, in the precision of the update unless another is given.

    Raises UserError where a file is missing, damaged or of another run.
    """
    record, batches = read_record(path)
    place = torch.device(choose_device(device).value)
    set_up(place)
    config = read_config(run.config)
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    _refuse_other_runs(path, run, batches, config, (src.vocab_size, tgt.vocab_size))
    wanted = precision or str(record.computed_with["precision"])
    model = build_model(config, src, tgt)
    freeze(model, config.training.freeze)
    weights, name, missing = _weights(path, run, checkpoint)
    with torch.no_grad():
        load_weights(model, weights)
    found = replay(model.to(place), record, batches, choose_precision(wanted, place, config.model.d_model).value)
    then, now = record.computed_with, found.computed_with
    changed = [
        f"note: {name} was {then[name]} and is {now[name]}" for name in now if then.get(name, now[name]) != now[name]
    ]
    return ReplayedFile(record, name, missing + changed, found)


def _refuse_other_runs(
    path: Path, run: RunFolder, batches: list[Batch], config: RunConfig, sizes: tuple[int, int]
) -> None:
    """UserError where the batches have ids or positions that the run's model has not."""
    largest = [max(int(ids.max()) for ids in side) for side in zip(*((b.src, b.tgt_out) for b in batches), strict=True)]
    length = max(ids.size(1) for batch in batches for ids in (batch.src, batch.tgt_out))
    if length > config.model.max_len or any(top >= size for top, size in zip(largest, sizes, strict=True)):
        raise UserError(
            f"{path} is not an update of {run.path}: it has tokens or lengths that its model does not know. "
            "Give the run that wrote it with --run."
        )


def _weights(path: Path, run: RunFolder, checkpoint: str | None) -> tuple[Path, str, list[str]]:
    """The file of weights, its name for the page, and a note where it only stands in for a missing one."""
    beside = weights_path(path)
    if checkpoint is None and is_file(beside):
        return beside, "those of the update", []
    folder = find_checkpoint(run, checkpoint or "last")
    check_manifest(folder, [WEIGHTS], way_out_of_damage(run, folder))
    missing = [] if checkpoint else [f"note: there is no {beside}; the weights of the newest checkpoint stand in"]
    return folder / WEIGHTS, f"checkpoint {folder.name}", missing


# The page


def replay_lines(found: ReplayedFile, width: int, colour: bool = False) -> Iterator[str]:
    """The lines of the page, none wider than `width`: each micro-batch module by module, then the gradient."""
    record, paint = found.record, Paint(colour)
    yield from wrapped(record.reason, width)
    yield from wrapped(f"found then: {record.finding}", width)
    yield from wrapped(f"found now:  {finding(found.replay)}", width)
    now, passes = found.replay.computed_with, record.consistency.kind if record.consistency else "none"
    yield from wrapped(
        f"weights: {found.weights}; precision: {now['precision']}; device: {now['device']}; seed: {record.seed}; label "
        f"smoothing: {record.label_smoothing:g}; consistency: {passes}",
        width,
    )
    wrong = [weight for weight in found.replay.weights if weight.num_not_finite]
    if wrong:
        yield ""
        yield from _table("weight", wrong, width, paint)
    for number, done in enumerate(found.replay.micro_batches, start=1):
        yield ""
        yield paint.heading(f"micro-batch {number} of {len(record.parts)}")
        yield from _micro_batch(done, width, paint)
    yield ""
    yield paint.heading(f"gradient of the update, before clipping: norm {found.replay.grad_norm:.4g}")
    yield from _table("parameter", found.replay.gradients, width, paint, norm=True)


def _micro_batch(done: MicroBatchReplay, width: int, paint: Paint) -> Iterator[str]:
    batch = done.batch
    yield from wrapped(
        f"{len(batch.src):,} sentences x {batch.src.size(1):,} source and {batch.tgt_out.size(1):,} target positions, "
        f"{batch.num_tokens:,} target tokens",
        width,
    )
    yield from wrapped(f"first pair: {done.origins[0]}", width)
    yield f"a target token: loss {done.loss / batch.num_tokens:.6g}, nll {done.nll / batch.num_tokens:.6g}"
    yield from _table("output of", done.outputs, width, paint)


def _table(title: str, rows: list[Measured], width: int, paint: Paint, norm: bool = False) -> Iterator[str]:
    """A line for each tensor. The first that is not finite is marked with >."""
    shapes = [" x ".join(map(str, row.shape)) for row in rows]
    shape_width = max(map(len, ["shape", *shapes])) + GAP
    room = width - len(MARKS[0]) - shape_width - NUMBER - COUNT - norm * NUMBER
    names = [_cut(row.name, room) for row in rows]
    room = max(map(len, [title, *names]))
    norm_title = f"{'norm':>{NUMBER}}" if norm else ""
    head = f"{title:{room}}{'shape':>{shape_width}}{norm_title}{'max |x|':>{NUMBER}}{'not finite':>{COUNT}}"
    yield paint.dim(MARKS[0] + head)
    first = first_not_finite(rows)
    for place, (row, name, shape) in enumerate(zip(rows, names, shapes, strict=True)):
        norm_cell = f"{row.norm:>{NUMBER}.1e}" if norm else ""
        line = (
            f"{MARKS[place == first]}{name:{room}}{shape:>{shape_width}}{norm_cell}"
            f"{row.max_abs:>{NUMBER}.1e}{row.num_not_finite:>{COUNT},}"
        )
        yield paint.strong(line) if place == first else line


def _cut(name: str, width: int) -> str:
    """A module's name, without its middle where it is too long: its stack and its end tell most."""
    if len(name) <= width:
        return name
    stack = name.partition(".")[0]
    return stack + ELLIPSIS + name[len(stack) + 1 - width :]
