import pytest
import torch

from transformer_mt.decoding import precision
from transformer_mt.decoding.precision import choose_search_precision


@pytest.mark.parametrize(
    ("seconds", "taken", "told"),
    [
        ({"fp32": 4.0, "bf16": 3.5, "int8": 1.0}, "int8", "4.0 times as fast"),
        ({"fp32": 4.0, "bf16": 2.0, "int8": 8.0}, "bf16", "2.0 times as fast"),
        ({"fp32": 4.0, "bf16": 3.5, "int8": 3.5}, "fp32", "nothing is much faster"),
        ({"fp32": 1.0, "bf16": 2.0, "int8": 4.0}, "fp32", "nothing is much faster"),
    ],
)
def test_auto_on_a_cpu_is_the_fastest_where_it_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], taken: str, told: str
) -> None:
    monkeypatch.setattr(precision, "_seconds", lambda name, d_model: seconds[name])
    value, reason = choose_search_precision("auto", torch.device("cpu"), 64)
    assert value == taken
    assert told in reason
