"""Pictures: the weights and words that were given, nothing cut off, nothing overlapping, every script in its order."""

import io
import itertools
import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

from transformer_mt.inspect import fonts
from transformer_mt.inspect.heat_map import MAX_INCHES, heat_map, heat_maps, to_pixels, to_png
from transformer_mt.judging.runs.curves import save_curves
from transformer_mt.judging.runs.summary import RunSummary

HEBREW = "\u05d0\u05d1\u05d2"
LONG_WORDS = ["<s>", *(f"▁extraordinarily{i}" for i in range(38)), "</s>"]


def texts(figure: Figure) -> list:
    """Every piece of text in a picture."""
    labels = [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title)]
    return [text for text in (*labels, *figure.texts) if text.get_text()]


def draw(word: str) -> np.ndarray:
    return to_pixels(heat_map(torch.eye(1), ["x"], [word]))


def test_a_picture_shows_the_weights_and_the_words() -> None:
    weights = torch.softmax(torch.randn(3, 4, 5), dim=-1)
    across, down = [f"k{i}" for i in range(5)], [f"q{i}" for i in range(4)]
    figure = heat_maps(weights, across, down, ["head 1", "head 2", "head 3"], "title")
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in maps] == ["head 1", "head 2", "head 3"]
    for axes, one in zip(maps, weights, strict=True):
        np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), one.numpy())
        assert [label.get_text() for label in axes.get_xticklabels()] == across
        assert [label.get_text() for label in axes.get_yticklabels()] == down


@pytest.mark.parametrize("words", [["a", "b", "c", "d", "</s>"], LONG_WORDS], ids=["5", "40"])
@pytest.mark.parametrize("num_heads", [1, 8])
def test_words_are_readable_at_5_and_at_40(words: list[str], num_heads: int) -> None:
    weights = torch.eye(len(words)).expand(num_heads, -1, -1)
    figure = heat_maps(weights, words, words, [f"head {i}" for i in range(num_heads)], "A title\nof two lines")
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    width, height = figure.bbox.width, figure.bbox.height
    for text in texts(figure):
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width + 1, text.get_text()
        assert box.y1 <= height + 1, text.get_text()
    for axes in figure.axes[:num_heads]:
        boxes = [label.get_window_extent(renderer) for label in axes.get_yticklabels()]
        assert all(below.y1 <= above.y0 + 1 for above, below in itertools.pairwise(boxes))
        assert min(float(label.get_fontsize()) for label in axes.get_yticklabels()) >= 7


def test_heads_stand_in_a_picture_without_much_empty_space() -> None:
    for num_heads, columns in ((1, 1), (2, 2), (4, 2), (8, 4), (12, 4), (16, 4)):
        figure = heat_maps(torch.eye(8).expand(num_heads, -1, -1), ["w"] * 8, ["w"] * 8, [""] * num_heads)
        lefts = {round(axes.get_position().x0, 6) for axes in figure.axes if axes.images}
        assert len(lefts) == columns, num_heads


def test_source_and_target_on_one_axis_are_told_apart() -> None:
    figure = heat_maps(torch.eye(5)[None], list("abcde"), list("abcde"), [""], num_src=3)
    for labels in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels()):
        colours = [label.get_color() for label in labels]
        assert len({*colours[:3]}) == len({*colours[3:]}) == 1
        assert colours[0] != colours[4]


def test_a_picture_of_very_many_words_stays_within_bounds() -> None:
    words = [f"word{i}" for i in range(500)]
    figure = heat_map(torch.eye(500), words, words)
    assert max(figure.get_size_inches()) <= MAX_INCHES
    assert float(figure.axes[0].get_xticklabels()[0].get_fontsize()) < 7


def test_what_is_no_formula_and_no_glyph_is_drawn_as_it_is() -> None:
    words = ["$x^2$", r"\frac{", "￭.", "\x07", "\u202e", "\ud800", "a\x00b"]
    figure = heat_maps(torch.eye(len(words))[None], words, words, [""], "$title")
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == ["$x^2$", r"\frac{", "·.", "U+0007", "U+202E", "U+D800", "a\ufffdb"]
    assert imread(io.BytesIO(to_png(figure))).ndim == 3


def test_right_to_left_words_run_from_right_to_left() -> None:
    """The picture of a Hebrew word is that of its letters turned round and forced to run from left to right."""
    assert unicodedata.bidirectional(HEBREW[0]) == "R"
    forced = "\u202d" + HEBREW[::-1] + "\u202c"
    np.testing.assert_array_equal(draw(HEBREW), draw(forced))
    assert not np.array_equal(draw(HEBREW), draw("\u202d" + HEBREW + "\u202c"))


def test_arabic_letters_join() -> None:
    """A zero-width non-joiner between two letters keeps them apart, so it would change nothing if nothing joined."""
    joined, apart = draw("\u0633\u0633"), draw("\u0633\u200c\u0633")
    assert joined.shape != apart.shape or not np.array_equal(joined, apart)


@pytest.fixture
def only_own_font(monkeypatch: pytest.MonkeyPatch) -> None:
    own = fonts._font_files()[:1]
    monkeypatch.setattr(fonts, "_font_files", lambda: own)
    for cached in (fonts._family_of, fonts._warn_once):
        monkeypatch.setattr(fonts, cached.__name__, fonts.cache(cached.__wrapped__))


@pytest.mark.usefixtures("only_own_font")
def test_a_machine_without_the_font_is_told_once_what_to_install(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert to_png(heat_map(torch.eye(2), ["猫", "cat"], ["ねこ", "\u0915"])).startswith(b"\x89PNG")
    (message,) = caplog.messages
    assert "fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto-core for others" in message


@pytest.mark.usefixtures("only_own_font")
def test_curves_of_a_run_with_such_a_name_are_told_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    save_curves(tmp_path / "c.png", [RunSummary("猫", curves={"train/loss": ([1], [2.0])})], [])
    (message,) = caplog.messages
    assert "Some words of the pictures are boxes" in message
    assert not recwarn.list


@pytest.mark.usefixtures("only_own_font")
def test_what_the_own_font_draws_needs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    assert fonts.fonts_for(["Größe", "Ελλάδα", "кошка", "\u200b", "\x00"]) == [fonts.OWN_FONT]
    assert not caplog.messages


def test_a_font_of_the_machine_is_found(caplog: pytest.LogCaptureFixture) -> None:
    if fonts._family_of("猫") is None:
        pytest.skip("no font on this machine draws Chinese")
    first, *more = fonts.fonts_for(["cat", "猫"])
    assert first == fonts.OWN_FONT
    assert len(more) == 1
    np.testing.assert_equal(np.array_equal(draw("猫"), draw("狗")), False)
    assert not caplog.messages
