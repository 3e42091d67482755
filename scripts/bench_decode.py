"""Decoding speed on this machine: ours beside CTranslate2, a decoder without a cache, transformers and Joey NMT.

    python scripts/bench_decode.py --run RUN --data DIR [--threads 2] [--device cuda] [--hf-python PATH]
        [--joey-python PATH] [--against CHECKOUT] [--profile]

RUN is a trained model, best of the shape d_model 256, 3 + 3 layers, d_ff 1024, 8 heads, on Multi30k in `DIR/tok`; its
1,000 sentences of test_2016_flickr are translated greedily and with a beam of 5. CTranslate2 (`tmt export`, extra ct2)
computes with the same weights, transformers (a Marian model) and Joey NMT with random weights of the same shape, made
to write as many tokens (`measuring/foreign_decoders.py`). Each side is a process of its own that loads, translates 64
sentences to warm up and then all, once for each batch size; the best batch size counts, and of CTranslate2 the better
way to use the threads. A beam goes by `length_norm: average` at 1, the only rule that CTranslate2 has, and the unknown
token is never written. The sides take turns, `--rounds` times, and the best round of each counts, since other work on
the machine can only slow one down.

With `--against` another checkout of this project decodes the same run, in turn with this one.

On a GPU, ours is measured with and without graphs, all of it in one process, and memory is what is in use of the whole
device.

The ratios stand above the table of each search. Below both: one short sentence from a loaded model, `tmt translate` of
it as a whole process, and `tmt --help`. With `--profile` comes where the time of each search goes, in the last of the
precisions and batch sizes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from dataclasses import asdict
from functools import partial
from pathlib import Path

from measuring import command
from measuring.decoding_sides import Measured, free_the_device, give_up_graphs, measured

from transformer_mt.errors import UserError

BEAM = 5
BATCH_SIZES = {"cpu": [32, 64, 128, 192], "cuda": [64, 128, 256, 512, 1000]}
PRECISIONS = {"cpu": ["fp32", "int8", "bf16"], "cuda": ["fp32", "bf16", "fp16"]}  # of ours
CT2_TYPES = {"cpu": ["float32", "int8"], "cuda": ["float32", "float16", "int8_float16"]}
SHORT = "a man rides a bike ."


def child() -> None:
    """The jobs on standard input, one after another."""
    found = []
    for job in json.load(sys.stdin):
        found.append(asdict(measured(job)))
        free_the_device(job)
    print(json.dumps(found))


def measured_apart(jobs: list[dict]) -> list[Measured]:
    """In a process of its own, for which the first one speaks. A failure ends the benchmark."""
    job = jobs[0]
    environment = {**os.environ, "OMP_NUM_THREADS": str(job["threads"])}
    if job["side"] == "against":
        environment["PYTHONPATH"] = job["checkout"]
    arguments = [sys.executable, __file__, "--child"]
    if job["side"] in FOREIGN:
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        arguments = [job["python"], "-m", "measuring.foreign_decoders"]
    done = subprocess.run(arguments, input=json.dumps(jobs), capture_output=True, text=True, env=environment)
    if done.returncode == 2 and (refused := command.refusal_of(done.stderr)):
        raise UserError(f"{job['side']}: {refused}" if job["side"] == "against" else refused)
    if done.returncode:
        sys.exit(f"{job['side']}, {job['kind']}: {done.stderr}")
    return [Measured(**found) for found in json.loads(done.stdout.strip().split("\n")[-1])]


def measured_or_told(jobs: list[dict]) -> list[Measured]:
    """The same, but without CTranslate2 the benchmark goes on: it may want another CUDA than torch has."""
    try:
        return measured_apart(jobs)
    except (UserError, SystemExit) as error:
        if jobs[0]["side"] != "ct2":
            raise
        print(f"without CTranslate2: {error}", file=sys.stderr, flush=True)
        return []


def foreign_rows(run: Path, lines: list[str], found: Measured) -> tuple[dict, list]:
    """The model's shape, and for each sentence its ids and how many tokens ours wrote."""
    from transformer_mt.decoding.translator import Translator

    translator = Translator.load(run, device="cpu")
    model = translator.config.model
    written = [len(row) + 1 for row in translator.tgt_tokenizer.encode_batch(found.texts)]
    rows = [[*row, 3] for row in translator.src_tokenizer.encode_batch(lines)]
    shape = {"layers": model.num_decoder_layers, "d_model": model.d_model, "num_heads": model.num_heads}
    shape |= {"d_ff": model.d_ff, "vocab_size": translator.tgt_tokenizer.vocab_size}
    return shape, list(zip(rows, written, strict=True))


