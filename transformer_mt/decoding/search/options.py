"""The settings of a search as one object: the section `decoding`, with the changes of a caller."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from transformer_mt.config.messages import sentence_of
from transformer_mt.config.sections.decoding import SAMPLING, DecodingConfig, SearchConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.sections.section import PositiveInt
from transformer_mt.config.switching_off import NONE, can_be_none, switched_off
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class LengthNorm:
    """The divisor of a log-probability, for a hypothesis of `length` tokens, EOS counted."""

    kind: str = "gnmt"
    alpha: float = 0.0

    def __call__(self, length: int) -> float:
        """`gnmt`: ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); `average`: length^alpha."""
        return LENGTH_NORMS[self.kind](length) ** self.alpha


LENGTH_NORMS = {"gnmt": lambda length: (5 + length) / 6, "average": lambda length: float(length)}


BEAM = ("beam_size", "diverse_beam_groups", "diverse_beam_strength")  # a caller who gives one asks for no samples
NO_BEAM = {"beam_size": 1, "diverse_beam_groups": 1}
SAMPLES_OF_MBR = 30  # as many as Eikema and Aziz (2020) draw


class SearchOptions(SearchConfig):
    """The keys of the section `decoding`, with a caller's changes for one translation, and what only a caller decides.

    Where `scored` is false, greedy search and sampling may leave scores and log-probabilities at nan, and are faster.
    Samples have no beam: `beam_size` is 1. With `evidence` each translation says what the model holds of its words, at
    the cost of one more pass over them.
    """

    n_best: PositiveInt = 1
    too_long: Annotated[TooLong, Field(strict=False)] = TooLong.BLANK  # its name does, too
    scored: bool = True
    evidence: bool = False

    @property
    def norm(self) -> LengthNorm:
        """The divisor of log-probabilities."""
        return LengthNorm(self.length_norm, self.length_penalty)

    @property
    def num_candidates(self) -> int:
        """How many hypotheses a search is to find: `n_best`, or for `mbr` all that it compares."""
        among = SAMPLES_OF_MBR if self.is_sampling else self.beam_size
        return self.n_best if self.mbr is None else max(self.n_best, self.mbr_candidates or among)

    @property
    def key_of_candidates(self) -> str:
        """The key that says how many these are."""
        return "n_best" if self.n_best == self.num_candidates else "mbr_candidates"

    @property
    def num_rows(self) -> int:
        """The hypotheses of a sentence that are extended together: the samples, or the beam."""
        return self.num_candidates if self.is_sampling else self.beam_size

    @property
    def keeps_order(self) -> bool:
        """Whether hypotheses stand in the order in which they were drawn, and not the best first."""
        return self.is_sampling and self.mbr is None

    @property
    def as_saved(self) -> dict[str, Any]:
        """The keys of the section that change a translation, as an evaluation saves them."""
        return self.model_dump(include=SearchConfig.model_fields.keys() - {"batch_size", "precision"})

    @property
    def of_search(self) -> "SearchOptions":
        """The options of the search itself, whose hypotheses are the candidates of `mbr`."""
        return self if self.mbr is None else self.model_copy(update={"n_best": self.num_candidates, "mbr": None})

    @property
    def of_group(self) -> "SearchOptions":
        """The options of one group of a diverse beam, which is a beam of its own."""
        size = self.beam_size // self.diverse_beam_groups
        changes = {"beam_size": size, "n_best": min(self.n_best, size), "diverse_beam_groups": 1}
        return self.model_copy(update=changes)

    def largest_length(self, src_len: int, positions: int) -> int:
        """The largest length of a translation of `src_len` tokens, EOS counted on both sides."""
        asked = positions if self.max_length is None else self.max_length + 1
        return min(int(self.max_length_ratio * src_len) + self.max_length_extra, positions, asked)


def search_options(config: SearchConfig, **changes: Any) -> SearchOptions:
    """The config's options with the changes that are not None, by the names of `SearchOptions`. As the value of a key
    that is null by default, "none" switches off what the config says.

    Raises UserError for a name that is none, and for values that make no sense; it says which come from the config.
    Where more hypotheses are asked for than the config's beam holds, and no beam size is given, the beam grows. A beam
    size that is given is stronger than what the config says of `mbr`: greedy search leaves nothing to choose from, and
    a small beam fewer candidates. A change that asks for samples replaces the config's beam, and one that asks for a
    beam the config's sampling.
    """
    known = SearchOptions.model_fields
    changes = {key: _plain(value) for key, value in changes.items() if value is not None or key not in known}
    given = switched_off(SearchOptions, changes)
    if given.get("mbr_candidates") is not None and given.get("mbr", config.mbr) is None:
        raise UserError(
            f"mbr_candidates is {given['mbr_candidates']}, and mbr is not asked for. Give mbr (chrf or bleu) too, or "
            "leave it out."
        )
    of_config = config.model_dump(exclude={"lines"})  # `config` may be options already, with more than its keys
    try:
        return _made(of_config | _replaced(config, given) | given, given)
    except UserError as error:
        said = str(error)  # names the keys with their values
        told = [
            f"{key} is from the config." + _way_without(key)
            for key, value in of_config.items()
            if key not in given and _is_named(key, value, said)
        ]
        # How many translations a line has stands elsewhere in the config, and comes as a change from there.
        lines = config.lines if isinstance(config, DecodingConfig) else LinesConfig()
        if given.get("n_best") == lines.n_best > 1 and _is_named("n_best", lines.n_best, said):
            told.append("n_best is from the config. Give n_best 1 (--n-best 1) to leave it out.")
        raise UserError(" ".join([said, *told])) from None


def refuse_other_precision(loaded: str, changes: Mapping[str, Any]) -> None:
    """UserError where changes name another precision than the one that a model was loaded in."""
    asked = changes.get("precision")
    if asked is not None and str(asked) not in ("auto", loaded):  # an array compares with nothing as a whole
        raise UserError(
            f"precision is {asked}, and this translator was loaded in {loaded}. Leave it out, or give it to "
            "Translator.load."
        )


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's, and arrays of several as lists, which compare as a whole."""
    if not hasattr(value, "item"):
        return value
    return value.item() if math.prod(value.shape) == 1 else value.tolist()


