"""What is done with a line around the search, as one object: the section `decoding.lines`, with a caller's changes."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from transformer_mt.config.messages import sentence_of
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.lines import WORDS_OF_HTML, LinesConfig, clash_of
from transformer_mt.config.switching_off import in_config, option_of, switched_off
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.errors import UserError

OF_ALIGNMENTS = ("alignment_from", "alignment_layer")  # keys that mean nothing without one


class LineOptions(LinesConfig):
    """The keys of the section, with a caller's changes, and what only a caller decides: a file of prefixes."""

    prefix_file: str | None = None

    @property
    def prefixes(self) -> str | None:
        """Where prefixes are: `tab`, a file, or nowhere."""
        return self.prefix_file or self.prefix

    @property
    def is_plain(self) -> bool:
        """Whether nothing is done to lines that a search does not do by itself; see `finishing.treated`."""
        return not (self.needs_confidence or self.html or self.keep or self.replace_unk or self.alignment)

    @property
    def of_search(self) -> dict[str, Any]:
        """What a search must know of them, by the names of `SearchOptions`."""
        scored = self.format != "text" or self.n_best > 1
        return {"n_best": self.n_best, "too_long": TooLong(self.too_long), "scored": scored}


def line_options(
    config: DecodingConfig, given: Mapping[str, Any] | None = None, searched: Mapping[str, Any] | None = None
) -> LineOptions:
    """The config's keys with those that a caller gives; None, or the word none, switches one off. `prefix` may be a
    file too, and the kinds of `keep` may be one text, parted by commas. `searched` are the keys of the search that the
    caller gives.

    Raises UserError for values that make no sense, for keys that do not go together, by both names, and for one that is
    given without what it needs. What the config alone says of a key that needs another one waits until that is asked
    for.
    """
    given = switched_off(LinesConfig, given or {})
    searched = switched_off(DecodingConfig, searched or {})
    if given.get("prefix") not in (None, "tab"):
        given |= {"prefix": None, "prefix_file": given["prefix"]}
    if isinstance(given.get("keep"), str):
        given["keep"] = [kind.strip() for kind in given["keep"].split(",")]
    try:
        lines = LineOptions.model_validate(config.lines.model_dump() | given)
    except ValidationError as error:
        raise UserError(sentence_of(error, LineOptions)) from None
    clash = clash_of(lines, searched.get("constraints", config.constraints), has_prefix=lines.prefixes is not None)
    if clash is not None:
        one, other = (_origin(key, given.keys() | searched.keys()) for key in (clash.one, clash.other))
        raise UserError(f"{one} and {other} were both given. {clash.because}: leave one out.")
    _refuse_without_need(lines, given, searched)
    return lines


def _origin(key: str, given: set[str]) -> str:
    """Where a key that is set has its value from, as a user knows it."""
    name = key.removeprefix("lines.")
    if name in given:
        return option_of(name)
    return in_config(DecodingConfig, key) if name == key else in_config(LinesConfig, name, "decoding.lines")


def _refuse_without_need(lines: LineOptions, given: Mapping[str, Any], searched: Mapping[str, Any]) -> None:
    """Raise UserError for an option that is given without the one that it needs, or with what makes it useless."""
    if lines.html and (of_alignments := [key for key in OF_ALIGNMENTS if given.get(key) is not None]):
        html = _origin("lines.html", set(given))
        raise UserError(f"{html} and {option_of(of_alignments[0])} were both given. {WORDS_OF_HTML}: leave one out.")
    if given.get("alignment_from") is not None and lines.alignment is None:
        raise UserError("--alignment-from was given without --alignment. Give --alignment hard or soft too.")
    by_attention = lines.alignment is not None and lines.alignment_from == "attention"
    if given.get("alignment_layer") is not None and not by_attention:
        raise UserError("--alignment-layer was given without --alignment-from attention. Give both.")
    if given.get("unk_dictionary") is not None and not lines.replace_unk:
        raise UserError("--unk-dictionary was given without --replace-unk. Give both.")
    if lines.replace_unk and searched.get("allow_unk") is False:
        one = _origin("lines.replace_unk", set(given))
        raise UserError(f"{one} and --no-allow-unk were both given. Only UNK is replaced: leave one out.")
