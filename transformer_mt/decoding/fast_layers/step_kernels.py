"""Passes of a search's step over float32 on a CPU, as numba compiles them: the attention of a few queries, a look at
all logits, and the choice of a greedy search. Torch would go to memory several times.

numba does not see changes of the files that they use: a test compares `PARTS`.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from transformer_mt.config.special_ids import EOS_ID, NUM_SPECIAL, UNK_ID
from transformer_mt.machine.numba_compile import compiled
from transformer_mt.model.cpu.lanes import (
    WIDTH,
    add,
    each,
    each_of,
    exp,
    load,
    maximum,
    maximum_of,
    multiply,
    multiply_add,
    store,
    subtract,
    sum_of,
)

PARTS = "f244be07cfa1491a"  # the beginning of the SHA-256 of lanes.py and special_ids.py
_ZERO, _ONE, _LOWEST = np.float32(0), np.float32(1), np.float32(-np.inf)
_Q, _K, _V = range(3)  # rows of `strides`: for a step to the next sentence, head, row or slot
_FLAT = "float32[::1]"
_SEEN_AT_ONCE = 256  # logits, of which only the largest is found; a second look finds its place


@compiled(f"void({_FLAT}, {_FLAT}, {_FLAT}, int64[:, ::1], float32[:, :, :, :], int64, b1, float32, float32[:, ::1])")
def _attend(q, k, v, strides, bias, group, per_head, scale, out):
    num_sentences, num_heads, num_rows, width = bias.shape
    head_dim = out.shape[1]
    flat = out.reshape(-1)
    seen, biases, scores = np.empty(width, np.int64), np.empty(width, np.float32), np.empty(width + WIDTH, np.float32)
    num_seen = 0
    for s in range(num_sentences):
        for r in range(num_rows):
            for h in range(num_heads):
                if h == 0 or per_head:
                    num_seen = 0
                    for w in range(width):
                        seen[num_seen], biases[num_seen] = w, bias[s, h, r, w]
                        num_seen += bias[s, h, r, w] != _LOWEST
                query = s * strides[_Q, 0] + h * strides[_Q, 1] + r * strides[_Q, 2]
                keys = s * strides[_K, 0] + h // group * strides[_K, 1]
                values = s * strides[_V, 0] + h // group * strides[_V, 1]
                for i in range(num_seen):
                    key, score = keys + seen[i] * strides[_K, 2], each(_ZERO)
                    for d in range(0, head_dim, WIDTH):
                        score = multiply_add(load(q, query + d), load(k, key + d), score)
                    scores[i] = biases[i] + sum_of(score) * scale
                for i in range(num_seen, num_seen + WIDTH):  # so that whole vectors can be taken
                    scores[i] = _LOWEST
                most = each(_LOWEST)
                for i in range(0, num_seen, WIDTH):
                    most = maximum(load(scores, i), most)
                most, total = each(maximum_of(most)), each(_ZERO)
                for i in range(0, num_seen, WIDTH):
                    weights = exp(subtract(load(scores, i), most))
                    total = add(weights, total)
                    store(scores, i, weights)
                share = each(_ONE / sum_of(total))
                here = ((s * num_rows + r) * num_heads + h) * head_dim
                for d in range(0, head_dim, WIDTH):
                    mixed = each(_ZERO)
                    for i in range(num_seen):
                        mixed = multiply_add(each_of(scores, i), load(v, values + seen[i] * strides[_V, 2] + d), mixed)
                    store(flat, here + d, multiply(mixed, share))


@njit(error_model="numpy", forceinline=True)
def _sum_of_powers(flat, start, end, most):
    """Of e^(x - most), for all x from start to end."""
    shift, total, other = each(most), each(_ZERO), each(_ZERO)
    pairs = start + (end - start) // (2 * WIDTH) * (2 * WIDTH)
    whole = start + (end - start) // WIDTH * WIDTH
    for j in range(start, pairs, 2 * WIDTH):  # two sums, of which neither waits for the other
        total = add(exp(subtract(load(flat, j), shift)), total)
        other = add(exp(subtract(load(flat, j + WIDTH), shift)), other)
    if pairs < whole:
        total = add(exp(subtract(load(flat, pairs), shift)), total)
    sum_of_all = sum_of(add(total, other))
    for j in range(whole, end):
        sum_of_all += np.exp(flat[j] - most)
    return sum_of_all


@compiled("void(float32[:, ::1], int64, float32[::1], float32[:, ::1])")
def _survey(logits, first, normalizers, maxima):
    num_rows, width = logits.shape
    num_blocks = maxima.shape[1]
    flat, largest = logits.reshape(-1), maxima.reshape(-1)
    for i in range(num_rows):
        start, end = i * width, (i + 1) * width
        blocks = start + first
        rest = blocks + (width - first) // num_blocks * num_blocks
        top = each(_LOWEST)
        for b in range(0, num_blocks, WIDTH):
            most = load(flat, blocks + b)
            for j in range(blocks + b + num_blocks, rest, num_blocks):
                most = maximum(load(flat, j), most)
            store(largest, i * num_blocks + b, most)
            top = maximum(most, top)
        most = maximum_of(top)
        for j in range(start, blocks):
            most = max(most, flat[j])
        for j in range(rest, end):
            most = max(most, flat[j])
        normalizers[i] = np.log(_sum_of_powers(flat, start, end, most)) + most


_ROWS = "int64[::1], int64[::1], float32[::1], b1[::1], int64[:, ::1]"


@compiled(f"void(float32[:, ::1], {_ROWS}, int64[::1], int64[::1], b1, b1)")
def _choose(logits, tokens, limits, totals, is_over, history, length, report, allow_unk, scored):
    num_rows, width = logits.shape
    flat, now = logits.reshape(-1), length[0]
    for i in range(num_rows):
        start, end = i * width, (i + 1) * width
        words = start + NUM_SPECIAL
        whole = words + (end - words) // _SEEN_AT_ONCE * _SEEN_AT_ONCE
        best, place, no_number = _LOWEST, words, each(_ZERO)
        for block in range(words, whole, _SEEN_AT_ONCE):
            most = each(_LOWEST)
            for j in range(block, block + _SEEN_AT_ONCE, WIDTH):
                value = load(flat, j)
                most = maximum(value, most)
                no_number = multiply_add(value, each(_ZERO), no_number)
            if maximum_of(most) > best:
                best, place = maximum_of(most), block
        while place < whole and flat[place] != best:
            place += 1
        for j in range(whole, end):
            if flat[j] > best:
                best, place = flat[j], j
        is_bad = np.isnan(flat[start + EOS_ID]) or (allow_unk and np.isnan(flat[start + UNK_ID]))
        for j in range(words if np.isnan(sum_of(no_number)) else whole, end):  # the sum is also nan for infinite ones
            is_bad |= np.isnan(flat[j])
        token, top = min(place, end - 1) - start, best  # no logit is the largest where all are nan
        for special in range(NUM_SPECIAL):
            top = max(top, flat[start + special])
        if allow_unk and flat[start + UNK_ID] >= best:
            best, token = flat[start + UNK_ID], UNK_ID
        if flat[start + EOS_ID] >= best or is_over[i] or limits[i] <= now:
            token = EOS_ID
        if scored:
            normalizer = top + np.log(_sum_of_powers(flat, start, end, top))
            is_bad = not np.isfinite(normalizer)
            if not is_over[i]:
                totals[i] += flat[start + token] - normalizer
        report[1] += is_bad and not is_over[i]
        tokens[i] = history[i, now - 1] = token
        is_over[i] = token == EOS_ID
        report[0] += token != EOS_ID


def can_attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> bool:
    """Whether `attend` takes these: float32, in whole vectors."""
    in_vectors = q.size(3) % WIDTH == 0 and all(x.stride(3) == 1 for x in (q, k, v))
    return in_vectors and all(x.dtype == torch.float32 for x in (q, k, v, bias))


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """softmax(q k^T * scale + bias) v, a query at a time. Keys with a bias of -inf are skipped.

    q (sentences, num_heads, rows, head_dim), k and v (sentences, num_kv_heads, key_len, head_dim), bias broadcastable
    to (sentences, num_heads, rows, key_len) -> (sentences, rows, num_heads, head_dim).
    """
    num_sentences, num_heads, num_rows, head_dim = q.shape
    assert len(k) == len(v) == num_sentences, "a sentence has its own keys"
    out = q.new_empty(num_sentences * num_rows * num_heads, head_dim)
    strides = np.array([x.stride()[:3] for x in (q, k, v)], np.int64)
    spread = bias.expand(num_sentences, num_heads, num_rows, k.size(2)).numpy()
    flat = (_flat(x).numpy() for x in (q, k, v))
    _attend(*flat, strides, spread, num_heads // k.size(1), bias.size(1) > 1, np.float32(scale), out.numpy())
    return out.view(num_sentences, num_rows, num_heads, head_dim)


def _flat(heads: Tensor) -> Tensor:
    """All memory from the first number of these to the last."""
    extent = sum((size - 1) * stride for size, stride in zip(heads.shape, heads.stride(), strict=True))
    return heads.as_strided((extent + 1,), (1,))


def survey(logits: Tensor, first: int, num_blocks: int) -> tuple[Tensor, Tensor]:
    """`logits.logsumexp(dim=1)` (rows,), and the largest of each block (rows, num_blocks).

    logits (rows, vocab_size). Block b is every `num_blocks`-th column from `first` + b on; there is a multiple of
    `WIDTH` of blocks, and columns that are left over are in none. Where a logit is nan, so is the first result.
    """
    normalizers, maxima = logits.new_empty(len(logits)), logits.new_empty(len(logits), num_blocks)
    _survey(logits.numpy(), first, normalizers.numpy(), maxima.numpy())
    return normalizers, maxima


def choose(logits: Tensor, rows: dict[str, Tensor], length: Tensor, allow_unk: bool, scored: bool) -> Tensor:
    """`GreedyRows.choose` without a rule, logits (rows, vocab_size) -> (2,). `rows` are its tensors by name. Of equal
    logits it takes that of the first token.
    """
    report = torch.zeros(2, dtype=torch.long)
    names = ("tokens", "limits", "totals", "is_over", "history")
    arrays = (rows[name].numpy() for name in names)
    _choose(logits.numpy(), *arrays, length.numpy(), report.numpy(), allow_unk, scored)
    return report
