"""The target language of a line, where a model writes several: a tag before the source, <2de>, says which one is wanted
(Johnson et al. 2017, section 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.config.switching_off import switched_off
from transformer_mt.errors import LineError, UserError


class Tagged(NamedTuple):
    """A line without the tag of its target language, and that tag; nothing where it has none. `problem` says why it
    cannot be translated, as the middle of a sentence.
    """

    tag: str
    text: str
    problem: str = ""

    @property
    def whole(self) -> str:
        """What the model reads."""
        return f"{self.tag} {self.text}" if self.tag and self.text.strip() else self.text


@dataclass(frozen=True)
class TargetLanguages:
    """The languages that a run writes, and what becomes of a line without a tag.

    `default` is the language of such lines, where all training pairs were of one. They are refused where `is_needed`:
    all training pairs had the tag of a language, and there are several.
    """

    names: tuple[str, ...]
    default: str | None
    is_needed: bool
    lowercase: bool

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """Those of a run."""
        trained = [language_of(source.tag) for source in config.data.train if not source.mono]
        several = dict.fromkeys(trained)
        default = trained[0] if len(several) == 1 else None
        is_needed = len(several) > 1 and None not in several
        return cls(tuple(config.languages), default, is_needed, config.tokenizer.lowercase)

    def check(self, to: str | None) -> None:
        """UserError where the run does not write this language."""
        if to is None or to in self.names:
            return
        if not self.names:
            raise UserError(
                f"to is {to}, and this model has no tags of languages: it translates to one language alone. Leave to "
                "(--to) out."
            )
        raise UserError(f"to is {to or 'blank'}, which this model has not learned. It has {', '.join(self.names)}.")

    def tag_of(self, to: str | None) -> str:
        """The tag of a language, or of the default one; nothing where there is none."""
        self.check(to)
        language = to or self.default
        return f"<2{language}>" if language else ""

    def typed(self, text: str) -> Tagged:
        """A line and the tag of one of these languages that it begins with; the line as it is where it has none."""
        first, rest = [*text.split(maxsplit=1), "", ""][:2]
        written = first.lower() if self.lowercase else first
        for name in self.names:
            tag = f"<2{name}>"
            if written == (tag.lower() if self.lowercase else tag):
                return Tagged(tag, rest)
        return Tagged("", text)

    def parted(self, text: str, to: str | None) -> Tagged:
        """A line and its tag: the one that it begins with, else that of `to`, which was checked. That of a language
        which the model has not is a problem. LineError where the line needs a tag and has none.
        """
        if not self.names:
            return Tagged("", text)
        typed = self.typed(text)
        if typed.tag:
            return typed
        first = next(iter(text.split(maxsplit=1)), "")
        tag = self.tag_of(to)
        if not tag and self.is_needed and text.strip():
            what = f"names another language, {first}" if language_of(first) else "does not say to which"
            raise LineError(
                f"This model translates to {', '.join(self.names)}, and {text.strip()[:60]!r} {what}. "
                f"Give one with to (--to {self.names[0]}), or begin each line with a tag such as <2{self.names[0]}>."
            )
        if language_of(first):
            has = ", ".join(self.names)
            return Tagged("", text, f"it begins with {first}, which this model has not learned; it has {has}")
        return Tagged(tag, text)

    def all_parted(self, texts: Sequence[str], to: str | None) -> list[Tagged]:
        """Each line and its tag. UserError as in `check` and `parted`."""
        self.check(to)
        return [self.parted(text, to) for text in texts]

    def read(self, text: str, to: str | None) -> str:
        """What the model reads of a text. UserError as in `check` and `parted`, and for the tag of another language."""
        (tagged,) = self.all_parted([text], to)
        if tagged.problem:
            raise UserError(f"{text.strip()[:60]!r} is not read: {tagged.problem}. Begin it with a tag of these.")
        return tagged.whole


def as_read(text: str, config: RunConfig, to: str | None) -> str:
    """A text as the model of a run reads it: behind the tag of `to`, or else of the config's `decoding.to`, unless it
    begins with one. `none` switches off what the config says. UserError as in `TargetLanguages.read`.
    """
    languages = TargetLanguages.of(config)
    wanted = config.decoding.to if to is None else switched_off(SearchConfig, {"to": to})["to"]
    return languages.read(text, wanted)
