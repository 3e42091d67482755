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
        what = f"Drawing {num_rows:,} samples" if options.is_sampling else f"A beam of {num_rows:,}"
        raise UserError(
            f"{what} takes {gibibytes(needed)} at least with {num_texts:,} texts at once, and this machine has "
            f"{gibibytes(there)}. Lower {_key_of(num_rows, options)}batch_size."
        )


def _key_of(num_rows: int, options: SearchOptions) -> str:
    """The key that makes the hypotheses of a text so many, with the word behind it; nothing where the constraints of
    lines do.
    """
    if num_rows > options.num_rows:
        return ""
    # A beam grows until it has a place for each candidate, and as many in each group.
    is_grown = options.beam_size - options.num_candidates < options.diverse_beam_groups
    key = options.key_of_candidates if options.is_sampling or is_grown else "beam_size"
    return f"{key} or "
