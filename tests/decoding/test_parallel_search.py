"""A search's batches on several cores: a translator's processes, and how its batches are shared out."""

import multiprocessing

import pytest
import torch
from marks import on_linux
from threads import torch_threads
from toy import toy_pairs
from translators import SMALL, make_translator

from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.machine.workers import compute_in_copies

SENTENCES = [" ".join(words.split()[: 1 + place % 5]) for place, (words, _) in enumerate(toy_pairs(50))]


COPIED: dict[str, Translator] = {}  # what copies of this process find


def one_by_one(translator: Translator) -> list[str]:
    """By one thread: two would wait for each other at each small operation, minutes where a core is taken."""
    with torch_threads(1):
        return [translator.translate([sentence])[0] for sentence in SENTENCES]


def together(translator: Translator) -> list[str]:
    options = search_options(translator.config.decoding, batch_size=8)
    return [translated.text for translated in translator.translate_lines(SENTENCES, options)]


def in_a_copy(text: str) -> list[str]:
    return COPIED["translator"].translate([text])


@on_linux
@torch_threads(2)
def test_a_program_may_copy_itself_with_a_translator() -> None:
    """As a `multiprocessing.Pool` does by fork. Its copies waited for ever for threads of torch, which none has."""
    compute_in_copies()  # as `Translator.load`
    COPIED["translator"] = translator = make_translator({**SMALL, "d_model": 256, "d_ff": 1024})
    wanted = [translator.translate([sentence]) for sentence in SENTENCES[:4]]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(in_a_copy, SENTENCES[:4]).get(120) == wanted


@on_linux
@torch_threads(2)
def test_a_translator_s_processes_stay_while_they_are_kept() -> None:
    translator = make_translator(SMALL)
    before = together(translator)
    assert before == one_by_one(translator)
    assert not multiprocessing.active_children()
    with translator.keep_processes():
        assert together(translator) == before
        first = {process.pid for process in multiprocessing.active_children()}
        assert len(first) == 2
        assert together(translator) == before
        assert {process.pid for process in multiprocessing.active_children()} == first
    with torch.no_grad():
        for parameter in translator.search_model.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert together(translator) == one_by_one(translator) != before


@pytest.mark.parametrize(
    ("number", "sizes"), [(8, [8]), (9, [8, 1]), (16, [8, 8]), (23, [8, 8, 4, 3]), (50, [8] * 6 + [1, 1])]
)
@torch_threads(2)
def test_the_last_batch_is_shared_out(number: int, sizes: list[int]) -> None:
    translator = make_translator(SMALL)
    batches = translator._batches(list(range(number)), 8)
    assert [len(batch) for batch in batches] == sizes
    assert [index for batch in batches for index in batch] == list(range(number))


@pytest.mark.parametrize(
    ("number", "sizes"), [(60, [60]), (100, [64, 36]), (200, [100, 100]), (300, [128, 128, 22, 22])]
)
@torch_threads(2)
def test_each_core_has_a_batch_unless_it_would_be_small(number: int, sizes: list[int]) -> None:
    batches = make_translator(SMALL)._batches(list(range(number)), 128)
    assert [len(batch) for batch in batches] == sizes
