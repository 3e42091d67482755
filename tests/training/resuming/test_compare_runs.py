"""Two runs are the same only if every bit is; the first that is not is named."""

import json

import pytest
import torch

from transformer_mt.training.resuming.compare_runs import compare_metrics, compare_tensors, compare_values


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(3, 4, generator=generator) for name in ("b", "a", "c")} | {"step": torch.tensor(7.0)}


def test_the_same_tensors_are_the_same() -> None:
    assert compare_tensors("weights", tensors(), tensors()) is None


def test_one_bit_is_seen_and_measured() -> None:
    """The last bit of a mantissa of 1.0 is 2^-23 = 1.19e-07."""
    one, two = tensors(), tensors()
    one["b"][1, 2] = two["b"][1, 2] = 1.0
    two["b"].view(torch.int32)[1, 2] ^= 1
    assert compare_tensors("weights", one, two) == "weights: b differs in 1 of 12 elements, by 1.19e-07 at most"


def test_the_first_by_name_is_told() -> None:
    two = tensors()
    two["c"] += 1
    two["a"][0] = 0.0
    assert (compare_tensors("weights", tensors(), two) or "").startswith("weights: a differs in 4 of 12 elements")


def test_a_scalar_is_compared() -> None:
    two = tensors() | {"step": torch.tensor(8.0)}
    assert compare_tensors("optimizer", tensors(), two) == "optimizer: step differs in 1 of 1 elements, by 1 at most"


def test_minus_zero_is_not_zero_and_nan_is_itself() -> None:
    zero, nan = torch.zeros(2), torch.full((2,), float("nan"))
    assert compare_tensors("w", {"x": zero}, {"x": -zero}) == "w: x differs in 2 of 2 elements, by 0 at most"
    assert compare_tensors("w", {"x": nan}, {"x": nan.clone()}) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool])
def test_every_type_is_compared(dtype: torch.dtype) -> None:
    one = torch.tensor([0, 1, 1]).to(dtype)
    assert compare_tensors("w", {"x": one}, {"x": one.clone()}) is None
    two = torch.tensor([0, 1, 0]).to(dtype)
    assert compare_tensors("w", {"x": one}, {"x": two}) == "w: x differs in 1 of 3 elements, by 1 at most"


def test_a_missing_tensor_another_shape_and_another_type_are_differences() -> None:
    less = tensors()
    del less["c"]
    assert compare_tensors("w", tensors(), less) == "w: c is only in the straight run"
    assert compare_tensors("w", less, tensors()) == "w: c is only in the resumed run"
    turned = tensors() | {"a": tensors()["a"].T}
    said = "w: a is torch.float32 (3, 4) in the straight run, torch.float32 (4, 3) in the resumed one"
    assert compare_tensors("w", tensors(), turned) == said
    wider = tensors() | {"a": tensors()["a"].double()}
    assert "torch.float64" in (compare_tensors("w", tensors(), wider) or "")


LINES = [
    {"kind": "train", "step": 3, "loss": 2.5, "lr": 0.1, "tokens_per_second": 100.0, "elapsed_seconds": 1.0},
    {"kind": "validation", "step": 3, "nll": 2.25, "elapsed_seconds": 2.0},
]


def lines(*entries: dict) -> list[str]:
    return [json.dumps(entry) for entry in entries]


def test_the_clock_and_the_order_of_keys_do_not_count() -> None:
    later = [{**line, "elapsed_seconds": 9.0} for line in LINES]
    turned = [dict(reversed(line.items())) for line in later]
    assert compare_metrics(lines(*LINES), lines(*turned)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nll": 2.2500000000000004}, "line 2: nll is 2.25 in the straight run, 2.2500000000000004 in the resumed one"),
        ({"step": 4}, "line 2: step is 3 in the straight run, 4 in the resumed one"),
        ({"nll": None}, "line 2: nll is 2.25 in the straight run, None in the resumed one"),
        ({"bleu": 1.0}, "line 2: bleu is only in the resumed run"),
    ],
)
def test_a_changed_field_is_named(change: dict, said: str) -> None:
    assert compare_metrics(lines(*LINES), lines(LINES[0], {**LINES[1], **change})) == f"metrics.jsonl, {said}"


def test_a_missing_a_doubled_and_a_swapped_line_are_differences() -> None:
    assert (
        compare_metrics(lines(*LINES), lines(LINES[0]))
        == "metrics.jsonl has 2 lines in the straight run, 1 in the resumed one"
    )
    assert compare_metrics(lines(*LINES), lines(*LINES, LINES[1])) is not None
    assert compare_metrics(lines(*LINES), lines(*reversed(LINES))) is not None


def test_the_state_is_compared_field_by_field() -> None:
    state = {"step": 4, "elapsed_seconds": 1.0, "window": {"loss": 1.5, "seconds": 0.25}, "best_metrics": None}
    assert compare_values("state", state, {**state, "elapsed_seconds": 2.0, "window": {"loss": 1.5}}) is None
    other = {**state, "window": {"loss": 1.75, "seconds": 0.25}}
    said = "state: window: loss is 1.5 in the straight run, 1.75 in the resumed one"
    assert compare_values("state", state, other) == said
    assert compare_values("state", state, {**state, "best_metrics": {"nll": 1.0}}) is not None
