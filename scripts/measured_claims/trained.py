"""Claims about what helps a model learn: small trainings that differ in one key, with several seeds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measuring.comparing import spread

from measured_claims.claim import Finding, Settings, Verdict, compared, decided, not_larger
from measured_claims.workshop import BASE, SIZE, SMALL, Variant, num_parameters, scored, trained, variant
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.averaging import average_checkpoints

HEADS = ("model", "parameters", "nll", "BLEU")
Scores = dict[str, list[float]]


def scores_of(runs: Sequence[Path], checkpoint: str = "last", beam_size: int = 1) -> Scores:
    """nll and BLEU of each run."""
    found = [scored(run, checkpoint, beam_size=beam_size).scores for run in runs]
    return {"nll": [one.nll for one in found], "bleu": [one.bleu for one in found]}


def runs_of(wanted: Variant, settings: Settings) -> list[Path]:
    """A run a seed."""
    return [trained(wanted, seed, settings) for seed in settings.seeds]


def row(name: str, scores: Scores, parameters: int | None) -> list[str]:
    """A row under `HEADS`."""
    count = "" if parameters is None else f"{parameters:,}"
    return [name, count, spread(scores["nll"], 3), spread(scores["bleu"], 1)]


def beside_base(
    name: str, wanted: Variant, decide: Callable[[Scores, Scores], Verdict], base_name: str, settings: Settings
) -> Finding:
    """The finding of two trainings, of the base and of another; `decide` takes the scores of both in this order."""
    rows, found = [], []
    for title, one in ((base_name, BASE), (name, wanted)):
        runs = runs_of(one, settings)
        found.append(scores_of(runs))
        rows.append(row(title, found[-1], num_parameters(one, settings, runs[0])))
    return Finding(HEADS, rows, decide(*found))


def label_smoothing(settings: Settings) -> Finding:
    """Both halves of the claim have to hold."""
    sharp = variant("unsmoothed", training={"label_smoothing": 0.0})

    def decide(base: Scores, other: Scores) -> Verdict:
        halves = {compared(base["nll"], other["nll"]), compared(base["bleu"], other["bleu"])}
        return next((verdict for verdict in (Verdict.FAILS, Verdict.UNDECIDED) if verdict in halves), Verdict.HOLDS)

    return beside_base("no label smoothing", sharp, decide, "label smoothing 0.1", settings)


def weight_tying(settings: Settings) -> Finding:
    """No loss: the tied model is not worse by more than the error."""
    untied = variant("untied", tie_embeddings="none")
    return beside_base("a matrix for each", untied, lambda base, other: not_larger(base["nll"], other["nll"]),
                       "target embedding = output projection", settings)  # fmt: skip


def lower_nll(base: Scores, other: Scores) -> Verdict:
    """For the base."""
    return compared(other["nll"], base["nll"])


def several_heads(settings: Settings) -> Finding:
    """The same matrices, cut into 4 heads and into one."""
    return beside_base("1 head of all", variant("one_head", num_heads=1), lower_nll, "4 heads", settings)


def bigger(settings: Settings) -> Finding:
    """Half of the width everywhere."""
    size = SMALL if settings.small else SIZE
    narrow = variant("narrow", d_model=size["d_model"] // 2, d_ff=size["d_ff"] // 2)
    return beside_base("half as wide", narrow, lower_nll, "the base", settings)


def gated(settings: Settings) -> Finding:
    """Two thirds of d_ff, for three matrices instead of two."""
    d_ff = 2 * (SMALL if settings.small else SIZE)["d_ff"] // 3
    return beside_base("SwiGLU", variant("swiglu", activation="swiglu", d_ff=d_ff),
                       lambda base, other: compared(base["nll"], other["nll"]), "ReLU", settings)  # fmt: skip


def rms_norm(settings: Settings) -> Finding:
    """As good: it is not worse by more than the error."""
    return beside_base("RMSNorm", variant("rmsnorm", norm="rmsnorm"),
                       lambda base, other: not_larger(other["nll"], base["nll"]), "LayerNorm", settings)  # fmt: skip


def beam(settings: Settings) -> Finding:
    """The same models, searched in two ways."""
    runs = runs_of(BASE, settings)
    greedy, wide = scores_of(runs), scores_of(runs, beam_size=4)
    rows = [row("greedy", greedy, None), row("beam of 4", wide, None)]
    return Finding(HEADS, rows, compared(wide["bleu"], greedy["bleu"]))


def averaging(settings: Settings) -> Finding:
    """The last five checkpoints, a twenty-fifth of the training apart."""
    runs = runs_of(BASE, settings)
    for run in runs:
        average_checkpoints(RunFolder(run), 5)
    last, mean = scores_of(runs), scores_of(runs, "average")
    rows = [row("the last checkpoint", last, None), row("the mean of the last five", mean, None)]
    return Finding(HEADS, rows, compared(last["nll"], mean["nll"]))


def warm_up(settings: Settings) -> Finding:
    """Three layers a stack and a constant rate of 0.003: at 0.001 a norm of either kind learns without a warm-up. One
    seed: the threshold is far beyond chance.
    """
    layers: dict[str, Any] = {} if settings.small else {"num_encoder_layers": 3, "num_decoder_layers": 3}
    rows, lost = [], {}
    for position in ("post", "pre"):
        nll = {}
        for steps in (max(1, settings.steps // 4), 0):
            training = {"schedule": "constant", "lr": 0.003, "warmup_steps": steps}
            wanted = variant(f"{position}_norm_warmup_{steps}", training=training, norm_position=position, **layers)
            nll[steps] = scored(trained(wanted, settings.seeds[0], settings)).scores.nll
        with_it, without = nll.values()
        lost[position] = without - with_it
        rows.append([f"{position}-norm", f"{with_it:.3f}", f"{without:.3f}", f"{lost[position]:+.3f}"])
    heads = ("norm", "nll with a warm-up", "nll without", "what leaving it out costs")
    return Finding(heads, rows, decided(lost["post"] > 0.1 and lost["pre"] < lost["post"] / 2))
