"""BLEU and chrF on detokenized text, by sacreBLEU (Post 2018), with the signature that makes a score comparable."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.errors import UserError

BLEU_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "char", "none")
HIGHER_IS_BETTER = {"nll": False, "ppl": False, "bleu": True, "chrf": True}  # of the metrics of a validation


@dataclass(frozen=True)
class Scores:
    """Corpus BLEU and chrF, 0 to 100, each with the signature that says how it was computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def check_bleu_tokenizer(name: str) -> None:
    """UserError where sacreBLEU does not have it here."""
    if name not in BLEU_TOKENIZERS:
        raise UserError(f"{name!r} is not a BLEU tokenizer. Use one of {', '.join(BLEU_TOKENIZERS)}.")


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenizer: str = "13a",
    lowercase: bool = False,
    others: Sequence[Sequence[str]] = (),
) -> Scores:
    """Score raw texts against one reference each; `others` are lists of more references. Raises UserError for a
    tokenizer that sacreBLEU does not have here.

    Both sides are compared in NFC, because every translation is in NFC and a reference file may spell an accent
    otherwise.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    check_bleu_tokenizer(tokenizer)
    sides = (hypotheses, references, *others)
    hypotheses, *each = ([unicodedata.normalize("NFC", text) for text in side] for side in sides)
    # force: tokenized text is scored as it is, without a warning; the signature names the tokenizer.
    bleu = BLEU(tokenize=tokenizer, lowercase=lowercase, force=True)
    chrf = CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, each)
    chrf_score = chrf.corpus_score(hypotheses, each)
    return Scores(bleu_score.score, chrf_score.score, str(bleu.get_signature()), str(chrf.get_signature()))
