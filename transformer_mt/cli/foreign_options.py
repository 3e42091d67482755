"""Options that other toolkits have, or that are settings of the config here, and what to write in their place."""

import shlex
from collections.abc import Collection

RUN = "--run"
# Of several options the first that the verb has. A name that the verb has itself is no foreign one.
FOREIGN = {
    "--model": ("--run",),
    "--models": ("--run",),
    "--model-path": ("--run",),
    "--path": ("--run",),
    "-m": ("--run",),
    "--alpha": ("--length-penalty",),
    "--lenpen": ("--length-penalty",),
    "--beam": ("--beam-size",),
    "-b": ("--beam-size",),
    "--source": ("--input", "--src"),
    "--src": ("--input",),
    "-i": ("--input", "--src"),
    "--target": ("--ref",),
    "--tgt": ("--ref",),
    "-o": ("--output",),
    "--out": ("--output",),
}


def meant(
    name: str, command: str, typed: list[str], options: Collection[str], arguments: Collection[str]
) -> str | None:
    """What to write for an option that the verb lacks, as one sentence; None where nobody knows. `command` is `tmt`
    and the verb, which has these `options` and `arguments`, by their names.
    """
    if RUN in (name, *FOREIGN.get(name, ())) and "run" in arguments:
        return f"`{command}` takes the run as an argument. Write: {command} {shlex.quote(_value(name, typed))}"
    own = next((option for option in FOREIGN.get(name, ()) if option in options), None)
    if own is not None:
        return f"`{command}` has no {name}. Did you mean {own}?"
    if "overrides" not in arguments or not name.startswith("--"):
        return None
    from transformer_mt.config.messages import place_of

    key = place_of(name.removeprefix("--").replace("-", "_"))
    # A verb with options for the search goes by these, whatever the overrides of a config say.
    if key is None or (key.startswith("decoding.") and "--beam-size" in options):
        return None
    written = shlex.quote(f"{key}={_value(name, typed)}")
    return f"{name} is no option, it is a setting of the config. Write it without dashes: {written}"


def _value(name: str, typed: list[str]) -> str:
    for i, argument in enumerate(typed):
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
        if argument == name and i + 1 < len(typed) and not typed[i + 1].startswith("--"):
            return typed[i + 1]
    return "VALUE"
