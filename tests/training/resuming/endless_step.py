"""Run by a test as a process: the short training of `saved_runs.py`, whose fifth step never ends."""

import sys
import time
from pathlib import Path
from unittest.mock import patch

from saved_runs import train

from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.updates import Updater

if __name__ == "__main__":
    update = Updater.update

    def endless(self: Updater, split, micro_batches, step: int, *more):
        while step == 5:
            time.sleep(0.01)
        return update(self, split, micro_batches, step, *more)

    with patch.object(Updater, "update", endless):
        train(Path(sys.argv[1]), RunFolder(Path(sys.argv[2])))
