"""Reads the files of ``torch.save``: zip files of PyTorch 1.6 and later, and the older format.

No code in a file is run. Tensors, parameters, plain values and containers are read; any other object is an error that
names its class.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pickle import UnpicklingError
from typing import IO, Any

from . import _engine
from ._engine import Tensor
from ._parts import as_strided
from ._storage import UntypedStorage
from ._unpickler import Late, Unpickler

_STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "Untyped": "uint8",
}  # fmt: skip
"""The dtypes of storage classes."""

_DTYPES = {*_STORAGES.values(), "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16"}
_SIZES = {name: _engine.dtype(name).itemsize for name in _DTYPES if not name.startswith("complex")}
_SIZES |= {"complex64": 8, "complex128": 16}

_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files of the older format begin: a pickle of one number."""

_PLAIN_TENSORS = frozenset(
    """
    torch.Tensor torch.nn.parameter.Parameter torch.nn.parameter.Buffer torch._utils._rebuild_tensor_v2
    torch._utils._rebuild_tensor_v3
    """.split()
)


class _Dtype:
    """A storage class, as part of a reference to a storage."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Stored(UntypedStorage):
    """A storage of the file: its bytes, and the tensor that was made of all of it."""

    def __init__(self, data: bytes, dtype: str, location: str) -> None:
        super().__init__(data)
        self.kind = dtype
        self.location = location
        self.place: Any = None
        self.whole: Tensor | None = None

    def made(self, dtype: str, size: tuple[int, ...]) -> Tensor:
        """A tensor of all of it, which is from now on what holds the bytes."""
        self.whole = _tensor(self.tobytes(), dtype, size, self.place)
        self._bytes, self._tensor = None, self.whole
        return self.whole


class _Array(Late):
    """A NumPy array or dtype, which PyTorch stores in two parts."""

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = dtype

    def settled(self, state: Any) -> Any:
        import numpy as np

        if self.dtype is not None:
            return self.dtype if state[1] in "=|" else self.dtype.newbyteorder(state[1])
        _, shape, dtype, in_columns, data = state
        if not isinstance(dtype, np.dtype):
            raise UnpicklingError("damaged pickle: an array without a dtype")
        return np.frombuffer(bytes(data), dtype).reshape(shape, order="F" if in_columns else "C").copy()


def _numpy_dtype(name: str, *_: Any) -> _Array:
    import numpy as np

    found = np.dtype(str(name))
    if found.kind not in "biufcSU":
        raise UnpicklingError(f"NumPy's dtype {found} is not a type of plain numbers or text")
    return _Array(found)


def _scalar(dtype: Any, data: bytes) -> Any:
    import numpy as np

    if not isinstance(dtype, np.dtype):
        raise UnpicklingError("damaged pickle: a number without a dtype")
    return np.frombuffer(bytes(data), dtype, 1)[0]


class Reader:
    """Reads the objects of one file.

    ``map_location`` says where the tensors go, as in ``torch.load``: a device, a dictionary from devices in the file to
    devices, or a function of a storage and its device in the file.
    """

    def __init__(self, name: str, map_location: Any) -> None:
        self._name = name
        self._map_location = map_location
        self._stored: dict[str, _Stored] = {}
        self._read: Callable[[str, int], bytes]

    def _unpickler(self, only_measures: bool = False) -> Unpickler:
        known: dict[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._tensor_of,
            "torch._utils._rebuild_parameter": self._parameter,
            "torch._utils._rebuild_parameter_with_state": self._parameter,
            "torch._tensor._rebuild_from_type_v2": self._of_type,
            "torch.serialization._get_layout": str,
            "torch.Size": _size,
            "torch.device": self._device,
            "numpy.dtype": _numpy_dtype,
        }
        for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            known |= {f"{module}.scalar": _scalar, f"{module}._reconstruct": lambda *_: _Array()}
        if only_measures:
            known |= {name: lambda *_: None for name in known if "._rebuild_" in name or name == "torch.device"}
        # The parts of a reference to an array or a tensor.
        passed = _PLAIN_TENSORS | {"numpy.ndarray"}
        return Unpickler(known, named=_named, persistent=self._storage, passed=passed, refused=self._refused)

    def _refused(self, name: str) -> Exception:
        if "_rebuild_sparse" in name:
            what = "a sparse tensor: store x.to_dense()"
        elif "_rebuild_qtensor" in name or (name.startswith("torch.Q") and name.endswith("Storage")):
            what = "a quantised tensor: store x.dequantize()"
        else:
            what = (
                f"an object of the class {name}, which only the program's own code can create. No code of a file is run: if it is "
                "a module, store model.state_dict() instead, and otherwise plain values"
            )
        return UnpicklingError(f"{self._name} holds {what}")

    # The older format stores views of storages too.
    def _storage(self, reference: Any) -> _Stored:
        if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
            raise UnpicklingError(f"damaged pickle: {reference!r} is not a storage")
        kind, key, location, count, *view = reference[1:]
        if not isinstance(kind, _Dtype):
            raise UnpicklingError("damaged pickle: a storage without a dtype")
        if view and view[0] is not None:
            raise UnpicklingError(f"{self._name} holds a view of a storage, as PyTorch 0.4 wrote it: store it with a newer PyTorch")
        if key not in self._stored:
            self._stored[key] = _Stored(self._read(str(key), int(count) * _SIZES[kind.name]), kind.name, str(location))
        if self._stored[key].kind != kind.name:
            raise UnpicklingError(f"{self._name}: damaged: the storage {key} has two dtypes")
        return self._stored[key]

    def _tensor(
        self, stored: _Stored, offset: int, size: Any, stride: Any, requires_grad: bool = False, hooks: Any = None, metadata: Any = None
    ) -> Tensor:
        return self._tensor_of(stored, offset, size, stride, requires_grad, hooks, stored.kind, metadata)

    def _tensor_of(
        self,
        stored: _Stored,
        offset: int,
        size: Any,
        stride: Any,
        requires_grad: bool,
        hooks: Any,
        dtype: Any,
        metadata: Any = None,
    ) -> Tensor:
        name = str(dtype).rpartition(".")[2]
        size, stride = tuple(map(int, size)), tuple(map(int, stride))
        item = _SIZES[name]
        last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        if min((offset, *size, *stride)) < 0 or (0 not in size and (last + 1) * item > stored.nbytes()):
            raise UnpicklingError(f"damaged pickle: a tensor of shape {size} reaches beyond its storage")
        if stored.place is None:
            stored.place = device_for(self._map_location, stored.location, lambda: stored)
        made = _changed(_made(stored, name, item, offset, size, stride), metadata or {})
        return made.requires_grad_() if requires_grad else made

    def _device(self, kind: str, index: int | None = None) -> Any:
        """A device that is a value in the file. One that is not here is where ``map_location`` moves its tensors."""
        name = str(kind) if index is None or kind == "cpu" else f"{kind}:{index}"
        try:
            return _engine.Device(name)
        except ValueError:
            pass
        try:
            return device_for(self._map_location, name, UntypedStorage)
        except RuntimeError:
            message = f"{name}, a device in {self._name}, is not available: it is loaded as the CPU"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return _engine.Device("cpu")

    def _parameter(self, data: Tensor, requires_grad: bool, hooks: Any, state: Any = None) -> Tensor:
        from .nn import Parameter

        return Parameter(data, requires_grad=bool(requires_grad))

    def _of_type(self, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """A tensor with attributes: they are dropped."""
        if kind.name == "torch.nn.parameter.Parameter":
            return self._parameter(function.meaning(*arguments), arguments[4], None)
        return function.meaning(*arguments)

    def zip_file(self, file: IO[bytes]) -> Any:
        """The object in a zip file."""
        try:
            archive = zipfile.ZipFile(file)
            names = archive.namelist()
        except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error) as error:
            raise UnpicklingError(f"{self._name}: damaged zip file: {error}") from None
        (main,) = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")] or [""]
        folder = main.rpartition("/")[0]
        if not folder:
            raise UnpicklingError(f"{self._name}: a zip file, but not one of torch.save: it has no data.pkl")
        if f"{folder}/constants.pkl" in names:
            raise UnpicklingError(f"{self._name} is a TorchScript program: store the state_dict() of its module")

        def member(name: str) -> bytes:
            try:
                return archive.read(f"{folder}/{name}")
            except (KeyError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, struct.error) as error:
                raise UnpicklingError(f"{self._name}: damaged: {error}") from None

        if f"{folder}/byteorder" in names and member("byteorder") != b"little":
            raise UnpicklingError(f"{self._name} was written on a big-endian machine")
        self._read = lambda key, count: _of_size(self._name, member(f"data/{key}"), count)
        return self._unpickler().load(io.BytesIO(member("data.pkl")))

    def older_file(self, file: IO[bytes]) -> Any:
        """The object in a file of the older format, where the storages come after the pickle."""
        plain = Unpickler({}, refused=self._refused)
        _, version, system = (plain.load(file) for _ in range(3))
        if version != 1001 or not isinstance(system, Mapping) or not system.get("little_endian"):
            raise UnpicklingError(f"{self._name}: version {version} of the older format, of {system}, is not supported")
        start = file.tell()
        # Storages are read before tensors are made of them: the first pass finds what is there.
        found: dict[str, int] = {}
        data: dict[str, bytes] = {}

        def measured(key: str, count: int) -> bytes:
            found[key] = count
            return b""

        self._read = measured
        self._unpickler(only_measures=True).load(file)
        for key in plain.load(file):
            header = file.read(8)
            if str(key) not in found or len(header) != 8:
                raise UnpicklingError(f"{self._name}: damaged: the storage {key} is unknown")
            (count,) = struct.unpack("<q", header)
            size = found[str(key)]
            data[str(key)] = _of_size(self._name, file.read(size), size)
            if count < 0:
                raise UnpicklingError(f"{self._name}: damaged: a storage of {count} elements")
        self._stored.clear()
        self._read = lambda key, count: _of_size(self._name, data.pop(key), count)
        file.seek(start)
        return self._unpickler().load(file)


def _of_size(name: str, data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise UnpicklingError(f"{name}: damaged: a storage of {size} bytes has {len(data)}")
    return data[:size] if len(data) > size else data


def _named(name: str) -> Any:
    """What a name without arguments stands for: a dtype, or the dtype of a storage class."""
    module, _, last = name.rpartition(".")
    if module in ("torch", "torch.storage") and last.endswith("Storage") and last[:-7] in _STORAGES:
        return _Dtype(_STORAGES[last[:-7]])
    if module == "torch" and (last in _DTYPES or last in _ALIASES):
        return _engine.dtype(_ALIASES.get(last, last))
    return None


def _size(sizes: Any) -> Any:
    return type(_engine.zeros(()).shape)(map(int, sizes))


def _changed(tensor: Tensor, metadata: Any) -> Tensor:
    """A tensor of PyTorch that is computed when it is read: the conjugate or the negative of what is stored."""
    if not isinstance(metadata, Mapping) or not metadata.keys() <= {"conj", "neg"}:
        raise UnpicklingError(f"a tensor has properties that are not supported: {metadata!r}")
    if metadata.get("conj"):
        tensor = tensor.conj()
    return -tensor if metadata.get("neg") else tensor


def device_for(map_location: Any, location: str, storage: Callable[[], UntypedStorage]) -> Any:
    """Where a tensor goes whose device in the file is ``location``."""
    if isinstance(map_location, Mapping):
        map_location = map_location.get(location)
    elif callable(map_location):
        moved = map_location(storage(), location)
        if moved is not None and not hasattr(moved, "device"):
            raise TypeError(f"load: map_location must return a storage or None, not {type(moved).__name__}")
        map_location = None if moved is None else moved.device  # pyright: ignore
    if map_location is not None:
        return map_location if isinstance(map_location, _engine.Device) else _engine.Device(map_location)
    try:
        return _engine.Device(location)
    except ValueError as error:
        raise RuntimeError(
            f"load: a tensor in the file is on {location}, which is not here: pass map_location=\"cpu\" ({error})"
        ) from None


def _made(stored: _Stored, dtype: str, item: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A tensor of a part of a storage. Tensors that share one storage are views of the first one that has all of it."""
    count = 1
    contiguous = True
    for length, step in zip(reversed(size), reversed(stride), strict=True):
        contiguous = contiguous and (length == 1 or step == count)
        count *= length
    if not count:
        return _tensor(b"", dtype, size, stored.place)
    if stored.whole is None or stored.whole.dtype != _dtype(dtype):
        if contiguous and not offset and count * item == stored.nbytes():
            return stored.made(dtype, size)
        stored.made(dtype, (stored.nbytes() // item,))
    assert stored.whole is not None
    flat = stored.whole.detach().view(-1)
    if contiguous:
        return flat[offset : offset + count].view(size)
    order = sorted(range(len(size)), key=lambda axis: -stride[axis])
    steps = [1]
    for axis in reversed(order[1:]):
        steps.append(steps[-1] * size[axis])
    if [stride[axis] for axis in order] == steps[::-1]:  # Permuted.
        whole = flat[offset : offset + count].view(*(size[axis] for axis in order))
        return whole.permute(*(order.index(axis) for axis in range(len(size))))
    return as_strided(flat, size, stride, offset)


def _dtype(name: str) -> Any:
    try:
        return _engine.dtype(name)
    except ValueError:
        raise UnpicklingError(f"tensors of {name} are not supported") from None


def _tensor(data: bytes, dtype: str, size: tuple[int, ...], device: Any) -> Tensor:
    kind = _dtype(dtype)
    if dtype.startswith("complex"):
        import numpy as np

        import neurenix as nx

        return nx.tensor(np.frombuffer(data, dtype).reshape(size), device=device)
    return _engine.from_bytes(data, kind, size, device)


def reads(start: bytes) -> bool:
    """Whether a file that begins with these 9 bytes is one of PyTorch, or another zip file or pickle."""
    # The header of a safetensors file comes after its size, which could look like this too.
    return start[8:9] != b"{" and start.startswith((b"PK\x03\x04", b"PK\x05\x06", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))


def load(file: IO[bytes], name: str, map_location: Any) -> Any:
    """The object in an open file, whose position is at its beginning."""
    start = file.tell()
    magic = file.read(len(_MAGIC))
    file.seek(start)
    reader = Reader(name, map_location)
    if magic.startswith(b"PK"):
        return reader.zip_file(file)
    if magic == _MAGIC:
        return reader.older_file(file)
    # A plain pickle, as pickle.dump or a very old PyTorch wrote it.
    raise UnpicklingError(f"{name} is a pickle, but not one of torch.save: no code of a file is run")
