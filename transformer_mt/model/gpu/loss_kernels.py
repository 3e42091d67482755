"""Label-smoothed cross-entropy as a Triton kernel: a row of logits becomes its gradient in place.

A program has one row. If a block holds it, it is read once and written once. A longer row is read twice, the second
time from the GPU's cache: few programs would fit a processor if each held all of it.
"""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit
def _scores(row, columns, num_classes, width):
    """A row's logits in float32, -inf in columns that are no class."""
    # `width` masks the load: it is a multiple of 16, so that a thread may load several numbers at once.
    scores = tl.load(row + columns, mask=columns < width, other=0.0).to(tl.float32)
    return tl.where(columns < num_classes, scores, float("-inf"))


@triton.jit
def _shares(prior, columns, num_classes, width, has_prior: tl.constexpr):
    """What share of the smoothed mass each class has: one number where all have the same."""
    shares = tl.load(prior + columns, mask=columns < width, other=0.0) if has_prior else 1.0 / num_classes
    return shares


@triton.jit
def _mean(scores, shares, columns, num_classes, has_prior: tl.constexpr):
    """Of a block's scores, weighted by the shares."""
    scores = tl.where(columns < num_classes, scores, 0.0)
    mean = tl.sum(scores * shares, 0) if has_prior else tl.sum(scores, 0) * shares
    return mean


@triton.jit
def _store_gradient(row, scores, shares, columns, target, normaliser, smoothing, num_classes, width):
    """softmax - (1 - e) * one-hot - e * share, zeros where there is no class or no target."""
    gradient = tl.exp(scores - normaliser) - smoothing * shares
    gradient = tl.where(columns == target, gradient + (smoothing - 1.0), gradient)
    gradient = tl.where(columns < tl.where(target >= 0, num_classes, 0), gradient, 0.0)
    tl.store(row + columns, gradient.to(row.dtype.element_ty), mask=columns < width)


@triton.jit
def cross_entropy(
    logits, targets, prior, losses, nlls, smoothing, num_classes, width,
    block: tl.constexpr, whole: tl.constexpr, has_prior: tl.constexpr, with_gradient: tl.constexpr,
):  # fmt: skip
    """losses and nlls (num_rows,) in float32 of logits (num_rows, width), of which `num_classes` columns are classes;
    0 where the target is negative. Then `logits` holds the gradients of the losses, if `with_gradient`.

    prior (width,), zeros behind the classes. `whole`: a block holds all of a row; other rows are read twice.
    """
    number = tl.program_id(0)
    row = logits + number.to(tl.int64) * width
    target = tl.load(targets + number).to(tl.int32)
    # The target's score comes from registers: other warps may have written their gradients when this one would read.
    if whole:
        columns = tl.arange(0, block)
        scores = _scores(row, columns, num_classes, width)
        shares = _shares(prior, columns, num_classes, width, has_prior)
        largest = tl.max(scores, 0)
        total = tl.sum(tl.exp(scores - largest), 0)
        at_target = tl.sum(tl.where(columns == target, scores, 0.0), 0)
        mean = _mean(scores, shares, columns, num_classes, has_prior)
        normaliser = largest + tl.log(total)
        if with_gradient:
            _store_gradient(row, scores, shares, columns, target, normaliser, smoothing, num_classes, width)
    else:
        largest = float("-inf")
        total = 0.0
        at_target = 0.0
        mean = 0.0
        for at in range(0, num_classes, block):
            columns = at + tl.arange(0, block)
            scores = _scores(row, columns, num_classes, width)
            shares = _shares(prior, columns, num_classes, width, has_prior)
            newest = tl.maximum(largest, tl.max(scores, 0))
            total = total * tl.exp(largest - newest) + tl.sum(tl.exp(scores - newest), 0)
            at_target += tl.sum(tl.where(columns == target, scores, 0.0), 0)
            mean += _mean(scores, shares, columns, num_classes, has_prior)
            largest = newest
        normaliser = largest + tl.log(total)
        if with_gradient:
            for at in range(0, width, block):
                columns = at + tl.arange(0, block)
                scores = _scores(row, columns, num_classes, width)
                shares = _shares(prior, columns, num_classes, width, has_prior)
                _store_gradient(row, scores, shares, columns, target, normaliser, smoothing, num_classes, width)
    nll = normaliser - at_target
    loss = (1.0 - smoothing) * nll + smoothing * (normaliser - mean)
    tl.store(nlls + number, tl.where(target >= 0, nll, 0.0))
    tl.store(losses + number, tl.where(target >= 0, loss, 0.0))
