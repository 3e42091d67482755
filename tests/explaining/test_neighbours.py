"""The nearest training pairs: the pair itself first, by line; the index kept, and made again when it is of no use."""

import html
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import call_tmt
from toy import write_toy_corpus
from translators import ONE_STREAM, SMALL, WITHOUT_HEADS, make_translator, write_run

from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.explaining import sentence_index
from transformer_mt.explaining.neighbours import neighbours
from transformer_mt.explaining.sentence_index import SentenceIndex, pooled

ARCHITECTURES = {
    "transformer": SMALL,
    "one stream": {**SMALL, **ONE_STREAM},
    "rnn": {**WITHOUT_HEADS, "architecture": "rnn"},
}


def make_run(folder: Path, model: dict | None = None, **data: object) -> Path:
    write_toy_corpus(folder / "data")
    data = {"root": str(folder / "data"), "cache_dir": str(folder / "cache"), **data}
    return write_run(folder / "run", make_translator(model or SMALL, data=data))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def nearest(run: Path, sentence: str, number: int = 3):
    said: list[str] = []
    translator = Translator.load(run, device="cpu")
    return neighbours(translator, translator.src_tokenizer.encode(sentence), number, said.append), said


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_nearest_of_a_training_sentence_is_itself(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, ARCHITECTURES[name])
    sources, targets = ((tmp_path / f"data/train.{side}").read_text().split("\n") for side in ("en", "es"))
    for line in (1, 57, 120):
        (first, *others), _ = nearest(run, sources[line - 1])
        assert (first.src, first.tgt) == (sources[line - 1], targets[line - 1])
        assert first.where.endswith(f"line {line}")
        assert first.cosine == pytest.approx(1.0, abs=2e-3)
        assert [one.cosine for one in others] == sorted((one.cosine for one in others), reverse=True)


def test_text_beside_the_pairs_is_passed_over(tmp_path: Path) -> None:
    write_toy_corpus(tmp_path / "data")
    train = [{"mono": "train.es"}, {"src": "train.en", "tgt": "train.es"}]
    data = {"root": str(tmp_path / "data"), "cache_dir": str(tmp_path), "train": train, "noise": {"kind": "infilling"}}
    run = write_run(tmp_path / "run", make_translator(SMALL, data=data, tokenizer={"masks": 1}))
    first = (tmp_path / "data/train.en").read_text().split("\n")[0]
    assert nearest(run, first)[0][0].where.endswith("line 1")


def test_vectors_are_means_of_states_without_padding() -> None:
    translator = make_translator(SMALL)
    rows = [[5, 6, 7], [8], [5, 6, 7, 8, 9, 10]]
    together = pooled(translator.model, rows).numpy()
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_allclose(pooled(translator.model, [row])[0].numpy(), vector, atol=1e-5)
    np.testing.assert_allclose((together**2).sum(axis=1), 1.0, atol=1e-5)


def test_the_search_is_that_of_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_index, "ROWS_AT_ONCE", 7)
    vectors = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float16)
    vectors[5] = 0  # one that the model could not read
    query = vectors[3].astype(np.float32)
    cosines = vectors.astype(np.float32) @ query
    cosines[5] = -np.inf
    best = np.argsort(-cosines, kind="stable")[:10]
    assert SentenceIndex(vectors, 2).nearest(query, 10) == [(2 * row, pytest.approx(cosines[row])) for row in best]
    assert len(SentenceIndex(vectors, 1).nearest(query, 100)) == 39


