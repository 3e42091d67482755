"""What a verb's parameters become on the command line: a dataclass, or a table of flags, an option for each entry."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from transformer_mt.cli.search_flags import FLAGS, LINE_FLAGS, Flag
from transformer_mt.config.switching_off import NONE


def with_options(verb: Callable[..., None], names: Iterable[str] = tuple(FLAGS)) -> Callable[..., None]:
    """The verb with an option for each of these flags. It gets those that a user gives as its argument `decoding`, by
    name; and, if it has an argument `lines`, those of `LINE_FLAGS` in that. Of a parameter that is a dataclass, such as
    `Models`, each field is an option too.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    kinds = {name: parameter.annotation for name, parameter in own.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    tables = {"decoding": {name: FLAGS[name] for name in names}, "lines": LINE_FLAGS}
    tables = {argument: table for argument, table in tables.items() if argument in own}
    parameters = []
    for name, parameter in own.items():
        fields_of = inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]
        parameters += map(_parameter, *zip(*tables[name].items(), strict=True)) if name in tables else fields_of
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]

    @wraps(verb)
    def with_flags(**arguments: Any) -> None:
        """Call the verb with the options of a group, or of a table, gathered in one argument."""
        given = {
            argument: {name: value for name in table if (value := arguments.pop(name)) is not None}
            for argument, table in tables.items()
        }
        for name, value in given.get("lines", {}).items():
            given["lines"][name] = ",".join(value) if LINE_FLAGS[name].is_repeatable else value
        made = {
            name: group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        verb(**arguments, **made, **given)

    with_flags.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_flags


def _parameter(name: str, flag: Flag) -> inspect.Parameter:
    """The option of a flag, None where it is not given."""
    option = typer.Option(help=flag.whole_help)
    kind = list[flag.type] if flag.is_repeatable else flag.type
    if flag.can_be_none and flag.type is not str:
        option = typer.Option(help=flag.whole_help, parser=_number_or_none(flag.type))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _number_or_none(kind: type[int] | type[float]) -> Callable[[str], int | float | str]:
    """What reads the number that a user typed, or `none`."""

    def read(text: str) -> int | float | str:
        """A function, since Typer asks a parser for its name."""
        try:
            return text if text == NONE else kind(text)
        except ValueError:
            named = "integer" if kind is int else "float"
            raise typer.BadParameter(f"{text!r} is not a valid {named}, and not {NONE}.") from None

    return read
