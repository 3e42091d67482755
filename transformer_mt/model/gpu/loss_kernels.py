"""Label-smoothed cross-entropy as a Triton kernel: a row of logits becomes its gradient in place.

A program reads its row twice, a block at a time. The second time it finds the row in the GPU's cache, so that memory is
read once and written once.
"""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit
def cross_entropy(
    logits, targets, prior, losses, nlls, smoothing, num_classes, width,
    block: tl.constexpr, has_prior: tl.constexpr, with_gradient: tl.constexpr,
):  # fmt: skip
    """losses and nlls (num_rows,) of logits (num_rows, width), of which `num_classes` columns belong to the vocabulary;
    0 where the target is negative. Then `logits` holds the gradients of the losses, if `with_gradient`.
    """
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * width
    target = tl.load(targets + row)
    largest = float("-inf")
    total = 0.0
    smooth = 0.0
    for at in range(0, num_classes, block):
        columns = at + tl.arange(0, block)
        inside = columns < num_classes
        scores = tl.load(start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        newest = tl.maximum(largest, tl.max(scores, 0))
        total = total * tl.exp(largest - newest) + tl.sum(tl.exp(scores - newest), 0)
        largest = newest
        share = tl.load(prior + columns, mask=inside, other=0.0) if has_prior else 1.0 / num_classes
        smooth += tl.sum(tl.where(inside, scores, 0.0) * share, 0)
    normaliser = largest + tl.log(total)
    counts = target >= 0
    nll = normaliser - tl.load(start + target, mask=counts, other=0.0).to(tl.float32)
    loss = (1.0 - smoothing) * nll + smoothing * (normaliser - smooth)
    tl.store(nlls + row, tl.where(counts, nll, 0.0))
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    if with_gradient:
        for at in range(0, width, block):
            columns = at + tl.arange(0, block)
            inside = columns < num_classes
            scores = tl.load(start + columns, mask=inside, other=float("-inf")).to(tl.float32)
            share = tl.load(prior + columns, mask=inside, other=0.0) if has_prior else 1.0 / num_classes
            gradient = tl.exp(scores - normaliser) - smoothing * share
            gradient = tl.where(columns == target, gradient + (smoothing - 1.0), gradient)
            gradient = tl.where(inside & counts, gradient, 0.0)
            tl.store(start + columns, gradient.to(logits.dtype.element_ty), mask=columns < width)
