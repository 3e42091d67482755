"""The graphs of ONNX compute our logits, one cached step after the other; the runner makes our ids and our text."""

import ast
import os
import random
import re
import subprocess
import sys
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import ask, foreign_python
from marks import slow
from toy import all_entries, toy_pairs
from translators import MODELS_BY_NAME, ONE_STREAM, SMALL, make_translator, write_run

from transformer_mt.config.sections.decoding import DecodingConfig, SearchConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.export.card import EXAMPLE
from transformer_mt.export.expressible import OPTIONS
from transformer_mt.export.onnx import export as onnx_export
from transformer_mt.export.onnx.export import OBEYED, export_run, search_notes, write_model
from transformer_mt.storage.run_folder import open_run

pytest.importorskip("onnx", reason="the extra onnx is not installed; the extra dev brings it")

import onnxruntime  # pyright: ignore[reportMissingImports]

from transformer_mt.export.onnx import runner as onnx_runner

# Every value of every table once or more: the first values together, the second ones, …
NUMBER = max(map(len, OPTIONS.values()))
COMBINED = [
    dict(zip(OPTIONS, values, strict=True))
    for values in zip(*(islice(cycle(t), NUMBER) for t in OPTIONS.values()), strict=True)
]
# What stands in no table, beside the first and the second ones: a model takes torch ten seconds to write.
BESIDE: list[dict[str, Any]] = [
    {"tie_embeddings": "all", "num_kv_heads": 2, "attention_window": 4},
    {"tie_embeddings": "none", "num_experts": 3, "experts_per_token": 2, "scale_attention": False, "bias": False},
]  # fmt: skip
CONVERTED: dict[str, dict[str, Any]] = {
    ", ".join(options.values()): {**options, **beside}
    for options, beside in zip_longest(COMBINED, BESIDE, fillvalue={})
}
SELDOM = [", ".join(options.values()) for options in COMBINED[1:]]  # converted where slow tests are asked for
TEXTS = [
    "", " ", "one two.", "¿Qué, don't?", "(\"Hi\" ￭a ￭ <joiner> </s> <unk>", "e\u0301 🙂 ß\u200b ñandú...", "日本語。",
    "!", "a\u00a0b\u2028c\x1cd\te", "▁ Ġ Ċ \\u0041", "...a...", "½ ² ٣x_y", "ΑΣ ΣΑ İ", "aaaaaaa bb", "\ue000x\u0378",
]  # fmt: skip


def write(translator: Translator, folder: Path, quantization: str | None = None) -> Path:
    sides = translator.src_tokenizer, translator.tgt_tokenizer
    write_model(translator.model, *sides, translator.config, folder, quantization)
    return folder


def cached_logits(folder: Path, src: torch.Tensor, tgt_in: torch.Tensor) -> np.ndarray:
    """The logits of onnxruntime, fed one token after the other."""
    sessions: list[Any] = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder_step")
    ]
    encoder, step = sessions
    names = [output.name for output in encoder.get_outputs()]
    memory = encoder.run(None, {"src": src.numpy()})
    past = [np.zeros((heads.shape[0], heads.shape[1], 0, heads.shape[3]), np.float32) for heads in memory]
    found = []
    for t in range(tgt_in.size(1)):
        cache = {name.replace("memory", "past"): heads for name, heads in zip(names, past, strict=True)}
        fixed = {"src_mask": (src != PAD_ID).numpy(), **dict(zip(names, memory, strict=True))}
        logits, *past = step.run(None, {"tokens": tgt_in[:, t].numpy(), **fixed, **cache})
        found.append(logits)
    return np.stack(found, axis=1)


