"""The keys of the config's section `decoding` as options: those of the search of every verb that searches, those of
`decoding.lines` of `tmt translate`.

They stand here again with their types and help, because the command line starts without pydantic. A test holds these
tables against the sections.
"""

from types import NoneType
from typing import Any, NamedTuple, get_args

from transformer_mt.config.switching_off import NONE


class Flag(NamedTuple):
    """An option: the type of its value, with `| None` where the key is null by default and `none` switches it off; its
    help without the default; and whether it may come several times: then as if its values were one, parted by commas.
    """

    hint: Any
    help: str
    is_repeatable: bool = False

    @property
    def can_be_none(self) -> bool:
        """Whether `none` switches it off."""
        return NoneType in get_args(self.hint)

    @property
    def type(self) -> type:
        """Of its value, where that is not `none`."""
        return get_args(self.hint)[0] if self.can_be_none else self.hint

    @property
    def whole_help(self) -> str:
        """Its help, with the default."""
        off = f"; {NONE} switches that off" if self.can_be_none else ""
        return f"{self.help} Default: the run's config{off}."


FLAGS = {
    "to": Flag(str | None, "The language to translate to, of a model of several: its tag, as <2de>, is put before."),
    "beam_size": Flag(int, "Beginnings that the search keeps; 1: greedy."),
    "length_penalty": Flag(float, "The larger, the longer the translations; 0: none."),
    "length_norm": Flag(str, "What a score is divided by: gnmt or average."),
    "coverage_penalty": Flag(float, "The larger, the less may be left out of the source; 0: no such penalty."),
    "max_length_ratio": Flag(float, "The longest translation: so many tokens for each token of the source, ..."),
    "max_length_extra": Flag(int, "... and so many more."),
    "min_length": Flag(int, "Tokens of a translation, at least."),
    "max_length": Flag(int | None, "Tokens of a translation, at most."),
    "no_repeat_ngram_size": Flag(int, "So many tokens in a row come once in a translation; 0: no such rule."),
    "patience": Flag(float, "A beam waits for so many times --beam-size finished translations."),
    "mbr": Flag(str | None, "Minimum Bayes risk: the candidate with the best mean score against all, by chrf or bleu."),
    "mbr_candidates": Flag(int | None, "Candidates of --mbr; a beam grows to hold them."),
    "diverse_beam_groups": Flag(int, "Parts of the beam that keep clear of each other's words; 1: a plain beam."),
    "diverse_beam_strength": Flag(float, "What a word costs for each time that an earlier part of the beam takes it."),
    "sampling_topk": Flag(int | None, "Draw each token by chance, from so many likeliest; 0: from all."),
    "sampling_topp": Flag(float | None, "Draw each token from the fewest likeliest with this probability together."),
    "temperature": Flag(float | None, "Draw by probabilities to the power of 1 / temperature; 1: by the model's own."),
    "seed": Flag(int, "Another one draws other samples."),
    "avoid": Flag(str | None, "A file of words and phrases, one a line, that no translation holds."),
    "constraints": Flag(str | None, "Phrases behind a line and tabs must be in its translation: ordered or unordered."),
    "glossary": Flag(
        str | None, "A file of a term, a tab and its translation a line: terms of a line are so translated."
    ),
    "allow_unk": Flag(bool, "Let the search generate the unknown token."),
    "batch_size": Flag(int, "Sentences decoded together, at most."),
    "precision": Flag(str, "fp32, bf16, fp16, int8 or auto."),
}

LINE_FLAGS = {
    "html": Flag(bool, "Lines are HTML: text is translated, tags follow the words that they stand around."),
    "keep": Flag(
        str | None,
        "What comes out as it is: urls, emails, numbers, placeholders such as {name}, parted by commas or each behind "
        "a --keep.",
        is_repeatable=True,
    ),
    "replace_unk": Flag(bool, "Put the source's word in the place of each word that the model lacks."),
    "unk_dictionary": Flag(
        str | None, "With --replace-unk, a file of the words to take instead: a source word, a tab, a translation."
    ),
    "alignment": Flag(
        str | None, "Write which words translate which behind each translation, i-j from 0: hard, soft (probabilities)."
    ),
    "alignment_from": Flag(str, "Align by the run's aligner or by the model's own attention: aligner or attention."),
    "alignment_layer": Flag(int | None, "With --alignment-from attention, whose attention; 1 is the first layer."),
    "confidence": Flag(
        bool,
        "How sure one may be, 0 to 1, learned from the run's validation split: of a sentence, behind its translation; "
        "in jsonl of its words too. See tmt calibrate.",
    ),
    "reject_below": Flag(float | None, "Leave a line blank, for a person, where its confidence is below this number."),
    "too_long": Flag(
        str,
        "Of a line longer than the model's positions: leave it blank, translate its beginning (truncate), or translate "
        "it in pieces (split).",
    ),
    "prefix": Flag(
        str | None,
        "A file with the beginning of each translation, one a line, blank for none; tab: it stands in the line itself, "
        "behind the source and a tab.",
    ),
    "n_best": Flag(int, "Translations of each sentence; as text, a line each: NUMBER ||| TEXT ||| SCORE."),
    "format": Flag(
        str,
        "text; jsonl: a JSON object a line, with the source and its scored translations; moses: an n-best list as "
        "Moses writes it, NUMBER ||| TEXT ||| F0= LOG_PROB ||| SCORE, counted from 0.",
    ),
}

# What scoring a given translation obeys.
SCORE_FLAGS = ("to", "length_penalty", "length_norm", "coverage_penalty", "batch_size", "precision")
