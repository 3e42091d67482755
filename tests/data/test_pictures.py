"""Lines as pictures: drawing, cutting into patches, fonts, and what a run keeps of them."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib import get_data_path
from PIL import Image
from toy import toy_config, write_toy_corpus

from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.special_ids import EOS_ID, UNK_ID
from transformer_mt.data.encoding import load_tokenizers, save_tokenizers
from transformer_mt.data.pictures.fonts import Font
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.pictures.read_picture import read_picture
from transformer_mt.data.preparation import prepare_data, prepare_training_data
from transformer_mt.errors import UserError

FONTS = Path(get_data_path()) / "fonts" / "ttf"
DRAWN = {"data": {"source_as": "picture"}, "model": {"patches": {"height": 8, "width": 6}, "max_len": 40}}


def pictures(asked: str | None = None, lowercase: bool = False, **sizes: int) -> Pictures:
    return Pictures(Font.find(asked), PatchesConfig(**sizes), lowercase)


def save(strip: np.ndarray, path: Path) -> Path:
    Image.fromarray(strip).save(path)
    return path


# Drawing


def test_a_line_is_its_words_with_a_space_between_them() -> None:
    """Drawn in one go by the library, a line has the same ink: no word is cut off, moved or drawn over another."""
    drawing = pictures()
    strip = drawing.draw("The jay jumps")
    assert strip.shape[0] == 16
    assert strip.min() >= 4
    by_words = [drawing.draw(word) for word in ("The", "jay", "jumps")]
    gap = (strip.shape[1] - sum(word.shape[1] for word in by_words)) // 2
    assert np.array_equal(strip[:, : by_words[0].shape[1]], by_words[0])
    assert np.array_equal(strip[:, -by_words[2].shape[1] :], by_words[2])
    assert (strip[:, by_words[0].shape[1] :][:, :gap] == 255).all()
    whole = drawing.font.fitting(16).getmask("The jay jumps", mode="L")
    ink = 255 - (strip.astype(int) - 4) * 255 / 251
    assert ink.sum() == pytest.approx(np.asarray(whole).sum(), rel=0.05)


def test_another_object_draws_the_same() -> None:
    first, second = pictures(), pictures()
    second.draw("other words first, so that nothing depends on what was drawn before")
    assert np.array_equal(first.draw("Ein Satz."), second.draw("Ein  Satz. "))
    assert not np.array_equal(first.draw("Ein Satz"), first.draw("ein Satz"))
    assert np.array_equal(pictures(lowercase=True).draw("EIN Satz"), first.draw("ein satz"))


@pytest.mark.parametrize(("width", "step"), [(8, 8), (8, 3), (5, 5), (16, 1)])
def test_patches_are_the_windows_of_the_moved_words(width: int, step: int) -> None:
    drawing = pictures(width=width, step=step)
    strip = drawing.draw("Hi, world")
    columns = drawing.columns(strip)
    moved = np.stack([np.full(16, 255) if place < 0 else strip[:, place] for place in columns], axis=1)
    patches = drawing.cut(strip)
    assert len(patches) == 1 + max(0, -(-(len(columns) - width) // step))
    for number, patch in enumerate(patches):
        cut = moved[:, number * step : number * step + width]
        whole = np.full((16, width), 255, np.uint8)
        whole[:, : cut.shape[1]] = cut
        assert np.array_equal(patch.reshape(16, width), whole)


def test_words_are_moved_to_where_patches_begin() -> None:
    """By hand: ink at columns 3 to 5, 8, and 13 to 14; two columns of paper are no space, four are one."""
    strip = np.full((16, 17), 255, np.uint8)
    strip[5, [3, 4, 5, 8, 13, 14]] = 4
    columns = pictures(width=8, step=4).columns(strip)
    assert columns.tolist() == [2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1, 12, 13, 14, 15]
    assert pictures(width=8, step=4).columns(strip[:, 3:15]).tolist()[:4] == [-1, 0, 1, 2]


def test_a_word_has_the_same_patches_wherever_it_stands() -> None:
    drawing = pictures(width=16)
    word = drawing.encode("jumps")
    for before in ("The", "A big", "ill"):
        whole = drawing.encode(f"{before} jumps")
        assert np.array_equal(whole[-len(word) :], word)
        assert np.array_equal(whole[: -len(word)], drawing.encode(before))


def test_the_width_of_a_space_changes_nothing() -> None:
    drawing = pictures(width=16)
    expected = drawing.encode("one two")
    for space in (3, 5, 40):
        paper = np.full((16, space), 255, np.uint8)
        wide = np.concatenate([paper, drawing.draw("one"), paper, drawing.draw("two"), paper], axis=1)
        assert np.array_equal(drawing.cut(wide), expected)


@pytest.mark.parametrize("height", [8, 16, 24, 64])
def test_no_letter_is_too_faint(height: int) -> None:
    """Each character's ink is in its patches, but for the palest edges."""
    drawing = pictures(height=height)
    for character in "abcxyzWM.,:;!?'`\"-()1|áñ¿\u2026":
        strip = drawing.draw(character)
        kept = (255.0 - drawing.cut(strip)).sum()
        assert kept >= 0.95 * (255.0 - strip).sum(), character


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
    ):
        with pytest.raises(UserError, match=f"data.font: .*{said}"):
            Font.find(asked)


