"""Training sources that share the batches: by weights, or by their sizes and a temperature (Arivazhagan et al. 2019,
section 4.2); how many pairs each has, and what a person is told of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.mixing import pairs_an_epoch, plan_mixed
from transformer_mt.data.corpus import Corpus
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted


@dataclass(frozen=True)
class Mixture:
    """The weight of each source, and how many of its pairs fit the model. With a `temperature` T the weights are made
    of these numbers: n^(1/T).
    """

    descriptions: list[str]
    weights: list[float]
    sizes: list[int]
    temperature: float | None = None

    @classmethod
    def of(cls, corpus: Corpus, rows: Rows, temperature: float | None = None) -> Self | None:
        """Of these rows of a corpus; None where its sources have neither weights nor a temperature."""
        weights = [source.config.weight for source in corpus.sources]
        if temperature is None and any(weight is None for weight in weights):
            return None
        source_of_row = corpus.dataset.data.column("source").to_numpy()
        sizes = np.bincount(source_of_row[rows], minlength=len(weights)).tolist()
        if temperature is not None:
            weights = weights_by_temperature(sizes, temperature)
        return cls(corpus.descriptions, [weight or 0.0 for weight in weights], sizes, temperature)

    def refuse_empty(self) -> None:
        """UserError where a source with a share has no pair."""
        for name, weight, size in zip(self.descriptions, self.weights, self.sizes, strict=True):
            if weight and not size:
                raise UserError(
                    f"{name} has weight {weight:g} and not a single pair that can be trained on: each has a blank "
                    "side, or is longer than model.max_len. Check the file, or take it out of data.train."
                )

    def plan(
        self, src_lengths: NDArray[np.int32], tgt_lengths: NDArray[np.int32], max_tokens: int, seed: int, epoch: int
    ) -> list[Rows]:
        """See `plan_mixed`."""
        return plan_mixed(src_lengths, tgt_lengths, self.sizes, self.weights, max_tokens, seed, epoch)

    def lines(self) -> list[str]:
        """What an epoch takes of each source."""
        numbers = pairs_an_epoch(self.weights, sum(self.sizes))
        lines = []
        for name, weight, size, number in zip(self.descriptions, self.weights, self.sizes, numbers, strict=True):
            passes = f"{number / size:.2f} times its {size:,}" if size else "it has none"
            share = f"{weight / sum(self.weights):.1%}" if self.temperature is not None else f"weight {weight:g}"
            lines.append(f"  {share}: {counted(number, 'pair')} an epoch of {name}, {passes}")
        return lines


def weights_by_temperature(sizes: Sequence[int], temperature: float) -> list[float]:
    """n^(1/T) of each number n of pairs: 1 keeps the shares of the sizes, and the larger T, the more equal they are."""
    return [size ** (1 / temperature) if size else 0.0 for size in sizes]
