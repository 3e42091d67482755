"""Lines as pictures: drawing, cutting into patches, fonts, and what a run keeps of them."""

import hashlib
import json
import shutil
import struct
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from matplotlib import get_data_path
from PIL import Image
from toy import toy_config, write_toy_corpus
from writers import printed

from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.special_ids import EOS_ID, UNK_ID
from transformer_mt.data.encoding import load_tokenizers, save_tokenizers
from transformer_mt.data.pictures import pictures as pictures_module
from transformer_mt.data.pictures.fonts import Font
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.pictures.read_picture import _grey, read_picture
from transformer_mt.data.pictures.size_of_line import size_of_line
from transformer_mt.data.preparation import prepare_data, prepare_training_data
from transformer_mt.errors import UserError

FONTS = Path(get_data_path()) / "fonts" / "ttf"
DRAWN = {"data": {"source_as": "picture"}, "model": {"patches": {"height": 8, "width": 6}, "max_len": 40}}


def pictures(asked: str | None = None, lowercase: bool = False, **sizes: int) -> Pictures:
    return Pictures(Font.find(asked), PatchesConfig(**sizes), lowercase)


def save(strip: np.ndarray, path: Path) -> Path:
    Image.fromarray(strip).save(path)
    return path


@pytest.fixture
def one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is drawn in the largest of the sizes, whatever its text, and read as exactly so large."""
    monkeypatch.setattr(pictures_module, "DRAWN", ((4.0, 0.0),))


# Drawing


@pytest.mark.usefixtures("one_size")
def test_a_word_is_what_the_library_draws_scaled_down() -> None:
    """As much ink, on the same rows: none is cut off, moved or drawn over."""
    drawing = pictures()
    for word in ("The", "jay", "jumps,", "Ñandú", "(fly)"):
        whole = np.asarray(drawing.font.fitting(64).getmask(word, mode="L")).reshape(-1)
        ink = 255 - (drawing.draw(word).astype(int) - 4) * 255 / 251
        assert ink.sum() * 16 == pytest.approx(whole.sum(), rel=0.03), word
    assert drawing.draw("The jay").min() >= 4
    rows = np.flatnonzero((drawing.draw("x") < 128).any(axis=1))
    assert rows[-1] + 1 == round(drawing.baseline)


def test_another_object_draws_the_same() -> None:
    first, second = pictures(), pictures()
    second.draw("other words first, so that nothing depends on what was drawn before")
    assert np.array_equal(first.draw("Ein Satz."), second.draw("Ein  Satz. "))
    assert not np.array_equal(first.draw("Ein Satz"), first.draw("ein Satz"))
    assert np.array_equal(pictures(lowercase=True).draw("EIN Satz"), first.draw("ein satz"))


@pytest.mark.parametrize(("width", "step"), [(8, 8), (8, 3), (5, 5), (16, 1)])
def test_patches_are_the_windows_of_the_strip(width: int, step: int) -> None:
    drawing = pictures(width=width, step=step)
    strip = drawing.draw("Hi, world")
    patches = drawing.cut(strip)
    assert len(patches) == 1 + max(0, -(-(strip.shape[1] - width) // step))
    for number, patch in enumerate(patches):
        cut = strip[:, number * step : number * step + width]
        whole = np.full((16, width), 255, np.uint8)
        whole[:, : cut.shape[1]] = cut
        assert np.array_equal(patch.reshape(16, width), whole)


def test_words_are_laid_where_patches_begin() -> None:
    """By hand: words of eight and four columns, and one between words of 16 rows at least."""
    words = [np.full((16, columns), 4, np.uint8) for columns in (8, 4)]
    strip = pictures(width=8, step=4).lay(words)
    assert strip[0].tolist() == [*[4] * 8, *[255] * 4, *[4] * 4]
    assert pictures(width=8, step=4).lay([]).shape == (16, 0)


@pytest.mark.usefixtures("one_size")
def test_a_word_has_the_same_patches_wherever_it_stands() -> None:
    drawing = pictures(width=16)
    word = drawing.encode("jumps")
    for before in ("The", "A big", "ill"):
        whole = drawing.encode(f"{before} jumps")
        assert np.array_equal(whole[-len(word) :], word)
        assert np.array_equal(whole[: -len(word)], drawing.encode(before))


def test_the_width_of_a_space_and_the_margins_change_nothing() -> None:
    drawing = pictures(width=16)
    one, two = (printed(word, 54, margin=0) for word in ("one", "two"))
    words = [word.tolist() for word in drawing.words_in(np.concatenate([one, two], axis=1), 51, 54)]
    assert len(words) == 1
    found = []
    for space in (14, 30, 200):
        paper = np.full((len(one), space), 255, np.uint8)
        line = np.pad(np.concatenate([one, paper, two], axis=1), ((3, 5), (space, 7)), constant_values=255)
        found.append([word.tolist() for word in drawing.words_in(line, 54, 54)])
    assert len(found[0]) == 2
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("one_size")
@pytest.mark.parametrize(("height", "lost"), [(8, 0.1), (16, 0.05), (24, 0.05), (64, 0.05)])
def test_no_letter_is_too_faint(height: int, lost: float) -> None:
    """Each character's ink is in its patches, but for what the filter loses where strokes are thinner than a row."""
    drawing = pictures(height=height)
    for character in "abcxyzWM.,:;!?'`\"-()1|áñ¿\u2026":
        drawn = np.asarray(drawing.font.fitting(4 * height).getmask(character, mode="L")).reshape(-1)
        kept = 255 - (drawing.encode(character).astype(int) - 4) * 255 / 251
        assert 16 * kept.sum() >= (1 - lost) * drawn.sum(), character


