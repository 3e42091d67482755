"""Which of sacreBLEU's tokenizers cuts a language into the words that BLEU compares."""

from collections.abc import Sequence

from transformer_mt.config.language_names import base

# 13a splits at spaces and Western punctuation, and these scripts hardly have any.
TOKENIZER_OF_LANGUAGE = {
    "zh": "zh", "yue": "zh", "ja": "ja-mecab",
    "ko": "char", "th": "char", "lo": "char", "km": "char", "my": "char", "bo": "char", "dz": "char",
}  # fmt: skip


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a target language such as `zh`, `zh-TW` or `pt_BR`; 13a where none fits better."""
    return TOKENIZER_OF_LANGUAGE.get(base(language), "13a")


def tokenizer_over(directions: Sequence[tuple[str, str]], tgt_lang: str) -> str:
    """The tokenizer for text of these directions, each a source and a target language: that of the target language,
    where they are one, and else that of the config's, `tgt_lang`.
    """
    return bleu_tokenizer(tgt_lang if len(directions) > 1 else directions[0][1])
