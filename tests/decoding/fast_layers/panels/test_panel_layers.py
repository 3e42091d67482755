"""Passes over panels against torch's own products, and whole searches against the same search without them."""

import copy
import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from types import ModuleType
from typing import Any

import pytest
import torch
from marks import with_numba
from torch import Tensor, nn
from translators import make_translator

from transformer_mt.decoding.fast_layers.choose_passes import MOST_ALONE, WORTH_LOADING, are_compiled
from transformer_mt.decoding.fast_layers.find_kernels import compiled_passes
from transformer_mt.decoding.fast_layers.packed_layers import Int8Linear, PackedLinear
from transformer_mt.decoding.fast_layers.packed_weights import MOST_NUMBERS, multiplies_int8, packed
from transformer_mt.decoding.fast_layers.panels.in_panels import InPanels, float_passes, int8_passes
from transformer_mt.decoding.fast_layers.panels.panel_layers import PanelDecoderLayer, PanelLinear
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.model.interface import TranslationModel

pytestmark = with_numba
CPU = torch.device("cpu")
PRECISIONS = ["fp32", "int8"]
# d_model 32 with two heads of 16: the smallest that the passes take.
SIZES = {"d_model": 32, "num_heads": 2, "d_ff": 48, "num_encoder_layers": 1, "num_decoder_layers": 2, "max_len": 24}
MODELS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_position": "post"},
    "shared heads": {"num_heads": 2, "num_kv_heads": 1},
    "without bias": {"bias": False},
    "biased scores": {"positions": "alibi"},
    "window": {"attention_window": 3},
    "learned bias of scores": {"positions": "relative_bias", "norm_position": "post"},
    "one head": {"d_model": 16, "num_heads": 1},
    "unscaled": {"scale_attention": False, "norm_position": "post"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "turned heads": {"positions": "rotary"},
    "gated": {"activation": "swiglu"},
    "other norm": {"norm": "rmsnorm"},
    "experts": {"num_experts": 2},
    "narrow heads": {"num_heads": 4},
    "odd feed-forward": {"d_ff": 40},
    "one stream": {"architecture": "decoder_only", "num_encoder_layers": 0},
}


@pytest.fixture
def taken() -> Iterator[None]:
    with compiled_passes(True):
        yield


# numba compiles what is imported here, so only a process that runs these tests imports it.
@pytest.fixture
def passes(precision: str) -> ModuleType:
    """Those of the precision, where this CPU has them."""
    if precision == "int8" and not multiplies_int8():
        pytest.skip("this CPU has no instruction for int8")
    found = int8_passes() if precision == "int8" else float_passes()
    assert found is not None
    return found


