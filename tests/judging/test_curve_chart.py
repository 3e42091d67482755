"""A chart of curves has ticks whatever their values are."""

from transformer_mt.pages.charts import Curve, curve_chart


def test_values_below_zero_with_one_above() -> None:
    assert "<svg" in str(curve_chart([Curve("l", list(range(100)), [-5.0] * 99 + [1.0], 0)], "x"))
