"""What `tmt config explain` measures, in copies of a process that has imported all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import call_tmt
from copies import forkserver

from transformer_mt.training.costs import measuring


def measured_costs(folder: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of 400 steps of a config in the folder."""
    context = forkserver()
    monkeypatch.setattr(measuring.multiprocessing, "get_context", lambda _: context)
    result = call_tmt(folder, "config", "explain", config, "training.max_steps=400", "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