@pytest.fixture
def calls(passes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each decoder layer that a pass did in this process."""
    found = []
    work = passes.layer_pass
    monkeypatch.setattr(passes, "layer_pass", lambda *rest: found.append(1) or work(*rest))
    return found


def linear_of(size: int, width: int, bias: bool, precision: str) -> tuple[nn.Module, PanelLinear]:
    """A packed map, and the same in panels."""
    torch.manual_seed(size + width)
    plain = nn.Linear(size, width, bias).requires_grad_(False)
    made = (Int8Linear if precision == "int8" else PackedLinear)(plain.weight, plain.bias)
    return made, PanelLinear(made)


@pytest.mark.usefixtures("taken", "passes")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("size", "width", "bias"), [(16, 32, True), (64, 100, False), (48, 1, True), (32, 64, True)])
@torch.inference_mode()
def test_a_linear_map_is_that_of_torch(size: int, width: int, bias: bool, precision: str) -> None:
    expected, found = linear_of(size, width, bias, precision)
    rows = torch.randn(31, size, generator=torch.Generator().manual_seed(1)) * 3
    rows[3] = 0
    for num_rows in (*range(1, 8), 12, 31):
        torch.testing.assert_close(found(rows[:num_rows]), expected(rows[:num_rows]), atol=2e-5, rtol=1e-5)
        assert torch.equal(found(rows[:num_rows]), found(rows)[:num_rows]), "nothing of other rows"
    spread = rows[:16].view(2, 8, size).transpose(0, 1)
    torch.testing.assert_close(found(spread), expected(spread), atol=2e-5, rtol=1e-5)
    assert found(rows[:0]).shape == (0, width)


@pytest.mark.usefixtures("taken", "passes")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("number", [torch.nan, -torch.nan, torch.inf])
@torch.inference_mode()
def test_what_is_no_number_does_not_get_lost(number: float, precision: str) -> None:
    _, found = linear_of(32, 48, True, precision)
    rows = torch.ones(20, 32)
    rows[13, 7] = number
    is_finite = found(rows).isfinite()
    assert is_finite.any(dim=1).tolist() == [i != 13 for i in range(20)]
    weight = torch.randn(48, 32)
    weight[5, 2] = number
    broken = PanelLinear((Int8Linear if precision == "int8" else PackedLinear)(weight, None))
    assert broken(rows[:2]).isfinite().all(dim=0).tolist() == [i != 5 for i in range(48)]


@torch.inference_mode()
def test_outside_of_a_search_that_takes_passes_the_packed_map_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = linear_of(32, 48, True, "fp32")
    monkeypatch.setattr(found.packed, "forward", lambda x: x + 1)
    assert torch.equal(found(torch.ones(3, 32)), torch.full((3, 32), 2.0))


def logits_of(model: TranslationModel, src: Tensor, num_rows: int, passes: bool) -> list[Tensor]:
    """Those of some steps, between which rows change their places and a sentence ends; the first step has a row a
    sentence.
    """
    generator = torch.Generator().manual_seed(3)
    found = []
    with compiled_passes(passes):
        cache = model.start(src)
        cache.reorder(torch.arange(len(src)).repeat_interleave(num_rows))
        for length in range(19):  # more than a cache has room for at first
            sentences = len(src) - (length > 5)
            found.append(model.decode_step(torch.randint(4, 12, (sentences * num_rows,), generator=generator), cache))
            index = torch.randint(num_rows, (sentences, num_rows), generator=generator)
            kept = torch.arange(sentences) if length != 5 else torch.tensor([0, len(src) - 1])
            cache.reorder((index[kept] + num_rows * kept[:, None]).flatten(), None if length != 5 else kept)
    return found


def translator_of(model: dict[str, Any]) -> Translator:
    return make_translator({**SIZES, **model})


def layers_of(model: TranslationModel) -> list[nn.Module]:
    return list(model.get_submodule("decoder.layers").children())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_a_decoder_layer_is_one_pass(name: str, num_rows: int, precision: str, calls: list[int]) -> None:
    model = translator_of(MODELS[name]).model
    twin = packed(model, precision)
    assert all(type(layer) is PanelDecoderLayer for layer in layers_of(twin))
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    found, expected = logits_of(twin, src, num_rows, True), logits_of(twin, src, num_rows, False)
    assert len(calls) == 2 * len(found)
    far = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    scale = max(float(b.abs().max()) for b in expected)
    # In int8 a number near the middle of two integers may become the other one.
    assert far < scale * (1e-5 if precision == "fp32" else 3e-2)
    if precision == "fp32":
        for a, b in zip(found, logits_of(model, src, num_rows, False), strict=True):
            torch.testing.assert_close(a, b, atol=2e-5 * scale, rtol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_a_norm_has_its_eps(precision: str, calls: list[int]) -> None:
    """Rows whose numbers lie closer together than it."""
    model = translator_of({"positions": "alibi"}).model
    model.get_parameter("decoder.embedder.embedding.weight").mul_(1e-4)
    twin, src = packed(model, precision), torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    found, expected = logits_of(twin, src, 2, True), logits_of(twin, src, 2, False)
    assert calls
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4 if precision == "fp32" else 0.1, rtol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", OTHERS)
@torch.inference_mode()
def test_what_the_passes_do_not_know_goes_on_as_before(name: str, precision: str, calls: list[int]) -> None:
    translator = translator_of(OTHERS[name])
    twin = packed(translator.model, precision)
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    found, expected = logits_of(twin, src, 2, True), logits_of(twin, src, 2, False)
    scale = max(float(b.abs().max()) for b in expected)
    assert max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) < scale * 3e-2
    assert not calls
    assert not any(isinstance(module, PanelDecoderLayer) for module in twin.modules())
    assert isinstance(twin.output, PanelLinear)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_those_without_passes(
    beam_size: int, precision: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = translator_of({"norm_position": "post"})
    translator = Translator(made.model, made.src_tokenizer, made.tgt_tokenizer, made.config, precision)
    lines = ["b a", "c", "a b c d a b", "d d", "", "a"]

    def found(taken: bool, **changes: Any) -> list[tuple[str, float]]:
        monkeypatch.setattr("transformer_mt.decoding.translator.are_compiled", lambda *_: taken)
        options = search_options(translator.config.decoding, beam_size=beam_size, **changes)
        return [(t.text, sum(h.log_prob for h in t.hypotheses)) for t in translator.translate_lines(lines, options)]

    without = found(False)
    assert not calls
    together = found(True)
    assert calls
    assert found(True) == together
    for translations in (together, found(True, batch_size=2)):
        for (text, log_prob), (expected, near) in zip(translations, without, strict=True):
            assert text == expected or precision == "int8"
            assert log_prob == pytest.approx(near, abs=1e-4 if precision == "fp32" else 0.5)


def in_panels_of(model: nn.Module) -> list[InPanels]:
    return [layer.in_panels for layer in model.modules() if isinstance(layer, PanelLinear | PanelDecoderLayer)]


def test_only_narrow_models_have_panels_in_fp32() -> None:
    wide = {**SIZES, "d_model": 256, "d_ff": 512}
    assert 256 * 512 > MOST_NUMBERS >= 32 * 48
    for model, expected in ((SIZES, True), (wide, False)):
        twin = packed(make_translator(model).model, "fp32")
        assert isinstance(twin.output, PanelLinear) is expected
    assert not isinstance(packed(make_translator(SIZES).model, "bf16").output, PanelLinear)


def test_what_loads_numba_is_a_call_that_repays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    model = nn.Linear(1, 1)
    assert are_compiled(model, 2, WORTH_LOADING, CPU, "fp32")
    assert not are_compiled(model, 2, WORTH_LOADING - 1, CPU, "fp32")
    assert are_compiled(model, 2, 1, CPU, "int8"), "which needs numba anyway"
    assert not are_compiled(model, 1, WORTH_LOADING, CPU, "int8"), "all cores have one batch"
    assert not are_compiled(model, 2, WORTH_LOADING, torch.device("meta"), "fp32")
    narrow = packed(make_translator(SIZES).model, "fp32")
    num_products = sum(layer.num_products for layer in in_panels_of(narrow))
    few = MOST_ALONE // num_products
    assert are_compiled(narrow, 1, few, CPU, "int8"), "which one core does sooner than two"
    assert not are_compiled(narrow, 1, few + 1, CPU, "int8")


def test_panels_are_made_once_and_before_others_share_them() -> None:
    narrow = packed(make_translator(SIZES).model, "fp32")
    layers = in_panels_of(narrow)
    assert not any("panels" in vars(layer) for layer in layers)
    assert are_compiled(narrow, 2, WORTH_LOADING, CPU, "fp32")
    assert all("panels" in vars(layer) for layer in layers)
    assert copy.copy(layers[0]).panels is layers[0].panels


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_are_those_of_the_time_of_packing(precision: str, passes: ModuleType) -> None:
    model = translator_of({}).model
    twin = packed(model, precision)
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    with torch.inference_mode():
        before = logits_of(twin, src, 1, False)[-1]
        for linear in (module for module in model.get_submodule("decoder").modules() if isinstance(module, nn.Linear)):
            linear.weight.mul_(1.5)
        torch.testing.assert_close(logits_of(twin, src, 1, True)[-1], before, atol=0.3, rtol=0)
        assert (logits_of(packed(model, precision), src, 1, True)[-1] - before).abs().max() > 1


@pytest.mark.slow
def test_a_panel_is_the_same_for_all_that_find_the_same_compiled_passes() -> None:
    """numba knows them by the processor and its features, also where somebody named this very processor."""
    asked = "from transformer_mt.decoding.fast_layers.panels.panel_lanes import COLUMNS, _target; "
    asked += "print(COLUMNS, _target.codegen().magic_tuple())"

    def answer(**environment: str) -> str:
        environment = {**os.environ, **environment}
        return subprocess.run([sys.executable, "-c", asked], env=environment, check=True, text=True, stdout=PIPE).stdout

    from llvmlite.binding import get_host_cpu_name

    named = answer(NUMBA_CPU_NAME=get_host_cpu_name())
    assert named == answer()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_was_compiled_with_other_parts_is_compiled_anew(precision: str, passes: ModuleType) -> None:
    """numba looks at the file of the passes alone: a change of their parts has to change that file too."""
    decoding = "transformer_mt.decoding.fast_layers"
    last = f"{decoding}.{'int8' if precision == 'int8' else 'step'}_kernels"
    panels = [f"{decoding}.panels.{name}" for name in ("panel_lanes", "layer_parts", "layout")]
    modules = [importlib.import_module(name) for name in ("transformer_mt.model.cpu.lanes", *panels, last)]
    parts = b"".join(Path(module.__file__ or "").read_bytes() for module in modules).replace(b"\r\n", b"\n")
    state = hashlib.sha256(parts).hexdigest()[:16]
    assert state == passes.PARTS, f'write PARTS = "{state}" in {Path(passes.__file__ or "").name}'
