"""The memory of tensors as PyTorch shows it: storages, addresses, and the same bits as another dtype."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

from . import _complex_parts, _engine
from ._engine import Tensor

METHODS = ["data_ptr", "is_contiguous", "layout", "storage", "storage_offset", "untyped_storage", "view"]
__all__ = ["UntypedStorage", "frombuffer"]


_is_contiguous = Tensor.is_contiguous


def is_contiguous(self: Tensor, memory_format: Any = "contiguous_format") -> bool:
    """Whether the elements are in the order of the indices; for ``channels_last``, with the channels last."""
    dims = {"channels_last": 4, "channels_last_3d": 5}.get(memory_format)
    if dims is None:
        return _is_contiguous(self)
    return self.ndim == dims and _is_contiguous(self.movedim(1, -1))


def storage_offset(self: Tensor) -> int:
    """0: a storage has only this tensor's elements."""
    return 0


class UntypedStorage:
    """Bytes: those of a tensor, or of a file. What is made from them is a copy.

    >>> import neurenix as nx
    >>> storage = nx.tensor([1, 256], dtype="int16").untyped_storage()
    >>> storage.nbytes(), storage.tolist()
    (4, [1, 0, 0, 1])
    """

    def __init__(self, size: int | bytes | memoryview = 0, *, device: Any = "cpu") -> None:
        self._bytes: memoryview | None = memoryview(bytes(size) if isinstance(size, int) else size)
        self._tensor: Tensor | None = None
        self.device = _engine.Device(device)

    @classmethod
    def of(cls, tensor: Tensor) -> UntypedStorage:
        """The bytes of a tensor's elements, in order."""
        storage = cls(device=tensor.device)
        storage._bytes, storage._tensor = None, tensor.detach()
        return storage

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, which are read when they are used."""
        if shared:
            raise ValueError("UntypedStorage.from_file: tensors do not write to files: pass shared=False")
        with open(filename, "rb") as file:
            return cls(memoryview(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)) if nbytes else b"")

    def _view(self) -> memoryview:
        if self._bytes is None:
            assert self._tensor is not None
            self._bytes = memoryview(self._tensor.tobytes())
        return self._bytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy and ``asarray`` read the bytes."""
        import numpy as np

        interface: dict[str, Any] = np.frombuffer(self._view(), np.uint8).__array_interface__
        return interface

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes are on an NVIDIA GPU."""
        return str(self.device).startswith("cuda")

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self if self._tensor is None else UntypedStorage.of(self._tensor)

    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self._tensor.nbytes) if self._tensor is not None else self._view().nbytes

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1."""
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte, or 0 if there is none."""
        if not self.nbytes():
            return 0
        return data_ptr(self._tensor) if self._tensor is not None else int(self.__array_interface__["data"][0])

    def __getitem__(self, index: int | slice) -> Any:
        found = self._view()[index]
        return UntypedStorage(found, device=self.device) if isinstance(found, memoryview) else found

    def __iter__(self) -> Iterator[int]:
        return iter(self._view())

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return self._view().tolist()

    def tobytes(self) -> bytes:
        """The bytes."""
        found = self._view().obj
        return found if isinstance(found, bytes) and len(found) == self.nbytes() else self._view().tobytes()

    def to(self, *, device: Any) -> UntypedStorage:
        """The same bytes for another device."""
        moved = UntypedStorage(self._view(), device=device)
        moved._tensor = None if self._tensor is None else self._tensor.to(device=device)
        return moved

    def cpu(self) -> UntypedStorage:
        """The same bytes for the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> UntypedStorage:
        """The same bytes for an NVIDIA GPU, the first one unless ``device`` names another."""
        return self.to(device=f"cuda:{device or 0}" if device is None or isinstance(device, int) else device)

    def __repr__(self) -> str:
        return f"UntypedStorage({self.nbytes()} bytes, device={str(self.device)!r})"


