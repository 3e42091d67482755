"""The flight recorder of a training: what rules need beside the metrics, in recorder.jsonl, and judged at once."""

from typing import Any

from transformer_mt.diagnosing.diagnoses import Diagnoses, Diagnosis
from transformer_mt.diagnosing.history import read_recorded
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring.metrics_file import MetricsFile, finite
from transformer_mt.training.resuming.training_state import TrainingState


class Recorder:
    """recorder.jsonl, open for writing, and the diagnoses of the run. Those of earlier starts are known; what they
    recorded after the given state is cut off. metrics.jsonl must be cut back already.
    """

    def __init__(self, run: RunFolder, state: TrainingState) -> None:
        self.file = MetricsFile(run.recorder, state)
        self.diagnoses = Diagnoses.of(read_recorded(run).entries)

    def record(self, kind: str, step: int, figures: dict[str, Any]) -> list[Diagnosis]:
        """Write a line, and return what it shows for the first time. Raises OSError, after which the line waits."""
        entry = {"step": step, **finite(figures)}
        try:
            self.file.add(kind, step, figures)
        finally:
            new = self.diagnoses.add(kind, entry)
        return new
