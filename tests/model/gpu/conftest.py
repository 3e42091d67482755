"""The devices of the tests of kernels."""

from kernel_devices import device

__all__ = ["device"]
