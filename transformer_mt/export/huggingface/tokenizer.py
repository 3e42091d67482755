"""Our tokenizer as one that `transformers` reads without us: the preparation of the text becomes a part of it."""

import json
from pathlib import Path
from typing import Any

from transformer_mt.config.special_ids import EOS_ID, SPECIAL_TOKENS
from transformer_mt.data.tokenizers import Tokenizer

# What `str.split` takes for white space.
_WHITE = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
_PAD, _UNK, _BOS, _EOS = SPECIAL_TOKENS


def save_tokenizer(folder: Path, tokenizer: Tokenizer, max_len: int) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    A text becomes NFC with single spaces and one before its first word; EOS follows its tokens. Back from ids, special
    tokens are left out on request, and the space before the first word always.
    """
    state: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    space = {"type": "Replace", "pattern": {"Regex": _WHITE}, "content": " "}
    trim = {"type": "Strip", "strip_left": True, "strip_right": True}
    state["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "NFC"}, space, trim, {"type": "Prepend", "prepend": " "}],
    }
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": _EOS, "type_id": 0}}],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 0}},
            {"SpecialToken": {"id": _EOS, "type_id": 0}},
        ],
        "special_tokens": {_EOS: {"id": _EOS, "ids": [EOS_ID], "tokens": [_EOS]}},
    }
    # Not the library's decoder `Strip`, which fails on a text of nothing.
    ends = {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}
    state["decoder"] = {"type": "Sequence", "decoders": [state["decoder"], space, ends]}
    # The kind `special` lets a decoder leave them out; that their names in a text are text is `split_special_tokens`.
    state["added_tokens"] = [
        {
            "id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True,
        }
        for i, token in enumerate(SPECIAL_TOKENS)
    ]  # fmt: skip
    settings = {
        # The class that reads tokenizer.json as it stands. Those that belong to the model's type read other files.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_len,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "pad_token": _PAD,
        "unk_token": _UNK,
        "bos_token": _BOS,
        "eos_token": _EOS,
    }
    for name, content in (("tokenizer.json", state), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
