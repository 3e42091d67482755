"""docs/worked_example.md: its Python prints what it shows, and both are the figures of the fixture."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pages import printed_by, read, section, snippets

PAGE = "docs/worked_example.md"
EXAMPLE: dict[str, Any] = json.loads(read("tests/fixtures/worked_example.json"))
STEP_OF_ENTRY = {
    "positional_encoding": "1. Positional encoding",
    "embedding_plus_position": "2. Embedding plus position",
    "attention_scores": "4. Attention scores",
    "attention_output_cat": "5. Attention output",
    "residual_cat": "6. Residual connection",
    "causal_softmax_el": "9. Causal self-attention in the decoder",
    "second_residual_cat": "8. Feed-forward",
    "residual_census": "12. The whole model",
    "base_shapes": "12. The whole model",
}
STEP_OF_ERRATUM = {
    "query projection": "3. Query projection",
    "layer norm of [2.14": "7. Layer norm",
    "layer norm of [2.59": "8. Feed-forward",
    "exact GELU": "8. Feed-forward",
    "cross-attention": "10. Cross-attention",
    "output softmax": "11. Output softmax",
    "T5-11B": "13. Other models in the notes",
    "GPT-2 small": "13. Other models in the notes",
    "GPT-3": "13. Other models in the notes",
    "a sublayer connection": "7. Layer norm",
    "T5-small": "13. Other models in the notes",
    "a stack built as": "12. The whole model",
    "masked scores": "9. Causal self-attention in the decoder",
    "a layer norm that": "7. Layer norm",
}
# What a step must come to, and so must print: not what it starts from, nor what the notes print.
OUTCOMES = {"value", "scaled", "softmax", "variance", "softmax_after_scaling_by_2"}
NAMES = [*STEP_OF_ENTRY, *(entry["what"][:30] for entry in EXAMPLE["errata"])]
NUMBER = re.compile(r"(?<![\w.])-?(?:inf\b|\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?)")


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def rows(value: Any) -> Iterator[list[float]]:
    """A figure, or a vector, or each row of a matrix, or each number in a sentence."""
    if isinstance(value, str):
        yield from ([number] for number in numbers(value))
    elif not isinstance(value, list):
        yield [float(value)]
    elif isinstance(value[0], list):
        for row in value:
            yield from rows(row)
    else:
        yield [float(x) for x in value]


def stands_in(row: list[float], there: list[float], tolerance: float) -> bool:
    """Whether the row's numbers follow one another somewhere."""
    windows = (there[start : start + len(row)] for start in range(len(there) - len(row) + 1))
    return any(all(x == y or abs(x - y) <= tolerance for x, y in zip(row, w, strict=True)) for w in windows)


def entries() -> list[tuple[dict[str, Any], str]]:
    """Every entry of the fixture and the step that treats of it."""
    found = [(EXAMPLE[key], step) for key, step in STEP_OF_ENTRY.items()]
    for entry in EXAMPLE["errata"]:
        (step,) = (step for beginning, step in STEP_OF_ERRATUM.items() if entry["what"].startswith(beginning))
        found.append((entry, step))
    return found


@pytest.fixture(scope="module")
def printed() -> Iterator[list[tuple[str, str, str]]]:
    """Step, what it shows as printed, and what was printed, for every block of Python, run in one session."""
    names: dict[str, Any] = {}
    found = []
    try:
        for part in re.split(r"^## ", read(PAGE), flags=re.MULTILINE):
            for code, shown in snippets(part):
                found.append((part.split("\n")[0], shown, printed_by(code, names)))
        yield found
    finally:  # what the page sets for its readers
        torch.set_grad_enabled(True)
        torch.set_printoptions(profile="default", sci_mode=None)


def test_every_entry_has_a_step() -> None:
    assert set(STEP_OF_ENTRY) == set(EXAMPLE) - {"about", "tolerance", "errata"}
    assert len(entries()) == len(STEP_OF_ENTRY) + len(STEP_OF_ERRATUM)
    assert all(read(PAGE).count(f"\n## {step}\n") == 1 for _, step in entries())


@pytest.mark.parametrize(("entry", "step"), entries(), ids=NAMES)
def test_every_figure_of_the_fixture_is_on_the_page(entry: dict[str, Any], step: str) -> None:
    there = numbers(section(PAGE, step))
    missing = [(key, row) for key, value in entry.items() for row in rows(value) if not stands_in(row, there, 0.0)]
    assert not missing


def test_every_erratum_is_called_one_where_it_stands() -> None:
    """As often as the fixture has one there, and what was printed in the last table too."""
    for step in set(STEP_OF_ERRATUM.values()):
        wanted = sum(place == step for place in STEP_OF_ERRATUM.values())
        assert section(PAGE, step).count("**Erratum") == wanted, step
    table = numbers(section(PAGE, "The errata in one table"))
    for entry in EXAMPLE["errata"]:
        for key in entry.keys() & {"printed", "printed_variance", "printed_softmax", *OUTCOMES}:
            if not isinstance(entry[key], str):
                assert [row for row in rows(entry[key]) if not stands_in(row, table, 0.0)] == [], key


def test_the_page_shows_what_its_python_prints(printed: list[tuple[str, str, str]]) -> None:
    for step, shown, real in printed:
        assert NUMBER.sub("#", "".join(shown.split())) == NUMBER.sub("#", "".join(real.split())), step
        assert numbers(shown) == pytest.approx(numbers(real), abs=1.01e-4, nan_ok=True), step


@pytest.mark.parametrize(("entry", "step"), entries(), ids=NAMES)
def test_what_is_printed_are_the_figures_of_the_fixture(
    entry: dict[str, Any], step: str, printed: list[tuple[str, str, str]]
) -> None:
    there = numbers(" ".join(real for place, _, real in printed if place == step))
    of_step = {"residual_census": {"encoder", "decoder", "total"}, "base_shapes": set(EXAMPLE["base_shapes"])}
    (key,) = [name for name in STEP_OF_ENTRY if EXAMPLE[name] is entry] or [""]
    for outcome in entry.keys() & of_step.get(key, OUTCOMES):
        if not isinstance(entry[outcome], str):
            assert [row for row in rows(entry[outcome]) if not stands_in(row, there, 1e-4)] == [], outcome
