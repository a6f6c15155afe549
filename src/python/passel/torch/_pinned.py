"""Memory of the job that CUDA devices copy to and from by themselves, beside what else goes on."""

from collections.abc import Iterable
from typing import Any

import torch

from .._warn import warn

_cuda: Any = torch.cuda  # parts of it have no hints


class Pinned:
    """Registers tensors of the host with CUDA's driver, so that copies need no other memory in between.

    A tensor that is registered is kept, since its memory must not go before. Where the driver refuses one,
    a warning says so once, and copies go on, slower and one after another.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._devices = sorted(set(devices), key=str)
        self._registered: dict[int, torch.Tensor] = {}
        self._refused = False

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            address = tensor.data_ptr()
            if self._refused or address in self._registered or tensor.numel() == 0:
                continue
            code = int(_cuda.cudart().cudaHostRegister(address, tensor.numel() * tensor.element_size(), 0))
            if code == 0:
                self._registered[address] = tensor
            else:
                self._refuse(code)

    def wait(self) -> None:
        """Until all copies are done."""
        for device in self._devices:
            torch.cuda.synchronize(device)

    def clear(self) -> None:
        if self._registered:
            self.wait()
        for address in self._registered:
            _cuda.cudart().cudaHostUnregister(address)
        self._registered.clear()

    def _refuse(self, code: int) -> None:
        self._refused = True
        try:
            torch.empty(1, device=self._devices[0]).fill_(0)  # the next launch would meet that error, and be blamed for it
        except RuntimeError:
            pass
        warn(f"CUDA does not register the job's memory (cudaHostRegister: error {code}), so gradients and values are copied "
             "through memory of PyTorch, several times slower")
