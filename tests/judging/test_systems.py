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
