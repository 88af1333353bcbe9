"""DLPack with arrays that support nothing else, and with other libraries if they are installed."""

from __future__ import annotations

import ctypes
from typing import Any

import neurenix as nx
import numpy as np
import pytest

CPU, ROCM = 1, 10
NAME, VERSIONED = b"dltensor", b"dltensor_versioned"


class Array(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("array", Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("array", Array),
    )


def capsule(content: ctypes.Structure, name: bytes) -> Any:
    """A capsule whose producer keeps the content alive."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(content), name, None)


class Plain:
    """Six float32 numbers in an array that has only DLPack's two methods."""

    def __init__(self, device: tuple[int, int] = (CPU, 0), version: int = 0, **fields: Any) -> None:
        self.device, self.fields = device, fields
        self.asked: list[dict[str, Any]] = []
        self.values = (ctypes.c_float * 6)(0, 1, 2, 3, 4, 5)
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        array = Array(
            data=ctypes.addressof(self.values),
            device=(ctypes.c_int32 * 2)(CPU, 0),
            ndim=2,
            code=2,
            bits=32,
            lanes=1,
            shape=self.shape,
        )
        for name, value in fields.items():
            setattr(array, name, value)
        self.content = Versioned(major=version, array=array) if version else Managed(array=array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        return capsule(self.content, VERSIONED if isinstance(self.content, Versioned) else NAME)


class Old(Plain):
    """An array of a library that supports only DLPack before version 1.0."""

    def __dlpack__(self, stream: int | None = None) -> Any:
        return super().__dlpack__(stream=stream)


@pytest.mark.parametrize("make", [Plain, Old, lambda: Plain(version=1)])
def test_an_array_that_has_nothing_else_comes_in(make: Any) -> None:
    for given in (nx.from_dlpack(make()), nx.asarray(make()), nx.from_dlpack(make(), device="cpu", copy=True)):
        assert given.dtype == nx.float32 and given.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert nx.asarray(make(), dtype=nx.int8).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_offsets_strides_and_ranks() -> None:
    turned = (ctypes.c_int64 * 2)(-3, -1)
    assert nx.from_dlpack(Plain(byte_offset=20, strides=turned)).tolist() == [[5.0, 4.0, 3.0], [2.0, 1.0, 0.0]]
    assert nx.from_dlpack(Plain(byte_offset=8, ndim=0)).tolist() == 2.0
    assert nx.from_dlpack(Plain(ndim=1)).tolist() == [0.0, 1.0]
    assert nx.from_dlpack(Plain(shape=(ctypes.c_int64 * 2)(0, 3))).shape == (0, 3)
    repeated = nx.from_dlpack(Plain(strides=(ctypes.c_int64 * 2)(0, 1)))
    assert repeated.tolist() == [[0.0, 1.0, 2.0]] * 2


def test_the_values_are_the_tensors_own() -> None:
    array = Plain()
    given = nx.from_dlpack(array)
    array.values[0] = 9.0
    assert given[0, 0].item() == 0.0


@pytest.mark.parametrize(
    ("array", "exception", "message"),
    [
        (Plain(lanes=4), TypeError, "4 lanes"),
        (Plain(code=3, bits=64), TypeError, "type code 3, 64 bits"),
        (Plain(version=2), RuntimeError, "version 2"),
        (Plain(ndim=-1), RuntimeError, "negative rank"),
        (Plain(shape=(ctypes.c_int64 * 2)(-1, 3)), RuntimeError, "negative size"),
    ],
)
def test_what_is_no_array_is_refused(array: Plain, exception: type[Exception], message: str) -> None:
    with pytest.raises(exception, match=message):
        nx.from_dlpack(array)


def test_a_capsule_must_be_one() -> None:
    class Odd(Plain):
        def __dlpack__(self, **_options: Any) -> Any:
            return 5

    with pytest.raises(TypeError, match="did not return a capsule"):
        nx.from_dlpack(Odd())
    with pytest.raises(TypeError, match="does not support DLPack"):
        nx.from_dlpack([1.0])


def test_the_library_is_asked_for_what_the_caller_wants() -> None:
    array = Plain()
    nx.from_dlpack(array)
    with pytest.raises(BufferError, match="copy=False"):
        nx.from_dlpack(array, copy=False)
    nx.from_dlpack(array, copy=True)
    # The array is copied only once.
    assert array.asked == [{"max_version": (1, 0)}, {"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}]


def test_an_array_on_an_unknown_device_comes_through_the_cpu() -> None:
    array = Plain(device=(ROCM, 1))
    with pytest.raises(BufferError, match=r"device \(10, 1\).*device=\"cpu\""):
        nx.from_dlpack(array)
    assert array.asked == []
    assert nx.from_dlpack(array, device="cpu").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert array.asked == [{"max_version": (1, 0), "dl_device": (CPU, 0)}]
    with pytest.raises(BufferError, match="copy=False"):
        nx.from_dlpack(array, device="cpu", copy=False)
    assert array.asked[-1] == {"max_version": (1, 0), "dl_device": (CPU, 0), "copy": False}


def test_an_array_that_stays_where_it_is_is_not_read() -> None:
    there = (ctypes.c_int32 * 2)(ROCM, 0)
    with pytest.raises(BufferError, match="move it to the CPU first"):
        nx.from_dlpack(Old(device=(ROCM, 0)), device="cpu")
    array = Plain(device=(ROCM, 0))
    array.content.array.device = there
    with pytest.raises(BufferError, match=r"is on DLPack device \(10, 0\)"):
        nx.from_dlpack(array, device="cpu")
    # An array that contradicts itself is refused too.
    array.device = (CPU, 0)
    with pytest.raises(BufferError, match=r"is on DLPack device \(10, 0\)"):
        nx.from_dlpack(array)


class Asking:
    """Exports a tensor as a library that supports the newest version does."""

    def __init__(self, tensor: nx.Tensor, **options: Any) -> None:
        self.tensor, self.options = tensor, options

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **_options: Any) -> Any:
        return self.tensor.__dlpack__(**self.options)


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}, {"copy": True}, {"dl_device": (CPU, 0)}])
def test_what_is_handed_over_comes_back(options: dict[str, Any]) -> None:
    x = nx.arange(24, dtype=nx.int16).reshape(2, 3, 4).transpose(0, 2)[1:]
    given = nx.from_dlpack(Asking(x, **options))
    assert given.dtype == nx.int16 and given.tolist() == x.tolist()


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def numbers(dtype: str) -> nx.Tensor:
    return nx.arange(12).reshape(3, 4).to(getattr(nx, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_takes_and_gives(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = numbers(dtype)
    there = torch.from_dlpack(x.T)
    assert str(there.dtype) == f"torch.{dtype}" and there.tolist() == x.T.tolist()
    back = nx.from_dlpack(there[1:])
    assert back.dtype == x.dtype and back.tolist() == x.T[1:].tolist()
    assert nx.asarray(there).tolist() == x.T.tolist()
    # A copy does not share memory with the tensor.
    torch.from_dlpack(x, copy=True).zero_()
    assert x.tolist() == numbers(dtype).tolist()


def test_pytorchs_states_load() -> None:
    torch = pytest.importorskip("torch")
    kinds = [("Linear", (3, 4)), ("Conv2d", (2, 4, 3)), ("BatchNorm1d", (3,)), ("LSTM", (3, 4)), ("LayerNorm", (4,))]
    for kind, arguments in kinds:
        theirs, ours = getattr(torch.nn, kind)(*arguments), getattr(nx.nn, kind)(*arguments)
        assert not any(ours.load_state_dict(theirs.state_dict()))
        state = ours.state_dict()
        assert list(state) == list(theirs.state_dict())
        for name, value in theirs.state_dict().items():
            assert state[name].tolist() == value.tolist()


def test_pytorch_refuses_gradients_as_we_do() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises((BufferError, RuntimeError)):
        nx.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="gradients"):
        torch.from_dlpack(nx.ones(2, requires_grad=True))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32"])
def test_jax_takes_and_gives(dtype: str) -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    x = numbers(dtype)
    there = jnp.from_dlpack(x)
    assert str(there.dtype) == dtype and there.tolist() == x.tolist()
    back = nx.from_dlpack(there + there)
    assert back.dtype == x.dtype and back.tolist() == (x + x).tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float32", "float64"])
def test_cupy_takes_and_gives(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    if not cupy.is_available():
        pytest.skip("CuPy finds no GPU")
    array = cupy.arange(12, dtype=dtype).reshape(3, 4)
    brought = nx.from_dlpack(array.T, device="cpu")
    assert str(brought.device) == "cpu" and brought.tolist() == array.T.tolist()
    if not any(str(device) == "cuda:0" for device in nx.devices()):
        pytest.skip("no CUDA device here")
    given = nx.from_dlpack(array[:, ::2])
    assert str(given.device) == "cuda:0" and given.tolist() == array[:, ::2].tolist()
    assert cupy.from_dlpack(given).tolist() == given.tolist()


def test_numpy_takes_and_gives() -> None:
    for dtype in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64"):
        x = numbers(dtype)
        there = np.from_dlpack(x.T)
        assert there.dtype == dtype and there.tolist() == x.T.tolist()
        assert nx.from_dlpack(there.copy()[::-1]).tolist() == x.T.tolist()[::-1]
