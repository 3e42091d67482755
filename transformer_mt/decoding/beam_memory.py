"""Whether a step of a search fits into memory."""

import torch

from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import gibibytes, memory_of_machine

_BYTES_OF_LOGIT = 4


def refuse_what_never_fits(
    num_texts: int, num_rows: int, vocab_size: int, options: SearchOptions, device: torch.device
) -> None:
    """Raise UserError where one step's logits alone, of `num_rows` hypotheses of each text, take more than all of the
    machine's memory. The system may hand out memory that it does not have, and then kill the process without a word. A
    GPU reports the error itself.
    """
    there = memory_of_machine()
    needed = num_texts * num_rows * vocab_size * _BYTES_OF_LOGIT
    if device.type == "cpu" and there is not None and needed > there:
        what, key = ("An n_best of", "n_best") if options.is_sampling else ("A beam of", "beam_size")
        raise UserError(
            f"{what} {num_rows:,} takes {gibibytes(needed)} at least with {num_texts:,} texts at once, and this "
            f"machine has {gibibytes(there)}. Lower {key} or batch_size."
        )