def test_lines_are_drawn_in_several_sizes_by_their_text() -> None:
    """The same word in forty lines: as many widths as there are sizes, all within their few per cent and a column."""
    drawing = pictures()
    lines = [drawing.draw(f"neighbours {number}") for number in range(40)]
    widths = set()
    for line in lines:
        paper = np.flatnonzero((line == 255).all(axis=0))
        widths.add(next(int(first) for first in paper if first > 0 and (line[:, first : first + 2] == 255).all()))
    assert len(widths) >= 4
    assert max(widths) <= 1.15 * min(widths)
    assert np.array_equal(lines[7], pictures().draw("neighbours 7"))


def test_a_blank_line_has_no_patches() -> None:
    for blank in ("", "  ", "\u2028"):
        assert pictures().encode(blank).shape == (0, 128)


def test_many_texts_at_once_are_each_by_itself() -> None:
    drawing, texts = pictures(), ["one two", "", "three"]
    flat, lengths = drawing.encode_flat(texts)
    assert lengths.tolist() == [len(drawing.encode(text)) for text in texts]
    assert np.array_equal(flat, np.concatenate([drawing.encode(text) for text in texts]))
    with pytest.raises(UserError, match="half of a surrogate pair"):
        drawing.encode("\ud800")


def test_what_the_font_has_not_is_a_box_of_unk() -> None:
    drawing = pictures()
    assert drawing.unknown_words("the 日本 cat 語.") == ["日本", "語."]
    assert UNK_ID in drawing.encode("日本")
    assert UNK_ID not in drawing.encode("e\u0301 cat \u200d!")  # composed, and a character without a form
    assert pictures(height=8, width=4).encode("日").min() == UNK_ID


def test_each_patch_is_named_by_the_letters_in_it() -> None:
    drawing = pictures()
    patches = drawing.encode("ill W")
    names = drawing.tokens([*patches, np.full(128, EOS_ID)], "ill W")
    assert "".join(names[:-1]).replace("·", "") == "illW"
    assert names[-1] == "</s>"
    assert drawing.tokens(list(patches))[:2] == ["1", "2"]


def test_the_largest_size_that_fits() -> None:
    font = Font.find(None)
    for height in (8, 16, 33):
        size = font.fitting(height).size
        assert sum(font.at_size(int(size)).getmetrics()) <= height < sum(font.at_size(int(size) + 1).getmetrics())


# Fonts


def test_a_font_by_its_family_and_by_its_file(tmp_path: Path) -> None:
    own = Font.find(None)
    assert (own.name, own.path.name) == ("DejaVu Sans Book", "DejaVuSans.ttf")
    assert Font.find("dejavu serif").path.name == "DejaVuSerif.ttf"
    assert Font.find(str(FONTS / "STIXGeneral.ttf")).name == "STIXGeneral Regular"
    assert own.sha256 == hashlib.sha256(own.path.read_bytes()).hexdigest()
    (tmp_path / "none.ttf").write_bytes(b"no font")
    for asked, said in (
        ("No Such Family", "no font No Such Family is installed"),
        (str(tmp_path / "gone.ttf"), "there is no file"),
        (str(tmp_path / "none.ttf"), "is no font that can be drawn with"),
        ("~nobodyxyz/f.ttf", "~nobodyxyz/f.ttf cannot be looked for"),
        (300 * "f", "f cannot be looked for .*too long"),
    ):
        with pytest.raises(UserError, match=f"data.font: .*{said}"):
            Font.find(asked)


