"""Of a teacher's translations the one that is most like the real target: sequence-level interpolation (Kim and Rush
2016, section 3.3). It is a likely sentence for the teacher, and says more of what the real one says.
"""

import functools
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from transformer_mt.data.bleu_tokenizers import bleu_tokenizer

if TYPE_CHECKING:
    from transformer_mt.decoding.translation import Translation


class Likeness(StrEnum):
    """What two sentences are compared by: sacreBLEU's scores of single sentences."""

    bleu = "bleu"
    chrf = "chrf"


def nearest(hypotheses: "Sequence[Translation]", reference: str, likeness: Likeness, language: str) -> "Translation":
    """The hypothesis with the highest score against the reference; of equal ones the first. `language` is that of both
    texts, by which BLEU cuts them into words.
    """
    score = _scorer(likeness, language)
    scores = {text: score(text, reference) for text in {hypothesis.text for hypothesis in hypotheses}}
    return max(hypotheses, key=lambda hypothesis: scores[hypothesis.text])


@functools.cache
def _scorer(likeness: Likeness, language: str) -> Callable[[str, str], float]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metric: Any = CHRF()
    if likeness is Likeness.bleu:
        metric = BLEU(tokenize=bleu_tokenizer(language), effective_order=True, force=True)
    return lambda text, reference: metric.sentence_score(text, [reference]).score
