"""From a plain config to the best one, a change a row: BLEU of several seeds, as mean and deviation.

    python scripts/ablation.py scripts/ablation_multi30k.yaml --data DIR [--seeds 1 2 3] [--rows NAME NAME]
        [--at-a-time 4]

The YAML file says what is compared:

    config: multi30k_en_de_tok.yaml       # what every row starts from
    average: 10                           # the last checkpoints that are averaged; 0: the best one is judged
    evaluate: {beam_size: 5, bleu_tokenize: none}
    rows:
      - {name: plain, set: [tokenizer.joint=false]}
      - {name: subwords, set: [tokenizer.joint=true], why: what the row changes}
      - {name: elsewhere, from: plain, set: [seed=7]}

A row has the settings of the row before it, or of the one that `from` names, and beside them its own `set`, `average`
and `evaluate`. Each seed of a row is a run of its own, `tmt train`; rows with equal settings share runs. A row with
`ensemble: true` is judged as one model of all its seeds. Printed are BLEU on validation and test, each the mean over
the seeds with its standard deviation, and the minutes of a training. Choose by the validation's alone.

What was trained and judged stays in --work. The same command goes on where it was stopped, at the step of a training.
--at-a-time trains several at once, for a GPU that one small model does not fill; minutes are then longer than alone.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from measuring import command
from measuring.comparing import as_table, metrics, spread, tmt

from transformer_mt.api import evaluate
from transformer_mt.errors import UserError

SPLITS = ("validation", "test")
Trainings = dict[str, Future[float]]  # the minutes of each run
KEYS = {"name", "why", "from", "set", "average", "evaluate", "ensemble"}


@dataclass(frozen=True)
class Row:
    """What a row trains and how it is judged; `settings` are overrides of the config."""

    name: str
    why: str = ""
    settings: tuple[str, ...] = ()
    average: int = 0
    evaluate: dict[str, Any] = field(default_factory=dict)
    ensemble: bool = False

    def run_name(self, seed: int) -> str:
        """Rows that train the same have the same."""
        key = hashlib.sha256("\n".join(self.settings).encode()).hexdigest()[:8]
        return f"{key}_seed_{seed}"

    def judged_by(self, split: str) -> str:
        """What a score depends on beside the run."""
        return json.dumps([split, self.average, self.ensemble, self.evaluate], sort_keys=True)


def rows_of(path: Path) -> tuple[str, list[Row]]:
    """The config and the rows of a file. UserError that names the row where it says what nobody reads."""
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        config, base = told["config"], Row("", "", (), told.get("average", 0), told.get("evaluate") or {})
        entries = list(told["rows"])
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not say what is compared: {error}. See scripts/ablation.py --help.") from None
    found: dict[str, Row] = {}
    last = base
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or "name" not in entry or entry.keys() - KEYS or entry["name"] in found:
            keys = ", ".join(sorted(KEYS))
            raise UserError(f"{path}, row {number}: give it a name of its own, and no key but {keys}.")
        if (origin := entry.get("from")) is not None and origin not in found:
            raise UserError(f"{path}, row {number}: from is {origin}, which no row before it is called.")
        before = last if origin is None else found[origin]
        last = replace(
            before,
            name=entry["name"],
            why=entry.get("why", ""),
            settings=merged(before.settings, entry.get("set") or []),
            average=entry.get("average", before.average),
            evaluate={**before.evaluate, **(entry.get("evaluate") or {})},
            ensemble=entry.get("ensemble", False),
        )
        found[last.name] = last
    return config, list(found.values())


def refuse_other_work(work: Path, begun: dict[str, str]) -> None:
    """Make the folder, or raise UserError where what it holds is of another config or other data: a run and its scores
    are known by the settings of their row alone.
    """
    work.mkdir(parents=True, exist_ok=True)
    kept = work / "begun_with.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else begun
    for name, value in begun.items():
        if found.get(name) != value:
            raise UserError(f"{work} was begun with {name} {found.get(name)}, not {value}. Give another --work.")
    kept.write_text(json.dumps(begun, indent=1), encoding="utf-8")


def merged(before: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Overrides, of which a later one replaces an earlier one of the same key."""
    return tuple({text.partition("=")[0]: text for text in (*before, *more)}.values())


