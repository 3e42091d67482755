"""Speed on a busy machine: training and translating alone, and beside 1, 2 and 4 busy processes.

    python scripts/bench_load.py --data DIR [--rounds 2] [--seconds 20]

DIR holds `tok/`, the lower-cased, tokenized Multi30k. Training is `tmt train --config multi30k_en_de_tok.yaml` in
`--precision` (default auto). Its speed is in target tokens a second: the median of windows of five steps, the first
window left out. Translating is `Translator` on the sentences of the validation split, greedily: all at once, which
several processes search, and one at a time, in one process. Each busy process is an endless loop on one thread. Beside
them stands a second training that began before. The loads take turns, `--rounds` times, and the median of the rounds
counts. A share is the speed beside the load over the speed alone.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measuring import command
from measuring.comparing import metrics

from transformer_mt.errors import UserError

CONFIG = "multi30k_en_de_tok.yaml"
BUSY = (0, 1, 2, 4)
TRAINING = "a training"
# The least share beside each load that two cores are to keep; four threads on two cores would have 0.5 each.
GOALS = {("train", 2): 0.40, ("train", 4): 0.22, ("train", TRAINING): 0.42}
LONGEST_START = 180  # seconds until a training must have made its first steps
Load = int | str


@contextmanager
def ended(processes: list[subprocess.Popen]) -> Iterator[None]:
    """Kill them in the end."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def start_training(data: Path, folder: Path, precision: str) -> subprocess.Popen:
    """One that trains until it is killed; what it says is in `folder/said`."""
    overrides = [
        "name=load", f"data.root={data / 'tok'}", f"data.cache_dir={folder.parent / 'cache'}",
        f"training.precision={precision}", "training.max_steps=1000000", "training.log_every_steps=5",
        "training.checkpoint_every_steps=1000000", "validation.every_steps=1000000",
    ]  # fmt: skip
    arguments = [sys.executable, "-m", "transformer_mt", "train", "--config", CONFIG, *overrides]
    folder.mkdir()
    with (folder / "said").open("w") as said:
        return subprocess.Popen(arguments, cwd=folder, stdout=said, stderr=subprocess.STDOUT)


def speeds(folder: Path) -> list[float]:
    """Of every window of steps that a training has finished."""
    return [line["tokens_per_second"] for line in metrics(folder / "runs/load", "train")]


def wait_until_warm(process: subprocess.Popen, folder: Path) -> None:
    """Until the first window is done."""
    end = time.monotonic() + LONGEST_START
    while not speeds(folder):
        if process.poll() is not None or time.monotonic() > end:
            raise UserError(f"The training made no steps:\n{(folder / 'said').read_text(encoding='utf-8')}")
        time.sleep(0.2)


def train(data: Path, folder: Path, args: argparse.Namespace) -> float:
    """Target tokens a second, beside whatever runs already."""
    process = start_training(data, folder, args.precision)
    with ended([process]):
        wait_until_warm(process, folder)
        skipped, end = len(speeds(folder)), time.monotonic() + args.seconds
        while time.monotonic() < end or len(speeds(folder)) < skipped + 2:
            if process.poll() is not None:
                raise UserError(f"The training ended:\n{(folder / 'said').read_text(encoding='utf-8')}")
            time.sleep(0.2)
        return statistics.median(speeds(folder)[skipped:])


def translate(run: Path, sentences: Path, one_by_one: bool, seconds: float) -> float:
    """Sentences a second, of a process of its own."""
    arguments = [sys.executable, __file__, "--translate", str(run), str(sentences), str(one_by_one), str(seconds)]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()[-1])


def translate_here(run: str, sentences: str, one_by_one: str, seconds: str) -> None:
    """Print the speed of translating in this process."""
    from transformer_mt.decoding.translator import Translator

    lines = Path(sentences).read_text(encoding="utf-8").split("\n")[:-1]
    translator = Translator.load(run, device="cpu")
    groups = [[line] for line in lines] if one_by_one == "True" else [lines]
    with translator.keep_processes():
        translator.translate(groups[0])
        number, start, i = 0, time.perf_counter(), 0
        while time.perf_counter() < start + float(seconds):
            translator.translate(groups[i % len(groups)])
            number, i = number + len(groups[i % len(groups)]), i + 1
        print(number / (time.perf_counter() - start))


@contextmanager
def busy(load: Load, data: Path, folder: Path, precision: str) -> Iterator[None]:
    """Beside so many busy processes, or a training that is at its steps."""
    if isinstance(load, int):
        processes = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(load)]
    else:
        processes = [start_training(data, folder, precision)]
    with ended(processes):
        if load == TRAINING:
            wait_until_warm(processes[0], folder)
        yield


def trained_run(data: Path, place: Path) -> Path:
    """A run to translate with, trained for a few steps."""
    overrides = [
        "name=short", f"data.root={data / 'tok'}", f"data.cache_dir={place / 'cache'}", "training.max_steps=300",
        "training.warmup_steps=100",
        "validation.every_steps=1000", "validation.num_translated=8",
    ]  # fmt: skip
    arguments = [sys.executable, "-m", "transformer_mt", "train", "--config", CONFIG, *overrides]
    done = subprocess.run(arguments, cwd=place, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"No model could be trained to translate with:\n{done.stdout}{done.stderr}")
    return place / "runs/short"


def measured(args: argparse.Namespace, place: Path) -> dict[tuple[str, Load], list[float]]:
    """The speeds of all rounds, by what was done and beside which load."""
    data = args.data
    sentences = place / "sentences"
    sentences.write_text("".join(f"{src}\n" for src, _ in command.tokenized(data, "val")[:300]), encoding="utf-8")
    run = args.run or trained_run(data, place)
    found: dict[tuple[str, Load], list[float]] = {}
    for number in range(args.rounds):
        for load in (*BUSY, TRAINING):
            with busy(load, data, place / f"other_{number}_{load}", args.precision):
                here = {"train": train(data, place / f"train_{number}_{load}", args)}
                if load != TRAINING:
                    here["translate"] = translate(run, sentences, False, args.seconds / 2)
                    here["translate one"] = translate(run, sentences, True, args.seconds / 2)
            for name, speed in here.items():
                found.setdefault((name, load), []).append(speed)
                print(f"round {number + 1}: {name} beside {load}: {speed:,.1f}", file=sys.stderr, flush=True)
    return found


def table(found: dict[tuple[str, Load], list[float]]) -> str:
    """Markdown."""
    medians = {key: statistics.median(values) for key, values in found.items()}
    lines = ["| what | beside | a second | share of the speed alone | goal |", "|---|---|---|---|---|"]
    for (name, load), speed in medians.items():
        goal = GOALS.get((name, load), "")
        beside = f"{load} busy processes" if isinstance(load, int) else load
        lines.append(f"| {name} | {beside} | {speed:,.1f} | {speed / medians[name, 0]:.2f} | {goal} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure in turn, print."""
    if sys.argv[1:2] == ["--translate"]:
        translate_here(*sys.argv[2:])
        return
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True, help="the folder that holds tok/")
    parser.add_argument("--run", type=command.folder, help="a trained run to translate with; else one is trained")
    parser.add_argument("--precision", default="auto", help="of the trainings")
    parser.add_argument("--rounds", type=command.count(), default=2)
    parser.add_argument("--seconds", type=command.count(), default=20, help="of each measurement, after the warm-up")
    parser.add_argument("--smoke", action="store_true", help="a second each, once: whether it runs")
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.seconds = 1, 1
    with tempfile.TemporaryDirectory() as place:
        print(table(measured(args, Path(place))))


if __name__ == "__main__":
    command.run(main)
