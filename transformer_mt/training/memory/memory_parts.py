"""Micro-batches in parts that fit the memory. No pair is dropped. A size that did not fit once is split in advance.

Losses are sums over target tokens, so the losses of the parts add up to that of the whole, and so do the gradients. The
load-balancing loss of experts does not: it is a product of means. Each part has its own, weighted by its target tokens,
and these weights add up to that of the whole. So tokens are balanced within each part, as they would be with a smaller
`training.max_tokens`.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.storage.files import replace_file


@dataclass(frozen=True)
class Part:
    """Some rows of micro-batch `index` of an update. Part 1 is the whole; the halves of part n are 2n and 2n + 1.

    Part 0 counts nothing: a process that has no micro-batch left computes it and adds zeros.
    """

    index: int
    rows: Rows
    number: int = 1

    def halves(self) -> tuple["Part", "Part"]:
        """Two parts, each with half of the rows, of which there are two or more."""
        assert len(self.rows) > 1, "one pair cannot be split"
        middle = len(self.rows) // 2
        return (
            Part(self.index, self.rows[:middle], 2 * self.number),
            Part(self.index, self.rows[middle:], 2 * self.number + 1),
        )


class MemoryLimit:
    """How large a part may be: smaller than the smallest part that did not fit.

    `demand` orders parts by size. It estimates from lengths alone how many numbers a training step holds at once. The
    estimate need not be exact, because it is compared with other estimates only, and it grows with rows and lengths.
    Where the layers see no padding, it is too large.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        self.per_position, self.per_pair = ARCHITECTURES[config.architecture].held(config)
        self.per_token = 3 * vocab_size  # of a target token: its logits, their exponentials and their gradient
        self.num_passes = 1
        self.smallest_failed = math.inf

    def take_passes(self, consistency: ConsistencyConfig | None) -> None:
        """Note how many passes over a part the step that comes makes."""
        self.num_passes = 1 if consistency is None else 2

    def demand(self, split: TrainingSplit, batches: list[Rows]) -> NDArray[np.int64]:
        """(batches,): rows x ((longest source + longest target) x per_position + longest source x longest target x
        per_pair) + target tokens x per_token, times the passes of the step.
        """
        order = np.concatenate(batches)
        sizes = np.array([len(rows) for rows in batches])
        starts = np.cumsum(sizes) - sizes
        src, tgt = (lengths[order].astype(np.int64) for lengths in (split.src_lengths, split.tgt_lengths))
        longest_src, longest_tgt = (np.maximum.reduceat(lengths, starts) for lengths in (src, tgt))
        of_row = (longest_src + longest_tgt) * self.per_position + longest_src * longest_tgt * self.per_pair
        return self.num_passes * (sizes * of_row + np.add.reduceat(tgt, starts) * self.per_token)

    def largest(self, split: TrainingSplit, batches: list[Rows]) -> Rows:
        """The batch of the greatest demand."""
        return batches[int(self.demand(split, batches).argmax())]

    def pieces(self, split: TrainingSplit, part: Part) -> Iterator[Part]:
        """The part, or its halves, or their halves: the largest pieces that are allowed."""
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
        """Note the limit for the next start, less a tenth: each failure among several processes costs a start, so all
        processes then split parts of nearly that size too. Raises OSError.
        """
        noted = {"device": device, "smallest_failed": int(0.9 * self.smallest_failed)}
        replace_file(path, json.dumps(noted) + "\n")

    def read(self, path: Path, device: str) -> None:
        """Take over a limit that `write` noted for such a device. UserError where the file is damaged."""
        try:
            noted = json.loads(path.read_bytes())
            if noted["device"] == device:
                self.smallest_failed = min(self.smallest_failed, int(noted["smallest_failed"]))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{path} is damaged ({error}). Delete it: the memory is then tried anew.") from error

    def failed(self, split: TrainingSplit, part: Part) -> None:
        """Note that a part did not fit. Its halves have a lower demand, so `pieces` comes to an end."""
        self.smallest_failed = min(self.smallest_failed, int(self.demand(split, [part.rows])[0]))
