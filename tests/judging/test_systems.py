"""What runs make of test sets, judged as `tmt evaluate` scores it."""

import json
import re
from pathlib import Path

import pytest
from commands import call_tmt
from toy import write_toy_corpus
from translators import SMALL, make_translator, write_run


def pairs(name: str, language: str) -> dict[str, str]:
    return {"src": f"{name}.en", "tgt": f"{name}.es", "tag": f"<2{language}>"}


@pytest.mark.parametrize(
    ("tested", "to"), [("zh", None), ("es", None), (None, "zh")], ids=["tagged zh", "tagged es", "to zh by the config"]
)
def test_a_report_cuts_words_as_the_saved_score_does(tmp_path: Path, tested: str | None, to: str | None) -> None:
    write_toy_corpus(tmp_path / "data")
    test = pairs("valid", tested) if tested else {"src": "valid.en", "tgt": "valid.es"}
    data = {"root": "data", "train": [pairs("train", "es"), pairs("train", "zh")], "test": [test]}
    sections = {"data": data, "tokenizer": {"tags": ["<2es>", "<2zh>"]}, "decoding": {"to": to}}
    write_run(tmp_path / "run", make_translator({"num_encoder_layers": 1, **SMALL}, **sections))
    judged = call_tmt(tmp_path, "evaluate", "--run", "run", "--html", "report.html")
    assert judged.returncode == 0, judged.stderr
    (saved,) = (tmp_path / "run/evaluations").glob("*.json")
    tokenizer = re.search(r"tok:\w+", json.loads(saved.read_text())["bleu_signature"])
    assert tokenizer is not None
    assert tokenizer[0] == {"zh": "tok:zh", "es": "tok:13a"}[tested or to or ""]
    assert tokenizer[0] in judged.stdout


@pytest.mark.parametrize(
    ("options", "search"),
    [
        ("--beam-size 1", "greedy"),
        ("--beam-size 4", "beam of 4"),
        ("--beam-size 4 --diverse-beam-groups 2", "beam of 4, diverse_beam_groups 2"),
        ("--beam-size 4 --mbr chrf", "beam of 4, mbr chrf"),
        ("--sampling-topk 3", "samples, sampling_topk 3"),
        ("--temperature 1 --mbr bleu --mbr-candidates 5", "samples, temperature 1.0, mbr bleu, mbr_candidates 5"),
    ],
)
def test_a_report_and_a_card_name_the_same_search(tmp_path: Path, options: str, search: str) -> None:
    write_toy_corpus(tmp_path / "data")
    data = {"root": "data", "test": [{"src": "valid.en", "tgt": "valid.es"}]}
    write_run(tmp_path / "run", make_translator({"num_encoder_layers": 1, **SMALL}, data=data))
    judged = call_tmt(tmp_path, "evaluate", "--run", "run", "--html", "report.html", *options.split())
    assert judged.returncode == 0, judged.stderr
    assert f"run (step_1, {search}, fp32, nll " in judged.stdout
    assert f"| 20 | {search}, fp32 |" in call_tmt(tmp_path, "card", "--run", "run").stdout
