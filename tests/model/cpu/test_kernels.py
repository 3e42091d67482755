"""What numba compiled for training against the same written with torch."""

import math
import os
import re
import subprocess
import sys
import textwrap
import threading
import types
from typing import Any

import numpy as np
import pytest
import torch
from marks import slow
from numba import get_num_threads, njit, prange
from threads import torch_threads
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.machine import numba_compile as jit
from transformer_mt.machine import numba_modules
from transformer_mt.machine.numba_compile import ParallelPass
from transformer_mt.machine.numba_modules import needs_numba
from transformer_mt.model.cpu import chunked_loss, kernels
from transformer_mt.model.loss import output_loss_sums

SPECIAL = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -math.nan, 3.4e38, -3.4e38, 1e-45, 1.5e-40, 1.00390625]


def many_floats() -> Tensor:
    """Floats of any bits, and such as lie in the middle between two bfloat16."""
    bits = torch.randint(-(2**31), 2**31 - 1, (100_000,), generator=torch.Generator().manual_seed(0))
    numbers = bits.to(torch.int32).view(torch.float32)
    middles = ((bits & -65536) | 0x8000).to(torch.int32).view(torch.float32)
    return torch.cat([numbers, middles, torch.tensor(SPECIAL)])


def test_bfloat16_is_rounded_and_widened_as_torch_does() -> None:
    """By a draw that drops nothing and so multiplies by one."""
    draw, numbers = kernels.CompiledDraw(7, 0.0), many_floats()
    rounded = draw.times(numbers, torch.bfloat16)
    expected = numbers.bfloat16()
    assert torch.equal(rounded.isnan(), expected.isnan())
    real = ~expected.isnan()
    assert torch.equal(rounded[real].view(torch.int16), expected[real].view(torch.int16))
    torch.testing.assert_close(draw.times(rounded, torch.float32), expected.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", kernels.DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 64), (2, 3, 1000)])
def test_each_pass_is_the_product_with_the_factors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    draw = kernels.CompiledDraw(123456789012345, 0.3)
    factors = draw.times(torch.ones(shape), torch.float32)
    x, y, grad = (torch.randn(shape).to(dtype) for _ in range(3))
    wide_x, wide_y = torch.randn(shape), y.float()
    for found, expected in (
        (draw.times(torch.ones(shape), dtype), factors),
        (draw.times(y, torch.float32), wide_y * factors),
        (draw.times(y, dtype), wide_y * factors),
        (draw.added(wide_x, y), wide_x + wide_y * factors),
        (draw.added(x, y), x.float() + wide_y * factors),
        (draw.after_relu(x), x.float().relu() * factors),
        (draw.through_relu(grad, draw.after_relu(x)), grad.float() * (x > 0) * factors),
    ):
        assert found.shape == torch.Size(shape)
        torch.testing.assert_close(found, expected.to(found.dtype))


def test_what_does_not_lie_in_order_is_read_in_order() -> None:
    draw = kernels.CompiledDraw(5, 0.5)
    factors = draw.times(torch.ones(6, 4), torch.float32)
    x = torch.randn(4, 6).T
    assert torch.equal(draw.times(x, torch.float32), x * factors)
    spread = torch.ones(1, 1).expand(6, 4)
    assert torch.equal(draw.through_relu(spread, x), (x > 0) * torch.tensor(draw.scale))


@pytest.mark.parametrize("p", [0.1, 0.5, 1 - 1e-9])
def test_the_probability_is_not_rounded_to_sixteen_bits(p: float) -> None:
    count = 4_000_000
    kept = (kernels.CompiledDraw(11, p).times(torch.ones(count), torch.float32) > 0).double().mean().item()
    assert kept == pytest.approx(1 - p, abs=5 * math.sqrt(p * (1 - p) / count))


@pytest.mark.parametrize("dtype", kernels.DTYPES)
@pytest.mark.parametrize("width", [2, 31, 5000])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_exponentials_are_torchs(label_smoothing: float, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    logits = (20 * torch.randn(40, width, generator=generator)).to(dtype)
    logits[3] *= 1000
    logits[4] = -5e4
    targets = torch.randint(width, (40,), generator=generator)
    others = logits.clone()
    expected = others, *chunked_loss.exponentials(others, targets, label_smoothing)
    found = logits, *kernels.exponentials(logits, targets, label_smoothing)
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    # The one at the target is the difference of two sums, each as exact as its size allows.
    atol = 1e-6 * float(expected[1].max()) if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(found[0], expected[0], atol=atol, rtol=1e-5 if dtype == torch.float32 else 1e-2)
    torch.testing.assert_close(found[1:], expected[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 1, 49])
def test_no_number_among_logits_makes_a_loss(bad: float, column: int) -> None:
    logits = torch.randn(4, 50)
    logits[1, column] = torch.tensor(abs(bad)).copysign(torch.tensor(math.copysign(1, bad)))
    s, nll, normalisers = kernels.exponentials(logits, torch.tensor([5, 1, 2, 3]), 0.1)
    assert not nll.isfinite()
    assert not normalisers.isfinite()
    assert s[[0, 2, 3]].isfinite().all()


def test_a_word_that_is_impossible_is_none() -> None:
    logits = torch.randn(4, 50)
    logits[:, 7] = -math.inf
    targets = torch.tensor([5, 1, 2, 3])
    expected = F.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(kernels.exponentials(logits, targets, 0.0)[1], expected)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_loss_is_the_same_with_numba_and_without(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    hidden, output = torch.randn(50, 16, requires_grad=True), torch.nn.Linear(16, 300)
    targets = torch.randint(300, (50,))
    results = []
    for module in (kernels, None):
        monkeypatch.setattr(chunked_loss, "kernels_for", lambda dtype, module=module: module)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            sums = output_loss_sums(output, hidden, targets, 0.1)
        results.append((sums.loss, sums.nll, *torch.autograd.grad(sums.loss, [hidden, *output.parameters()])))
    rough = {"rtol": 1e-2, "atol": 1e-2} if precision == "bf16" else {}
    torch.testing.assert_close(*results, **rough)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, logits, targets = torch.randn(3000), torch.randn(64, 400), torch.randint(400, (64,))
    results = []
    for threads in (1, jit.MOST_THREADS):
        monkeypatch.setattr(jit, "_num_threads", lambda threads=threads: threads)
        draw = kernels.CompiledDraw(3, 0.1)
        gradient = logits.clone()
        sums = kernels.exponentials(gradient, targets, 0.1)
        results.append((draw.times(x, torch.bfloat16), gradient, *sums))
        assert get_num_threads() == threads
    assert all(map(torch.equal, *results))


def test_as_many_threads_are_used_as_torch_uses() -> None:
    kernels.CompiledDraw(3, 0.1).times(torch.ones(10), torch.float32)
    slow = jit.threading_layer() == "workqueue"
    assert get_num_threads() == (1 if slow else min(torch.get_num_threads(), jit.MOST_THREADS))


def test_several_threads_of_python_may_call_at_once() -> None:
    draws = [kernels.CompiledDraw(seed, 0.4) for seed in range(4)]
    x = torch.randn(200_000)
    expected = [draw.times(x, torch.float32) for draw in draws]
    found: list[list[Tensor]] = [[] for _ in draws]

    def work(index: int) -> None:
        for _ in range(20):
            found[index].append(draws[index].times(x, torch.float32))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, one in enumerate(expected):
        assert len(found[index]) == 20
        assert all(torch.equal(other, one) for other in found[index])


def double(numbers: np.ndarray) -> None:
    for i in prange(len(numbers)):
        numbers[i] *= 2


def left_alone(signature: str, **options: Any) -> Any:
    """In place of numba's `njit`, which takes a second."""
    return lambda function: function


def keep_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception, njit: Any) -> list[bool]:
    """numba compiles so, and fails where it is to keep something. Whether it was to, each time that it was asked."""
    asked = []

    def refusing(signature: str, cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise error
        return njit(signature, **options)

    monkeypatch.setattr(jit, "njit", refusing)
    monkeypatch.setattr(jit, "_is_copy", False)
    return asked


@pytest.mark.parametrize("error", [RuntimeError("no locator available"), OSError(28, "No space left"), EOFError()])
def test_whatever_forbids_to_keep_it_it_is_compiled_anew(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = keep_nothing(monkeypatch, error, left_alone)
    assert jit.compiled("void(float32[::1])")(double) is double
    assert asked == [True, False]


def test_what_cannot_be_kept_works_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch, OSError(28, "No space left"), njit)
    numbers = np.arange(3, dtype=np.float32)
    jit.compiled("void(float32[::1])")(double)(numbers)
    assert numbers.tolist() == [0, 2, 4]
    tensor = torch.arange(3, dtype=torch.float32)
    ParallelPass(double)(tensor)
    assert tensor.tolist() == [0, 2, 4]


def test_without_a_home_nothing_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = keep_nothing(monkeypatch, OSError(28, "No space left"), left_alone)
    monkeypatch.setenv("HOME", "~")  # numba would make a folder of that name
    jit.compiled("void(float32[::1])")(double)
    assert asked == [False]


@pytest.mark.parametrize("error", [ImportError("numba needs another numpy"), OSError("no libllvmlite.so")])
def test_a_numba_that_cannot_be_loaded_is_told_of_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    attempts = []

    def failing() -> types.ModuleType:
        attempts.append(error)
        raise error

    numba_modules._tell.cache_clear()  # as if nothing had been told
    load, other = needs_numba(failing), needs_numba(failing)
    assert [load(), load(), other()] == [None, None, None]
    assert len(attempts) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"numba does not work here ({error}): going on without it, which is slower."
    ]


def test_without_numba_nothing_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(numba_modules, "find_spec", lambda name: None)
    assert needs_numba(lambda: kernels)() is None
    assert caplog.text == ""
    monkeypatch.undo()
    assert needs_numba(lambda: kernels)() is kernels


@pytest.mark.parametrize(
    "setting",
    [
        slow({"NUMBA_DISABLE_JIT": "1"}, id="NUMBA_DISABLE_JIT"),
        pytest.param({"NUMBA_THREADING_LAYER": "tbb"}, id="NUMBA_THREADING_LAYER"),
    ],
)
def test_a_numba_that_does_not_work_is_found_out_before_it_is_needed(setting: dict[str, str]) -> None:
    """tbb is not installed here."""
    code = """
        import torch
        from transformer_mt.model.cpu.dropout import draws_with_numba
        from transformer_mt.model.parts.dropout import dropout
        print(draws_with_numba(torch.device("cpu")), dropout(torch.ones(1000), 0.5).mean().item())
    """
    out, said = ran(code, setting)
    answer, mean = out.split()
    assert answer == "False"
    assert 0.8 < float(mean) < 1.2
    told = re.findall(r"^numba does not work here \(.+\): going on without it, which is slower\.$", said, re.MULTILINE)
    assert len(told) == 1
    assert "Traceback" not in said


def test_threads_without_openmp_take_turns() -> None:
    """numba's own kind ends the process where two threads of Python call it at once."""
    code = """
        import threading, torch
        from transformer_mt.machine import numba_compile as jit
        from transformer_mt.model.cpu import kernels
        x = torch.randn(300_000)
        draw = kernels.CompiledDraw(3, 0.4)
        expected, found = draw.times(x, torch.float32), []
        def work():
            for _ in range(30):
                found.append(torch.equal(draw.times(x, torch.float32), expected))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(jit.threading_layer(), all(found), len(found))
    """
    assert ran(code, {"NUMBA_THREADING_LAYER": "workqueue"}) == ("workqueue True 120\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no copies of processes here")
def test_a_copy_of_a_process_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    x, draw = torch.randn(1000), kernels.CompiledDraw(3, 0.4)
    with torch_threads(1):  # torch's own threads are not there in a copy either
        expected = draw.times(x, torch.float32)
        copy = os.fork()
        if copy == 0:
            status = 1  # also of an error: a copy must not go on with other tests
            try:
                status = 7 if torch.equal(draw.times(x, torch.float32), expected) else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 7
    assert capfd.readouterr() == ("", "")


def ran(code: str, environment: dict[str, str]) -> tuple[str, str]:
    """What a program says on standard output and on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("bit", range(63))
def test_all_of_the_seed_counts(bit: int) -> None:
    first, other = (
        kernels.CompiledDraw(seed, 0.5).times(torch.ones(4000), torch.float32) > 0 for seed in (5, 5 ^ 1 << bit)
    )
    assert abs(int((first ^ other).sum()) - 2000) < 5 * math.sqrt(1000)


@pytest.mark.parametrize("target", [31, -1])
def test_a_word_that_is_not_there_is_refused(target: int) -> None:
    with pytest.raises(IndexError, match="31 words"):
        kernels.exponentials(torch.randn(2, 31), torch.tensor([3, target]), 0.1)


def test_targets_may_be_a_column() -> None:
    logits, targets = torch.randn(4, 9), torch.randint(9, (4, 3))
    others = logits.clone()
    expected = kernels.exponentials(others, targets[:, 1].clone(), 0.1)
    torch.testing.assert_close(kernels.exponentials(logits, targets[:, 1], 0.1), expected)
    assert torch.equal(logits, others)


def test_what_is_nothing_beside_the_largest_is_no_tiny_number() -> None:
    """With which a processor multiplies thirty times as slowly."""
    logits = torch.linspace(-200, 0, 5000).repeat(2, 1)
    kernels.exponentials(logits, torch.tensor([0, 4999]), 0.0)
    found = logits[0, 1:]
    assert ((found == 0) | (found.abs() > 1e-31)).all()
    assert (found[:2000] == 0).all()
