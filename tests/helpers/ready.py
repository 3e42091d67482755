"""Imported once, by the process that the others are copies of: what every start of `tmt` does before its own work.

A pass that numba compiles is not the same in a process that began as a copy, so the modules that compile them are left
to each: it compiles or loads what a new Python does.
"""

import gc
import os
import sys
from typing import Any

from numba.core.registry import cpu_target

from transformer_mt.checking.faults import languages

assert "transformer_mt.machine.numba_compile" not in sys.modules
languages.is_there()  # unpacks the languages
os.fsync = lambda descriptor: None  # see conftest.py
contexts: list[Any] = [cpu_target.typing_context, cpu_target.target_context]
for context in contexts:
    context.refresh()  # all that numba knows
gc.collect()
gc.freeze()  # see conftest.py
