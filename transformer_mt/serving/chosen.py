"""The checkpoint of a run that all processes of a server have, while a training may write others."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import find_checkpoint
from transformer_mt.storage.run_folder import MANIFEST, RunFolder


@dataclass(frozen=True)
class Chosen:
    """A checkpoint of a run as it was when it was chosen, by its name and the hash of its manifest."""

    run: Path
    name: str
    manifest: str

    @classmethod
    def of(cls, run: RunFolder, choice: str | None = None) -> "Chosen":
        """The checkpoint that `choice` means now, as `find_checkpoint` takes it and refuses it."""
        checkpoint = find_checkpoint(run, choice)
        return cls(run.path, checkpoint.name, _hash(checkpoint))

    @property
    def is_there(self) -> bool:
        """Whether the run has it still, unchanged."""
        try:
            checkpoint = find_checkpoint(RunFolder(self.run), self.name)
        except UserError:
            return False
        return _hash(checkpoint) == self.manifest

    def check(self) -> None:
        """Raise UserError where the run has it no longer, or another one by its name."""
        if not self.is_there:
            raise UserError(f"{self.run}: {self.name} is no longer what it was when the server began.")


def _hash(checkpoint: Path) -> str:
    """Of the manifest; nothing where it cannot be read, which loading tells."""
    try:
        return hashlib.blake2b((checkpoint / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""