def test_a_run_keeps_its_font_and_refuses_another(tmp_path: Path) -> None:
    font = Path(shutil.copy(FONTS / "DejaVuSerif.ttf", tmp_path / "mine.ttf"))
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
    font.unlink()
    with pytest.raises(UserError, match="there is no file"):
        load_tokenizers(tmp_path / "kept", config.tokenizer)
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
    with pytest.raises(UserError, match=r"% of the patches of data.train's sources have characters that DejaVu Sans"):
        prepare_data(toy_config(tmp_path, **DRAWN))


# Pictures from files


@pytest.fixture(scope="module")
def drawing() -> Pictures:
    return pictures()


def test_what_was_drawn_reads_as_it_was_drawn(drawing: Pictures, tmp_path: Path) -> None:
    strip = drawing.draw("The red balls are in the house.")
    grey = np.round((strip.astype(float) - 4) * 255 / 251).astype(np.uint8)
    found = read_picture(save(grey, tmp_path / "a.png"), drawing)
    expected = drawing.encode("The red balls are in the house.")
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_light_on_dark_transparent_and_coloured(drawing: Pictures, tmp_path: Path) -> None:
    expected = drawing.encode("Two words")
    grey = np.round((drawing.draw("Two words").astype(float) - 4) * 255 / 251).astype(np.uint8)
    alpha = np.zeros((*grey.shape, 4), np.uint8)
    alpha[..., 3] = 255 - grey
    colours = np.stack([grey // 4 + 150] * 3, axis=2)  # pale, of little contrast
    for number, picture in enumerate((255 - grey, alpha, colours)):
        found = read_picture(save(picture, tmp_path / f"{number}.png"), drawing)
        assert found.shape == expected.shape, number
        assert np.abs(found.astype(int) - expected).max() <= 4, number


def test_another_size_and_margins(drawing: Pictures, tmp_path: Path) -> None:
    """Three times as high, and with wide margins: about as many patches, and much the same ink."""
    expected = drawing.encode("The quick jay")
    large = pictures(height=48, width=8).draw("The quick jay")
    found = read_picture(save(large, tmp_path / "large.png"), drawing)
    assert abs(len(found) - len(expected)) <= 1
    margins = np.pad(large, 60, constant_values=255)
    framed = read_picture(save(margins, tmp_path / "framed.png"), drawing)
    assert abs(len(framed) - len(expected)) <= 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no picture that can be read"),
        (b"The cat sat\n", "is no picture that can be read"),
        (None, "cannot be read as a picture: No such file"),
        (np.full((20, 60), 255, np.uint8), "has no text"),
        (np.zeros((5, 5), np.uint8), "has no text"),
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


def test_half_a_file(drawing: Pictures, tmp_path: Path) -> None:
    path = save(np.random.default_rng(1).integers(0, 255, (200, 200), np.uint8), tmp_path / "a.png")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match="cannot be read as a picture"):
        read_picture(path, drawing)
