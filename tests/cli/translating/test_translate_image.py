"""A model that reads pictures, through the command line: text that is drawn, pictures from files, and looks inside."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call_tmt
from PIL import Image
from toy import toy_pairs
from translators import PICTURES, SMALL, make_translator, write_run
from writers import printed

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.pictures.read_picture import read_picture
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.load_ensemble import Loaded, combined
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.inspect.attention import pair_attention
from transformer_mt.inspect.trace import trace
from transformer_mt.storage.run_folder import RunFolder

TEXTS = [src for src, _ in toy_pairs(4, seed=3)]


@pytest.fixture(scope="module")
def translator() -> Translator:
    made = make_translator(PICTURES, noise=0.3)
    with torch.no_grad():
        made.model.output.weight.mul_(3)  # so that sources have translations of their own
    return Translator(made.model, made.src_tokenizer, made.tgt_tokenizer, made.config)  # a search has copies of weights


@pytest.fixture(scope="module")
def folder(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run `pictures`, the run `words`, and each of TEXTS as a file, 0.png and so on."""
    folder = tmp_path_factory.mktemp("pictures")
    write_run(folder / "runs" / "pictures", translator)
    write_run(folder / "runs" / "words", make_translator(SMALL))
    for number, text in enumerate(TEXTS):
        Image.fromarray(printed(text, 40)).save(folder / f"{number}.png")
    (folder / "text.png").write_text("The cat sat\n")
    Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (8, 40))).save(folder / "long.png")
    return folder


RUN = ("--run", "runs/pictures")


def images(*names: str) -> list[str]:
    return [part for name in names for part in ("--image", f"{name}.png")]