def test_the_index_is_made_once_and_again_for_other_weights_or_pairs(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, said = nearest(run, "one two.")
    assert said[0] == "making an index of the 120 training pairs, once"
    (vectors,) = run.parent.glob("cache/neighbours/*/vectors.npy")
    assert said[1].endswith(f"it is kept in {vectors.parent}")
    assert nearest(run, "one two.") == (first, [])
    vectors.write_bytes(b"")
    again, said = nearest(run, "one two.")
    assert (again, len(said)) == (first, 2)
    assert "vectors.npy has 0 bytes instead of" in caplog.text
    manifest = run / "checkpoints/step_1/manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    assert len(nearest(run, "one two.")[1]) == 2
    source = run.parent / "data/train.en"
    source.write_text(source.read_text().replace("ten", "one"))
    assert len(nearest(run, "one two.")[1]) == 2
    assert nearest(run, "one two.")[1] == []


def test_of_more_pairs_one_in_so_many(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_index, "MOST_PAIRS", 50)
    third = (run.parent / "data/train.en").read_text().split("\n")[3]
    found, _ = nearest(run, third, 50)
    assert found[0].src == third
    assert len(found) == 40
    assert all((int(one.where.split()[-1]) - 1) % 3 == 0 for one in found)


def test_a_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.streaming is on"):
        nearest(make_run(tmp_path, streaming=True), "one two.")


def test_on_the_command_line(run: Path) -> None:
    arguments = ("explain", "One  two three.", "--run", str(run), "--device", "cpu")
    result = call_tmt(run.parent, *arguments)
    assert result.returncode == 0, result.stderr
    for said in ("words that mattered", "rank correlation", "drop without its first 3", "nearest training pairs"):
        assert said in result.stdout
    result = call_tmt(run.parent, *arguments, "--json", "--neighbours", "2", "--target", "uno dos")
    told = json.loads(result.stdout)
    assert told["importance"]["words"] == ["One", "two", "three", "."]
    assert told["translation"] == "uno dos"
    assert [choice["taken"]["token"] for choice in told["choices"]] == ["uno", "dos", "</s>"]
    assert len(told["neighbours"]) == 2


HOSTILE = "<script>alert(1)</script> & one."


def test_a_page_holds_every_number_and_hostile_text_as_text(run: Path) -> None:
    result = call_tmt(
        run.parent, "explain", HOSTILE, "--target", HOSTILE, "--run", "run", "--json", "--output", "e.html"
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.endswith("page: e.html\n")
    told, page = json.loads(result.stdout), (run.parent / "e.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert f"Source: <bdi>{html.escape(HOSTILE)}</bdi>" in page
    for measure in told["importance"]["measures"].values():
        assert all(f">{score:.4f}<" in page for score in [*measure["scores"], *measure["drops"]])
    assert all(f" {choice['taken']['probability']:.4f}<" in page for choice in told["choices"])
    assert all(html.escape(one["where"]) in page for one in told["neighbours"])


def test_training_pairs_that_are_gone_leave_the_rest(run: Path) -> None:
    shutil.rmtree(run.parent / "data")
    result = call_tmt(run.parent, "explain", "one two.", "--run", str(run))
    assert result.returncode == 0
    assert "words that mattered" in result.stdout
    (said,) = (line for line in result.stdout.split("\n") if line.startswith("not shown. "))
    assert "data.root: there is no folder" in said
    assert "and else data.root in the run's config.yaml." in said
    (run.parent / "data").mkdir()
    found = call_tmt(run.parent, "explain", "one two.", "--run", str(run)).stdout
    assert "There is no file" in found
    assert found.count("and else data.root in the run's config.yaml.") == 1
    assert "nearest training pairs" not in call_tmt(run.parent, "explain", "one two.", "-n", "0", "--run", "run").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["  "], "The sentence is blank. Give at least one word."),
        (["one " * 40], "The sentence has 40 tokens, and the model reads 23."),
        (["one", "--target", " "], "The translation is blank."),
        (["one", "--checkpoint", "step_7"], "step_7"),
        (["one", "--output", "page.pdf"], "page.pdf does not end in .html."),
        (["one", "--output", "nowhere/page.html"], "There is no folder "),
    ],
)
def test_what_is_refused(run: Path, arguments: list[str], said: str) -> None:
    result = call_tmt(run.parent, "explain", *arguments, "--run", str(run))
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == ""
