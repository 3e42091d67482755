"""Which of sacreBLEU's tokenizers cuts a language into the words that BLEU compares."""

# 13a splits at spaces and Western punctuation, and these scripts hardly have any.
TOKENIZER_OF_LANGUAGE = {
    "zh": "zh", "yue": "zh", "ja": "ja-mecab",
    "ko": "char", "th": "char", "lo": "char", "km": "char", "my": "char", "bo": "char", "dz": "char",
}  # fmt: skip


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a target language such as `zh`, `zh-TW` or `pt_BR`; 13a where none fits better."""
    return TOKENIZER_OF_LANGUAGE.get(language.lower().replace("_", "-").split("-")[0], "13a")
