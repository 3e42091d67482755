"""Micro-batches in parts that fit the memory. No pair is dropped; what did not fit once is split in advance.

Losses are sums over target tokens, so those of the parts add up to that of the whole, and so do the gradients. Not so
the load-balancing loss of experts: how evenly tokens are spread over them is a product of means. Each part has its own,
weighted by its target tokens. These weights add up to that of the whole; what is balanced is the spread within each
part, as it would be with a smaller `training.max_tokens`.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.files import replace_file
from transformer_mt.config.schema import ModelConfig
from transformer_mt.data.batching import Rows
from transformer_mt.data.plan import TrainingSplit
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class Part:
    """Some rows of micro-batch `index` of an update. Number 1 is all of them; the halves of n are 2n and 2n + 1.

    Number 0 counts nothing: a process without a micro-batch computes it and adds zeros.
    """

    index: int
    rows: Rows
    number: int = 1

    def halves(self) -> tuple["Part", "Part"]:
        """Each with half of the rows, two or more."""
        assert len(self.rows) > 1, "one pair cannot be split"
        middle = len(self.rows) // 2
        return (
            Part(self.index, self.rows[:middle], 2 * self.number),
            Part(self.index, self.rows[middle:], 2 * self.number + 1),
        )


class MemoryLimit:
    """What is known of how large a part may be: less than the smallest that did not fit.

    Parts are ordered by `demand`, an estimate of how many numbers a training step holds at once, from lengths alone.
    It need not be right, since it is only compared with itself: both terms grow with rows and lengths. On a CPU, where
    padding is left out of the layers, it is an estimate from above.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        # Of a position what each layer keeps for the backward pass: inputs, queries, keys, values, norms, masks. Scores
        # of attention are not among it, since the fused kernels keep none.
        num_layers = max(config.num_encoder_layers, config.num_decoder_layers)
        self.per_position = num_layers * (10 * config.d_model + 3 * config.d_ff)
        self.per_token = 3 * vocab_size  # of a target token: logits, their exponentials, their gradient
        self.smallest_failed = math.inf

    def demand(self, split: TrainingSplit, batches: list[Rows]) -> NDArray[np.int64]:
        """(batches,): rows x (longest source + longest target) x per_position + target tokens x per_token."""
        order = np.concatenate(batches)
        sizes = np.array([len(rows) for rows in batches])
        starts = np.cumsum(sizes) - sizes
        src, tgt = (lengths[order].astype(np.int64) for lengths in (split.src_lengths, split.tgt_lengths))
        positions = sizes * (np.maximum.reduceat(src, starts) + np.maximum.reduceat(tgt, starts))
        return positions * self.per_position + np.add.reduceat(tgt, starts) * self.per_token

    def largest(self, split: TrainingSplit, batches: list[Rows]) -> Rows:
        """The batch of the greatest demand."""
        return batches[int(self.demand(split, batches).argmax())]

    def pieces(self, split: TrainingSplit, part: Part) -> Iterator[Part]:
        """The part, or its halves, or theirs: as large as may be."""
        if (
            len(part.rows) == 1
            or math.isinf(self.smallest_failed)
            or self.demand(split, [part.rows])[0] < self.smallest_failed
        ):
            yield part
        else:
            for half in part.halves():
                yield from self.pieces(split, half)

    def write(self, path: Path, device: str) -> None:
        """For the next start, in which all processes split in advance what was too large for one, and what is nearly
        as large: each failure there costs a start. Raises OSError.
        """
        noted = {"device": device, "smallest_failed": int(0.9 * self.smallest_failed)}
        replace_file(path, json.dumps(noted) + "\n")

    def read(self, path: Path, device: str) -> None:
        """What `write` wrote, if there is anything, of such a device. UserError where it is damaged."""
        try:
            noted = json.loads(path.read_bytes())
            if noted["device"] == device:
                self.smallest_failed = min(self.smallest_failed, int(noted["smallest_failed"]))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{path} is damaged ({error}). Delete it: the memory is then tried anew.") from error

    def failed(self, split: TrainingSplit, part: Part) -> None:
        """Note that a part did not fit. Its halves are of less demand, so `pieces` comes to an end."""
        self.smallest_failed = min(self.smallest_failed, int(self.demand(split, [part.rows])[0]))