def test_a_run_keeps_its_font_and_refuses_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    font = Path(shutil.copy(FONTS / "DejaVuSerif.ttf", "mine.ttf"))
    config = toy_config(write_toy_corpus(tmp_path), **{**DRAWN, "data": {**DRAWN["data"], "font": str(font)}})
    data = prepare_data(config)
    save_tokenizers(tmp_path / "kept", data.src_tokenizer, data.tgt_tokenizer)
    src, tgt = load_tokenizers(tmp_path / "kept", config.tokenizer)
    assert isinstance(src, Pictures)
    assert np.array_equal(src.encode("one two"), data.src_tokenizer.encode("one two"))
    assert tgt.backend.to_str() == data.tgt_tokenizer.backend.to_str()
    before = {name: value for name, value in src.settings.items() if name != "way"}
    shutil.copy(FONTS / "DejaVuSans.ttf", font)
    with pytest.raises(UserError, match=r"trained on pictures in DejaVu Serif Book .* is another file"):
        load_tokenizers(tmp_path / "kept", config.tokenizer)
    font.unlink()  # nobody can name another, for the weights know this one alone
    way_out = rf"there is no file {tmp_path}/mine.ttf. Relative .* in DejaVu Serif Book \(.*src.json\): put that"
    with pytest.raises(UserError, match=way_out) as refused:
        load_tokenizers(tmp_path / "kept", config.tokenizer)
    assert "name another" not in str(refused.value)
    kept = tmp_path / "kept" / "src.json"
    kept.write_text(json.dumps({"picture": {"font": None}}))
    with pytest.raises(UserError, match="does not say how pictures are drawn"):
        Pictures.load(kept, "Train again.")
    kept.write_text(json.dumps({"picture": before}))
    with pytest.raises(UserError, match="pictures laid out in another way"):
        Pictures.load(kept, "Train again.")


# The corpus


def test_a_corpus_of_pictures(tmp_path: Path) -> None:
    config = toy_config(write_toy_corpus(tmp_path), **DRAWN)
    data = prepare_data(config)
    texts = data.train.texts([0, 3])[0]
    drawn = [data.src_tokenizer.encode(text) for text in texts]
    batch = data.train.batch(np.array([0, 3]))
    for row, patches in zip(batch.src.numpy(), drawn, strict=True):
        assert np.array_equal(row[: len(patches)], patches)
        assert (row[len(patches)] == EOS_ID).all()
    assert data.train.src_lengths[0] == len(drawn[0]) + 1
    assert data.train.unknown_shares()[0] == 0.0
    assert data.src_tokenizer.vocab_size == 256
    words = prepare_data(toy_config(tmp_path))
    assert data.tgt_tokenizer.backend.to_str() == words.tgt_tokenizer.backend.to_str()


def test_a_stream_has_the_same_pictures(tmp_path: Path) -> None:
    write_toy_corpus(tmp_path)
    whole = prepare_data(toy_config(tmp_path, **DRAWN))
    streamed = {**DRAWN, "data": {**DRAWN["data"], "streaming": True, "shuffle_window": 50}}
    stream = prepare_training_data(toy_config(tmp_path, **streamed)).train
    rows = np.arange(4)
    assert np.array_equal(stream.batch(rows).src, whole.train.batch(rows).src)


def test_a_script_that_the_font_has_not_is_refused(tmp_path: Path) -> None:
    write_toy_corpus(tmp_path)
    for name in ("train", "valid"):
        lines = (tmp_path / f"{name}.en").read_text().splitlines()
        (tmp_path / f"{name}.en").write_text("".join("日本語" * (1 + n % 3) + "\n" for n, _ in enumerate(lines)))
    said = (
        "% of the patches of data.train's sources have characters that DejaVu Sans .* `fc-list :lang=hi family` lists"
    )
    with pytest.raises(UserError, match=said):
        prepare_data(toy_config(tmp_path, **DRAWN))


# Pictures from files


@pytest.fixture(scope="module")
def drawing() -> Pictures:
    return pictures()


SENTENCE = "The red balls, three of them, are in the big house."


@pytest.mark.parametrize("size", [14, 20, 28, 40, 54, 100])
@pytest.mark.parametrize("margin", [0, 60])
def test_size_and_place_of_a_printed_line(size: int, margin: int) -> None:
    """Within 6 %: small letters are drawn on whole pixels, so their own height is not quite their size."""
    found_baseline, found_size = size_of_line(printed(SENTENCE, size, margin), Font.find(None))
    assert found_size == pytest.approx(size, rel=0.06)
    baseline = Font.find(None).at_size(size).getmetrics()[0] + margin
    assert found_baseline == pytest.approx(baseline, abs=max(0.5, 0.02 * size))


