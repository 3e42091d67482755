import pytest
import torch

from transformer_mt.machine import device
from transformer_mt.machine.device import choose_precision, cpu_bf16_speedup


@pytest.mark.parametrize("d_model", [8, 64])
def test_the_speed_of_bf16_is_measured(d_model: int) -> None:
    assert 0 < cpu_bf16_speedup(d_model, rows=64) < float("inf")


@pytest.mark.parametrize(("speedup", "taken"), [(0.2, "fp32"), (1.4, "fp32"), (1.6, "bf16"), (4.0, "bf16")])
def test_auto_on_a_cpu_goes_by_what_was_measured(monkeypatch: pytest.MonkeyPatch, speedup: float, taken: str) -> None:
    asked = []
    monkeypatch.setattr(device, "cpu_bf16_speedup", lambda d_model: asked.append(d_model) or speedup)
    value, reason = choose_precision("auto", torch.device("cpu"), 96)
    assert value == taken
    assert asked == [96]
    assert f"{speedup:.2f} times" in reason
