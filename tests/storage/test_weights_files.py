"""A disk that is full is told as one by whatever version of safetensors writes."""

import errno
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from transformer_mt.storage.weights import save_tensors


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("Error while serializing: I/O error: No space left on device (os error 28)", errno.ENOSPC),
        (
            'Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
            errno.ENOSPC,
        ),
        ("Error while serializing: InvalidTensorView", errno.EIO),
    ],
)
def test_what_the_library_says_is_an_error_of_the_system(
    said: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError(said)

    monkeypatch.setattr("transformer_mt.storage.weights.save_file", full)
    with pytest.raises(OSError, match=r"No space left|InvalidTensorView") as caught:
        save_tensors({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    assert caught.value.errno == number
