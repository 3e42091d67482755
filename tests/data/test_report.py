"""What training says of its data, and refuses, before the first step."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config, toy_pairs, write_toy_corpus

from transformer_mt.config.schema import RunConfig
from transformer_mt.data import overlap, preparation
from transformer_mt.data.preparation import Split, prepare_training_data, report_lines
from transformer_mt.data.tokenizers import normalize
from transformer_mt.errors import UserError

Pairs = list[tuple[str, str]]


def write(folder: Path, name: str, pairs: Pairs) -> None:
    folder.mkdir(exist_ok=True)
    for side, language in enumerate(("en", "es")):
        lines = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(lines, encoding="utf-8", newline="\n")


def config_of(folder: Path, train: Pairs, valid: Pairs | None = None, **sections: dict) -> RunConfig:
    write(folder, "train", train)
    write(folder, "valid", train[:4] if valid is None else valid)
    return toy_config(folder, **{**sections, "data": {"cache_dir": str(folder / "cache"), **sections.get("data", {})}})


def report(config: RunConfig) -> str:
    return "\n".join(report_lines(prepare_training_data(config)))


def shown(text: str) -> Pairs:
    """The sample pairs of a report."""
    texts = re.findall(r"^  (.*)  ->  ", text, re.MULTILINE)
    return list(zip(texts[::2], texts[1::2], strict=True))


# Validation sentences that are trained on


@pytest.mark.parametrize(("lowercase", "counts"), [(False, "3 of its 5 sources, 2 of its targets"),
                                                   (True, "4 of its 5 sources, 2 of its targets")])  # fmt: skip
def test_what_of_the_validation_is_trained_on(
    lowercase: bool, counts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = [*toy_pairs(40), ("a  caf\u00e9 .", "uno"), ("B", "dos"), ("", "tres uno")]
    valid = [("a cafe\u0301 . ", "uno"), toy_pairs(1)[0], (toy_pairs(1)[0][0], "ocho uno"), ("b", "dos uno")]
    valid.append(("c", "tres uno"))
    config = config_of(tmp_path / "data", train, valid, tokenizer={"lowercase": lowercase})
    text = report(config)
    assert f"\n  in the training split too: {counts}\n" in text
    assert f"warning: {60 + 20 * lowercase}% of the validation's sources are trained on" in text
    monkeypatch.setattr(overlap, "_count", lambda *_: pytest.fail("counted again"))
    assert report(config) == text


def test_a_tag_hides_no_sentence_that_is_trained_on(tmp_path: Path) -> None:
    """Of any tag, on either split; a tag that is typed in a file is a word of it."""
    train, valid = toy_pairs(40), [*toy_pairs(4), ("<BT> one", "dos uno")]
    write(tmp_path / "data", "made", [("one", "uno"), ("<BT> two", "dos"), ("three", "tres")])
    files = {"src": "made.en", "tgt": "made.es"}
    plain = {"src": "train.en", "tgt": "train.es", "tag": "<2es>"}
    validated = {"src": "valid.en", "tgt": "valid.es", "tag": "<2es>"}
    data = {"train": [plain, {**files, "tag": "<BT>"}], "validation": [validated, {**files, "tag": "<2es>"}]}
    text = report(config_of(tmp_path / "data", train, valid, data=data, tokenizer={"tags": ["<BT>", "<2es>"]}))
    assert "in the training split too: 7 of its 8 sources, 7 of its targets" in text
    assert "warning: 88% of the validation's sources are trained on" in text


def test_nothing_shared_is_said_without_a_warning(tmp_path: Path) -> None:
    text = report(toy_config(write_toy_corpus(tmp_path / "data")))
    assert "in the training split too: 0 of its 20 sources, 0 of its targets" in text
    assert "warning" not in text


def test_real_text_was_split_by_sources(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """No English sentence is in both; targets are."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, number in (("train", 15_000), ("valid", None)):  # a part of the training is enough to count with
        for language in ("en", "es"):
            lines = (shared_data("tatoeba_en_es") / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:-1]
            text = "".join(f"{line}\n" for line in lines[:number])
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    config = toy_config(folder, data={"cache_dir": str(tmp_path / "cache")}, tokenizer={"vocab_size": 8000})
    trained, held_out = (
        {normalize(line) for line in (folder / name).read_text(encoding="utf-8").split("\n")}
        for name in ("train.es", "valid.es")
    )
    counts = (0, len([t for t in (folder / "valid.es").read_text(encoding="utf-8").split("\n")[:-1]
                      if normalize(t) in trained]), 1374)  # fmt: skip
    assert held_out & trained
    assert tuple(prepare_training_data(config).overlap or ()) == counts


# Pairs that are left out


