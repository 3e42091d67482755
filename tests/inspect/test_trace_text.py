"""The page of a trace: nothing wider than the terminal, and what it says is what the trace holds."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from translators import MODELS_BY_NAME, PICTURES, SMALL, make_translator, model_names

from transformer_mt.data.word_splitting import printable
from transformer_mt.errors import UserError
from transformer_mt.inspect.stack_trace import RecurrentTrace
from transformer_mt.inspect.text_table import ELLIPSIS, column_blocks, fit, width_of, wrapped
from transformer_mt.inspect.trace import trace
from transformer_mt.inspect.trace_text import View, trace_lines
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.parts.positions import POSITIONS

SENTENCE = "one two three four."
CODES = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("name", model_names())
def test_a_page_fits(name: str) -> None:
    found = trace(make_translator(MODELS_BY_NAME[name]), SENTENCE + " seven" * 14)
    recurrent = isinstance(found.stacks[0], RecurrentTrace)
    chosen = View(token=3, layer=None if recurrent else 1, head=0 if recurrent else 2)
    for view, width in itertools.product((View(), chosen), (80, 120)):
        lines = list(trace_lines(found, replace(view, width=width)))
        assert [line for line in lines if width_of(line) > width or "\n" in line] == []
        page, kind = " ".join(lines), found.positions
        assert POSITIONS[kind].description
        times = 0 if recurrent else len(found.stacks)
        assert wrapped_in(f"positions {kind}: {POSITIONS[kind].description}", lines) == times
        assert ("attention to the source" in page) == ("cell state" in page or "state of layer" in page) == recurrent
        assert ("experts of this token" in page) == ("mixtral" in name or "experts" in name)
        assert ("one stream" in page) == (len(found.stacks) == 1)
        assert ("memory: " in page) == (len(found.stacks) == 2)


def test_patches_have_their_letters_and_are_not_scaled() -> None:
    found = trace(make_translator(PICTURES), SENTENCE)
    encoder, _ = found.stacks
    assert encoder.tokens == found.src_tokens
    assert "".join(encoder.tokens[:-1]).replace("·", "") == SENTENCE.replace(" ", "")
    page = "\n".join(trace_lines(found, View()))
    of_encoder, of_decoder = page[: page.index("decoder: tokens")], page[page.index("decoder: tokens") :]
    assert "√" not in of_encoder, "only words are multiplied by it"
    assert "x √d_model" in of_decoder


def wrapped_in(text: str, lines: list[str]) -> int:
    """How often a sentence stands on a page, over however many lines."""
    return " ".join(" ".join(lines).split()).count(text)


def test_numbers_on_the_page_are_those_of_the_trace() -> None:
    found = trace(make_translator({**SMALL, "num_encoder_layers": 1}), SENTENCE)
    lines = list(trace_lines(found, View(token=2, layer=0, width=80)))
    first = lines.index(next(line for line in lines if line.startswith("── encoder, layer 0")))
    attention = found.stacks[0].layers[0][0]
    for label, vector in (
        ("comes in", attention.input), ("  layer norm before", attention.normed),
        ("  + what it adds", attention.added), ("  = sum", attention.sum),
    ):  # fmt: skip
        line = next(line for line in lines[first:] if line.startswith(label))
        numbers = [float(word) for word in line.removeprefix(label).replace(ELLIPSIS, "").split()]
        expected = [*vector[2, : len(numbers) - 1].tolist(), vector[2].norm().item()]
        assert numbers == pytest.approx(expected, abs=6e-4)
    heads = [line.split() for line in lines[first:] if re.match(r"  head \d", line)][:4]
    assert attention.weights is not None
    for row, expected in zip(heads, attention.weights[:, 2].tolist(), strict=True):
        assert [float(word) for word in row[2:]] == pytest.approx(expected, abs=6e-3)


@pytest.mark.parametrize("size", [99.9996, 123.456, 4567.8, 123456.7, 9.99e9])
def test_numbers_stand_apart_however_large(size: float) -> None:
    found = trace(make_translator(SMALL), SENTENCE)
    large = torch.tensor([size, -size, -size]).expand(5, 3)
    stack = replace(found.stacks[0], sum=large)
    lines = list(trace_lines(replace(found, stacks=[stack, *found.stacks[1:]]), View()))
    line = next(line for line in lines if line.startswith("  = sum")).removeprefix("  = sum")
    assert [float(word) for word in line.split()[:3]] == pytest.approx([size, -size, -size], rel=0.05)
    assert max(map(width_of, lines)) <= 100


@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_is_called_by_its_name(norm: str) -> None:
    name = NORMS[norm].description
    assert name
    for position, shown in (("pre", ("before", "final")), ("post", ("after",))):
        found = trace(make_translator({**SMALL, "norm": norm, "norm_position": position}), SENTENCE)
        page = "\n".join(trace_lines(found, View()))
        for label in shown:
            assert (f"  {name} {label}" if label != "final" else f"final {name}  ") in page
        assert not [other for other in NORMS.values() if other.description != name and other.description in page]


def test_one_layer_and_one_head() -> None:
    found = trace(make_translator({**SMALL, "num_encoder_layers": 3}), SENTENCE)
    lines = list(trace_lines(found, View(layer=2, head=3)))
    assert [line[:19] for line in lines if ", layer " in line] == ["── encoder, layer 2"]
    assert "The decoder has no layer 2." in lines
    assert sum(line.startswith("  head 3 ") for line in lines) == 1
    assert [line.split()[0] for line in lines if re.match(r"  \S+ +\d\.\d\d ", line)] == found.src_tokens


def test_what_is_hidden_is_a_dot_or_left_out() -> None:
    found = trace(make_translator(SMALL), SENTENCE)
    steps = len(found.steps)
    assert steps > 3
    lines = "\n".join(trace_lines(found, View(token=1, layer=0, width=120)))
    decoder = lines[lines.index("── decoder, layer 0") :]
    row = next(line for line in decoder.split("\n") if line.startswith("  head 0"))
    assert len(row.split()) == 2 + 2, "a second token sees two"
    lines = "\n".join(trace_lines(found, View(head=0, layer=0, width=120)))
    table = lines[lines.index("── decoder, layer 0") :].split("cross-attention")[0]
    assert "·" in table


def test_colour_changes_no_text() -> None:
    found = trace(make_translator(MODELS_BY_NAME["mixtral"]), SENTENCE)
    plain = list(trace_lines(found, View()))
    coloured = list(trace_lines(found, View(colour=True)))
    assert not any(CODES.search(line) for line in plain)
    assert any(CODES.search(line) for line in coloured)
    assert [CODES.sub("", line) for line in coloured] == plain


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (View(token=99), r"--token is 99, and there are 6 in the encoder and \d+ in the decoder, .* Use 0 to \d+\."),
        (View(token=-1), "--token is -1"),
        (View(layer=3), "--layer is 3, and there are 3 in the encoder and 2 in the decoder, .* Use 0 to 2."),
        (View(head=4), "--head is 4, and there are 4 in the attention, counted from 0. Use 0 to 3."),
    ],
)
def test_what_is_not_there_is_refused(view: View, message: str) -> None:
    found = trace(make_translator({**SMALL, "num_encoder_layers": 3}), SENTENCE)
    with pytest.raises(UserError, match=message):
        list(trace_lines(found, view))


def test_a_token_that_one_stack_lacks() -> None:
    found = trace(make_translator(SMALL), "one two")
    longest = max(found.stacks, key=lambda stack: len(stack.tokens))
    (shorter,) = (stack for stack in found.stacks if stack is not longest)
    token = len(longest.tokens) - 1
    assert f"The {shorter.name} has no token {token}; this is its last." in list(trace_lines(found, View(token=token)))


def test_text_is_cut_and_padded_by_cells() -> None:
    assert fit("cat", 5) == "cat  "
    assert fit("cat", 5, right=True) == "  cat"
    assert fit("elephant", 5) == "elep…"
    assert fit("東京都", 6) == "東京都"
    assert fit("東京都", 5) == "東京…"
    assert fit("東京都", 4) == "東… "
    assert width_of("e\u0301") == 1
    assert fit("\x1b[31m", 5) == "\ufffd[31m"
    assert printable("a\tb") == "a\ufffdb"
    assert printable("a\u202eb\u2066c\u200dd") == "a\ufffdb\ufffdc\u200dd", "one that turns the line around"
    assert [list(block) for block in column_blocks(5, 4, 12)] == [[0, 1], [2, 3], [4]]
    assert list(wrapped("one two three", 7)) == ["one two", "three"]
    assert list(wrapped("東" * 5, 4)) == ["東東", "東東", "東"]


def test_a_layer_of_a_recurrent_network_cannot_be_chosen() -> None:
    found = trace(make_translator(MODELS_BY_NAME["rnn-small"]), SENTENCE)
    with pytest.raises(UserError, match=r"--layer is set, and a recurrent network shows .* Leave it out\."):
        list(trace_lines(found, View(layer=0)))