def _way_without(key: str) -> str:
    """How a caller switches a key of the config off, where that can be done."""
    off = NONE if can_be_none(SearchConfig, key) else {"diverse_beam_groups": 1}.get(key)
    return "" if off is None else f" Give {key} {off} to leave it out."


def _is_named(key: str, value: Any, said: str) -> bool:
    """Whether a message names a key with this value."""
    return re.search(rf"\b{key} (is )?{re.escape(str(value))}(?![\w.]\w)", said) is not None


def _made(values: dict[str, Any], given: dict[str, Any]) -> SearchOptions:
    """The options of these values, with a beam that is wide enough where its size is not `given`."""
    try:
        options = SearchOptions.model_validate(values)
    except ValidationError as error:
        raise UserError(sentence_of(error, SearchOptions)) from None
    if "beam_size" not in given and not options.is_sampling:
        groups = options.diverse_beam_groups
        wanted = -(-options.num_candidates // groups) * groups
        options = options.model_copy(update={"beam_size": max(options.beam_size, wanted)})
    _check_what_needs_more(options, given)
    return options


def _check_what_needs_more(options: SearchOptions, given: dict[str, Any]) -> None:
    """Raise UserError where the options exclude each other, or one that is given lacks another."""
    if options.is_sampling and options.beam_size > 1:
        raise UserError(
            f"beam_size is {options.beam_size}, and {options.asks_for_samples}. Leave one of them out; n_best is the "
            "number of samples."
        )
    if "seed" in given and not options.is_sampling:
        keys = (*BEAM, "constraints", "glossary")
        searched = next((key for key in keys if given.get(key) not in (None, NO_BEAM.get(key))), None)
        if searched is not None:
            raise UserError(
                f"seed is {options.seed}, and {searched} is {given[searched]}, which is of a search, where nothing is "
                "drawn by chance. Leave one of them out."
            )
        raise UserError(
            f"seed is {options.seed}, and nothing is drawn by chance. Ask for samples with {', '.join(SAMPLING[:2])} "
            f"or {SAMPLING[2]}, or leave seed out."
        )
    if "diverse_beam_strength" in given and options.is_sampling:
        raise UserError(
            f"diverse_beam_strength is {options.diverse_beam_strength}, and {options.asks_for_samples}. Leave one of "
            "them out."
        )
    if "diverse_beam_strength" in given and options.diverse_beam_groups == 1:
        raise UserError(
            f"diverse_beam_strength is {options.diverse_beam_strength}, and a beam of one group has nothing to keep "
            "clear of. Give diverse_beam_groups too, or leave it out."
        )
    if options.mbr is not None and options.n_best > (options.mbr_candidates or math.inf):
        raise UserError(
            f"n_best is {options.n_best}, and mbr_candidates {options.mbr_candidates} leaves no more to choose from. "
            f"Use mbr_candidates {options.n_best} or more."
        )
    if options.num_candidates > options.num_rows:
        raise UserError(
            f"{options.key_of_candidates} is {options.num_candidates}, and beam_size {options.beam_size} finds no more "
            f"than {options.beam_size}. Use beam_size {options.num_candidates} or more."
        )
    if options.mbr is not None and options.num_candidates == 1:
        raise UserError(
            f"mbr is {options.mbr}, and beam_size 1 finds one candidate alone. Give a larger beam_size, or leave mbr "
            "out."
        )


def _replaced(config: SearchConfig, given: dict[str, Any]) -> dict[str, Any]:
    """Keys of the config that what a caller gives has no room for, without their effect."""
    asks = any(given.get(key) is not None for key in SAMPLING)
    stays = any(getattr(config, key) is not None and key not in given for key in SAMPLING)
    if asks or (stays and not given.keys() & BEAM):
        return NO_BEAM
    replaced: dict[str, Any] = dict.fromkeys(SAMPLING)
    beam_size = given.get("beam_size")
    if beam_size == 1:  # greedy search
        replaced |= {"diverse_beam_groups": 1, "mbr": None}
    if isinstance(beam_size, int) and beam_size < (config.mbr_candidates or 0):
        replaced["mbr_candidates"] = None
    return replaced
