"""A translator in all that `decoding.lines` asks to be done to its lines, before and after they are translated."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from transformer_mt.aligning.run_aligner import aligner_of_run
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.switching_off import named_by
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translator import Translator
from transformer_mt.finishing.attention_alignment import BEFORE_THE_LAST, AttentionAligner
from transformer_mt.finishing.confidence import ConfidentTranslator
from transformer_mt.finishing.run_calibration import calibration_of_run
from transformer_mt.finishing.unknown_words import UnknownWordReplacer, read_dictionary
from transformer_mt.finishing.word_alignment import AlignedTranslator
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.markup.keeping_translator import KeepingTranslator

Remark = Callable[[str], None]


def treated(translator: Translator, lines: LinesConfig, options: SearchOptions, remark: Remark) -> LineTranslator:
    """A loaded translator in all of these, the last outermost. The aligner is that of the (first) run, trained at its
    first use; so is the calibration of confidences, for these options. `remark` gets a sentence on whatever takes time.

    Raises UserError where the dictionary cannot be read or is wrong, and as `aligner_of_run` and `calibration_of_run`
    do. That the keys go together is looked at where they come from, in the config or in `line_options`.
    """
    works: LineTranslator = translator
    dictionary: dict[str, str] = {}
    if lines.replace_unk and lines.unk_dictionary is not None:
        of_config = translator.config.decoding.lines
        origin = named_by(of_config, "unk_dictionary", lines.unk_dictionary, "decoding.lines")
        dictionary = read_dictionary(Path(lines.unk_dictionary), origin)
    replaces = _replaces(translator, lines)
    if lines.replace_unk and not replaces:
        remark("--replace-unk changes nothing here: the model writes words in pieces, and none is unknown to it")
    aligner = cache(partial(aligner_of_run, translator.checkpoints[0][0], remark))
    if replaces:
        works = UnknownWordReplacer(works, aligner(), translator.tgt_tokenizer, dictionary)
    if lines.keep:
        works = KeepingTranslator(works, translator.tgt_tokenizer, lines.keep, aligner)
    if lines.html:
        works = HtmlTranslator(works, aligner())
    if lines.alignment is not None:
        layer = BEFORE_THE_LAST if lines.alignment_layer is None else lines.alignment_layer - 1
        by = AttentionAligner(translator, layer, options.to) if lines.alignment_from == "attention" else aligner()
        works = AlignedTranslator(works, by, soft=lines.alignment == "soft")
    if lines.needs_confidence:
        calibration = calibration_of_run(translator, searched_options(translator, lines, options), remark).calibration
        # The last, since it leaves out whole lines.
        works = ConfidentTranslator(works, calibration, lines.reject_below, is_written=lines.confidence)
    return works


def searched_options(translator: Translator, lines: LinesConfig, options: SearchOptions) -> SearchOptions:
    """The options under which `treated` searches: UNK may be written where it is replaced."""
    return options.model_copy(update={"allow_unk": True}) if _replaces(translator, lines) else options


def _replaces(translator: Translator, lines: LinesConfig) -> bool:
    return lines.replace_unk and not translator.tgt_tokenizer.knows_every_text
