"""The page of diagnoses is true to the tables of the program."""

from pages import section, tables

from transformer_mt.diagnosing.rules import RULES
from transformer_mt.diagnosing.thresholds import THRESHOLDS

PAGE = "docs/diagnoses.md"


def test_the_table_of_diagnoses_is_that_of_the_rules() -> None:
    (table,) = tables(section(PAGE, "The diagnoses"))
    assert table[1:] == [[f"`{name}`", rule.what, rule.tries] for name, rule in RULES.items()]


def test_the_table_of_thresholds_has_every_number_and_reason() -> None:
    (table,) = tables(section(PAGE, "Thresholds"))
    assert table[1:] == [[f"`{name}`", f"{one.value:g}", one.reason] for name, one in THRESHOLDS.items()]
