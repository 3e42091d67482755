"""What a CPU is fast at: told by itself, or timed by a clock that a busy machine cannot turn."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.decoding.fast_layers import packed_weights, search_precision
from transformer_mt.decoding.fast_layers.packed_layers import Int8Linear, PairedInt8Linear, pairs_work
from transformer_mt.decoding.fast_layers.search_precision import choose_search_precision
from transformer_mt.machine import device, processor
from transformer_mt.machine.device import choose_precision
from transformer_mt.machine.processor import cpu_seconds, has_instructions
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel

CPU = torch.device("cpu")
SAID = {
    "AMD Zen 4": ("flags\t\t: fpu avx512f avx512_vnni avx512_bf16", True, True),
    "Intel with AMX": ("processor : 0\nflags : fpu amx_bf16 amx_tile amx_int8", True, True),
    "Intel of 2017": ("flags : fpu avx2 avx512f avx512bw", False, False),
    "a name that only begins like it": ("flags : avx512_bf16x avx512_vnni2", False, False),
    "Arm Neoverse V1": ("BogoMIPS : 2100.00\nFeatures : fp asimd i8mm svebf16 bf16", True, None),
    "Arm of 2015": ("Features : fp asimd", False, None),
    "nothing that is known": ("cpu : POWER9, altivec supported", None, None),
}


def model_of(d_model: int, **more: object) -> TranslationModel:
    """Without data: only its shapes and parts are looked at."""
    heads = {} if more.get("architecture") == "rnn" else {"d_ff": 32, "num_heads": 1}
    config = ModelConfig.model_validate({"d_model": d_model, **heads, **more})
    with torch.device("meta"):
        return ARCHITECTURES[config.architecture](config, 8, 8)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """The processor is asked once a process."""
    has_instructions.cache_clear()
    yield
    has_instructions.cache_clear()


@pytest.mark.parametrize("name", SAID)
def test_instructions_are_those_that_the_processor_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, bf16, int8 = SAID[name]
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert has_instructions("bf16") is bf16
    assert has_instructions("int8") is int8


def test_without_linux_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    assert has_instructions("bf16") is None


def say(monkeypatch: pytest.MonkeyPatch, bf16: bool | None, int8: bool | None, in_pairs: bool = False) -> None:
    for module in (device, search_precision):
        monkeypatch.setattr(module, "has_instructions", {"bf16": bf16, "int8": int8}.get)
    monkeypatch.setattr(search_precision, "sums_in_pairs", lambda: in_pairs)


@pytest.mark.parametrize(
    ("bf16", "d_model", "taken"),
    [(True, 128, "bf16"), (True, 512, "bf16"), (True, 127, "fp32"), (False, 512, "fp32"), (False, 64, "fp32")],
)
def test_auto_of_training_goes_by_instructions_and_times_nothing(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, d_model: int, taken: str
) -> None:
    say(monkeypatch, bf16, None)
    monkeypatch.delattr(device, "cpu_seconds")
    assert choose_precision("auto", CPU, d_model).value == taken


@pytest.mark.parametrize(("bf16", "told"), [(False, True), (True, False), (None, False)])
def test_who_asks_for_bf16_is_told_that_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, bf16: bool | None, told: bool
) -> None:
    say(monkeypatch, bf16, None)
    assert ("fp32 is many times as fast" in choose_precision("bf16", CPU, 512).reason) is told


@pytest.mark.parametrize(
    ("int8", "in_pairs", "told"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_who_asks_for_int8_is_told_where_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, int8: bool, in_pairs: bool, told: bool
) -> None:
    say(monkeypatch, None, int8, in_pairs)
    assert ("fp32 is many times as fast" in choose_search_precision("int8", CPU, model_of(512)).reason) is told


@pytest.mark.parametrize(("speedup", "taken"), [(0.2, "fp32"), (1.4, "fp32"), (1.6, "bf16"), (4.0, "bf16")])
def test_auto_of_training_is_timed_where_the_processor_says_nothing(
    monkeypatch: pytest.MonkeyPatch, speedup: float, taken: str
) -> None:
    say(monkeypatch, None, None)
    monkeypatch.setattr(device, "cpu_seconds", lambda works: [speedup, 1.0])
    value, reason = choose_precision("auto", CPU, 96)
    assert value == taken
    assert f"{speedup:.1f} times" in reason


@pytest.mark.parametrize(
    ("bf16", "int8", "in_pairs", "d_model", "taken"),
    [
        (True, True, False, 256, "int8"),
        (True, False, False, 256, "bf16"),  # no numba, say
        (False, True, False, 512, "int8"),
        (False, False, False, 512, "fp32"),
        (False, False, True, 256, "int8"),
        (False, False, True, 240, "fp32"),
        (True, True, False, 240, "fp32"),
    ],
)
def test_auto_of_a_search_goes_by_instructions_and_times_nothing(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, int8: bool, in_pairs: bool, d_model: int, taken: str
) -> None:
    say(monkeypatch, bf16, int8, in_pairs)
    monkeypatch.delattr(search_precision, "cpu_seconds")
    monkeypatch.setattr(packed_weights, "multiplies_int8", lambda: False)
    assert choose_search_precision("auto", CPU, model_of(d_model)).value == taken


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ({}, "int8"),
        ({"norm_position": "pre", "num_heads": 2}, "int8"),
        ({"positions": "rotary"}, "fp32"),
        ({"norm": "rmsnorm"}, "fp32"),
        ({"activation": "gelu"}, "fp32"),
        ({"num_experts": 2}, "fp32"),
        ({"d_ff": 40}, "fp32"),
        ({"architecture": "decoder_only", "num_encoder_layers": 0}, "fp32"),
        ({"architecture": "rnn"}, "fp32"),
    ],
)
def test_auto_of_a_narrow_model_goes_by_passes(monkeypatch: pytest.MonkeyPatch, model: dict, taken: str) -> None:
    say(monkeypatch, True, True)
    monkeypatch.setattr(packed_weights, "multiplies_int8", lambda: True)
    monkeypatch.setattr(packed_weights, "sums_in_pairs", lambda: False)
    assert choose_search_precision("auto", CPU, model_of(64, **model)).value == taken
    assert (
        choose_search_precision("auto", CPU, torch.nn.ModuleList([model_of(512), model_of(64, **model)])).value == taken
    )


@pytest.mark.parametrize(
    ("bf16", "int8", "seconds", "taken"),
    [
        (True, None, {"fp32": 4.0, "int8": 1.0, "bf16": 3.5}, "int8"),
        (None, None, {"fp32": 4.0, "int8": 8.0, "bf16": 2.0}, "bf16"),
        (None, None, {"fp32": 4.0, "int8": 3.5, "bf16": 3.5}, "fp32"),
        (False, None, {"fp32": 4.0, "int8": 3.5}, "fp32"),
        (None, False, {"fp32": 4.0, "bf16": 2.0}, "bf16"),
    ],
)
def test_auto_of_a_search_times_what_the_processor_may_have(
    monkeypatch: pytest.MonkeyPatch, bf16: bool | None, int8: bool | None, seconds: dict[str, float], taken: str
) -> None:
    say(monkeypatch, bf16, int8)

    def cpu_seconds_of(works: list[object]) -> list[float]:
        assert len(works) == len(seconds)
        return list(seconds.values())

    monkeypatch.setattr(search_precision, "cpu_seconds", cpu_seconds_of)
    assert choose_search_precision("auto", CPU, model_of(64)).value == taken


def test_the_clock_is_that_of_the_processor_alone() -> None:
    """It stands still while this process waits, as it does while another has the core."""
    asleep, at_work = cpu_seconds([lambda: time.sleep(0.005), lambda: sum(range(100_000))])
    assert asleep < at_work


def test_on_windows_short_works_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a thread stands still there for a 64th of a second, in which either work is over."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(time, "thread_time_ns", lambda: time.perf_counter_ns() // 15_625_000 * 15_625_000)
    short, long = cpu_seconds([lambda: sum(range(10_000)), lambda: sum(range(40_000))])
    assert 1e-6 < short < long < 0.5


@pytest.mark.parametrize(
    ("int8", "capability", "expected"),
    [(True, "AVX2", False), (False, "AVX512", pairs_work()), (None, "AVX2", pairs_work()), (None, "DEFAULT", False)],
)
def test_int8_is_summed_in_pairs_where_the_cpu_has_nothing_better(
    monkeypatch: pytest.MonkeyPatch, int8: bool | None, capability: str, expected: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(packed_weights, "has_instructions", {"int8": int8}.get)
    assert packed_weights.sums_in_pairs() is expected
    kinds = {True: PairedInt8Linear, False: Int8Linear}
    assert isinstance(packed_weights.find_packing("int8").linear(torch.ones(4, 4), None), kinds[expected])


@pytest.fixture
def busy() -> Iterator[None]:
    """A process a core that computes all the time."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in processes:
        process.kill()
        process.wait()


def test_on_a_busy_machine_four_times_the_work_takes_four_times_as_long(busy: None) -> None:
    x = torch.ones(256, 256)
    seconds = [cpu_seconds([lambda: x @ x, lambda: [x @ x for _ in range(4)]]) for _ in range(3)]
    assert all(2 < four / one < 8 for one, four in seconds)