@pytest.mark.usefixtures("one_size")
@pytest.mark.parametrize("size", [28, 40, 54, 100])
def test_what_another_program_printed_has_the_same_words(size: int, tmp_path: Path) -> None:
    drawing = pictures()
    grey = _grey(save(printed(SENTENCE, size), tmp_path / "a.png"))
    found = drawing.words_in(grey, *size_of_line(grey, drawing.font))
    expected = [drawing.draw(word) for word in SENTENCE.split()]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert abs(one.shape[1] - other.shape[1]) <= max(1.5, 0.04 * other.shape[1])


@pytest.mark.usefixtures("one_size")
def test_a_line_in_the_drawn_size_reads_as_it_is_drawn() -> None:
    drawing = pictures()
    grey = printed("The red balls are in the big house.", 54)
    assert drawing.size == 54 / 4
    baseline = Font.find(None).at_size(54).getmetrics()[0] + 10
    found = drawing.cut(drawing.lay(drawing.words_in(grey, baseline, 54)))
    expected = drawing.encode("The red balls are in the big house.")
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 1


@pytest.mark.filterwarnings("error")
def test_a_picture_of_one_row_and_one_without_margins(drawing: Pictures, tmp_path: Path) -> None:
    row = np.full((1, 300), 255, np.uint8)
    row[0, 50:60] = 0
    assert len(read_picture(save(row, tmp_path / "row.png"), drawing))
    tight = printed("The quick jay", 40)
    rows, columns = (np.flatnonzero((tight < 255).any(axis=axis)) for axis in (1, 0))
    cut = tight[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    found, expected = (read_picture(save(grey, tmp_path / "a.png"), drawing) for grey in (cut, tight))
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1  # a level may round the other way


def test_light_on_dark_transparent_and_coloured(drawing: Pictures, tmp_path: Path) -> None:
    grey = printed("Two words", 40)
    expected = read_picture(save(grey, tmp_path / "a.png"), drawing)
    alpha = np.zeros((*grey.shape, 4), np.uint8)
    alpha[..., 3] = 255 - grey
    colours = np.stack([grey // 4 + 150] * 3, axis=2)  # pale, of little contrast
    for number, picture in enumerate((255 - grey, alpha, colours)):
        found = read_picture(save(picture, tmp_path / f"{number}.png"), drawing)
        assert found.shape == expected.shape, number
        assert np.abs(found.astype(int) - expected).max() <= 4, number


def test_grey_of_more_than_8_bits_is_the_same_grey(drawing: Pictures, tmp_path: Path) -> None:
    """16 bits as scanners write them, the same in TIFF's 32, and fractions."""
    grey = printed("Two words", 40)
    expected = read_picture(save(grey, tmp_path / "a.png"), drawing)
    more = {
        "16.png": grey.astype(np.uint16) * 257,
        "dark.png": grey.astype(np.uint16),  # of 16 bits, and hardly used
        "32.tiff": grey.astype(np.int32) * 257,
        "255.tiff": grey.astype(np.float32),
        "1.tiff": (grey / 255).astype(np.float32),
    }
    for name, picture in more.items():
        assert np.array_equal(read_picture(save(picture, tmp_path / name), drawing), expected), name


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no picture that can be read"),
        (b"The cat sat\n", "is no picture that can be read"),
        (None, "cannot be read as a picture: No such file"),
        (np.full((20, 60), 255, np.uint8), "has no text"),
        (np.zeros((5, 5), np.uint8), "has no text"),
        (np.pad(np.zeros((1, 40_000), np.uint8), 3, constant_values=255), "more than 10,000 letters long"),
        (np.zeros((8000, 8000), np.uint8), "64,000,000|8,000 x 8,000 pixels"),
    ],
)
def test_what_is_no_picture_of_text(content: object, said: str, drawing: Pictures, tmp_path: Path) -> None:
    path = tmp_path / "sign.png"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        save(content, path)
    with pytest.raises(UserError, match=said):
        read_picture(path, drawing)


@pytest.mark.parametrize("error", [RuntimeError("Failed to decode frame 0"), struct.error("not an integer")])
def test_what_a_format_raises_of_its_own(
    error: Exception, drawing: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an AVIF file whose end is damaged, and a JPEG file with damaged EXIF."""
    path = save(np.zeros((9, 9), np.uint8), tmp_path / "a.png")
    monkeypatch.setattr("PIL.ImageOps.exif_transpose", Mock(side_effect=error))
    with pytest.raises(UserError, match=f"a.png cannot be read as a picture: {error}. Give another."):
        read_picture(path, drawing)


def test_half_a_file(drawing: Pictures, tmp_path: Path) -> None:
    path = save(np.random.default_rng(1).integers(0, 255, (200, 200), np.uint8), tmp_path / "a.png")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match="cannot be read as a picture"):
        read_picture(path, drawing)
