"""NVIDIA GPUs: ``torch.cuda``. Work on a device runs in one queue, so streams and events only mark places in it."""

from __future__ import annotations

import time
from typing import Any

import neurenix as nx

from .. import _engine
from .._config import DeviceContext
from .._engine_methods import KINDS as _KINDS
from ._missing import message as _message

OutOfMemoryError = MemoryError
"""What is raised if a GPU or the system has no memory left."""
_chosen = 0


def __getattr__(name: str) -> Any:
    if name == "amp":
        from . import _cuda_amp

        return _cuda_amp
    kind = name.removesuffix("Tensor")
    if kind != name and kind in _KINDS:
        from ._types import typed

        return typed(kind, _KINDS[kind], "cuda")
    raise AttributeError(_message(f"torch.cuda.{name}"))


def _all() -> list[_engine.Device]:
    return [device for device in nx.devices() if device.type == "cuda"]


def is_available() -> bool:
    """Whether there is an NVIDIA GPU."""
    return bool(_all())


def is_initialized() -> bool:
    """Whether there is an NVIDIA GPU: the first use of a device opens it."""
    return is_available()


def init() -> None:
    """Opens the devices."""
    _all()


def device_count() -> int:
    """The number of NVIDIA GPUs."""
    return len(_all())


def current_device() -> int:
    """The index of the GPU that functions of this module mean if none is given."""
    return _chosen


def set_device(device: Any) -> None:
    """Chooses the GPU that functions of this module mean if none is given."""
    global _chosen
    _chosen = _one(device).index


def _one(device: Any = None) -> _engine.Device:
    """The GPU that is meant by a device, a name or an index."""
    if device is None:
        device = _chosen
    return _engine.Device(f"cuda:{device}" if isinstance(device, int) else device)


class device(DeviceContext):
    """A context manager within which new tensors are on a GPU."""

    def __init__(self, device: Any) -> None:
        super().__init__(_one(device))


def get_device_name(device: Any = None) -> str:
    """The model of a GPU."""
    return str(_one(device).info.get("model", _one(device).name))


class _Properties:
    def __init__(self, device: _engine.Device) -> None:
        info = device.info
        self.name = info.get("model", device.name)
        self.total_memory = info.get("total_memory", 0)
        self.multi_processor_count = info.get("compute_units", 0)
        self.major, self.minor = get_device_capability(device)


def get_device_properties(device: Any = None) -> _Properties:
    """The name, memory in bytes, multiprocessors and compute capability of a GPU."""
    return _Properties(_one(device))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU."""
    for feature in _one(device).info["features"]:
        digits = feature.removeprefix("sm_").rstrip("af")
        if feature.startswith("sm_") and digits.isdigit():
            return int(digits[:-1]), int(digits[-1])
    raise RuntimeError(f"{_one(device)} does not report its compute capability")


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes bfloat16: all do here."""
    return is_available()


def synchronize(device: Any = None) -> None:
    """Waits until all work submitted to a GPU has finished."""
    _one(device).synchronize()


def memory_allocated(device: Any = None) -> int:
    """The memory that tensors take, in bytes."""
    return int(_one(device).memory()["allocated"])


def max_memory_allocated(device: Any = None) -> int:
    """The most memory that tensors have taken, in bytes."""
    return int(_one(device).memory()["peak"])


def memory_reserved(device: Any = None) -> int:
    """The memory that is taken from the system, in bytes."""
    return int(_one(device).memory()["reserved"])


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets :func:`max_memory_allocated` begin again."""
    _one(device).reset_peak_memory()


reset_max_memory_allocated = reset_peak_memory_stats


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The free and the total memory, in bytes."""
    memory = _one(device).memory()
    return int(memory["available"]), int(memory["total"])


def empty_cache() -> None:
    """Returns memory that no tensor uses to the system."""
    for device in _all():
        device.empty_cache()


def manual_seed(seed: int) -> None:
    """Sets the seed of the random numbers: all devices draw the same."""
    nx.manual_seed(seed)


manual_seed_all = manual_seed


class Stream:
    """A place in the queue of a GPU: everything runs in the order in which it was submitted."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device = _one(device)

    def synchronize(self) -> None:
        """Waits until all work submitted to the GPU has finished."""
        self.device.synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Nothing is to be done: the queue keeps its order."""

    def wait_event(self, event: Event) -> None:
        """Nothing is to be done: the queue keeps its order."""

    def record_event(self, event: Event | None = None) -> Event:
        """Marks this place of the queue."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def stream(stream: Stream) -> Stream:
    """A context manager that changes nothing: there is one queue."""
    return stream


def current_stream(device: Any = None) -> Stream:
    """The queue of a GPU."""
    return Stream(device)


default_stream = current_stream


class Event:
    """A point in time: :meth:`record` waits for the GPU, so that differences are those of finished work."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Waits for the work so far, and notes the time."""
        (current_stream() if stream is None else stream).synchronize()
        self._time = time.perf_counter()

    def query(self) -> bool:
        """True: a recorded event has happened."""
        return True

    def synchronize(self) -> None:
        """Nothing is to be done: a recorded event has happened."""

    def elapsed_time(self, end_event: Event) -> float:
        """The time to another event, in milliseconds."""
        if self._time is None or end_event._time is None:
            raise RuntimeError("Event.elapsed_time: both events must be recorded")
        return (end_event._time - self._time) * 1000
