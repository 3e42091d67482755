"""A trace as one JSON object: every vector and every weight."""

import json
from typing import Any

from torch import Tensor

from transformer_mt.inspect.trace import Trace


def trace_json(trace: Trace) -> str:
    """One line. Keys are the fields of `Trace` and of what it holds; a tensor is a list of its rows. Each number is the
    shortest decimal that names its 32-bit float.
    """
    return json.dumps(trace, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return vars(value)  # a dataclass
    array = value.numpy()
    return array.astype(str).astype(float).tolist() if value.is_floating_point() else array.tolist()
