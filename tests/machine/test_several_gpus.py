"""Which GPU a process of several takes. torch's view of the machine is planted; the rest is the environment's."""

import pytest
import torch

from transformer_mt.errors import UserError
from transformer_mt.machine.device import choose_device, set_up


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    """A function that says how many GPUs torch sees."""

    def see(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "GPU")

    for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return see


def under_torchrun(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(number))


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_each_process_takes_its_own(gpus, monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    gpus(4)
    under_torchrun(monkeypatch, 4)
    assert [choose_device(wanted, rank).value for rank in range(4)] == [f"cuda:{rank}" for rank in range(4)]
    assert choose_device(wanted).value == "cuda", "one process takes the first"


def test_more_processes_than_gpus_are_refused_in_all(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(2)
    under_torchrun(monkeypatch, 3)
    for rank in range(3):
        with pytest.raises(UserError, match=r"There are 2 GPUs .* --nproc-per-node 2, or"):
            choose_device("auto", rank)


def test_a_launcher_may_show_each_process_one_gpu(gpus) -> None:
    gpus(1)
    assert choose_device("auto", 5).value == "cuda:0"


def test_one_gpu_is_not_shared_under_torchrun(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1)
    under_torchrun(monkeypatch, 2)
    with pytest.raises(UserError, match="There are 1 GPUs"):
        choose_device("auto", 0)


def test_without_a_gpu_processes_share_the_cpu_and_nothing_else(gpus) -> None:
    gpus(0)
    assert choose_device("auto", 1).value == choose_device("cpu", 1).value == "cpu"
    gpus(4)
    with pytest.raises(UserError, match="several processes were started, which would share it"):
        choose_device("cuda:1", 1)


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_is_set_up_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It becomes the one that is meant, and attention is not cuDNN's; on a CPU nothing is touched."""
    current: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        set_up(torch.device("cpu"))
        assert torch.backends.cuda.cudnn_sdp_enabled()
        set_up(torch.device(name))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert current == [0 if name == "cuda" else torch.device("cuda:1")]
