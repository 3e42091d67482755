"""`tmt evaluate`: the scores are sacreBLEU's own on what was translated, and they are saved."""

import json
import math
import shutil
from pathlib import Path

import pytest
import sacrebleu
import torch
from torch.nn import functional as F

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.translator import Translator


def test_scores_of_a_split(tmt, trained: Path) -> None:
    result = tmt("evaluate")
    assert result.returncode == 0
    assert "scored: test, valid.en / valid.es\n" in result.stderr
    saved = json.loads((trained / "runs/toy/evaluations/test_step_1200_beam2_lp0.6.json").read_text())
    lines = (trained / "runs/toy/evaluations/test_step_1200_beam2_lp0.6.jsonl").read_text().split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    hypotheses = [row["hypothesis"] for row in rows]
    assert rows[3]["where"].endswith("valid.es, line 4")
    sources = (trained / "data/valid.en").read_text().split("\n")[:-1]
    references = (trained / "data/valid.es").read_text().split("\n")[:-1]
    translator = Translator.load(trained / "runs" / "toy")
    assert hypotheses == translator.translate(sources)
    assert saved["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert saved["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert "tok:13a" in saved["bleu_signature"]
    assert saved["num_sentences"] == 20
    assert f"BLEU {saved['bleu']:.2f}" in result.stdout
    assert saved["bleu"] > 80, "the toy language is learned"

    total, num_tokens = 0.0, 0
    for source, reference in zip(sources, references, strict=True):
        src = torch.tensor([[*translator.src_tokenizer.encode(source), EOS_ID]])
        tgt = [BOS_ID, *translator.tgt_tokenizer.encode(reference), EOS_ID]
        with torch.inference_mode():
            logits = translator.model(src, torch.tensor([tgt[:-1]]))[0]
        total += F.cross_entropy(logits, torch.tensor(tgt[1:]), reduction="sum").item()
        num_tokens += len(tgt) - 1
    assert saved["nll"] == pytest.approx(total / num_tokens, rel=1e-4)
    assert saved["ppl"] == pytest.approx(math.exp(total / num_tokens), rel=1e-4)


def test_two_files_tokenizer_and_case(call, trained: Path) -> None:
    (trained / "upper.es").write_text((trained / "data/valid.es").read_text().upper())
    arguments = ["--src", "data/valid.en", "--ref", "upper.es", "--beam-size", "1"]
    cased = call("evaluate", *arguments)
    ignoring = call("evaluate", *arguments, "--lowercase", "--bleu-tokenize", "char")
    assert cased.stdout.startswith("BLEU 0.")
    assert "tok:char" in ignoring.stdout
    assert "case:lc" in ignoring.stdout
    assert float(ignoring.stdout.split()[1]) > 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "dev"], "There is no split 'dev'"),
        (["--src", "data/valid.en"], "--src and --ref go together"),
        (["--src", "data/valid.en", "--ref", "data/none.es"], "none.es"),
        (["--src", "data/valid.en", "--ref", "data/train.es"], "20"),
        (["--bleu-tokenize", "14b"], "'14b' is not a BLEU tokenizer. Use one of 13a"),
        (["--checkpoint", "step_1"], "has no checkpoint 'step_1'"),
    ],
)
def test_mistakes(call, arguments: list[str], message: str) -> None:
    result = call("evaluate", *arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_blank_and_long_lines_are_counted_and_nothing_shifts(call, trained: Path) -> None:
    (trained / "few.en").write_text(f"seven eight.\n\n{'one ' * 40}\nseven eight.\n{'one ' * 2**19}\n")
    (trained / "few.es").write_text(f"ocho siete.\nuno.\nuno.\nocho {'siete ' * 40}\nuno.\n")
    result = call("evaluate", "--src", "few.en", "--ref", "few.es")
    assert result.returncode == 0
    assert "left out: 1 pair with a blank side\n" in result.stdout
    assert "left out: 1 pair with a side longer than 1,048,576 bytes\n" in result.stdout
    assert "translated as nothing: 1 source longer than the model's 24 positions\n" in result.stdout
    assert "left out of nll and ppl: 2 pairs with a side longer than 24 positions\n" in result.stdout
    (path,) = (trained / "runs/toy/evaluations").glob("few-*_step_1200_beam2_lp0.6.jsonl")
    lines = path.read_text().split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    assert [(row["where"].split()[-1], row["hypothesis"]) for row in rows] == [
        ("1", "ocho siete."), ("3", ""), ("4", "ocho siete."),
    ]  # fmt: skip


@pytest.mark.slow
def test_evaluations_with_other_settings_do_not_take_each_others_place(call, trained: Path, tmp_path: Path) -> None:
    names = set()
    for arguments in ("", "--lowercase --bleu-tokenize none", "--beam-size 1"):
        result = call("evaluate", *arguments.split())
        names.add(result.stdout.split("saved: ")[1].strip())
    result = call("evaluate", "--data-root", "data")
    names.add(result.stdout.split("saved: ")[1].strip())
    assert len(names) == 4
    run = tmp_path / "a run"
    shutil.copytree(trained / "runs" / "toy", run)
    told = call("average", str(run), "--last", "1").stdout
    assert f"tmt translate --run '{run}' --checkpoint average" in told
    result = call("evaluate", "--run", str(run), "--checkpoint", "average")
    assert "evaluations/test_average1_to_1200_beam2_lp0.6.json" in result.stdout


def test_scores_are_told_where_they_cannot_be_saved(call, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs" / "toy", tmp_path / "toy")
    shutil.rmtree(tmp_path / "toy" / "evaluations", ignore_errors=True)
    (tmp_path / "toy" / "evaluations").write_text("in the way")
    result = call("evaluate", "--run", str(tmp_path / "toy"))
    assert result.returncode == 2
    assert result.stdout.startswith("BLEU ")
    assert "cannot be written: File exists. The scores above are whole" in result.stderr


def test_what_cannot_be_scored_is_not_translated_first(call, trained: Path) -> None:
    (trained / "long.en").write_text("one " * 40 + "\n")
    (trained / "long.es").write_text("uno\n")
    for arguments, message in (
        (["--src", "long.en", "--ref", "long.es"], "none fits model.max_len 24. Evaluate on shorter ones."),
        (["--bleu-tokenize", "bogus"], "'bogus' is not a BLEU tokenizer"),
        (["--src", "long.en", "--ref", "long.es", "--split", "test"], "--src and --split were both given."),
        (["--src", "long.en", "--ref", "long.es", "--data-root", "data"], "--src and --data-root were both given."),
        (["--beam-size", "2147483647"], "Lower beam_size or batch_size."),
    ):
        result = call("evaluate", *arguments)
        assert result.returncode == 2
        assert message in result.stderr
        assert "sentences" not in result.stderr  # of the bar