def words(number: int) -> tuple[str, str]:
    return " ".join(["one"] * number), "uno"


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_left_out_is_a_warning_and_beyond_half_an_error(streaming: bool, tmp_path: Path) -> None:
    data = {"streaming": streaming, **({"shuffle_window": 1000} if streaming else {})}
    few = report(config_of(tmp_path / "few", [words(5)] * 95 + [words(20)] * 5, data=data))
    assert "5 too long left out" in few
    assert "too long for model.max_len" not in few
    some = report(config_of(tmp_path / "some", [words(5)] * 90 + [words(20)] * 9 + [words(50)], data=data))
    assert "\n  warning: 10% of these pairs are too long for model.max_len and left out; model.max_len=21 would" in some
    most = [words(5)] * 49 + [words(20)] * 51
    message = r"51 of the 100 .*training pairs are longer than model\.max_len 16\. model\.max_len=21 would hold 99 %"
    with pytest.raises(UserError, match=message):
        report(config_of(tmp_path / "most", most, data=data))
    allowed = report(config_of(tmp_path / "most", most, data={**data, "allow_left_out": True}))
    assert "warning: 51%" in allowed


def test_a_validation_that_is_left_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"2 of the 3 validation pairs .*data\.allow_left_out=true goes on"):
        report(config_of(tmp_path / "data", [words(5)] * 9, [words(5), words(16), words(17)]))


def test_the_length_that_is_proposed_holds_99_per_cent(tmp_path: Path) -> None:
    """One more token a pair, from 1 to 200."""
    pairs = [words(number) for number in range(1, 201)]
    with pytest.raises(UserError) as told:
        report(config_of(tmp_path / "data", pairs))
    (enough,) = map(int, re.findall(r"model\.max_len=(\d+)", str(told.value)))
    config = config_of(tmp_path / "data", pairs, model={"max_len": enough}, training={"max_tokens": 1000})
    data = prepare_training_data(config)
    assert isinstance(data.train, Split)
    assert 198 <= len(data.train) <= 199


# Sample pairs


@pytest.mark.parametrize("streaming", [False, True])
def test_the_sample_pairs_are_from_all_over_by_the_seed(streaming: bool, tmp_path: Path) -> None:
    pairs = toy_pairs(300)
    data = {"streaming": streaming, **({"shuffle_window": 1000} if streaming else {})}
    places = []
    for seed in (*range(30), 0):
        config = config_of(tmp_path / "data", pairs, data=data)
        sample = shown(report(config.model_copy(update={"seed": seed})))
        assert len(set(sample)) == 3
        places.append([pairs.index(pair) for pair in sample])
    assert places[0] == places[-1]
    everywhere = [place for some in places[:-1] for place in some]
    assert 100 < sum(everywhere) / len(everywhere) < 200
    assert min(everywhere) < 30
    assert max(everywhere) >= 270
    few = config_of(tmp_path / "few", pairs[:2], data=data)
    assert sorted(shown(report(few))) == sorted(pairs[:2])


# Before anything is prepared, and while it is


def test_a_test_file_that_is_missing_is_told_at_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_toy_corpus(tmp_path / "data")
    monkeypatch.setattr(preparation, "load_corpus", lambda *_: pytest.fail("read before"))
    for source in ({"src": "test.en", "tgt": "valid.es"}, {"tsv": "test.tsv"}, {"jsonl": "folder"}):
        (folder / "folder").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=r"^data\.test: .*(test\.en|test\.tsv|folder).*without it: data\.test=\[\]"):
            prepare_training_data(toy_config(folder, data={"test": [source]}))
    nowhere = toy_config(folder, data={"root": str(tmp_path / "nowhere"), "test": [{"tsv": "test.tsv"}]})
    with pytest.raises(UserError, match=r"^data\.root: there is no folder .*/nowhere\. .*: data\.root=FOLDER [^[]*$"):
        prepare_training_data(nowhere)
    monkeypatch.undo()
    there = [{"src": "valid.en", "tgt": "valid.es"}, {"builtin": "en-es", "split": "test"}]
    prepare_training_data(toy_config(folder, data={"test": there}))


@pytest.mark.parametrize("streaming", [False, True])
def test_ctrl_c_while_data_is_prepared_says_how_to_go_on(
    streaming: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(write_toy_corpus(tmp_path / "data"), data={"streaming": streaming})

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for name in ("Stream",) if streaming else ("load_corpus", "corpus_tokenizers", "encode_corpus", "find_overlap"):
        with monkeypatch.context() as patch:
            patch.setattr(preparation, name, interrupted)
            with pytest.raises(KeyboardInterrupt, match="Start again by the same command"):
                prepare_training_data(config)
