"""Everything that is said about one sentence."""

from collections.abc import Callable
from dataclasses import dataclass, field

from transformer_mt.data.tokenizers import normalize
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.explaining.importance import Importance, importance
from transformer_mt.explaining.neighbours import Neighbour, neighbours
from transformer_mt.explaining.runners_up import Choice, choices
from transformer_mt.explaining.source_words import SourceWords
from transformer_mt.inspect.attention import MAX_TOKENS
from transformer_mt.inspect.sentence_pair import sentence_pair


@dataclass(frozen=True)
class Explanation:
    """A sentence, its translation (the model's own, or a given one), and what is known of them. `no_neighbours` says
    why none is there, if so.
    """

    sentence: str
    translation: str
    is_given: bool
    importance: Importance
    choices: list[Choice]
    neighbours: list[Neighbour] = field(default_factory=list)
    no_neighbours: str = ""


def explain(
    translator: Translator, sentence: str, target: str | None, num_neighbours: int, remark: Callable[[str], None]
) -> Explanation:
    """Explain one sentence. UserError where a side is blank or too long, and for a model that reads pictures.

    Training pairs that cannot be read any more are said to be so, and the rest is there.
    """
    if translator.config.data.source_as == "picture":
        raise UserError(
            "`tmt explain` says what each word of a source did, and data.source_as is picture: this model reads "
            "patches. `tmt attention` shows at which of them it looks."
        )
    src, tgt = sentence_pair(translator, sentence, target, MAX_TOKENS)
    words = SourceWords.of(sentence, translator.src_tokenizer)
    found: list[Neighbour] = []
    problem = ""
    if num_neighbours:
        try:
            found = neighbours(translator, src, num_neighbours, remark)
        except UserError as error:
            problem = str(error)
    translation = translator.tgt_tokenizer.decode(tgt)
    return Explanation(
        sentence,
        translation if target is None else normalize(target, translator.tgt_tokenizer.lowercase),
        target is not None,
        importance(translator, words, src, tgt),
        choices(translator, src, tgt),
        found,
        problem,
    )
