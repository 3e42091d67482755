"""Options that other toolkits have, or that are settings of the config here, and what to write in their place."""

import shlex
from collections.abc import Collection

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


def meant(name: str, command: str, arguments: list[str], options: Collection[str], has_settings: bool) -> str | None:
    """What to write for an option that the verb lacks, as one sentence; None where nobody knows. `command` is `tmt`
    and the verb, `options` are those that it has; with `has_settings` its arguments are settings of the config.
    """
    own = next((option for option in FOREIGN.get(name, ()) if option in options), None)
    if own is not None:
        return f"`{command}` has no {name}. Did you mean {own}?"
    if not has_settings or not name.startswith("--"):
        return None
    from transformer_mt.config.messages import place_of

    key = place_of(name.removeprefix("--").replace("-", "_"))
    if key is None:
        return None
    written = shlex.quote(f"{key}={_value(name, arguments)}")
    return f"{name} is no option, it is a setting of the config. Write it without dashes: {written}"


def _value(name: str, arguments: list[str]) -> str:
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
        if argument == name and i + 1 < len(arguments) and not arguments[i + 1].startswith("--"):
            return arguments[i + 1]
    return "VALUE"
