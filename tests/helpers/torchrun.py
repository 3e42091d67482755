"""Trainings of several processes, started by torch's own `torchrun`."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from copies import Copy
from toy import toy_mapping, write_toy_corpus

import transformer_mt

TMT = ("-m", "transformer_mt")
TMT_FILE = str(Path(transformer_mt.__file__).with_name("__main__.py"))
HELPERS = Path(__file__).parent


def start_together(
    number: int, folder: Path, *arguments: str, options: tuple[str, ...] = (), standalone: bool = True
) -> subprocess.Popen[str]:
    """`torchrun` in `folder`, with a program and its arguments, running; both outputs are one."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "torch.distributed.run", *["--standalone"] * standalone,
            "--nproc-per-node", str(number), *options, *arguments,
        ],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])},
    )  # fmt: skip


def copies_together(
    number: int, folder: Path, *arguments: str, program: str = TMT_FILE, options: tuple[str, ...] = ()
) -> Copy:
    """`torchrun` in `folder`, running, as a copy that starts copies of itself for `program`."""
    return Copy(
        folder, "--standalone", "--nproc-per-node", str(number), "--start-method", "fork", *options,
        "--run-path", program, *arguments, environment=os.environ, together=True, program="torch.distributed.run",
    )  # fmt: skip


def run_together(
    number: int, folder: Path, *arguments: str, program: str = TMT_FILE, options: tuple[str, ...] = ()
) -> tuple[int, str]:
    """`copies_together` to its end: exit status and output."""
    process = copies_together(number, folder, *arguments, program=program, options=options)
    output, _ = process.communicate(timeout=300)
    print(output)
    return process.wait(0), output


def write_config(folder: Path, **training: object) -> None:
    """`toy.yaml` in `folder`, with its corpus and a cache of its own: two micro-batches an update for each process."""
    corpus = write_toy_corpus(folder / "toy")
    mapping = toy_mapping(
        corpus, model={"dropout": 0.2, "num_experts": 2},
        training={"factor": 0.1, "log_every_steps": 1, "grad_accum": 2, **training},
    )  # fmt: skip
    mapping["data"]["cache_dir"] = str(folder / "cache")
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
