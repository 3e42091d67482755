"""Claims about long sentences: those that a vector of one size must hold, and those longer than any in training."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from measured_claims.claim import Finding, Settings, decided
from measured_claims.workshop import DEEPEST_JOIN, Variant, joined_files, num_parameters, scored, trained, variant
from transformer_mt.model.recurrent.attention import DotAttention
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS

TRAINED_JOIN = 2  # pairs a training line, where longer ones are to be new


class MeanOfStates(DotAttention):
    """No attention: every word of the translation is given the same vector, the mean of the encoder's states."""

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return query.new_zeros(query.size(0), query.size(1), keys.size(1))


@contextmanager
def without_attention(really: bool) -> Iterator[None]:
    """Recurrent networks that are made inside and named `luong_dot` read `MeanOfStates`."""
    kind = RNN_ATTENTIONS["luong_dot"]
    if really:
        RNN_ATTENTIONS["luong_dot"] = replace(kind, attention=MeanOfStates)
    try:
        yield
    finally:
        RNN_ATTENTIONS["luong_dot"] = kind


def recurrent(name: str, settings: Settings) -> Variant:
    """An LSTM whose parameters are about those of the Transformer beside it."""
    size = 16 if settings.small else 90
    return variant(
        name, DEEPEST_JOIN, True, preset="rnn-small", d_model=size, num_encoder_layers=1, num_decoder_layers=1,
        dropout=0.1, tie_embeddings="decoder", rnn={"cell": "lstm", "attention": "luong_dot", "input_feeding": False},
    )  # fmt: skip


def files_of(folder: Path, number: int) -> tuple[Path, Path]:
    """The test lines of so many pairs each."""
    return folder / f"test_{number}.en", folder / f"test_{number}.es"


def long_sentences(settings: Settings) -> Finding:
    """BLEU and nll by the number of sentences in a line, all of which training had."""
    settings = replace(settings, steps=settings.steps * 3 // 2)
    folder = joined_files(settings.work, DEEPEST_JOIN)
    numbers = range(1, DEEPEST_JOIN + 1)
    rows, fall = [], {}
    models = {
        "LSTM, one vector for a line": recurrent("lstm_mean", settings),
        "LSTM with attention": recurrent("lstm_dot", settings),
        "Transformer": variant("transformer_long", DEEPEST_JOIN, True, d_ff=32 if settings.small else 416),
    }
    for place, (name, wanted) in enumerate(models.items()):
        with without_attention(place == 0):
            run = trained(wanted, settings.seeds[0], settings)
            found = [scored(run, files=files_of(folder, number)).scores for number in numbers]
        fall[name] = found[-1].nll - found[0].nll
        parameters = num_parameters(wanted, settings, run)
        rows.append([name, f"{parameters:,}", *(f"{one.nll:.2f} / {one.bleu:.1f}" for one in found)])
    heads = ("nll / BLEU", "parameters", *(f"{number} a line" for number in numbers))
    alone, with_attention, transformer = fall.values()
    return Finding(heads, rows, decided(alone > 0.1 and max(with_attention, transformer) < alone / 2))


def beyond_training(settings: Settings) -> Finding:
    """nll by the number of sentences in a line: training had one and two."""
    folder = joined_files(settings.work, TRAINED_JOIN)
    numbers = range(1, DEEPEST_JOIN + 1)
    rows, grown = [], {}
    for positions in ("sinusoidal", "learned", "rotary", "relative_bias", "alibi"):
        run = trained(variant(f"positions_{positions}", TRAINED_JOIN, positions=positions), settings.seeds[0], settings)
        nll = [scored(run, files=files_of(folder, number)).scores.nll for number in numbers]
        grown[positions] = nll[-1] - nll[TRAINED_JOIN - 1]
        rows.append([f"`{positions}`", *(f"{one:.2f}" for one in nll), f"{grown[positions]:+.2f}"])
    heads = ("positions", *(f"{number} a line" for number in numbers), f"{DEEPEST_JOIN} beside {TRAINED_JOIN} a line")
    return Finding(heads, rows, decided(grown["sinusoidal"] < grown["learned"] / 2 and grown["sinusoidal"] < 0.5))
