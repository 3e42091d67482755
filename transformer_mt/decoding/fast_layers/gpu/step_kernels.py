"""What a step of a search does between its products, as Triton kernels.

In a step each row has one query, so that there is no tile of queries to multiply: attention is as fast as keys and
values are read. Numbers between are float32, whatever the type of what is read and written.
"""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

_FLOOR = tl.constexpr(-1e30)  # below every score and logit of a model, and a number: -inf minus itself is none


@triton.jit
def attend(
    q, k, v, bias, out, scale, num_rows, num_keys, group,
    q_sentence, q_head, q_row, k_sentence, k_head, k_slot, v_sentence, v_head, v_slot,
    bias_sentence, bias_head, bias_row,
    head_dim: tl.constexpr, width: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """out (sentences, rows, heads, head_dim): the values of a row's sentence, weighed for its query.

    A program has one row and one head; `group` query heads share a key head. It reads only what its row sees: keys with
    a bias above -inf.
    """
    sentence, row, head = tl.program_id(0) // num_rows, tl.program_id(0) % num_rows, tl.program_id(1)
    columns, places = tl.arange(0, width), tl.arange(0, keys)
    in_head = columns < head_dim
    of_row = q + sentence.to(tl.int64) * q_sentence + head * q_head + row * q_row
    query = tl.load(of_row + columns, mask=in_head, other=0.0).to(tl.float32) * scale
    k += sentence.to(tl.int64) * k_sentence + head // group * k_head
    v += sentence.to(tl.int64) * v_sentence + head // group * v_head
    bias += sentence.to(tl.int64) * bias_sentence + head * bias_head + row * bias_row
    largest, total = float("-inf"), 0.0
    mixed = tl.zeros((width,), tl.float32)
    for start in range(0, num_keys, keys):
        slots = start + places
        added = tl.load(bias + slots, mask=slots < num_keys, other=float("-inf")).to(tl.float32)
        there = (added > float("-inf"))[:, None] & in_head[None, :]
        key = tl.load(k + slots[:, None] * k_slot + columns[None, :], mask=there, other=0.0).to(tl.float32)
        value = tl.load(v + slots[:, None] * v_slot + columns[None, :], mask=there, other=0.0).to(tl.float32)
        scores = tl.sum(query[None, :] * key, 1) + added
        before = largest
        largest = tl.maximum(before, tl.max(scores, 0))
        origin = tl.maximum(largest, _FLOOR)  # a number, also where nothing was seen so far
        weights = tl.exp(scores - origin)
        shrunk = tl.exp(before - origin)
        total = total * shrunk + tl.sum(weights, 0)
        mixed = mixed * shrunk + tl.sum(weights[:, None] * value, 0)
    num_heads = tl.num_programs(1)
    place = out + (tl.program_id(0).to(tl.int64) * num_heads + head) * head_dim
    tl.store(place + columns, (mixed / total).to(out.dtype.element_ty), mask=in_head)


@triton.jit(do_not_specialize=["tokens_row"])  # which another arena changes, with sizes that are captured at once
def choose(
    logits, tokens, limits, totals, is_over, history, length, report, vocab_size, logits_row, tokens_row, history_row,
    allow_unk: tl.constexpr, scored: tl.constexpr, block: tl.constexpr,
    pad: tl.constexpr, unk: tl.constexpr, bos: tl.constexpr, eos: tl.constexpr,
):  # fmt: skip
    """`GreedyRows.choose` of a row, but that `length` counts the new token already; adds to report (2,)."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * logits_row
    columns = tl.arange(0, block)
    best = tl.full((block,), float("-inf"), tl.float32)
    best_at = tl.full((block,), eos, tl.int32)
    is_nan = tl.zeros((block,), tl.int32)
    peak = tl.full((block,), _FLOOR, tl.float32)
    mass = tl.zeros((block,), tl.float32)
    for start in range(0, vocab_size, block):
        at = start + columns
        value = tl.load(logits + at, mask=at < vocab_size, other=float("-inf")).to(tl.float32)
        if scored:
            higher = tl.maximum(peak, value)
            mass = mass * tl.exp(peak - higher) + tl.exp(value - higher)
            peak = higher
        allowed = (at != pad) & (at != bos)
        if not allow_unk:
            allowed = allowed & (at != unk)
        is_nan |= (allowed & (value != value)).to(tl.int32)
        better = allowed & (value > best)
        best = tl.where(better, value, best)
        best_at = tl.where(better, at, best_at)
    chosen_value = tl.max(best, 0)
    token = tl.min(tl.where(best == chosen_value, best_at, vocab_size), 0)
    is_bad = tl.max(is_nan, 0) > 0
    now = tl.load(length)
    was_over = tl.load(is_over + row) != 0
    ends = was_over | (tl.load(limits + row) <= now)
    token = tl.where(ends, eos, token)
    if scored:
        top = tl.max(peak, 0)
        normalizer = top + tl.log(tl.sum(mass * tl.exp(peak - top), 0))
        is_bad = (normalizer != normalizer) | (tl.abs(normalizer) == float("inf"))
        before = tl.load(totals + row)
        after = before + (tl.load(logits + token).to(tl.float32) - normalizer)
        tl.store(totals + row, tl.where(was_over, before, after))
    tl.store(tokens + row * tokens_row, token.to(tl.int64))
    tl.store(history + row.to(tl.int64) * history_row + now - 1, token.to(tl.int64))
    tl.store(is_over + row, token == eos)
    tl.atomic_add(report, (token != eos).to(tl.int64))
    tl.atomic_add(report + 1, (is_bad & (was_over == 0)).to(tl.int64))