@torch.no_grad()
@pytest.mark.parametrize("name", [slow(n) if n in SELDOM else n for n in CONVERTED])
def test_cached_steps_give_our_logits(name: str, tmp_path: Path) -> None:
    """20 steps, any number of sentences, and any length of them."""
    translator = make_translator({"num_encoder_layers": 1, **SMALL, **CONVERTED[name]})
    folder = write(translator, tmp_path / "model")
    dice = torch.Generator().manual_seed(3)
    for batch, src_len in ((1, 1), (1, 24), (3, 7), (6, 2)):
        src = torch.randint(4, translator.src_tokenizer.vocab_size, (batch, src_len), generator=dice)
        for row in range(1, batch):
            src[row, max(1, src_len - row) :] = PAD_ID
        tgt_in = torch.randint(4, translator.tgt_tokenizer.vocab_size, (batch, 20), generator=dice)
        tgt_in[:, 0] = BOS_ID
        logits = translator.model(src, tgt_in)
        torch.testing.assert_close(torch.tensor(cached_logits(folder, src, tgt_in)), logits, atol=1e-5, rtol=1e-5)
        assert logits.std() > 0.1, "such weights tell one token from another"


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_runners_tokenizer_is_ours(kind: str, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = {"kind": kind, "vocab_size": 400, **all_entries(kind), "lowercase": lowercase, "joint": True}
    pairs = toy_pairs(50) + [(text, text) for text in TEXTS if text.strip()]
    ours = make_translator({"num_encoder_layers": 1, **SMALL}, pairs, tokenizer=tokenizer).src_tokenizer
    ours.save(tmp_path / "src.json")
    theirs = onnx_runner.Tokenizer(tmp_path / "src.json", kind, lowercase)
    dice = random.Random(3)
    characters = [*"".join(TEXTS), *" .-'\"￭", *map(chr, range(0x250))]
    texts = [*TEXTS, *("".join(dice.choices(characters, k=30)) for _ in range(300)), *(src for src, _ in pairs)]
    assert [theirs.encode(text) for text in texts] == ours.encode_batch(texts)
    for length in (0, 1, 2, 5, 30) * 40:
        ids = dice.choices(range(4, ours.vocab_size), k=length)
        assert theirs.decode(ids) == ours.decode(ids)


@pytest.mark.parametrize(("bias", "shows"), [(2, 3), slow(12, 2)])
def test_the_runner_obeys_the_rules_of_greedy_search(bias: float, shows: int, tmp_path: Path) -> None:
    """`bias` of EOS: some texts end early, or all do."""
    model = {**SMALL, "num_encoder_layers": 1, "num_decoder_layers": 1, "tie_embeddings": "none"}
    translator = make_translator(model, decoding={"beam_size": 1})
    with torch.no_grad():
        translator.model.output.bias[EOS_ID] += bias
    folder = write(translator, tmp_path / "model")
    texts = [*(src for src, _ in toy_pairs(40, seed=2)), "", " ", "one " * 30]
    found = []
    for rule in ({}, {"min_length": 6}, {"max_length": 3}, {"max_length_ratio": 0.5, "max_length_extra": 2}):
        config = translator.config.model_copy(
            update={"decoding": DecodingConfig.model_validate({"beam_size": 1, **rule})}
        )
        ours = Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, config)
        runner = onnx_runner.Translator(folder, threads=1)
        assert runner.settings["decoding"] == translator.config.decoding.model_dump()
        runner.settings["decoding"] = config.decoding.model_dump()
        found.append(ours.translate(texts))
        assert runner.translate(texts, batch_size=7) == found[-1]
    assert len(set(map(tuple, found))) >= shows, "the rules show"


@pytest.mark.slow
def test_eight_bits_are_near(tmp_path: Path) -> None:
    translator = make_translator({**SMALL, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 64})
    src, tgt_in = torch.randint(4, 20, (4, 9)), torch.randint(4, 20, (4, 9))
    with torch.no_grad():
        logits = translator.model(src, tgt_in)
    found = torch.tensor(cached_logits(write(translator, tmp_path / "model", "int8"), src, tgt_in))
    apart = (found - logits).norm() / (logits - logits.mean(-1, keepdim=True)).norm()
    assert 1e-4 < apart < 0.1


@pytest.mark.foreign
def test_the_three_lines_of_the_card_translate_with_onnxruntime_alone(tmp_path: Path) -> None:
    translator = make_translator({"num_encoder_layers": 1, **SMALL}, decoding={"beam_size": 1})
    export_run(open_run(write_run(tmp_path / "run", translator)), None, tmp_path / "new")
    (code,) = re.findall(r"```bash\n(.*?)```", (tmp_path / "new" / "README.md").read_text("utf-8"), re.DOTALL)
    python = foreign_python("onnxruntime", "onnxruntime", alone=True)
    assert code.split("\n") == ["pip install onnxruntime", "cd new", f'python translate.py "{EXAMPLE}"', ""]
    assert ask(python, tmp_path / "new" / "translate.py", EXAMPLE) == translator.translate([EXAMPLE])[0] + "\n"


