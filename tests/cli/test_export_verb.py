"""`tmt export`: the trained model for CTranslate2, and what a user can get wrong."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from marks import slow
from toy import toy_pairs

from transformer_mt import Translator
from transformer_mt.config.special_ids import BOS_ID, EOS_ID

SENTENCES = [src for src, _ in toy_pairs(40, seed=6)]


@pytest.fixture(scope="module")
def exported(tmt, trained: Path) -> Path:
    pytest.importorskip("ctranslate2", reason="the extra ct2 is not installed; the extra dev brings it")
    result = tmt("export", "--to", "ctranslate2", "exported/toy")
    assert result.returncode == 0, result.stderr
    said = result.stderr.splitlines()
    assert said[0] == "run: runs/toy"
    assert [line.partition(" is ")[0] for line in said[1:]] == ["note: decoding.length_norm"]  # the default is gnmt
    assert "exported/toy: the model for ctranslate2, and its tokenizers" in result.stdout
    assert "ExportedTranslator('toy')" in (trained / "exported/toy/README.md").read_text(encoding="utf-8")
    return trained / "exported" / "toy"


def test_the_folder_alone_translates_as_the_run_does(trained: Path, exported: Path, tmp_path: Path) -> None:
    from transformer_mt.decoding.search.options import search_options
    from transformer_mt.export.ctranslate2 import ExportedTranslator

    moved = exported.rename(tmp_path / "moved")
    theirs = ExportedTranslator(moved, threads=1)
    moved.rename(exported)
    ours = Translator.load(trained / "runs" / "toy", device="cpu")
    assert theirs.translate([*SENTENCES, ""], beam_size=1) == ours.translate([*SENTENCES, ""], beam_size=1)
    options = search_options(ours.config.decoding, beam_size=4, length_norm="average", length_penalty=1.0)
    beam = ours.translate_lines(SENTENCES, options)
    others = theirs.translate(SENTENCES, beam_size=4, length_penalty=1.0)
    differing = [(line, text) for line, text in zip(beam, others, strict=True) if line.text != text]
    assert len(differing) < len(SENTENCES) / 10
    for line, text in differing:  # CTranslate2 ends a beam earlier, so that it may miss the best
        assert line.hypotheses[0].score > mean_log_prob(ours, line.source, text)


@torch.inference_mode()
def mean_log_prob(translator: Translator, source: str, text: str) -> float:
    """Teacher-forced, EOS counted."""
    src = torch.tensor([[*translator.src_tokenizer.encode(source), EOS_ID]])
    tgt = translator.tgt_tokenizer.encode(text)
    log_probs = translator.model(src, torch.tensor([[BOS_ID, *tgt]])).log_softmax(-1)[0]
    return log_probs.gather(1, torch.tensor([*tgt, EOS_ID])[:, None]).mean().item()


def test_eight_bits_still_translate(call, trained: Path, exported: Path) -> None:
    from transformer_mt.export.ctranslate2 import ExportedTranslator

    result = call("export", "--to", "ctranslate2", "--run", "runs/toy", "--quantization", "int8", "exported/int8")
    assert result.returncode == 0, result.stderr
    small, whole = trained / "exported/int8/model.bin", exported / "model.bin"
    assert small.stat().st_size < 0.5 * whole.stat().st_size
    theirs = ExportedTranslator(trained / "exported" / "int8", threads=1)
    assert theirs.translate(["one two three.", "seven eight."], beam_size=1) == ["uno tres dos.", "ocho siete."]


@pytest.fixture(scope="module")
def to_onnx(call, trained: Path) -> Callable[[str | None], Path]:
    """The folder of an export, which is made once."""
    pytest.importorskip("onnx", reason="the extra onnx is not installed; the extra dev brings it")

    @cache
    def export(quantization: str | None) -> Path:
        folder = trained / f"exported/onnx_{quantization}"
        chosen = [] if quantization is None else ["--quantization", quantization]
        result = call("export", "--to", "onnx", "--run", "runs/toy", *chosen, str(folder))
        assert result.returncode == 0, result.stderr
        assert result.stderr == "note: decoding.beam_size is 2, and translate.py searches greedily.\n"
        return folder

    return export


@pytest.mark.parametrize("quantization", [None, slow("int8")])
def test_onnx_translates_as_the_run_does(
    quantization: str | None, to_onnx: Callable[[str | None], Path], trained: Path
) -> None:
    folder = to_onnx(quantization)
    texts = [*SENTENCES, "", " one  two\t", "one " * 40]
    command, lines = [sys.executable, str(folder / "translate.py")], "".join(f"{text}\n" for text in texts)
    found = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    ours = Translator.load(trained / "runs" / "toy", device="cpu").translate(texts, beam_size=1)
    differing = [pair for pair in zip(found.split("\n")[:-1], ours, strict=True) if pair[0] != pair[1]]
    assert len(differing) <= (0 if quantization is None else 3)
    if quantization is not None:
        size, whole = (sum(p.stat().st_size for p in f.glob("*.onnx")) for f in (folder, to_onnx(None)))
        assert size < 0.6 * whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "tflite", "new"], "not one of 'ctranslate2'"),
        (
            ["--to", "huggingface", "--run", "runs/toy", "new"],
            "model.tie_embeddings is decoder and model.norm_position",
        ),
        (["--to", "huggingface", "--run", "runs/toy", "new"], "tokenizer.kind is word"),
        (["--to", "huggingface", "--run", "runs/toy", "data"], "data exists and is not an empty folder. Name another"),
        (["--to", "huggingface", "--quantization", "int8", "new"], "--quantization is int8, and the files of"),
        (["--to", "onnx", "--quantization", "int4", "new"], "'int4' is not a quantization of ONNX. Use int8"),
        (["new"], "Missing option '--to'"),
        (["--to", "ctranslate2", "--run", "nowhere", "new"], "nowhere is not the folder of a run"),
        (["--to", "ctranslate2", "--run", "runs/toy", "data"], "data exists and is not an empty folder. Name another"),
        (["--to", "ctranslate2", "--checkpoint", "step_7", "new"], "has no checkpoint 'step_7'; there are "),
        (["--to", "ctranslate2", "--quantization", "int3", "new"], "'int3' is not a quantization. Use one of int8"),
        (["--to", "ctranslate2", "toy.yaml/new"], "cannot be written: Not a directory"),
    ],
)
def test_mistakes_get_one_clear_sentence(
    exported: Path, call, trained: Path, arguments: list[str], message: str
) -> None:
    result = call("export", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert not (trained / "new").exists()


def test_without_onnx_the_way_to_it_is_named(call, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformer_mt.export.onnx import export as onnx_export

    monkeypatch.setattr(onnx_export, "_PACKAGES", ("no-such-package",))
    result = call("export", "--to", "onnx", "--run", "runs/toy", "new")
    assert result.returncode == 2
    assert "tmt: no-such-package is not installed." in result.stderr
    assert "with: pip install no-such-package" in result.stderr


def test_without_ctranslate2_the_way_to_it_is_named(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "transformer_mt.export.ctranslate2", raising=False)
    result = call("export", "--to", "ctranslate2", "--run", "runs/toy", "new")
    assert result.returncode == 2
    assert result.stderr.startswith("tmt: CTranslate2 is not installed")
    assert "Install it with: pip install 'ctranslate2>=4.7'" in result.stderr
