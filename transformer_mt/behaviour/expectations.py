"""What is expected of a model: the file of a user, and the built-in set."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import regex
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from transformer_mt.behaviour.kinds import KINDS
from transformer_mt.config.loading import read_text
from transformer_mt.config.messages import problems_of
from transformer_mt.config.yaml_text import line_of, parse_yaml
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path
from transformer_mt.plurals import counted

KindName = Literal[
    "not_empty", "numbers_kept", "names_kept", "negation_kept", "ignores_case", "ignores_full_stop", "ignores_spaces",
    "glossary", "contains", "not_contains", "equals", "matches", "same_as",
]  # fmt: skip
VALIDATION = "validation"


class Expectation(BaseModel):
    """One entry of the file. `expected` is one text for all sources, or one for each."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1, max_length=80)]
    kind: KindName
    sources: list[str] | Literal["validation"] = VALIDATION
    expected: str | list[str] | None = None
    glossary: str | None = None
    minimum: Annotated[float | None, Field(ge=0.0, le=1.0)] = None

    @field_validator("sources", mode="before")
    @classmethod
    def _are_sources(cls, value: Any) -> Any:
        if value != VALIDATION and not (isinstance(value, list) and value):
            raise ValueError("must be a list of sources, or the word validation")
        for source in value if value != VALIDATION else ():
            if not isinstance(source, str):
                raise ValueError(f"{source!r} is no text; put it in quotes")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        takes = KINDS[self.kind].takes
        if (self.expected is not None) != (takes == "expected"):
            raise ValueError(f"the kind {self.kind} {'needs' if takes == 'expected' else 'has no'} key expected")
        if self.glossary is not None and takes != "glossary":
            raise ValueError(f"the kind {self.kind} has no key glossary")
        if KINDS[self.kind].needs_reference and self.sources != VALIDATION:
            raise ValueError(f"the kind {self.kind} needs references; write sources: {VALIDATION}")
        if isinstance(self.expected, list) and len(self.expected) != len(self.sources):
            raise ValueError(
                f"expected has {counted(len(self.expected), 'text')} for {counted(len(self.sources), 'source')}"
                if self.sources != VALIDATION
                else f"with sources: {VALIDATION} the key expected must be one text, not a list"
            )
        if self.kind in ("equals", "same_as") and self.sources == VALIDATION:
            raise ValueError(f"the kind {self.kind} needs a list of sources")
        for pattern in self.expected_texts if self.kind == "matches" else ():
            try:
                regex.compile(pattern)
            except (regex.error, ValueError, RecursionError) as error:  # the others: flags at odds, deep brackets
                raise ValueError(f"{pattern!r} is no regular expression ({error})") from None
        return self

    @property
    def expected_texts(self) -> list[str]:
        """The texts that are expected; one where it is the same for all sources."""
        return [self.expected] if isinstance(self.expected, str) else self.expected or []


class Placed(NamedTuple):
    """An expectation, and where it stands: a file and its line, or nothing for a built-in one."""

    expectation: Expectation
    where: str = ""


BUILT_IN: list[Placed] = [
    Placed(Expectation(name="no empty output", kind="not_empty", minimum=1.0)),
    Placed(Expectation(name="numbers are kept", kind="numbers_kept")),
    Placed(Expectation(name="names are kept", kind="names_kept")),
    Placed(Expectation(name="negation is kept", kind="negation_kept")),
    Placed(Expectation(name="case changes nothing", kind="ignores_case")),
    Placed(Expectation(name="a missing full stop changes nothing", kind="ignores_full_stop")),
    Placed(Expectation(name="a doubled space changes nothing", kind="ignores_spaces")),
    Placed(Expectation(name="the glossary is respected", kind="glossary")),
]


def read_expectations(path: Path) -> list[Placed]:
    """The expectations of a YAML file. The path of a glossary starts at the file's folder.

    Raises UserError, by file and line, for the first thing that is wrong.
    """
    text = read_text(path)
    entries = parse_yaml(text, str(path))
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path} holds no list of expectations. Begin each with - name: NAME, and give it a kind.")

    def where(place: tuple[str | int, ...]) -> str:
        return f"{path}, line {line_of(text, place)}"

    found: list[Placed] = []
    for number, entry in enumerate(entries):
        placed = Placed(_expectation(entry, number, where), where((number,)))
        expectation = placed.expectation
        same = next((one for one in found if one.expectation.name == expectation.name), None)
        if same is not None:
            raise UserError(f"{where((number, 'name'))}: name: {expectation.name!r} is that of {same.where}, too.")
        if expectation.glossary is not None:
            glossary = str(path.parent / user_path(expectation.glossary))
            placed = placed._replace(expectation=expectation.model_copy(update={"glossary": glossary}))
        found.append(placed)
    return found


def _expectation(entry: object, number: int, where: Callable[[tuple[str | int, ...]], str]) -> Expectation:
    if not isinstance(entry, dict):
        raise UserError(f"{where((number,))}: an expectation is a map of keys. Write - name: NAME, and below it kind.")
    try:
        return Expectation.model_validate(entry)
    except ValidationError as error:
        place = error.errors(include_url=False)[0]["loc"]
        said = problems_of(error, Expectation)[0]
        raise UserError(f"{where((number, *place))}: {said}{'' if said.endswith('?') else '.'}") from None
