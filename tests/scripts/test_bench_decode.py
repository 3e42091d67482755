"""bench_decode.py measures sides that agree, and other decoders write as many tokens as ours."""

import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarking import number, run, stub
from translators import SMALL, make_translator, write_run


def test_a_foreign_decoder_writes_as_many_tokens_as_ours(scripts: SimpleNamespace, monkeypatch, capsys) -> None:
    """The decoder is a stand-in that notes what it is given."""
    module: ModuleType = scripts.foreign_decoders
    calls: list[tuple[list[list[int]], int]] = []
    monkeypatch.setattr(
        module, "SIDES", {"hf": lambda job: (lambda src, length: calls.append((src.tolist(), length)), 9)}
    )
    monkeypatch.setattr(module, "peak_memory", lambda work: work() or 77)
    rows = [([5, 3], 4), ([6, 7, 8, 3], 2), ([5, 6, 3], 7)]
    job = {"side": "hf", "device": "cpu", "threads": torch.get_num_threads(), "sizes": [2], "rows": rows}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([job])))
    module.main()
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["batch_size"], found["num_tokens"], found["memory"], found["texts"]) == (2, 13, 77, [])
    batches = [([[6, 7, 8, 3], [5, 6, 3, 9]], 7), ([[5, 3]], 4)]  # long ones first, padded
    assert calls == batches * 3  # to warm up, for the time, for the memory


HF_ANSWERS = """
(job,) = json.load(sys.stdin)
assert (job["side"], job["layers"], job["d_model"], job["num_heads"], job["d_ff"]) == ("hf", 1, 16, 2, 32)
assert len(job["rows"]) == len(job["lines"]) == 20 and all(ids[-1] == 3 for ids, _ in job["rows"])
print("a progress bar, say")
num_tokens = sum(written for _, written in job["rows"])
print(json.dumps([{"seconds": 2.0, "batch_size": 8, "num_tokens": num_tokens, "memory": 3 * 2**20, "texts": []}]))
"""


@pytest.mark.slow
def test_bench_decode_measures_sides_that_agree(text: Path, trained: Path, tmp_path: Path) -> None:
    python = stub(tmp_path / "python", HF_ANSWERS)
    arguments = ("--run", str(trained), "--data", str(text), "--threads", "1", "--hf-python", str(python), "--smoke")
    said, *profiles = run("bench_decode.py", *arguments, "--profile").split("\n\n| operation | ms | times |")
    assert [len(re.findall(r"^\| \S+ \| [\d.]+ \| [\d,]+ \|$", table, re.MULTILINE)) for table in profiles] == [15, 15]
    said = said.rpartition("\ngreedy, ")[0]
    assert len(re.findall(r"^\| (?:from a loaded model, \w+|`tmt .*) \| [\d,.]+ \|$", said, re.MULTILINE)) == 5
    _, greedy, beam = re.split(r"^(?:greedy|beam 5), 20 sentences, .*\n", said, flags=re.MULTILINE)
    ours = ["ours, fp32", "ours, int8", "ours, bf16"]
    for searched in (greedy, beam):
        rows = decode_rows(searched)
        if "CTranslate2, float32" in rows:
            engines = ["CTranslate2, float32", "CTranslate2, int8"]
        else:
            pytest.importorskip("ctranslate2", reason="without CTranslate2 the benchmark leaves it out")
            raise AssertionError("CTranslate2 is there, and was left out")
        hf = "transformers generate, fp32"
        assert list(rows) == [*ours, *engines, "ours without a cache, fp32", hf]
        assert {rows[name]["same"] for name in ["ours, fp32", "ours without a cache, fp32"]} == {"20"}
        # CTranslate2 ends a beam earlier, so that it may miss the best: test_export_verb.py compares the scores there.
        assert int(rows["CTranslate2, float32"]["same"]) >= (20 if searched is greedy else 18)
        assert len({rows[name]["bleu"] for name, row in rows.items() if row["same"] == "20"}) == 1
        assert float(rows["ours, fp32"]["bleu"]) > 30  # of 100: it has learned, so that 20 is no count of empty lines
        assert all(10 <= int(rows[name]["same"]) <= 20 for name in [*ours, *engines])
        assert (rows[hf]["speed"], rows[hf]["memory"], rows[hf]["bleu"], rows[hf]["same"]) == (10, "3", "", "")
        assert rows[hf]["tokens"] == pytest.approx(num_tokens(rows["ours, fp32"]) / 2, rel=0.02)
        ratios = {name: float(told) for told, name in re.findall(r"^([\d.]+) x (.*)$", searched, re.MULTILINE)}
        for opponent in [*engines, "ours without a cache, fp32", hf]:
            expected = rows["ours, fp32"]["speed"] / rows[opponent]["speed"]
            assert ratios[f"{opponent} (ours, fp32)"] == pytest.approx(expected, rel=0.05, abs=0.02)
        assert searched.index(" x ours without a cache") < searched.index("| side |")


def decode_rows(said: str) -> dict[str, dict[str, Any]]:
    """Of a search's table, by side."""
    cells = r"^\| (.*?) \| ([\d,.]+) \| ([\d,]+) \| 8 \| ([\d,]+) MiB \| ([\d.]*) \| (\d*) \|$"
    return {
        name: {"speed": number(speed), "tokens": number(tokens), "memory": memory, "bleu": bleu, "same": same}
        for name, speed, tokens, memory, bleu, same in re.findall(cells, said, re.MULTILINE)
    }


def num_tokens(row: dict[str, Any]) -> float:
    """Of 20 sentences."""
    return 20 * row["tokens"] / row["speed"]


def test_bench_decode_leaves_out_ctranslate2_for_what_that_has_not(
    scripts: SimpleNamespace, tmp_path: Path, capsys
) -> None:
    pytest.importorskip("ctranslate2", reason="what CTranslate2 has not is asked of it")
    run = write_run(tmp_path / "run", make_translator({"num_encoder_layers": 1, **SMALL, "num_experts": 2}))
    assert scripts.bench_decode.export_for_ct2(run, tmp_path / "ct2") is False
    said = capsys.readouterr().err
    assert said.startswith("without CTranslate2: model.num_experts is 2, and CTranslate2 has no mixture of experts. ")


def test_on_a_gpu_ours_share_a_process_and_so_do_those_of_ctranslate2(scripts: SimpleNamespace) -> None:
    asked = {"precisions": ["fp32", "fp16"], "no_plain": True, "hf_python": "python", "joey_python": None}
    args = SimpleNamespace(**asked, device="cuda", against=None, smoke=False)
    ours, ct2, hf = scripts.bench_decode.sides_of(args, True)
    assert ours == [("ours", "fp32"), ("ours", "fp16"), ("eager", "fp32"), ("eager", "fp16")]
    assert [side for side, _ in ct2] == ["ct2"] * 3
    assert hf == [("hf", "fp32")]
    args.device = "cpu"
    assert [len(together) for together in scripts.bench_decode.sides_of(args, False)] == [1, 1, 1]
