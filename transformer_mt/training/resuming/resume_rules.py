"""The settings that may change when a run goes on, and those that must not."""

import json

from transformer_mt.config.schedules import SCHEDULES
from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.plurals import counted
from transformer_mt.storage.files import replace_file
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.validation import validation_search

# The end, how often to validate, the checkpoints to keep, the search.
FREE_TO_CHANGE = ("training.max_steps", "training.max_epochs", "training.max_minutes", "training.log_every_steps",
                  "training.checkpoint_every_steps", "training.keep_checkpoints", "training.average_last",
                  "training.on_save_error", "training.proofs", "training.device", "training.compile",
                  "training.sharding", "training.timeout_minutes", "training.grad_accum", "validation.", "decoding.",
                  "data.root", "data.cache_dir", "data.allow_left_out", "data.check", "data.test",
                  "name")  # fmt: skip
# Of the search of a validation these change nothing, or no more than rounding, and the second ones only where it has a
# beam, as terms of a glossary ask for one.
_WITHOUT_EFFECT = {"coverage_penalty", "constraints", "diverse_beam_strength", "seed", "batch_size", "precision"}
_OF_A_BEAM = {"length_penalty", "length_norm", "patience"}

Changes = dict[str, tuple[object, object]]  # the old and the new value by setting
Splits = dict[str, dict[str, str | int]]  # fingerprint and number of pairs, by the split's name


def differences(before: RunConfig, now: RunConfig) -> Changes:
    """The settings that differ, by their full names, in order."""
    old, new = flat_settings(before), flat_settings(now)
    return {
        key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    }


def allowed_changes(before: RunConfig, now: RunConfig, change_lr: bool) -> Changes:
    """The settings that differ. UserError names every one that must not."""
    changes, rate = differences(before, now), _of_the_rate(before, now)
    refused = [key for key in changes if key in rate or not key.startswith(FREE_TO_CHANGE)]
    if change_lr:
        refused = [key for key in refused if key not in rate]
    if refused:
        told = [one for key in refused for one in _one_by_one(key, *changes[key])]
        lines = "\n  ".join(f"{key}: was {old!r}, is {new!r}" for key, old, new in told)
        by_flag = " --change-lr lets the learning rate change." if set(refused) & rate else ""
        raise UserError(
            f"The run was begun with another config, and going on would not be the same training:\n  {lines}\n"
            f"Restore these values, or train from the start under another name (name=NEW).{by_flag}"
        )
    return changes


def changes_the_rate(before: RunConfig, now: RunConfig) -> bool:
    """Whether the steps to come have other learning rates, and so make other weights, than without the changes."""
    return not _of_the_rate(before, now).isdisjoint(differences(before, now))


def _of_the_rate(before: RunConfig, now: RunConfig) -> set[str]:
    """The settings that determine the learning rate. For some schedules the end of the training is one of them; for all
    others it is free to change.
    """
    schedules = {config.training.schedule for config in (before, now)}
    return {"training.schedule"} | {f"training.{key}" for name in schedules for key in SCHEDULES[name].keys}


def changed_translations(before: RunConfig, now: RunConfig) -> list[str]:
    """The settings that differ and change which sentences a validation translates, or their translations: earlier BLEU
    and chrF cannot be compared with later ones.
    """
    old, new = (vars(validation_search(config)) for config in (before, now))
    passed_over = _WITHOUT_EFFECT if old["glossary"] and new["glossary"] else _WITHOUT_EFFECT | _OF_A_BEAM
    of_search = [f"decoding.{key}" for key in old if old[key] != new[key] and key not in passed_over]
    others = before.validation.num_translated != now.validation.num_translated
    return ["validation.num_translated"] * others + of_search


def adapted_grad_accum(before: RunConfig, now: RunConfig, per_update: int, num_processes: int) -> int:
    """The grad_accum with which an update keeps its `per_update` micro-batches. UserError with the arithmetic where no
    grad_accum does that, or where the config asks for another one.
    """
    asked, share = now.training.grad_accum, per_update / num_processes
    unasked = asked == before.training.grad_accum
    if asked * num_processes == per_update or (unasked and share.is_integer()):
        return int(share)
    fitting = ", ".join(str(n) for n in range(1, per_update + 1) if per_update % n == 0)
    what, way = (
        (f"{num_processes} x {asked} are {asked * num_processes}", f"set training.grad_accum: {int(share)}")
        if share.is_integer()
        else (f"{num_processes} processes cannot share them evenly", f"start as many processes as one of {fitting}")
    )
    raise UserError(
        f"An update of this run is {counted(per_update, 'micro-batch', 'micro-batches')} (processes x "
        f"training.grad_accum), and {what}: going on would not be the same training. Instead, {way}, or train from the "
        "start under another name (name=NEW)."
    )


def refuse_other_data(before: Splits, now: Splits) -> None:
    """UserError that names the splits whose data changed since the run was begun."""
    if changed := other_splits(before, now, "was", "is"):
        lines = "\n  ".join(changed)
        raise UserError(
            f"The data changed since this run was begun, and going on would not be the same training:\n  {lines}\n"
            "Restore the files (or the version of tmt that read them), or train from the start under another name "
            "(name=NEW)."
        )


def other_splits(before: Splits, now: Splits, of_before: str, of_now: str) -> list[str]:
    """A line for each split that differs: `train: was 440 pairs (fingerprint a1), is 439 (b2)`."""
    return [
        f"{name}: {of_before} {_number(before[name])} (fingerprint {before[name]['fingerprint']}), {of_now} "
        f"{_number(split).partition(' pair')[0]} ({split['fingerprint']})"
        for name, split in now.items()
        if before[name] != split
    ]


def _number(split: dict[str, str | int]) -> str:
    return counted(int(split["num_pairs"]), "pair") if "num_pairs" in split else "a stream"


def record_changes(changes: Changes, run: RunFolder, step: int) -> None:
    """Print the changes, and note them with their first step in a line of the run's file. What an earlier start changed
    from the same step on, and a kill took back, is taken out.
    """
    for key, values in changes.items():
        for name, before, now in _one_by_one(key, *values):
            print(f"changed: {name} was {before!r}, is {now!r}")
    before = run.changes.read_bytes() if exists(run.changes) else b""
    lines = [line for line in before.splitlines(keepends=True) if not _is_from(step, line)]
    if changes:
        lines.append(json.dumps({"step": step, "changes": changes}).encode() + b"\n")
    if (now := b"".join(lines)) != before:
        replace_file(run.changes, now)


def _is_from(step: int, line: bytes) -> bool:
    try:
        return json.loads(line)["step"] >= step
    except (ValueError, TypeError, KeyError):  # nobody reads it but people, and one may have written it
        return False


def _one_by_one(key: str, before: object, now: object) -> list[tuple[str, object, object]]:
    """A change as a person reads it: of maps in a list as long as before the keys that differ; of others what is set,
    without the many keys that are None.
    """
    if not (isinstance(before, list) and isinstance(now, list)):
        return [(key, before, now)]
    if len(before) == len(now) and all(isinstance(entry, dict) for entry in [*before, *now]):
        return [
            (f"{key}.{number}.{name}", old.get(name), new.get(name))
            for number, (old, new) in enumerate(zip(before, now, strict=True))
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
        ]
    return [(key, _set_of(before), _set_of(now))]


def _set_of(entries: list) -> list:
    return [
        {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry
        for entry in entries
    ]


def flat_settings(config: RunConfig) -> dict[str, object]:
    """The settings by their full names, such as `model.d_model`. A list is one setting."""
    return _flat(config.model_dump(mode="json"))


def _flat(mapping: dict, prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
