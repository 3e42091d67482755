"""The opponents of the benchmarks of training: a plain loop around torch.nn.Transformer, and Joey NMT, at our shape."""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from measuring.command import refusal_of
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class Shape:
    """A model's widths, its layers on each side, and what it is trained with."""

    d_model: int = 256
    d_ff: int = 1024
    num_heads: int = 8
    num_layers: int = 3
    max_tokens: int = 4096  # padded tokens of a batch
    device: str = "cpu"


@dataclass(frozen=True)
class Measured:
    """Target tokens a second; the peak memory of the process in bytes; of ours, the share of the time that it waits for
    data, and what it said.
    """

    speed: float
    memory: int
    data_wait: float | None = None
    said: str = ""


def run_measured(arguments: list[str], folder: Path, package: Path | None = None) -> tuple[str, int]:
    """What a process printed, and its peak memory in bytes. `package` is a checkout whose transformer_mt takes the
    place of the installed one. A failure ends the benchmark; what `tmt` refuses is a UserError in its words.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        process = subprocess.Popen(arguments, cwd=folder, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        for file in (out, err):
            file.seek(0)
        said = out.read() + err.read()
        if os.waitstatus_to_exitcode(status) == 2 and (refused := refusal_of(said)):
            raise UserError(refused)
        if status:
            sys.exit(f"{' '.join(arguments)}\n{said}")
        return said, usage.ru_maxrss * 1024


def replaced(path: Path, *pairs: tuple[str, str]) -> str:
    """The text of a file, changed. UserError where what is to be replaced is not there."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for old, new in pairs:
        if old not in text:
            raise UserError(f"{path} has no {old!r}, which is replaced in a copy. Give the benchmark's own file.")
        text = text.replace(old, new)
    return text


def loop_at(script: Path, shape: Shape) -> str:
    """The plain loop at another shape, for as many epochs as its steps want; on a GPU if the shape says so."""
    layers = f"{shape.num_heads}, {shape.num_layers}, {shape.num_layers}, {shape.d_ff},"
    on_a_gpu = [
        ('autocast("cpu"', 'autocast("cuda"'),
        ("padding_value=PAD)", "padding_value=PAD).cuda()"),
        ("Model(src_vocab, tgt_vocab)", "Model(src_vocab, tgt_vocab).cuda()"),
        ("subsequent_mask(tgt.size(1))", "subsequent_mask(tgt.size(1), device=tgt.device)"),
    ]
    return replaced(
        script,
        ("d_model=256", f"d_model={shape.d_model}"),
        ("8, 3, 3, 1024,", layers),
        ("make_batches(src, tgt, 4096)", f"(make_batches(src, tgt, {shape.max_tokens}) * 99)"),
        *(on_a_gpu if shape.device != "cpu" else []),
    )


def plain_loop(data: Path, script: Path, shape: Shape, precision: str, steps: int, folder: Path) -> Measured:
    """The opponent's script, unchanged; at another shape or on a GPU, a copy in which just that is replaced."""
    original = script
    if shape != Shape():
        script = folder / "plain_loop.py"
        script.write_text(loop_at(original, shape), encoding="utf-8")
    said, memory = run_measured(
        [
            sys.executable, str(script), str(data / "tok"), "--steps", str(steps),
            "--threads", str(torch.get_num_threads()), "--precision", precision,
        ],
        folder,
    )  # fmt: skip
    found = re.findall(r": (\d+) target tokens/s", said)
    if len(found) != 1:
        raise UserError(f"{original} does not print `: N target tokens/s` once. Give the benchmark's own plain loop.")
    return Measured(float(found[0]), memory)


def joey_settings(config: Path, shape: Shape, place: Path) -> str:
    """Joey NMT's config in this folder, with our shape; on a GPU by its own mixed precision."""
    on_a_gpu = [("use_cuda: False", "use_cuda: True"), ("fp16: False", "fp16: True")]
    return replaced(
        config,
        ("batch_size: 4096", f"batch_size: {shape.max_tokens}"), ("num_layers: 3", f"num_layers: {shape.num_layers}"),
        ("num_heads: 8", f"num_heads: {shape.num_heads}"), *(on_a_gpu if shape.device != "cpu" else []),
        ("FOLDER", str(place)), ("embedding_dim: 256", f"embedding_dim: {shape.d_model}"),
        ("hidden_size: 256", f"hidden_size: {shape.d_model}"), ("ff_size: 1024", f"ff_size: {shape.d_ff}"),
        ("epochs: 1\n", "epochs: 99\n"),  # as many as its updates want
        ("max_length: 100", "max_length: 512"),  # no sentence of Multi30k is longer than 100, but several made one are
    )  # fmt: skip


def joey(data: Path, python: Path, config: Path, shape: Shape, folder: Path) -> Measured:
    """Joey NMT by its own log, which counts the target tokens of ten updates at a time; its widths are ours."""
    place = folder / "joey"
    place.mkdir()
    for theirs, split in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        for language in ("en", "de"):
            text = (data / "tok" / f"{split}.lc.norm.tok.{language}").read_text(encoding="utf-8")
            (place / f"{theirs}.{language}").write_text(text, encoding="utf-8")
            if split == "train":
                counts = Counter(text.split())
                words = [word for word, number in counts.most_common() if number > 1]
                vocabulary = ["<unk>", "<pad>", "<s>", "</s>", *words]
                (place / f"vocab.{language}").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (place / "config.yaml").write_text(joey_settings(config, shape, place), encoding="utf-8")
    said, memory = run_measured([str(python), "-m", "joeynmt", "train", "config.yaml", "--skip-test"], place)
    speeds = [float(speed) for speed in re.findall(r"Tokens per Sec:\s+([\d.]+)", said)]
    if len(speeds) < 2:
        raise UserError(f"Joey NMT logged {len(speeds)} speeds, and the first is warm-up. Let {config} train longer.")
    return Measured(statistics.median(speeds[1:]), memory)
