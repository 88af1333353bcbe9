"""Creation functions with the names of the array API standard and of PyTorch, and DLPack's copies."""

from __future__ import annotations

import inspect
import threading
import time

import neurenix as nx
import numpy as np
import pytest

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

# The standard's signatures: positional parameters (with their names, if any) and keyword-only parameters.
SIGNATURES = {
    "arange": (["start", "stop", "step"], ["dtype", "device"]),
    "empty": (["shape"], ["dtype", "device"]),
    "expand_dims": (["x", "axis"], []),
    "eye": (["n_rows", "n_cols"], ["k", "dtype", "device"]),
    "from_dlpack": (["x"], ["device", "copy"]),
    "full": (["shape", "fill_value"], ["dtype", "device"]),
    "linspace": (["start", "stop", "num"], ["dtype", "device", "endpoint"]),
    "ones": (["shape"], ["dtype", "device"]),
    "zeros": (["shape"], ["dtype", "device"]),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_standards(name: str) -> None:
    positional, keywords = SIGNATURES[name]
    parameters = inspect.signature(getattr(nx, name)).parameters
    assert list(parameters)[: len(positional)] == positional
    assert all(parameters[each].kind in POSITIONAL for each in positional)
    assert all(parameters[each].kind is inspect.Parameter.KEYWORD_ONLY for each in keywords)


def test_shapes_come_by_every_name() -> None:
    for make, value in ((nx.zeros, 0.0), (nx.ones, 1.0), (nx.empty, 0.0)):
        for given in (make(2, 3), make((2, 3)), make([2, 3]), make(shape=(2, 3)), make(size=(2, 3))):
            assert given.shape == (2, 3) and given.tolist() == [[value] * 3] * 2
        assert make(2).shape == (2,) and make(()).shape == () and make(2, dtype=nx.int8).dtype == nx.int8
    for full in (nx.full((2,), 7), nx.full(2, 7), nx.full(shape=(2,), fill_value=7), nx.full(size=(2,), fill_value=7)):
        assert full.tolist() == [7, 7] and full.dtype == nx.int64
    for draw in (nx.rand, nx.randn):
        nx.manual_seed(3)
        first = draw(2, 3).tolist()
        nx.manual_seed(3)
        assert draw(size=(2, 3)).tolist() == first


def test_ranges_come_by_every_name() -> None:
    for given in (nx.arange(3), nx.arange(stop=3), nx.arange(end=3), nx.arange(0, 3), nx.arange(0, end=3, step=1)):
        assert given.tolist() == [0, 1, 2] and given.dtype == nx.int64
    assert nx.arange(5, 0, -2).tolist() == [5, 3, 1] and nx.arange(0, 1, 0.5).tolist() == [0.0, 0.5]
    for points in (nx.linspace(0, 1, 3), nx.linspace(0, 1, num=3), nx.linspace(0, end=1, steps=3)):
        assert points.tolist() == [0.0, 0.5, 1.0]
    assert nx.linspace(0, 1, 2, endpoint=False).tolist() == [0.0, 0.5] and nx.linspace(0, 1, 0).shape == (0,)


def test_axes_come_by_every_name() -> None:
    array = np.arange(6.0).reshape(2, 3)
    x = nx.Tensor(array)
    for given in (nx.concat([x, x], 1), nx.concat([x, x], axis=1), nx.concat([x, x], dim=1), nx.concatenate((x, x), 1)):
        assert given.tolist() == np.concatenate([array, array], 1).tolist()
    for given in (nx.flip(x, 0), nx.flip(x, axis=0), nx.flip(x, dims=[0])):
        assert given.tolist() == np.flip(array, 0).tolist()
    for given in (nx.roll(x, 1, 1), nx.roll(x, 1, axis=1), nx.roll(x, 1, dims=1)):
        assert given.tolist() == np.roll(array, 1, 1).tolist()
    assert nx.repeat(x, 2, 0).tolist() == np.repeat(array, 2, 0).tolist()
    index = nx.tensor([1, 0])
    assert nx.take(x, index, 1).tolist() == np.take(array, [1, 0], 1).tolist()
    places = nx.tensor([[2], [0]])
    assert nx.take_along_axis(x, places, 1).tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("axis", [0, 1, -1, (0,), (0, 1), (0, -1), (-1, 1), (3, 0), ()])
def test_new_axes_are_numpys(axis: int | tuple[int, ...]) -> None:
    array = np.zeros((2, 3))
    expected = np.expand_dims(array, axis).shape
    assert nx.expand_dims(nx.Tensor(array), axis).shape == expected
    assert nx.expand_dims(nx.Tensor(array), axis=axis).shape == expected


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_an_empty_tensor_needs_no_copy(shape: tuple[int, ...]) -> None:
    x = nx.zeros(shape, device="cpu")
    for options in ({"copy": False}, {"copy": False, "max_version": (1, 0)}, {"copy": True}, {}):
        assert x.__dlpack__(**options) is not None
    taken = np.from_dlpack(x)
    assert taken.shape == shape and taken.dtype == np.float32
    assert nx.from_dlpack(np.zeros(shape), copy=False).shape == shape
    assert nx.from_dlpack(x, copy=False) is x


def test_what_must_be_copied_says_so() -> None:
    with pytest.raises(BufferError, match="copy=False"):
        nx.from_dlpack(np.ones(2), copy=False)
    # The caller refuses a copy, so the memory is shared, although a capsule without version cannot say "read-only".
    assert "dltensor" in repr(nx.ones(2, device="cpu").__dlpack__(copy=False))
    x = nx.ones(2, device="cpu")
    assert nx.from_dlpack(x, copy=False) is x and nx.from_dlpack(x) is x
    copied = nx.from_dlpack(x, copy=True)
    assert copied is not x and copied.tolist() == [1.0, 1.0]


def test_strided_arrays_come_in_by_dlpack() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    views = (array, array.T, array[:, ::-1, ::2], array[1, 2, 3:], np.array(5.0), array[:, :1])
    for view in views:
        given = nx.from_dlpack(view)
        assert given.shape == view.shape and given.tolist() == view.tolist()


def test_other_threads_run_while_an_array_comes_in() -> None:
    looks: list[str] = []
    during, ended = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            looks.append("during" if during.is_set() else "before")
            time.sleep(0.0005)

    array = np.ones((4000, 4000)).T
    thread = threading.Thread(target=look)
    thread.start()
    try:
        during.set()
        given = nx.from_dlpack(array)
        during.clear()
    finally:
        ended.set()
        thread.join()
    # The other thread ran during the call, not only once at its beginning or end.
    assert looks.count("during") > 3
    assert given.shape == (4000, 4000)


def test_functions_take_lists_beside_tensors_and_refuse_what_is_no_number() -> None:
    x = nx.ones(2)
    assert nx.add(x, [1.0, 2.0]).tolist() == nx.add([1.0, 2.0], x).tolist() == [2.0, 3.0]
    assert nx.equal([1], [1]).tolist() == [True]
    for function in (nx.add, nx.divide, nx.pow, nx.less, nx.equal, nx.logical_and):
        for wrong in ("a", None, object()):
            with pytest.raises(TypeError):
                function(x, wrong)
