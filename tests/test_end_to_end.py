"""The whole job through the command line: shipped configs, other scripts, real text, a GPU where there is one."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import call_tmt, run_tmt
from marks import slow
from trainings import metrics_with_clock

from transformer_mt.config.loading import parse_run_config
from transformer_mt.data.batches.batching import plan_batches
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.preparation import prepare_data

SMALL = [
    "model.d_model=32", "model.d_ff=64", "model.num_heads=2", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "model.max_len=128", "training.max_tokens=1024", "training.max_steps=25",
    "training.warmup_steps=20", "validation.every_steps=25", "validation.num_translated=4",
]  # fmt: skip


@pytest.mark.slow
def test_base_yaml_trains_and_translates_with_nothing_else(tmp_path: Path) -> None:
    """The paper's base model; fewer tokens, and of its validation 20 pairs without translations, because a test is not
    a GPU.
    """
    few = "".join(f"{src}\t{tgt}\n" for src, tgt in builtin_pairs("validation")[:20])
    (tmp_path / "few.tsv").write_text(few, encoding="utf-8")
    result = run_tmt(
        tmp_path, "train", "--config", "base.yaml", "training.max_steps=1", "training.max_tokens=512",
        "training.proofs=off", "validation.num_translated=0", "validation.metric=nll",
        f"data.validation=[{{tsv: {tmp_path}/few.tsv}}]",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "taking the shipped" in result.stdout
    assert "finished at step 1: max_steps 1 reached" in result.stdout
    translated = call_tmt(tmp_path, "translate", "--beam-size", "1", "The cat sat")
    assert translated.returncode == 0
    assert translated.stderr == "run: runs/base\n"
    assert translated.stdout.count("\n") == 1
    kinds = {path.suffix for path in (tmp_path / "runs/base/checkpoints/step_1").iterdir()}
    assert kinds == {".safetensors", ".json", ".yaml"}


@pytest.mark.slow
def test_quickstart_reaches_bleu_90_and_the_cat_sits(tmp_path: Path) -> None:
    assert run_tmt(tmp_path, "train", "--config", "quickstart.yaml").returncode == 0
    result = run_tmt(tmp_path, "evaluate", "--split", "test")
    assert float(result.stdout.split()[1]) >= 90
    assert run_tmt(tmp_path, "translate", "The cat sat").stdout == "El gato se sentó\n"


@pytest.mark.parametrize(
    ("language", "kind"),
    [("ar", "bpe"), ("ja", "unigram")]
    + [
        slow(language, kind)
        for language in ("zh", "ja", "ar", "hi")
        for kind in ("bpe", "unigram")
        if (language, kind) not in (("ar", "bpe"), ("ja", "unigram"))
    ],
)
def test_other_scripts_train_and_translate(shared_data, tmp_path: Path, language: str, kind: str) -> None:
    folder = shared_data(f"other_scripts/en_{language}")
    vocabulary = ["tokenizer.vocab_size=1000", f"tokenizer.kind={kind}"]
    result = train_on(folder, tmp_path, language, *vocabulary)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("unknown 0.00%") == 4
    lines = (folder / "valid.en").read_text(encoding="utf-8").split("\n")[:5]
    translated = call_tmt(tmp_path, "translate", stdin="\n".join(lines).encode())
    assert translated.returncode == 0
    assert translated.stdout.count("\n") == 5


@pytest.mark.parametrize("language", [slow("zh"), "ja"])
def test_words_of_scripts_without_spaces_are_refused(shared_data, tmp_path: Path, language: str) -> None:
    """A sentence is one word, and hardly a sentence comes twice."""
    result = train_on(shared_data(f"other_scripts/en_{language}"), tmp_path, language, "tokenizer.kind=word")
    assert result.returncode == 2
    share = int(result.stderr.split("%")[0].split()[-1])
    assert share > 80
    assert "of the validation target's words are not in the vocabulary" in result.stderr
    assert "Use tokenizer.kind: bpe" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("language", ["ar", slow("hi")])
def test_words_of_other_scripts_with_spaces_train_with_a_hint(shared_data, tmp_path: Path, language: str) -> None:
    """The hint stands before the first step."""
    one = ["training.max_steps=1", "training.warmup_steps=1"]
    result = train_on(shared_data(f"other_scripts/en_{language}"), tmp_path, language, "tokenizer.kind=word", *one)
    assert result.returncode == 0
    assert "tokenizer.kind: bpe knows every text" in result.stdout


def train_on(folder: Path, tmp_path: Path, language: str, *more: str):
    sources = [f"data.{split}=[{{src: {name}.en, tgt: {name}.{language}}}]"
               for split, name in (("train", "train"), ("validation", "valid"))]  # fmt: skip
    where = [f"data.root={folder}", f"data.tgt_lang={language}", "data.test=[]"]
    return call_tmt(tmp_path, "train", "--config", "quickstart.yaml", *where, *sources, *SMALL, *more)


def test_padding_on_multi30k_words_is_under_7_percent(shared_data) -> None:
    folder = shared_data("multi30k/raw/train.en").parent
    config = parse_run_config(
        {
            "name": "padding",
            "data": {"root": str(folder), "train": [{"src": "train.en", "tgt": "train.de"}],
                     "validation": [{"src": "val.en", "tgt": "val.de"}]},
            "training": {"max_steps": 1},
        },
        "padding",
    )  # fmt: skip
    split = prepare_data(config).train
    src, tgt = split.src_lengths, split.tgt_lengths
    plan = plan_batches(src, tgt, 4096, seed=1, epoch=0)
    cells = sum(len(rows) * (int(src[rows].max()) + int(tgt[rows].max())) for rows in plan)
    padding = 1 - (src.sum() + tgt.sum()) / cells
    assert 0 < padding < 0.07
    assert max(len(rows) * max(src[rows].max(), tgt[rows].max()) for rows in plan) <= 4096
    assert np.array_equal(np.sort(np.concatenate(plan)), np.arange(29_000))


@pytest.mark.gpu
def test_twenty_steps_resume_and_translate_on_a_gpu(tmp_path: Path) -> None:
    arguments = [
        "train",
        "--config",
        "quickstart.yaml",
        *SMALL,
        "training.device=cuda",
        "training.checkpoint_every_steps=10",
    ]
    for steps in (10, 20):
        more = (f"training.max_steps={steps}", "training.log_every_steps=1", "--resume", "auto")
        result = run_tmt(tmp_path, *arguments, *more, timeout=900)  # for compilers on a fresh machine
        assert result.returncode == 0, result.stderr
        assert "device: cuda" in result.stdout
        assert "could not be compiled" not in result.stdout
    assert "going on from step 10" in result.stdout
    lines = metrics_with_clock(tmp_path / "runs/quickstart")
    assert lines[-1]["step"] == 20
    if "compile: on" in result.stdout:  # there is a compiler
        assert {line["compiled_graphs"] for line in lines if line["kind"] == "train"} <= set(range(2, 7))
    translated = run_tmt(tmp_path, "translate", "--device", "cuda", "--precision", "fp32", "The cat sat")
    assert translated.returncode == 0
    on_cpu = run_tmt(tmp_path, "translate", "--device", "cpu", "--precision", "fp32", "The cat sat")
    assert on_cpu.stdout == translated.stdout
    shutil.rmtree(tmp_path / "runs")
