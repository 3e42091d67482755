"""How an evaluation scores follows the run's config, and its name has every choice that changes a score."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config, toy_pairs
from translators import SMALL, make_translator

from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.decoding.search.options import search_options
from transformer_mt.errors import UserError
from transformer_mt.evaluation.evaluate import Evaluation, Scoring, SetFiles, evaluate, evaluation_name
from transformer_mt.storage.run_folder import RunFolder

PAIRS = toy_pairs(6)
OTHER_DECODING = {
    "to": "es", "beam_size": 5, "length_penalty": 0.0, "length_norm": "average", "coverage_penalty": 0.4,
    "max_length_ratio": 1.0, "max_length_extra": 5,
    "min_length": 2, "max_length": 9, "no_repeat_ngram_size": 3, "patience": 2.0, "mbr": "chrf",
    "mbr_candidates": 7, "avoid": "a/words.txt", "diverse_beam_groups": 2, "diverse_beam_strength": 0.7,
    "sampling_topk": 9, "sampling_topp": 0.9, "temperature": 0.8, "seed": 7,
    "constraints": "unordered", "glossary": "a/terms.tsv",
    "allow_unk": True, "batch_size": 3, "precision": "int8",
}  # fmt: skip


def scores(
    folder: Path, references: list[str], data: dict[str, Any] | None = None, lowercase: bool = False
) -> Evaluation:
    """The scores of a model that has learned nothing."""
    for name, lines in (("few.en", [src for src, _ in PAIRS]), ("few.es", references)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = {"num_encoder_layers": 1, **SMALL}
    translator = make_translator(model, data=data or {}, tokenizer={"lowercase": lowercase})
    options = search_options(translator.config.decoding, beam_size=1)
    scoring = Scoring(files=(SetFiles(folder / "few.en", (folder / "few.es",)),))
    return evaluate(translator, RunFolder(folder / "run"), "step_1", scoring, options)[0]


@pytest.mark.parametrize(("language", "tokenizer"), [("zh", "zh"), ("es", "13a")])
def test_the_tokenizer_is_that_of_the_target_language(language: str, tokenizer: str, tmp_path: Path) -> None:
    data = {"src_lang": "ja", "tgt_lang": language}
    assert f"tok:{tokenizer}|" in scores(tmp_path, [tgt for _, tgt in PAIRS], data=data).bleu_signature


def test_a_model_taught_in_lower_case_is_scored_in_it(tmp_path: Path) -> None:
    lower, upper = (
        scores(tmp_path, references, lowercase=True)
        for references in ([tgt for _, tgt in PAIRS], [tgt.upper() for _, tgt in PAIRS])
    )
    assert (lower.bleu, lower.chrf) == (upper.bleu, upper.chrf)
    assert lower.chrf > 0


def test_every_choice_that_changes_a_score_changes_the_name(tmp_path: Path) -> None:
    plain = scores(tmp_path, [tgt for _, tgt in PAIRS])
    run = RunFolder(tmp_path / "run")
    names = [
        *(
            evaluation_name(run, scoring, plain)
            for scoring in (
                Scoring(),
                Scoring("validation"),
                Scoring(files=(SetFiles(Path("a/test.en"), (Path("a/test.es"),)),)),
                Scoring(files=(SetFiles(Path("b/test.en"), (Path("b/test.es"),)),)),
                Scoring(data_root="a"),
                Scoring(tokenizer="char"),
                Scoring(lowercase=True),
            )
        ),
        *(
            evaluation_name(run, Scoring(), replace(plain, **change))
            for change in (
                {"checkpoint": "step_2"},
                {"precision": "int8"},
                {"ensemble": ["a, step_1", "b, step_1"], "ensemble_mode": "linear"},
                {"ensemble": ["a, step_1", "b, step_2"], "ensemble_mode": "linear"},
                {"ensemble": ["a, step_1", "b, step_1"], "ensemble_mode": "log_linear"},
            )
        ),
        *(
            evaluation_name(run, Scoring(), replace(plain, decoding=plain.decoding | {"beam_size": 4} | {key: value}))
            for key, value in OTHER_DECODING.items()
            if key not in ("batch_size", "precision")
        ),
    ]
    assert OTHER_DECODING.keys() == SearchConfig.model_fields.keys()
    assert len({*names}) == len(names)
    assert not [name for name in names if "/" in name]  # a path would be a folder


def test_a_test_set_has_one_name_however_its_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = scores(tmp_path, [tgt for _, tgt in PAIRS])
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "deep/er")
    names = set()
    for folder in (tmp_path, Path("../.."), tmp_path / "link"):
        files = (SetFiles(folder / "few.en", (folder / "few.es",)),)
        names.add(evaluation_name(RunFolder(tmp_path / "run"), Scoring(files=files), plain))
    assert len(names) == 1


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_split_that_is_not_there_is_told_in_words_for_the_shell_and_for_python(split: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape("files: src and ref (--src FILE --ref FILE).")):
        Scoring(split).sources(toy_config(tmp_path))


def test_sources_without_references_are_refused() -> None:
    with pytest.raises(UserError, match=re.escape("a.en has no references. Give ref (--ref FILE) a file of them")):
        SetFiles(Path("a.en"), ())
