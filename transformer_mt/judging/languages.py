"""Whether two runs translate the same text to the same language: a tag that one of them reads as the language that is
wanted must not be a word of the text to the other.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator


class Side(NamedTuple):
    """A run beside another: what messages call it, and the language that its search is asked for."""

    name: str
    config: RunConfig
    to: str | None

    def knows(self, tag: str) -> bool:
        """Whether this is one of its tags."""
        return tag.lower() in (one.lower() for one in self.config.tokenizer.tags)

    @property
    def written(self) -> str | None:
        """The language of what it makes of a text without a tag; None where it cannot know."""
        data = self.config.data
        trained = {data.languages_of(source)[1] for source in data.train if not source.mono} or {data.tgt_lang}
        return self.to or (next(iter(trained)) if len(trained) == 1 else None)


def own_search(config: RunConfig, decoding: dict[str, Any]) -> dict[str, Any]:
    """The search options for a run beside another: without `to`, where it writes that language alone and has no tags,
    so that the other one can be asked for it.
    """
    is_moot = not config.languages and decoding.get("to") == config.data.tgt_lang
    return {name: value for name, value in decoding.items() if not (is_moot and name == "to")}


def refuse_other_languages(first: RunConfig, second: RunConfig) -> None:
    """UserError where the runs of two configs translate other languages."""
    names = [config.data.direction for config in (first, second)]
    if names[0] != names[1]:
        raise UserError(f"One run translates {names[0]}, the other {names[1]}. Compare runs of the same languages.")


def refuse_other_readings(runs: "Iterable[tuple[Translator, str | None]]", words: Iterable[str], way_out: str) -> None:
    """UserError where two runs, each with the language asked of it, would not read the same in a text, or not write the
    same language. `words` are what the texts begin with, which may be a tag; `way_out` is where text without tags would
    come from.
    """
    sides = [Side(str(one.checkpoints[0][0].path), one.config, to) for one, to in runs]
    is_bare = False
    for word in dict.fromkeys(words):
        knowing = [side.knows(word) for side in sides]
        if any(knowing) and not all(knowing):
            to = f", and --to {language}" if (language := language_of(word)) else ""
            raise UserError(
                f"The sources have the tag {word}, which {sides[knowing.index(False)].name} has not learned: it would "
                f"be a word of the text. Compare on text without tags: {way_out}{to}."
            )
        is_bare |= not (all(knowing) and language_of(word))
    written = [side.written for side in sides]
    if is_bare and written[0] != written[1]:
        told = " and ".join(
            f"{side.name} {f'writes {language}' if language else 'does not know to which language'}"
            for side, language in zip(sides, written, strict=True)
        )
        raise UserError(f"Of sources without a tag, {told}. Give the language with --to.")
    if is_bare and written[0] is None:
        raise UserError("The sources do not say to which language. Give it with --to.")
