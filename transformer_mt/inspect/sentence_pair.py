"""A sentence and its translation as ids. The translation is the model's own, or a given one."""

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.filling.masked_words import MaskedModel
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError


def sentence_pair(
    translator: Translator, sentence: str, target: str | None, max_tokens: int
) -> tuple[list[int], list[int]]:
    """The ids of both sides without BOS and EOS. Without a `target` the translation is that of `tmt translate`.

    Raises UserError where a side is blank, or longer, EOS counted, than the model's positions or `max_tokens`, and as
    `own_translation`.
    """
    src = sentence_ids("The sentence", sentence, translator.src_tokenizer, translator)
    _refuse_more("The sentence", src, max_tokens)
    if target is not None:
        tgt = sentence_ids("The translation", target, translator.tgt_tokenizer, translator)
        _refuse_more("The translation", tgt, max_tokens)
        return src, tgt
    own = own_translation(translator, src, options_of(translator.config.decoding))
    if len(own) + 1 > max_tokens:
        raise UserError(
            f"The model's translation has {len(own)} tokens, and {max_tokens - 1} can be shown. "
            "Give a shorter sentence, or a translation with --target."
        )
    return src, own


def options_of(decoding: DecodingConfig) -> SearchOptions:
    """As `tmt translate` searches: where it writes several translations of a line, its beam holds as many."""
    return search_options(decoding, n_best=decoding.lines.n_best)


def own_translation(translator: Translator, src: list[int], options: SearchOptions) -> list[int]:
    """The ids, without EOS, of what the search finds for a source of these ids. UserError where it finds nothing
    without a phrase of `avoid`.
    """
    (found,) = translator.search([src], options)
    if not found:
        raise UserError(
            f"The search finds no translation of the sentence without a phrase of {options.avoid}. Give another one, "
            "or take decoding.avoid out of the run's config."
        )
    return found[0].tokens


def masked_ids(model: MaskedModel, text: str, max_tokens: int) -> list[int]:
    """The ids of a text for an encoder alone, which may hold [MASK]. UserError where `MaskedModel.ids` raises it, and
    for more than `max_tokens`, EOS counted.
    """
    ids = model.ids(text)
    _refuse_more("The text", ids, max_tokens)
    return ids


def sentence_ids(side: str, text: str, tokenizer: Tokenizer, translator: Translator) -> list[int]:
    """The ids of one side without BOS and EOS. Messages call it `side`.

    Raises UserError where it is blank or longer, EOS counted, than the model's positions.
    """
    ids = tokenizer.encode(text)
    if len(ids) == 0:
        raise UserError(f"{side} is blank. Give at least one word.")
    positions = translator.config.model.max_len
    if len(ids) + 1 > positions:
        raise UserError(f"{side} has {len(ids)} tokens, and the model reads {positions - 1}. Give a shorter one.")
    return ids


def _refuse_more(side: str, ids: list[int], max_tokens: int) -> None:
    if len(ids) + 1 > max_tokens:
        raise UserError(f"{side} has {len(ids)} tokens, and {max_tokens - 1} can be shown. Give a shorter one.")
