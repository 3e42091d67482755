"""A beam that no memory would hold is refused before anything is searched."""

import pytest
import torch
from translators import SMALL, make_translator

from transformer_mt.decoding import beam_memory as module
from transformer_mt.decoding.search.options import search_options
from transformer_mt.errors import UserError


def test_what_fits_to_the_byte_is_searched_and_what_does_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = make_translator(SMALL)
    texts = ["one two", "three", "four five"]
    options = search_options(translator.config.decoding, beam_size=3, batch_size=2)
    needed = 2 * 3 * translator.tgt_tokenizer.vocab_size * 4
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed)
    assert len(translator.translate_lines(texts, options)) == 3
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed - 1)
    with pytest.raises(UserError, match=r"^A beam of 3 takes 0\.0 GiB at least with 2 texts at once, and this machine"):
        translator.translate_lines(texts, options)
    assert len(translator.translate_lines(texts[:1], options)) == 1
    samples = search_options(translator.config.decoding, sampling_topk=2, n_best=3, batch_size=2)
    with pytest.raises(UserError, match=r"^An n_best of 3 takes .* Lower n_best or batch_size\.$"):
        translator.translate_lines(texts, samples)
    module.refuse_what_never_fits(10**9, 10**9, 100, options, torch.device("meta"))  # not this machine's memory
    monkeypatch.setattr(module, "memory_of_machine", lambda: None)
    assert len(translator.translate_lines(texts, options)) == 3
