"""`origin.json` in the folder of a run: the run whose weights its training began with."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.storage.files import replace_file


@dataclass(frozen=True)
class Origin:
    """The run by its name and by its whole path at that time, the checkpoint, and the blake2b hash of its weights.

    `parts` are the parts of the model that were taken, None where all were; `vocabulary` is what became of its
    tokenizers. `trained_on` describes the training data of that run, and `before` is the run that it came from itself.
    """

    name: str
    run: str
    checkpoint: str
    weights: str
    parts: list[str] | None
    vocabulary: str
    trained_on: list[str]
    before: "Origin | None" = None

    def write(self, path: Path) -> None:
        """As JSON."""
        replace_file(path, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def chain(self) -> list["Origin"]:
        """This one, the one before it, and so on, the oldest last."""
        return [self, *(self.before.chain() if self.before else [])]


def read_origin(path: Path) -> Origin | None:
    """What `Origin.write` wrote; None where there is no file. UserError where it is damaged."""
    try:
        return _origin_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged ({error}). Put back a copy of it, or delete it: no weights depend on it."
        ) from error


def _origin_of(entry: dict) -> Origin:
    return Origin(**{**entry, "before": _origin_of(entry["before"]) if entry.get("before") else None})