def seconds_of(command: list[str], folder: Path, repeats: int) -> float:
    """The best time of a whole process."""
    work = partial(subprocess.run, command, cwd=folder, check=True, capture_output=True)
    return min(timeit.repeat(work, "gc.enable()", repeat=repeats, number=1))


def one_sentence(run: Path, precision: str, device: str, repeats: int, graphs: bool = True) -> float:
    """The median time of one short sentence, greedily, from a loaded model."""
    from transformer_mt.decoding.translator import Translator

    translator = Translator.load(run, device=device, precision=precision)
    if not graphs:
        give_up_graphs(translator)
    for _ in range(3 if device == "cuda" else 1):  # a step is captured when its size comes the third time
        translator.translate([SHORT], beam_size=1)
    work = partial(translator.translate, [SHORT], beam_size=1)
    return statistics.median(timeit.repeat(work, "gc.enable()", repeat=repeats, number=1))


def parse() -> argparse.Namespace:
    """The command line, with what could not be compared refused."""
    parser = command.Parser(__doc__)
    parser.add_argument("--run", type=command.folder, required=True, help="the folder of a trained run")
    parser.add_argument("--data", type=command.folder, required=True, help="the folder that holds tok/")
    parser.add_argument("--threads", type=command.count(), default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of every side")
    parser.add_argument("--rounds", type=command.count())
    parser.add_argument(
        "--hf-python", type=command.python("torch", "transformers"), help="of an environment with transformers"
    )
    parser.add_argument(
        "--joey-python", type=command.python("torch", "joeynmt.search"), help="of an environment with joeynmt"
    )
    parser.add_argument("--against", type=command.folder, help="another checkout of this project, as one more side")
    parser.add_argument("--precisions", nargs="+", help="of ours; by default fp32 and the faster ones")
    parser.add_argument("--batch-sizes", nargs="+", type=command.count(), help="each side takes its best")
    parser.add_argument("--no-plain", action="store_true", help="leave out the decoder without a cache, which is slow")
    parser.add_argument("--profile", action="store_true", help="print where the time of each search goes")
    parser.add_argument(
        "--smoke", action="store_true", help="few sentences, once, in one process a search: whether it runs"
    )
    args = parser.parse_args()
    defaults = {"rounds": 2, "batch_sizes": BATCH_SIZES[args.device], "precisions": PRECISIONS[args.device]}
    command.fill(args, {"rounds": 1, "batch_sizes": [8]} if args.smoke else {}, defaults)
    if "fp32" not in args.precisions:
        parser.error("--precisions needs fp32, whose text all are held against. Add it.")
    return args


def check(args: argparse.Namespace) -> None:
    """UserError where the run, the device or a precision would stop one of ours."""
    import torch

    from transformer_mt.decoding.fast_layers.search_precision import choose_search_precision
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.machine.device import choose_device

    device = torch.device(choose_device(args.device).value)
    translator = Translator.load(args.run, device="cpu", precision="fp32")
    for precision in args.precisions:
        choose_search_precision(precision, device, translator.model)


def sides_of(args: argparse.Namespace, have_ct2: bool) -> list[list[tuple[str, str]]]:
    """Side and kind; those in a list share a process. Each has its own, but for `--smoke` and on a GPU. There a process
    takes longer to start than to measure, so that ours share one, and CTranslate2's another.
    """
    own = [("ours", kind) for kind in args.precisions]
    if args.device == "cuda":
        own += [("eager", kind) for kind in args.precisions]
    if have_ct2:
        own += [("ct2", kind) for kind in CT2_TYPES[args.device]]
    own += [("plain", "fp32")] * (not args.no_plain)
    foreign = [[(side, "fp32")] for side, option in FOREIGN.items() if getattr(args, option)]
    foreign += [[("against", kind)] for kind in args.precisions] * (args.against is not None)
    if args.smoke:
        return [own, *foreign]
    if args.device == "cuda":
        engines = {name: [one for one in own if (one[0] == "ct2") == (name == "ct2")] for name in ("ours", "ct2")}
        return [together for together in (*engines.values(), *foreign) if together]
    return [*([one] for one in own), *foreign]


def compared(
    args: argparse.Namespace, sides: list[list[tuple[str, str]]], shared: dict
) -> dict[int, dict[str, Measured]]:
    """The best round of each side, by the size of the beam. On a GPU both searches share a process."""
    best: dict[int, dict[str, Measured]] = {1: {}, BEAM: {}}
    for beams in [list(best)] if args.device == "cuda" else [[beam] for beam in best]:
        for number in range(args.rounds):
            for together in sides:
                jobs = [
                    {**shared, "side": side, "kind": kind, "beam_size": beam}
                    for side, kind in together
                    for beam in beams
                ]
                for part in [[job] for job in jobs] if together[0][0] in FOREIGN else [jobs]:
                    if together[0][0] in FOREIGN:
                        python = str(getattr(args, FOREIGN[together[0][0]]))
                        ours_there = best[part[0]["beam_size"]]["ours, fp32"]
                        shape, rows = foreign_rows(args.run, shared["lines"], ours_there)
                        part[0] |= {"python": python, "rows": rows, **shape}
                    for job, found in zip(part, measured_or_told(part), strict=False):
                        keep_the_better(best[job["beam_size"]], job, found, number, len(shared["lines"]))
    return best


def keep_the_better(best: dict[str, Measured], job: dict, found: Measured, number: int, num_lines: int) -> None:
    """Say how fast a side was, and keep its best round."""
    name = f"{NAMES[job['side']]}, {job['kind']}"
    said = f"round {number + 1}: beam {job['beam_size']}: {name}: {num_lines / found.seconds:,.1f}"
    print(said, file=sys.stderr, flush=True)
    if name not in best or found.seconds < best[name].seconds:
        best[name] = found


def main() -> None:
    """Parse, measure in turn, print."""
    args = parse()
    pairs = command.tokenized(args.data, "test_2016_flickr")[: 20 if args.smoke else None]
    check(args)
    with tempfile.TemporaryDirectory() as place:
        export = Path(place) / "ct2"
        sides = sides_of(args, export_for_ct2(args.run, export))
        shared = {"run": str(args.run), "export": str(export), "lines": [src for src, _ in pairs],
                  "threads": args.threads, "device": args.device, "sizes": args.batch_sizes,
                  "checkout": str(args.against)}  # fmt: skip
        for beam_size, best in compared(args, sides, shared).items():
            print_table(best, beam_size, [tgt for _, tgt in pairs], args.threads, args.device)
    print_latency(args.run, args.precisions, args.device, 1 if args.smoke else 20)
    if args.profile:
        print_profiles(args.run, args.precisions[-1], args.device, shared["lines"], args.batch_sizes[-1])


NAMES = {"ours": "ours", "against": "another checkout", "eager": "ours without graphs", "ct2": "CTranslate2",
         "plain": "ours without a cache",
         "hf": "transformers generate", "joey": "Joey NMT"}  # fmt: skip
FOREIGN = {"hf": "hf_python", "joey": "joey_python"}  # by the option that names their Python


def export_for_ct2(run: Path, folder: Path) -> bool:
    """Whether CTranslate2 is there, and then the run in its format."""
    from transformer_mt.storage.run_folder import open_run

    try:
        from transformer_mt.export.ctranslate2 import export_run

        export_run(open_run(run), None, folder)
    except UserError as error:  # CTranslate2 is not installed, or cannot compute this model
        print(f"without CTranslate2: {error}", file=sys.stderr)
        return False
    return True


def print_table(best: dict[str, Measured], beam_size: int, references: list[str], threads: int, device: str) -> None:
    """The ratios, then markdown."""
    import sacrebleu
    import torch

    reference = best["ours, fp32"]
    where = f"{threads} threads" if device == "cpu" else torch.cuda.get_device_name(device)
    print(f"\n{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {len(references):,} sentences, {where}, "
          f"torch {torch.__version__}\n")  # fmt: skip
    fastest = min((name for name in best if name.startswith("ours, ")), key=lambda name: best[name].seconds)
    for opponent in best:
        if not opponent.startswith("ours, "):
            same = f"ours, {opponent.rpartition(', ')[2]}"
            names = [same] if opponent.startswith(NAMES["against"]) else ["ours, fp32", fastest]
            for name in dict.fromkeys(names):
                print(f"{best[opponent].seconds / best[name].seconds:.2f} x {opponent} ({name})")
    print("\n| side | sentences/s | tokens/s | batch | peak memory | BLEU | same text as ours in fp32 |")
    print("|---|---|---|---|---|---|---|")
    for name, found in best.items():
        bleu = same = ""
        if found.texts:
            bleu = f"{sacrebleu.corpus_bleu(found.texts, [references], tokenize='none', force=True).score:.1f}"
            same = f"{sum(a == b for a, b in zip(found.texts, reference.texts, strict=True)):,}"
        print(f"| {name} | {len(references) / found.seconds:,.1f} | {found.num_tokens / found.seconds:,.0f} | "
              f"{found.batch_size} | {found.memory / 2**20:,.0f} MiB | {bleu} | {same} |")  # fmt: skip


def print_latency(run: Path, precisions: list[str], device: str, repeats: int) -> None:
    """One sentence from a loaded model, as a whole process, and the help."""
    print("\n| one short sentence, greedy | ms |\n|---|---|")
    for precision in precisions:
        print(f"| from a loaded model, {precision} | {1000 * one_sentence(run, precision, device, repeats):.1f} |")
        if device == "cuda":
            seconds = one_sentence(run, precision, device, repeats, graphs=False)
            print(f"| from a loaded model, {precision}, without graphs | {1000 * seconds:.1f} |")
    tmt = [sys.executable, "-m", "transformer_mt"]
    repeats = min(repeats, 5 if device == "cpu" else 2)
    whole = seconds_of(
        [*tmt, "translate", SHORT, "--run", str(run), "--beam-size", "1", "--device", device], run, repeats
    )
    print(f"| `tmt translate`, the whole process | {1000 * whole:,.0f} |")
    print(f"| `tmt --help` | {1000 * seconds_of([*tmt, '--help'], run, repeats):,.0f} |")


def print_profiles(run: Path, precision: str, device: str, lines: list[str], batch_size: int) -> None:
    """Of each search, in one process."""
    from measuring.search_profile import profile_of

    from transformer_mt.decoding.translator import Translator

    translator = Translator.load(run, device=device, precision=precision)
    lines = sorted(lines, key=len, reverse=True)
    for beam_size in (1, BEAM):

        def search(beam_size: int = beam_size) -> None:
            for i in range(0, len(lines), batch_size):  # each batch in this process, not in a worker
                translator.translate(lines[i : i + batch_size], beam_size=beam_size, batch_size=batch_size)

        for _ in range(3 if device == "cuda" else 1):
            search()
        print(f"\n{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {precision}, batches of {batch_size}: "
              f"{profile_of(search, device)}")  # fmt: skip


if __name__ == "__main__":
    command.run(child if sys.argv[1:] == ["--child"] else main)