def test_texts_are_drawn_and_pictures_are_read(folder: Path, translator: Translator) -> None:
    drawn = call_tmt(folder, "translate", *RUN, *TEXTS)
    assert drawn.returncode == 0, drawn.stderr
    found = drawn.stdout.splitlines()
    assert found == translator.translate(TEXTS)
    assert len(set(found)) > 1
    read = call_tmt(folder, "translate", *RUN, *images("2", "0", "3"))
    drawing = translator.src_tokenizer
    assert isinstance(drawing, Pictures)
    lines = [SourceLine(name, patches=read_picture(folder / f"{name}.png", drawing)) for name in ("2", "0", "3")]
    assert read.stdout.splitlines() == translator.translate(lines)
    as_json = call_tmt(folder, "translate", *RUN, *images("1"), "--format", "jsonl")
    assert '"1.png"' in as_json.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*RUN, *images("text")), r"text.png is no picture that can be read. Give a PNG or JPEG file"),
        ((*RUN, *images("none")), r"none.png cannot be read as a picture: No such file or directory. Give another."),
        ((*RUN, *images("0"), "two"), r"--image and sentences were both given. Give one of them."),
        ((*RUN, *images("0"), "--input", "text.png"), r"--image and --input were both given. Give one of them."),
        ((*RUN, *images("0"), "--html"), r"--image goes with the search alone: .* Leave them out."),
        (("--run", "runs/words", *images("0")), r"--image is for a model with data.source_as: picture, .* text"),
        ((*RUN, "one", "--alignment", "hard", "--alignment-from", "attention"), r"the model looks at patches. Use "),
    ],
)
def test_what_cannot_be_translated(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    result = call_tmt(folder, "translate", *arguments)
    assert result.returncode == 2
    assert re.search(said, result.stderr), result.stderr


def test_patches_that_the_model_does_not_read_are_refused(translator: Translator) -> None:
    columns = PICTURES["patches"]["height"] * PICTURES["patches"]["width"]
    right = np.zeros((3, columns), np.uint8)
    for reader, patches, said in (
        (make_translator(SMALL), right, "Line 2 has patches, and this model reads text. Give a text without patches"),
        (translator, right[:, 1:], rf"patches of line 2 are of the type uint8 and the shape \(3, {columns - 1}\)"),
        (translator, right.astype(float), rf"of the type float64 and .*Give an array of uint8, of {columns} columns"),
        (translator, right.tolist(), r"The patches of line 2 are of the type list and the shape \(\)"),
    ):
        with pytest.raises(UserError, match=said):
            reader.translate(["one", SourceLine("it", patches=patches)])  # pyright: ignore[reportArgumentType]
    assert len(translator.translate(["one", SourceLine("it", patches=right)])) == 2


def test_words_cannot_be_explained_to_a_model_that_reads_patches(folder: Path) -> None:
    result = call_tmt(folder, "explain", TEXTS[0], *RUN)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert re.search(r"data.source_as is picture: this model reads patches. `tmt attention` shows", line), line


def test_a_line_that_the_font_or_the_model_has_no_room_for(folder: Path) -> None:
    unknown = call_tmt(folder, "translate", *RUN, "one 日本")
    assert "日本" in unknown.stderr
    long = call_tmt(folder, "translate", *RUN, *images("long", "0"))
    assert long.stdout.splitlines()[0] == ""
    assert len(long.stdout.splitlines()) == 2
    assert "longer than the model's 40 positions, left blank; --too-long truncate translates what fits" in long.stderr
    split = call_tmt(folder, "translate", *RUN, *images("long"), "--too-long", "split")
    assert "a picture cannot be cut where a sentence ends" in split.stderr
    sentences = call_tmt(folder, "translate", *RUN, " ".join(TEXTS), "--too-long", "split")
    assert sentences.stdout.strip()
    cut = call_tmt(folder, "translate", *RUN, *images("long"), "--too-long", "truncate")
    assert "the beginning was translated" in cut.stderr


@pytest.mark.parametrize("name", ["ctranslate2", "onnx", "huggingface", "argos"])
def test_no_engine_reads_patches(name: str, folder: Path) -> None:
    result = call_tmt(folder, "export", *RUN, "--to", name, "exported.argosmodel")
    assert result.returncode == 2
    assert "model.patches" in result.stderr, result.stderr


# Search and scores


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_score_of_a_search_is_that_of_teacher_forcing(beam_size: int, translator: Translator) -> None:
    rows = [translator.src_tokenizer.encode(text) for text in TEXTS]
    options = search_options(translator.config.decoding, beam_size=beam_size)
    together = translator.search(rows, options)
    for row, (best, *_) in zip(rows, together, strict=True):
        (log_probs,) = token_log_probs(translator.search_model, [(row, best.tokens)])
        assert best.log_prob == pytest.approx(sum(log_probs), abs=1e-3)
        ((alone, *_),) = translator.search([row], options)
        assert alone.tokens == best.tokens


def test_scores_and_coverage_of_texts(translator: Translator) -> None:
    found = translator.translate(TEXTS, coverage_penalty=0.2)
    scored = translator.score(TEXTS, [text or "uno" for text in found], coverage_penalty=0.2)
    assert all(one.log_prob < 0 and not one.problem for one in scored)
    assert translator.score([""], ["uno"])[0].problem == "the source is blank"


def test_an_ensemble_wants_the_same_pictures(translator: Translator, folder: Path) -> None:
    def loaded(one: Translator) -> Loaded:
        where = [(RunFolder(folder / "runs" / "pictures"), folder)]
        return Loaded(one.config, one.model, one.src_tokenizer, one.tgt_tokenizer, where)

    assert isinstance(combined([loaded(translator)] * 2, "linear").model, Ensemble)
    wider = make_translator({**PICTURES, "patches": {"height": 8, "width": 7}})
    with pytest.raises(UserError, match=r"not the same source vocabulary \(width 6 and 7, step 6 and 7\)"):
        combined([loaded(translator), loaded(wider)], "linear")


# Looking inside


def test_attention_has_the_patches_on_its_axes(translator: Translator, folder: Path) -> None:
    row, tgt = translator.src_tokenizer.encode(TEXTS[0]), translator.tgt_tokenizer.encode("uno dos")
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    encoder, decoder, cross = pair_attention(translator.model, row, tgt, *tokenizers, (TEXTS[0], None))
    assert encoder.key_patches is not None
    assert cross.key_patches is not None
    assert np.array_equal(encoder.key_patches[:-1].reshape(len(row), -1), row)
    assert (encoder.key_patches[-1] == 255).all()  # EOS
    assert decoder.key_patches is None
    assert cross.query_patches is None
    assert cross.weights.shape[2:] == (3, len(row) + 1)
    assert "".join(cross.key_words).replace("·", "") == TEXTS[0].replace(" ", "") + "</s>"
    drawn = call_tmt(folder, "attention", TEXTS[0], *RUN, "--output", "looks")
    assert drawn.returncode == 0, drawn.stderr
    with_patches = np.asarray(Image.open(folder / "looks" / "cross_layer_0.png"))
    greys = (np.ptp(with_patches[..., :3].astype(int), axis=2) == 0) & (with_patches[..., 0] < 100)
    assert greys.any(axis=0).sum() > 200, "ink of patches and of words, all over the width"


def test_a_trace_of_a_picture(translator: Translator) -> None:
    found = trace(translator, TEXTS[0])
    row = translator.src_tokenizer.encode(TEXTS[0])
    assert len(found.src_tokens) == len(row) + 1
    assert found.stacks[0].ids == list(range(1, len(row) + 2))
    end = translator.model.get_parameter("encoder.embedder.embedding.eos.weight")
    assert EOS_ID == 3
    torch.testing.assert_close(found.stacks[0].embedding[-1], end[0])
