"""A trace as one JSON object: every vector and every weight."""

import json
from typing import Any

import numpy as np
from torch import Tensor

from transformer_mt.errors import UserError
from transformer_mt.inspect.trace import Trace


def trace_json(trace: Trace) -> str:
    """One line. Keys are the fields of `Trace` and of what it holds; a tensor is a list of its rows. Each number is the
    shortest decimal that names its 32-bit float. Raises UserError where one is infinite, which JSON cannot write.
    """
    try:
        return json.dumps(trace, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise UserError(
            "A number of the trace is infinite, which JSON cannot write. Use --format text, or an earlier checkpoint "
            "(--checkpoint step_N)."
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _shortest(value.numpy())
    fields = vars(value).items()  # of a dataclass
    return {name: _shortest(np.float32(part)) if isinstance(part, float) else part for name, part in fields}


def _shortest(array: np.ndarray | np.float32) -> Any:
    return array.astype(str).astype(float).tolist() if array.dtype == np.float32 else array.tolist()
