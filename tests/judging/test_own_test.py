"""The BLEU that stands for a run beside others is of one checkpoint, one search, one tokenizer and one case."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config

from transformer_mt.config.schema import RunConfig
from transformer_mt.decoding.search.options import search_options
from transformer_mt.judging.runs.own_test import own_test_bleu
from transformer_mt.storage.run_folder import RunFolder


def run_with(folder: Path, **sections: Any) -> tuple[RunFolder, RunConfig]:
    test = [{"src": "test.en", "tgt": "test.es"}]
    config = toy_config(folder, **{**sections, "data": {"test": test, **sections.get("data", {})}})
    (folder / "evaluations").mkdir()
    return RunFolder(folder), config


def save(run: RunFolder, config: RunConfig, bleu: float, tok: str = "13a", case: str = "mixed", **other: Any) -> None:
    """An evaluation as `tmt evaluate` without options would have it, but for what is given."""
    number = len(list(run.evaluations.iterdir()))
    saved = {
        "checkpoint": "step_9", "ensemble": [], "split": "test", "bleu": bleu, "source": ["test.en / test.es"],
        "bleu_signature": f"nrefs:1|case:{case}|eff:no|tok:{tok}|smooth:exp|version:2.6.0", **other,
        "decoding": search_options(config.decoding).as_saved | other.get("decoding", {}),
    }  # fmt: skip
    path = run.evaluations / f"test_{number}.json"
    path.write_text(json.dumps(saved))
    os.utime(path, (number, number))


def found(run: RunFolder, config: RunConfig) -> float | None:
    problems: list[str] = []
    value = own_test_bleu(run, config, "step_9", problems)
    assert not problems
    return value


@pytest.mark.parametrize(
    "other",
    [
        {"tok": "char"}, {"case": "lc"}, {"checkpoint": "step_8"}, {"decoding": {"beam_size": 9}}, {"split": ""},
        {"split": "validation"}, {"ensemble": ["a", "b"]}, {"source": ["newer.en / newer.es"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_higher_score_of_another_kind_does_not_count(other: dict[str, Any], tmp_path: Path) -> None:
    run, config = run_with(tmp_path)
    save(run, config, 90.0, **other)
    assert found(run, config) is None
    save(run, config, 20.0)
    assert found(run, config) == 20


@pytest.mark.parametrize(
    ("language", "tok", "lowercase"), [("zh", "zh", False), ("ja", "ja-mecab-0.996-IPA", False), ("es", "13a", True)]
)
def test_the_signature_is_that_of_the_language_and_the_case_of_the_config(
    language: str, tok: str, lowercase: bool, tmp_path: Path
) -> None:
    run, config = run_with(tmp_path, data={"tgt_lang": language}, tokenizer={"lowercase": lowercase})
    save(run, config, 90.0, tok="char")
    save(run, config, 90.0, tok=tok, case="mixed" if lowercase else "lc")
    assert found(run, config) is None
    save(run, config, 20.0, tok=tok, case="lc" if lowercase else "mixed")
    assert found(run, config) == 20


def test_of_the_same_measured_again_the_newest_counts(tmp_path: Path) -> None:
    """In another precision, say, or where the data lies now."""
    run, config = run_with(tmp_path)
    for bleu in (21.0, 20.0):
        save(run, config, bleu)
    assert found(run, config) == 20


def test_a_key_of_the_search_that_is_newer_than_the_evaluation_had_its_default(tmp_path: Path) -> None:
    run, config = run_with(tmp_path)
    save(run, config, 20.0)
    (path,) = run.evaluations.iterdir()
    saved = json.loads(path.read_text())
    del saved["decoding"]["patience"]
    path.write_text(json.dumps(saved))
    assert found(run, config) == 20
    assert found(run, toy_config(tmp_path, data=config.data.model_dump(), decoding={"patience": 2.0})) is None


def test_where_the_config_names_no_language_a_caller_says_it(tmp_path: Path) -> None:
    run, config = run_with(tmp_path)
    save(run, config, 90.0, decoding={"to": "zh"})  # scored by the words of another language
    assert found(run, config) is None
    save(run, config, 20.0, tok="zh", decoding={"to": "zh"})
    assert found(run, config) == 20


@pytest.mark.parametrize("text", ["{", "[]", '{"split": "test"}'])
def test_a_file_that_is_none_of_ours_is_told(text: str, tmp_path: Path) -> None:
    run, config = run_with(tmp_path)
    (run.evaluations / "test_x.json").write_text(text)
    problems: list[str] = []
    assert own_test_bleu(run, config, "step_9", problems) is None
    assert problems == ["evaluations/test_x.json cannot be read"]


def test_a_score_that_is_no_number_is_told(tmp_path: Path) -> None:
    run, config = run_with(tmp_path)
    save(run, config, float("nan"))
    problems: list[str] = []
    assert own_test_bleu(run, config, "step_9", problems) is None
    assert problems == ["evaluations/test_0.json cannot be read"]