class _Storage(UntypedStorage):
    """The elements of a tensor in order, as numbers."""

    @property
    def dtype(self) -> _engine.dtype:
        """The dtype of the elements."""
        assert self._tensor is not None
        return self._tensor.dtype

    def element_size(self) -> int:
        """The number of bytes of an element."""
        return int(self.dtype.itemsize)

    def size(self) -> int:
        """The number of elements."""
        assert self._tensor is not None
        return self._tensor.numel()

    __len__ = size

    def __getitem__(self, index: int | slice) -> Any:
        assert self._tensor is not None
        found = self._tensor.reshape(-1)[index]
        return found.item() if isinstance(index, int) else _Storage.of(found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as numbers."""
        assert self._tensor is not None
        found: list[Any] = self._tensor.reshape(-1).tolist()
        return found


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes of the elements, in order. A view's storage has only the elements of the view."""
    return UntypedStorage.of(self)


def storage(self: Tensor) -> _Storage:
    """The elements in order: ``storage().size()`` and ``storage().data_ptr()`` are what programs ask for."""
    found = _Storage.of(self)
    assert isinstance(found, _Storage)
    return found


def data_ptr(self: Tensor) -> int:
    """The address of the first element, or 0 for an empty tensor and for memory that the CPU and DLPack cannot address.

    The address is valid until the tensor is changed or deleted. The memory must not be written to: other tensors may
    share it.
    """
    if not self.numel():
        return 0
    try:
        capsule = self.detach().__dlpack__(max_version=(1, 0), copy=False)
    except (BufferError, TypeError):
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # DLManagedTensorVersioned: two numbers of the version, two pointers and the flags come before the tensor.
    return ctypes.c_void_p.from_address(pointer(capsule, b"dltensor_versioned") + 16 + 2 * ctypes.sizeof(ctypes.c_void_p)).value or 0


layout = property(lambda self: "strided", doc="``torch.strided``: there are no sparse tensors.")

_reshaped = Tensor.view


def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """A view with another shape, of which one size may be -1; for any memory layout.

    With a dtype, the bits of the elements as numbers of that dtype, as a copy without gradients. The last dimension
    becomes longer or shorter if the sizes of the dtypes differ.
    """
    if dtype is None:
        if not (len(shape) == 1 and isinstance(shape[0], _engine.dtype)):
            return _reshaped(self, *shape)
        (dtype,) = shape
    dtype = _engine.dtype(dtype)
    if dtype.is_complex:
        parts = self if self.dtype == dtype.to_real() else view(self, dtype.to_real())
        return _complex_parts.view_as_complex(parts.unflatten(-1, (-1, 2)))
    old, new = self.dtype.itemsize, dtype.itemsize
    sizes = tuple(self.shape)
    if old != new:
        if not sizes or sizes[-1] * old % new:
            raise RuntimeError(f"view: the last of the sizes {sizes} in {self.dtype} cannot become {dtype}")
        sizes = (*sizes[:-1], sizes[-1] * old // new)
    return _engine.from_bytes(self.detach().tobytes(), dtype, sizes, self.device)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor of one dimension from the bytes of a buffer; a copy.

    >>> import neurenix as nx
    >>> nx.frombuffer(bytes([1, 0, 2, 0]), dtype=nx.int16).tolist()
    [1, 2]
    """
    dtype = _engine.dtype(dtype)
    given = memoryview(buffer).cast("B")
    if not 0 <= offset < len(given):
        raise ValueError(f"frombuffer: offset {offset} is not in a buffer of {len(given)} bytes")
    left = len(given) - offset
    if count < 0:
        count, rest = divmod(left, dtype.itemsize)
        if rest:
            raise ValueError(f"frombuffer: {left} bytes are not a whole number of {dtype}")
    if count * dtype.itemsize > left or not count:
        raise ValueError(f"frombuffer: {count} elements of {dtype} in {left} bytes")
    data = given[offset : offset + count * dtype.itemsize].tobytes()
    made = _engine.from_bytes(data, dtype, (count,), "cpu")
    return made.requires_grad_() if requires_grad else made
