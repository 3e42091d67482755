"""A replayed update as a page for a terminal."""

from collections.abc import Iterator

from transformer_mt.inspect.text_table import ELLIPSIS, GAP, Paint, wrapped
from transformer_mt.training.replay import Measured, MicroBatchReplay, finding, first_not_finite
from transformer_mt.training.replay_file import ReplayedFile
from transformer_mt.training.update_record import PartRecord

NUMBER, COUNT = 9, 12  # cells of columns
MARKS = ("  ", "> ")


def replay_lines(found: ReplayedFile, width: int, colour: bool = False) -> Iterator[str]:
    """The lines of the whole, none wider than `width`: each micro-batch module by module, then the gradient."""
    record, paint = found.record, Paint(colour)
    yield from wrapped(record.reason, width)
    yield from wrapped(f"found then: {record.finding}", width)
    origins = [part.origins for part in record.parts]
    yield from wrapped(f"found now:  {finding(found.replay, origins)}", width)
    yield from wrapped(
        f"weights: {found.weights}; precision: {found.precision}; device: {found.device}; seed: {record.seed}; label "
        f"smoothing: {record.label_smoothing:g}",
        width,
    )
    wrong = [weight for weight in found.replay.weights if weight.num_not_finite]
    if wrong:
        yield ""
        yield from _table("weight", wrong, width, paint)
    for number, (done, part) in enumerate(zip(found.replay.micro_batches, record.parts, strict=True), start=1):
        yield ""
        yield paint.heading(f"micro-batch {number} of {len(record.parts)}")
        yield from _micro_batch(done, part, width, paint)
    yield ""
    yield paint.heading(f"gradient of the update, before clipping: norm {found.replay.grad_norm:.4g}")
    yield from _table("parameter", found.replay.gradients, width, paint, norm=True)


def _micro_batch(done: MicroBatchReplay, part: PartRecord, width: int, paint: Paint) -> Iterator[str]:
    batch = done.batch
    yield from wrapped(
        f"{len(batch.src):,} sentences x {batch.src.size(1):,} source and {batch.tgt_out.size(1):,} target positions, "
        f"{batch.num_tokens:,} target tokens",
        width,
    )
    yield from wrapped(f"first pair: {part.origins[0]}", width)
    yield f"a target token: loss {done.loss / batch.num_tokens:.6g}, nll {done.nll / batch.num_tokens:.6g}"
    yield from _table("output of", done.outputs, width, paint)


def _table(title: str, rows: list[Measured], width: int, paint: Paint, norm: bool = False) -> Iterator[str]:
    """A line a tensor. The first that is not finite is marked with >."""
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