def overrides_of(row: Row, seed: int, args: argparse.Namespace) -> list[str]:
    """Of a run."""
    place = [f"data.root={args.data}", f"data.cache_dir={args.work / 'cache'}"]
    return [*place, *row.settings, f"seed={seed}", f"name={row.run_name(seed)}"]


def trained(config: str, row: Row, seed: int, args: argparse.Namespace) -> float:
    """Train, or go on; a finished run is left alone. Returns the minutes."""
    run = args.work / row.run_name(seed)
    tmt("train", "--config", config, "--runs", str(args.work), "--resume", "auto", *overrides_of(row, seed, args))
    if not (found := metrics(run, "validation")):
        raise UserError(f"{run} was never validated. Let the config validate before its end.")
    return found[-1]["elapsed_seconds"] / 60


def judged(row: Row, seeds: Sequence[int], split: str, args: argparse.Namespace) -> float:
    """BLEU of one run, or of several as an ensemble, worked out once."""
    runs = [args.work / row.run_name(seed) for seed in seeds]
    kept = args.work / "scores.json"
    scores = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    key = " ".join([*(run.name for run in runs), row.judged_by(split)])
    if key not in scores:
        checkpoint = "average" if row.average else "best"
        for run in runs if row.average else []:
            tmt("average", str(run), "--last", str(row.average))
        found = evaluate(runs, split=split, checkpoint=[checkpoint] * len(runs), save=False, **row.evaluate)
        scores[key] = found.scores.bleu
        beside = kept.with_suffix(".new")
        beside.write_text(json.dumps(scores, indent=1), encoding="utf-8")
        beside.replace(kept)
    return scores[key]


def main() -> None:
    """Parse, check every row's config, train and judge, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("experiment", type=command.file, help="the YAML file")
    parser.add_argument("--data", type=command.folder, required=True, help="the config's data.root")
    parser.add_argument("--seeds", nargs="+", type=command.count(0), default=[1, 2, 3])
    parser.add_argument("--rows", nargs="+", help="only these rows")
    parser.add_argument("--at-a-time", type=command.count(), default=1, help="trainings that run at once")
    parser.add_argument("--work", type=Path, default=Path("runs/ablation"), help="where the runs go, and stay")
    args = parser.parse_args()
    args.work = args.work.resolve()
    config, rows = rows_of(args.experiment)
    if unknown := set(args.rows or []) - {row.name for row in rows}:
        parser.error(f"--rows: {args.experiment} has no row {', '.join(sorted(unknown))}.")
    rows = [row for row in rows if args.rows is None or row.name in args.rows]
    for row in rows:
        command.checked(config, overrides_of(row, args.seeds[0], args))
    refuse_other_work(args.work, {"config": config, "--data": str(args.data.resolve())})
    pool = ThreadPoolExecutor(args.at_a_time)
    try:
        judge_all(rows, begun(pool, config, rows, args), args)
    finally:
        pool.shutdown(cancel_futures=True)


def begun(pool: ThreadPoolExecutor, config: str, rows: Sequence[Row], args: argparse.Namespace) -> Trainings:
    """Order every training once, in the order of the rows. Where one fails, none is begun after it."""
    all_ordered = Event()

    def attempt(row: Row, seed: int) -> float:
        all_ordered.wait()
        try:
            return trained(config, row, seed, args)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    found: Trainings = {}
    for row in rows:
        for seed in args.seeds:
            if (name := row.run_name(seed)) not in found:
                found[name] = pool.submit(attempt, row, seed)
    all_ordered.set()
    return found


def judge_all(rows: Sequence[Row], trainings: Trainings, args: argparse.Namespace) -> None:
    """Print the table anew after each row, as soon as its trainings have ended."""
    columns = ["row", "change", *(f"{split} BLEU" for split in SPLITS), "minutes"]
    table = []
    for row in rows:
        took = [trainings[row.run_name(seed)].result() for seed in args.seeds]
        groups = [args.seeds] if row.ensemble else [[seed] for seed in args.seeds]
        scores = [spread([judged(row, group, split, args) for group in groups]) for split in SPLITS]
        table.append([row.name, row.why, *scores, spread(took, 0)])
        print(as_table(columns, table), flush=True)


if __name__ == "__main__":
    command.run(main)
