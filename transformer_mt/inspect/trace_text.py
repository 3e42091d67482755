"""A trace as text for a terminal: the way of one token from its embedding to the next word."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.errors import UserError
from transformer_mt.inspect.stack_trace import RecurrentTrace, StackTrace, SublayerTrace
from transformer_mt.inspect.text_table import GAP, Paint, column_blocks, column_width, fit, width_of, wrapped
from transformer_mt.inspect.trace import Candidate, StepTrace, Trace
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.parts.positions import POSITIONS
from transformer_mt.plurals import counted

LABEL = 22  # cells before the numbers of a vector
NAME = 14  # cells before a row of weights
CELL = 8  # a number of a vector
WORD = 9  # a word over a column, at most
SUBLAYERS = {"self_attn": "self-attention", "cross_attn": "cross-attention", "feed_forward": "feed-forward"}


@dataclass(frozen=True)
class View:
    """The choice of what is shown. All count from 0: the position `token` whose vectors are shown in each stack; the
    `layer` of each stack, None for all; the `head` of which all rows are shown, None for the token's row of every head.
    `width` is in cells.
    """

    token: int = 1
    layer: int | None = None
    head: int | None = None
    width: int = 100
    colour: bool = False


def _check_view(trace: Trace, view: View) -> None:
    """UserError where the trace has no such token, layer or head."""
    num_heads = 1
    if isinstance(trace.stacks[0], RecurrentTrace):
        if view.layer is not None:
            raise UserError("--layer is set, and a recurrent network shows the states of all its layers. Leave it out.")
    else:
        num_heads = next(len(part.weights) for part in trace.stacks[0].layers[0] if part.weights is not None)
    lengths = {stack.name: len(stack.tokens) for stack in trace.stacks}
    depths = {stack.name: len(stack.layers) for stack in trace.stacks}
    for name, wanted, numbers in (
        ("token", view.token, lengths),
        ("layer", view.layer, depths),
        ("head", view.head, {"attention": num_heads}),
    ):
        last = max(numbers.values()) - 1
        if wanted is not None and not 0 <= wanted <= last:
            there = " and ".join(f"{number} in the {where}" for where, number in numbers.items())
            raise UserError(f"--{name} is {wanted}, and there are {there}, counted from 0. Use 0 to {last}.")


def trace_lines(trace: Trace, view: View) -> Iterator[str]:
    """The lines of the page, none wider than `view.width`. UserError where there is no such token, layer or head."""
    _check_view(trace, view)
    page = _Page(trace, view)
    yield from page.opening()
    for stack in trace.stacks:
        yield from page.embedding(stack)
        yield from page.layers(stack)
        yield from page.ending(stack)
    yield from page.steps()
    yield from page.sizes()


class _Page:
    """The parts of a page, in the order in which a reader meets them."""

    def __init__(self, trace: Trace, view: View) -> None:
        self.trace = trace
        self.view = view
        self.paint = Paint(view.colour)
        self.norm = NORMS[trace.norm].description
        self.num_values = (view.width - LABEL - CELL - GAP) // CELL

    def opening(self) -> Iterator[str]:
        size = self.trace.stacks[0].sum.size(1)
        shown = min(self.num_values, size)
        yield from self._wrapped(f"{self.trace.sentence}  ->  {self.trace.translation}", self.paint.strong)
        about = f"Everything counts from 0. Of a vector: the first {shown} of its {size} values, and its norm |x|."
        if len(self.trace.stacks) == 1:
            about += " Source and target are one stream: there is no encoder and no memory."
        yield from self._wrapped(about, self.paint.dim)

    def embedding(self, stack: StackTrace) -> Iterator[str]:
        """The lines on a stack's tokens, and on what is added up to the vector of one of them."""
        yield from self._heading(f"{stack.name}: tokens", f"{len(stack.tokens)}")
        yield from self._token_table(stack)
        token = self._token(stack)
        yield ""
        if self.view.token >= len(stack.tokens):
            yield from self._wrapped(f"The {stack.name} has no token {self.view.token}; this is its last.")
        yield self._values_head(f"token {token} {stack.tokens[token]}")
        yield self._values("embedding", stack.embedding[token])
        size = "d_embedding" if isinstance(stack, RecurrentTrace) else "d_model"
        if not torch.equal(stack.scaled, stack.embedding):  # patches are taken as they are
            yield self._values(f"  x √{size} = {stack.embedding.size(1) ** 0.5:.4g}", stack.scaled[token])
        if isinstance(stack, RecurrentTrace):
            return
        kind = self.trace.positions
        yield from self._wrapped(f"positions {kind}: {POSITIONS[kind].description}", self.paint.dim)
        if stack.position is not None:
            yield self._values(f"  + position {token}", stack.position[token])
            yield self._values("  = sum", stack.sum[token])

    def layers(self, stack: StackTrace) -> Iterator[str]:
        """The lines on each layer of a stack, or on the one that is looked at."""
        if isinstance(stack, RecurrentTrace):
            yield from self._states(stack)
            return
        chosen = range(len(stack.layers)) if self.view.layer is None else [self.view.layer]
        for index in chosen:
            if index < len(stack.layers):
                yield from self._layer(stack, index)
            else:
                yield from self._wrapped(f"The {stack.name} has no layer {index}.")

    def _states(self, stack: RecurrentTrace) -> Iterator[str]:
        token = self._token(stack)
        yield from self._heading(f"{stack.name}: states", "")
        yield self._values_head(f"token {token} {stack.tokens[token]}")
        for name, vectors in stack.states.items():
            yield self._values(name, vectors[token])
        if stack.weights is not None:
            yield self.paint.heading("attention to the source") + self.paint.dim(f"  weights {_shape(stack.weights)}")
            yield from self._weights(stack, stack.weights, self.trace.src_tokens, token)

    def _layer(self, stack: StackTrace, index: int) -> Iterator[str]:
        token, sublayers = self._token(stack), stack.layers[index]
        yield from self._heading(f"{stack.name}, layer {index}", _shape(sublayers[0].input))
        yield self._values_head(f"token {token} {stack.tokens[token]}")
        yield self._values("comes in", sublayers[0].input[token])
        for sublayer in sublayers:
            yield from self._sublayer(stack, sublayer, token)

    def _sublayer(self, stack: StackTrace, sublayer: SublayerTrace, token: int) -> Iterator[str]:
        shapes = _shape(sublayer.added)
        if sublayer.weights is not None:
            shapes += f", weights {_shape(sublayer.weights)}"
        yield self.paint.heading(SUBLAYERS[sublayer.name]) + self.paint.dim(f"  {shapes}")
        total = self._values("  = sum", sublayer.sum[token])
        if sublayer.norm_position == "pre":
            yield self._values(f"  {self.norm} before", sublayer.normed[token])
        yield self._values("  + what it adds", sublayer.added[token])
        yield total
        if sublayer.norm_position == "post":
            yield self._values(f"  {self.norm} after", sublayer.normed[token])
        if sublayer.experts is not None:
            chosen, shares = sublayer.experts.chosen[token].tolist(), sublayer.experts.weights[token].tolist()
            given = ", ".join(f"{expert} ({share:.2f})" for expert, share in zip(chosen, shares, strict=True))
            yield from self._wrapped(f"experts of this token, with their weights: {given}")
        if sublayer.weights is not None:
            keys = self.trace.src_tokens if sublayer.name == "cross_attn" else stack.tokens
            yield from self._weights(stack, sublayer.weights, keys, token)

    def _weights(self, stack: StackTrace, weights: Tensor, keys: Sequence[str], token: int) -> Iterator[str]:
        """The chosen token's row of each head, without the keys that are hidden from it; or all rows of the chosen
        head, with a dot for a hidden key.
        """
        if self.view.head is None:
            corner, rows = f"  of {stack.tokens[token]}", weights[:, token]
            names, seen = [f"head {head}" for head in range(len(rows))], rows.sum(dim=0).nonzero().flatten().tolist()
        else:
            corner, rows = f"  head {self.view.head}", weights[self.view.head]
            names, seen = list(stack.tokens), list(range(len(keys)))
        width = column_width([keys[key] for key in seen], WORD)
        for block in column_blocks(len(seen), width, self.view.width - NAME):
            shown = [seen[column] for column in block]
            yield self.paint.dim(fit(corner, NAME) + "".join(" " * GAP + fit(keys[key], width, True) for key in shown))
            for name, row in zip(names, rows.tolist(), strict=True):
                yield fit(f"  {name}", NAME) + "".join(self._weight(row[key], max(row), width) for key in shown)

    def _weight(self, weight: float, largest: float, width: int) -> str:
        cell = " " * GAP + fit("·" if weight == 0 else f"{weight:.2f}", width, True)
        return self.paint.strong(cell) if weight == largest else self.paint.dim(cell) if weight < 0.005 else cell

    def ending(self, stack: StackTrace) -> Iterator[str]:
        """The lines on what comes behind a stack's last layer."""
        if stack.name == "encoder":
            yield from self._heading("memory: what the decoder sees of the source", _shape(stack.output))
            norm = (
                f"after the encoder's final {self.norm}"
                if stack.final_norm
                else "both directions side by side"
                if isinstance(stack, RecurrentTrace)
                else "the last layer's output, no further norm"
            )
            yield self._values_head(norm)
            for position, (token, vector) in enumerate(zip(stack.tokens, stack.output, strict=True)):
                yield self._values(f"{position:3} {token}", vector)
            return
        token = self._token(stack)
        yield from self._heading("what comes out", _shape(stack.output))
        yield self._values_head(f"token {token} {stack.tokens[token]}")
        last = "readout" if isinstance(stack, RecurrentTrace) else "last layer's output"
        yield self._values(f"final {self.norm}" if stack.final_norm else last, stack.output[token])
        yield self.paint.dim(f"logits of the target positions: {_shape(self.trace.logits)}")

    def steps(self) -> Iterator[str]:
        size = self.trace.beam_size
        search = "greedy search" if size == 1 else f"the best translation that a beam of {size} finds"
        yield from self._heading(f"{search}, step by step", f"{len(self.trace.steps)} steps")
        about = "Each step: the token fed; the token taken; the source token that the last layer attends to most, over "
        yield from self._wrapped(about + "the mean of its heads. Below, the likeliest next tokens.", self.paint.dim)
        for index, step in enumerate(self.trace.steps):
            yield from self._step(index, step)

    def _step(self, index: int, step: StepTrace) -> Iterator[str]:
        look = "looks at no source token"
        if step.source_position is not None:
            source = f"{step.source_position} {self.trace.src_tokens[step.source_position]}"
            look = f"looks at {fit(source, 16)} {step.source_weight:.2f}"
        yield f"{index:3}  {fit(step.fed, 16)}  ->  {self.paint.strong(fit(step.taken.token, 16))}  {look}"
        width = min(22, (self.view.width - 5) // len(step.best) - GAP)
        cells = (self._candidate(candidate, step, width) for candidate in step.best)
        yield " " * 5 + (" " * GAP).join(cells)
        if step.taken not in step.best:
            yield f"     taken by the rules of the search: {self._candidate(step.taken, step, width)}"

    def _candidate(self, candidate: Candidate, step: StepTrace, width: int) -> str:
        cell = f"{fit(candidate.token, width - 6)} {candidate.probability:.3f}"
        return self.paint.strong(cell) if candidate.id == step.taken.id else cell

    def sizes(self) -> Iterator[str]:
        """The lines on sizes of residuals, parameters and operations, by the parts of the model."""
        census = self.trace.residuals
        if census:
            yield from self._residuals(census)
        yield from self._heading("parameters, and operations for this sentence", "")
        yield self.paint.dim(f"{'':{LABEL}}{'parameters':>16}{'FLOPs':>28}")
        for part, parameters in self.trace.parameters.items():
            yield self._size(part, parameters, self.trace.flops.get(part, 0))
        yield self._size("all", sum(self.trace.parameters.values()), sum(self.trace.flops.values()))
        for part, owner in self.trace.shared_parameters.items():
            yield from self._wrapped(f"{part} shares the parameters of {owner}.")
        rule = (
            "FLOPs: the source is computed once, then each target token, over the cache. Matrix products count, a "
            "multiply-add is 2."
        )
        yield from self._wrapped(rule, self.paint.dim)

    def _residuals(self, census: dict[str, list[int]]) -> Iterator[str]:
        yield from self._heading("residual connections", "")
        parts = (
            f"{name}: {counted(len(layers), 'layer')} x {' or '.join(map(str, sorted(set(layers))))} = {sum(layers)}"
            for name, layers in census.items()
        )
        yield from self._wrapped(f"{', '.join(parts)}; together {sum(map(sum, census.values()))}")

    def _size(self, part: str, parameters: int, flops: int) -> str:
        line = f"{fit(part, LABEL)}{parameters:16,}{parameters / sum(self.trace.parameters.values()):8.1%}"
        return line + (f"{flops:20,}{flops / sum(self.trace.flops.values()):8.1%}" if flops else "")

    # The pieces of which all parts are made

    def _token(self, stack: StackTrace) -> int:
        return min(self.view.token, len(stack.tokens) - 1)

    def _heading(self, text: str, shape: str) -> Iterator[str]:
        yield ""
        right = f" {shape}" if shape else ""
        rule = "─" * (self.view.width - width_of(text) - 4 - len(right))
        yield self.paint.heading(f"── {text} ") + self.paint.dim(rule + right)

    def _values_head(self, label: str) -> str:
        return self.paint.dim(fit(label, self.view.width - CELL) + f"{'|x|':>{CELL}}")

    def _values(self, label: str, vector: Tensor) -> str:
        values = "".join(_number(value) for value in vector[: self.num_values].tolist())
        rest = " …" if len(vector) > self.num_values else "  "
        line = fit(fit(label, LABEL) + values + rest, self.view.width - CELL)
        return line + self.paint.strong(_number(float(vector.double().norm())))

    def _token_table(self, stack: StackTrace) -> Iterator[str]:
        width = column_width(stack.tokens, 14)
        for block in column_blocks(len(stack.tokens), width, self.view.width - 10):
            for label, cells in (
                ("position", [str(position) for position in block]),
                ("token", [stack.tokens[position] for position in block]),
                ("id", [str(stack.ids[position]) for position in block]),
            ):
                line = fit(label, 10) + "".join(" " * GAP + fit(cell, width, True) for cell in cells)
                yield self.paint.strong(line) if label == "token" else line

    def _wrapped(self, text: str, paint: Callable[[str], str] = str) -> Iterator[str]:
        """A sentence on as many lines as it needs."""
        for line in wrapped(text, self.view.width):
            yield paint(line)


def _number(value: float) -> str:
    """A number in CELL cells, the first of them blank, with as many digits as fit."""
    short = f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return next(text for text in (f"{value:.3f}", f"{value:.1f}", short) if len(text) < CELL).rjust(CELL)


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))