def test_the_card_goes_into_a_folder_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside graphs that nobody reads here, and that would take seconds to write."""
    monkeypatch.setattr(onnx_export, "_write_graph", lambda *inputs: inputs[-1].touch())
    translator = make_translator({"num_encoder_layers": 1, **SMALL}, decoding={"beam_size": 1})
    export_run(open_run(write_run(tmp_path / "run", translator)), None, tmp_path / "my model")
    assert "\ncd 'my model'\n" in (tmp_path / "my model/README.md").read_text("utf-8")
    if sys.platform != "linux":
        return  # elsewhere a name is UTF-8
    export_run(open_run(tmp_path / "run"), None, tmp_path / os.fsdecode(b"caf\xe9"))
    assert b"\ncd 'caf\xe9'\n" in (tmp_path / os.fsdecode(b"caf\xe9") / "README.md").read_bytes()


def test_the_runner_takes_an_argument_that_is_not_utf_8() -> None:
    result = subprocess.run([sys.executable, "-c", ECHO, b"caf\xe9"], capture_output=True, check=False)
    assert (result.returncode, result.stdout.decode("utf-8")) == (0, "caf\ufffd\n")


def test_the_runner_needs_onnxruntime_alone() -> None:
    tree = ast.parse(Path(onnx_runner.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - sys.stdlib_module_names == {"numpy", "onnxruntime"}


ECHO = """
from types import SimpleNamespace
from transformer_mt.export.onnx import runner
runner.Translator = lambda folder: SimpleNamespace(translate=list)
runner.main()
"""


@pytest.mark.parametrize("length", [1, 100_000], ids=["at the end", "before the end"])
@pytest.mark.parametrize(("place", "status", "told"), [
    ("closed pipe", 1, r""),
    ("/dev/full", 2, r"Standard output cannot be written: No space left on device\. Free .*\.\n"),
])  # fmt: skip
def test_the_runner_ends_without_a_traceback_where_nobody_reads(
    place: str, status: int, told: str, length: int
) -> None:
    if place == "closed pipe":
        reading, writing = os.pipe()
        os.close(reading)
    elif Path(place).exists():
        writing = os.open(place, os.O_WRONLY)
    else:
        pytest.skip(f"no {place} on this system")
    result = subprocess.run(
        [sys.executable, "-c", ECHO, *["a" * 9999] * (length // 9999), "a"], stdout=writing, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert result.returncode == status
    assert re.fullmatch(told, result.stderr)


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ('"$@" a <&-', 0, ""),
        ("printf '\\357\\273\\277a\\r\\n' | \"$@\"", 0, ""),  # behind a byte order mark
        ('"$@" <&-', 2, "Standard input is closed. Give the texts as arguments, or lines by < FILE.\n"),
        ('"$@" a >&-', 2, "Standard output is closed. Give the translations a place, for example > FILE.\n"),
    ],
)
def test_the_runner_tells_which_of_its_streams_is_closed(command: str, status: int, told: str) -> None:
    begin = ["sh", "-c", command, "sh", sys.executable, "-c", ECHO]
    result = subprocess.run(begin, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr, result.stdout) == (status, told, "" if told else "a\n")


def test_tags_are_refused_by_their_key_beside_all_others(tmp_path: Path) -> None:
    translator = make_translator({**SMALL, **ONE_STREAM}, tokenizer={"kind": "word", "tags": ["<BT>"], "masks": 2})
    of_tags = r"tokenizer.tags holds <BT>, .* a model without tokenizer.tags .*\ntokenizer.masks is 2, "
    with pytest.raises(UserError, match=rf"architecture is .*\n{of_tags}"):
        write(translator, tmp_path / "model")


def test_what_is_no_encoder_and_decoder_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model.architecture is decoder_only, .* model.architecture: encoder_decoder"):
        write(make_translator({**SMALL, **ONE_STREAM}), tmp_path / "model")
    with pytest.raises(UserError, match=r"model.architecture is rnn, .* model.architecture: encoder_decoder"):
        write(make_translator(MODELS_BY_NAME["rnn-search"]), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_export, "_write_graph", full)
    with pytest.raises(UserError, match=r"model cannot be written: No space left on device\. Choose another folder"):
        write(make_translator({"num_encoder_layers": 1, **SMALL}), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_every_key_of_decoding_is_obeyed_or_told() -> None:
    others = {
        "no_repeat_ngram_size": 2, "coverage_penalty": 0.5, "mbr": "chrf", "mbr_candidates": 4,
        "diverse_beam_groups": 2, "sampling_topk": 3, "sampling_topp": 0.5, "temperature": 2.0, "avoid": "words.txt",
        "constraints": "ordered", "glossary": "terms.tsv", "to": "es",
    }  # fmt: skip
    assert others.keys() | OBEYED == set(SearchConfig.model_fields)
    for key, value in others.items():
        note = search_notes(DecodingConfig.model_validate({"beam_size": 4, key: value}))[0]
        assert note.startswith(f"decoding.{key} is {value}, which translate.py does not do")
    lines = DecodingConfig(beam_size=1, lines=LinesConfig(html=True, n_best=3))
    assert search_notes(lines) == [
        f"decoding.lines.{key}, which translate.py does not do: it translates without it."
        for key in ("html is true", "n_best is 3")
    ]
    assert search_notes(DecodingConfig(beam_size=4)) == ["decoding.beam_size is 4, and translate.py searches greedily."]
    assert search_notes(DecodingConfig(beam_size=1)) == []
