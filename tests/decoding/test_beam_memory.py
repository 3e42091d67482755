"""A beam that no memory would hold is refused before anything is searched."""

from typing import Any

import pytest
import torch
from translators import SMALL, make_translator

from transformer_mt.decoding import beam_memory as module
from transformer_mt.decoding.demands import SourceLine
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
    module.refuse_what_never_fits(10**9, 10**9, 100, options, torch.device("meta"))  # not this machine's memory
    monkeypatch.setattr(module, "memory_of_machine", lambda: None)
    assert len(translator.translate_lines(texts, options)) == 3


def test_a_wide_beam_of_one_line_is_no_beam_of_its_plain_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one line with five places, and one of six lines with one place: six rows are the most of a step."""
    translator = make_translator(SMALL)
    lines = [SourceLine("one two", constraints=("uno dos tres diez",)), *map(SourceLine, ["one two three"] * 6)]
    options = search_options(translator.config.decoding, beam_size=1, constraints="unordered")
    needed = 6 * translator.tgt_tokenizer.vocab_size * 4
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed)
    assert "uno dos tres diez" in translator.translate_lines(lines, options)[0].text
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed - 1)
    with pytest.raises(UserError, match=r"^A beam of 1 takes 0\.0 GiB at least with 6 texts at once"):
        translator.translate_lines(lines, options)
    assert len(translator.translate_lines(lines[:2], options)) == 2


@pytest.mark.parametrize(
    ("search", "told"),
    [
        ({"sampling_topk": 2, "n_best": 3}, r"^Drawing 3 samples takes .* Lower n_best or batch_size\.$"),
        ({"temperature": 1.0, "mbr": "chrf", "mbr_candidates": 50}, "^Drawing 50 .* Lower mbr_candidates or batch_s"),
        ({"temperature": 1.0, "mbr": "chrf"}, "^Drawing 30 .* Lower mbr_candidates or batch_size"),
        ({"mbr": "chrf", "mbr_candidates": 50}, "^A beam of 50 .* Lower mbr_candidates or batch_size"),
        ({"n_best": 5, "diverse_beam_groups": 2}, "^A beam of 6 .* Lower n_best or batch_size"),
        ({"beam_size": 5, "n_best": 4}, "^A beam of 5 .* Lower beam_size or batch_size"),
        ({"beam_size": 5, "mbr": "chrf", "mbr_candidates": 4}, "^A beam of 5 .* Lower beam_size or batch_size"),
        ({"beam_size": 1, "constraints": "unordered"}, r"^A beam of 3 .* Lower batch_size\.$"),
    ],
)
def test_what_makes_them_so_many_is_named(search: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = make_translator(SMALL)
    monkeypatch.setattr(module, "memory_of_machine", lambda: 1)
    line = SourceLine("one two", constraints=("uno dos",) if "constraints" in search else ())
    with pytest.raises(UserError, match=told):
        translator.translate_lines([line], search_options(translator.config.decoding, **search))
