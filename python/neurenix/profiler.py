"""The profiler with PyTorch's names: ``profile``, ``record_function``, ``schedule``. It records what ``nx.Profiler``
does.

>>> import neurenix as nx
>>> with nx.profiler.profile() as p:
...     with nx.profiler.record_function("product"):
...         nx.evaluate([nx.ones(8, 8) @ nx.ones(8, 8)])
>>> [row.count for row in p.key_averages() if row.key == "product"]
[1]

Rows are the engine's steps and copies, which may be several operations in one, and the labels of ``record_function``. A
label has the host's time of its block: work that is only recorded there is computed later, where a value is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import gzip
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from . import _engine

__all__ = [
    "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """What to record: a hint, since every device is recorded."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The CPU, and CUDA if there is such a device."""
    has_cuda = any(device.type == "cuda" for device in _engine.devices())
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_cuda else [])}


def kineto_available() -> bool:
    """False: the engine has its own profiler."""
    return False


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """The actions of steps: after ``skip_first`` steps, cycles of ``wait`` steps without, ``warmup`` steps before and
    ``active`` steps with recording; ``repeat`` cycles, or without end. With ``skip_first_wait`` the first cycle does
    not wait.

    >>> import neurenix as nx
    >>> action = nx.profiler.schedule(wait=1, warmup=1, active=2)
    >>> [action(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError("schedule: the numbers of steps must not be negative, and active must be greater than 0")
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        place = step - skip_first
        if place < 0:
            return ProfilerAction.NONE
        place += wait if skip_first_wait else 0
        if repeat > 0 and place >= repeat * length:
            return ProfilerAction.NONE
        place %= length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def _shown(microseconds: float, unit: str | None = None) -> str:
    unit = unit or ("us" if microseconds < 1e3 else "ms" if microseconds < 1e6 else "s")
    return f"{microseconds / {'us': 1.0, 'ms': 1e3, 's': 1e6}[unit]:.3f}{unit}"


_TIMES = ("cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_time", "device_time")
_MEMORY = tuple(f"{own}{kind}_memory_usage" for own in ("", "self_") for kind in ("cpu", "device"))
_NO_MEMORY = "the memory of single steps is not recorded: export_chrome_trace shows that of devices over time"


@dataclasses.dataclass
class Row:
    """Steps or copies of one kind on a device, or blocks with one label. Times are in microseconds; with ``_str`` at the
    end of their names they are texts. ``cuda`` in a name means ``device``.
    """

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    self_device_time_total: float = 0.0
    flops: int = 0
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The same as ``key``."""
        return self.key

    @property
    def cpu_time(self) -> float:
        """The mean time on the CPU."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean time on another device."""
        return self.device_time_total / self.count if self.count else 0.0

    def __getattr__(self, name: str) -> Any:
        column = name.replace("cuda", "device").removesuffix("_str")
        if column in _MEMORY:
            raise AttributeError(f"{name}: {_NO_MEMORY}")
        if column not in _TIMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        time: float = getattr(self, column)
        return _shown(time) if name.endswith("_str") else time


@dataclasses.dataclass(frozen=True)
class Interval:
    """Times in microseconds since the recording began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """The time between both."""
        return self.end - self.start


@dataclasses.dataclass
class Event(Row):
    """One step, copy or block with a label, and when it ran."""

    time_range: Interval = Interval(0.0, 0.0)


class Rows(list[Row]):
    """Rows, which ``table`` writes as a text."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all steps on the CPU, in microseconds."""
        return sum(row.self_cpu_time_total for row in self)

    def total_average(self) -> Row:
        """One row with the sums of all."""
        names = [field.name for field in dataclasses.fields(Row) if field.name not in ("key", "device")]
        sums: dict[str, Any] = {name: sum(getattr(row, name) for row in self) for name in names}
        return Row("Total", **sums)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The rows as a text, greatest first in the column ``sort_by``: ``cpu_time_total``, ``device_time_total``,
        their forms with ``self_``, ``cpu_time``, ``device_time``, ``count`` or ``flops`` (``cuda`` means ``device``).
        The memory of steps is not recorded: the text says so if it is asked to sort by it, and has the rows in order.
        ``time_unit`` is ``"us"``, ``"ms"`` or ``"s"``; the widths of other columns have no effect.
        """
        rows: list[Row] = list(self)
        note = None
        if sort_by is not None:
            column = sort_by.replace("cuda", "device").replace("xpu", "device")
            if column in _MEMORY:
                note = f"Not sorted by {sort_by}: {_NO_MEMORY}"
            elif column in (*_TIMES, "count", "flops"):
                rows.sort(key=lambda row: getattr(row, column), reverse=True)
            else:
                raise ValueError(f"table: there is no column {sort_by!r} to sort by")
        if time_unit not in (None, "us", "ms", "s"):
            raise ValueError(f"table: time_unit is {time_unit!r}, it must be 'us', 'ms' or 's'")

        def shown(microseconds: float) -> str:
            return _shown(microseconds, time_unit)

        lines = [["Name", "Device", "Self CPU", "CPU total", "CPU time avg", "Device total", "# of Calls"]]
        for row in rows[:row_limit]:
            name = row.key if len(row.key) <= max_name_column_width else f"{row.key[: max_name_column_width - 3]}..."
            times = row.self_cpu_time_total, row.cpu_time_total, row.cpu_time, row.device_time_total
            lines.append([name, row.device, *map(shown, times), str(row.count)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        texts.insert(1, "  ".join("-" * width for width in widths))
        total = f"Self CPU time total: {shown(self.self_cpu_time_total)}"
        return "\n".join([*([header] if header else []), *texts, total, *([note] if note else []), ""])


@dataclasses.dataclass(frozen=True)
class _Label:
    """A block of ``record_function``, with the times of ``perf_counter_ns``."""

    name: str
    start: int
    end: int
    thread: int


class Recorded:
    """What a profiler of PyTorch's names records: the engine's profile and the labels of blocks."""

    def __init__(self) -> None:
        self._running: _engine.Profiler | None = None
        self._labels: list[_Label] = []
        self._begun = 0
        self._done: list[tuple[_engine.Profiler, int, list[_Label]]] = []

    def _begin(self) -> None:
        global _active
        running = _engine.Profiler()
        running.__enter__()
        # The engine's clock has begun at the end of the call.
        self._begun = time.perf_counter_ns()
        self._labels, self._running, _active = [], running, self

    def _end(self) -> None:
        global _active
        if self._running is not None:
            running, self._running, _active = self._running, None, None
            running.__exit__(None, None, None)
            self._done.append((running, self._begun, self._labels))

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Rows:
        """The steps, copies and labels that were recorded, by kind. The arguments are hints without effect: names of
        steps contain their shapes.
        """
        found: dict[tuple[str, str], Row] = {}

        def row_of(name: str, device: str) -> Row:
            return found.setdefault((name, device), Row(name, device=device))

        for profiler, _, labels in self._done:
            for label in labels:
                row = row_of(label.name, "label")
                row.count += 1
                row.cpu_time_total += (label.end - label.start) / 1e3
            for each in profiler.rows():
                row = row_of(each["name"], each["device"])
                row.count += each["count"]
                row.flops += each["operations"]
                kind = "cpu" if each["device"] == "cpu" else "device"
                for name in (f"{kind}_time_total", f"self_{kind}_time_total"):
                    setattr(row, name, getattr(row, name) + each["time"] * 1e6)
        return Rows(found.values())

    def events(self) -> Rows:
        """The single steps, copies and labels that were recorded, each an ``Event`` with its ``time_range``, in the
        order in which they began.
        """
        if not self._done:
            raise RuntimeError("events: nothing has been recorded: end the profiler's block first")
        found: list[Event] = []
        for profiler, begun, labels in self._done:
            for label in labels:
                span = Interval((label.start - begun) / 1e3, (label.end - begun) / 1e3)
                found.append(Event(label.name, 1, span.elapsed_us(), device="label", time_range=span))
            trace = json.loads(profiler.chrome_trace())["traceEvents"]
            names = {each["pid"]: each["args"]["name"] for each in trace if each["name"] == "process_name"}
            for each in trace:
                # The host's work, such as planning, is not a step.
                if each["ph"] == "X" and names[each["pid"]] != "host":
                    device, time = names[each["pid"]], each["dur"]
                    event = Event(each["name"], 1, flops=each["args"].get("operations", 0), device=device)
                    event.time_range = Interval(each["ts"], each["ts"] + time)
                    kind = "cpu" if device == "cpu" else "device"
                    for name in (f"{kind}_time_total", f"self_{kind}_time_total"):
                        setattr(event, name, time)
                    found.append(event)
        return Rows(sorted(found, key=lambda event: event.time_range.start))

    def export_chrome_trace(self, path: str) -> None:
        """Writes the timeline of the last recording in Chrome's trace format, which Perfetto opens; compressed, if the
        path ends with ``.gz``. Labels are a process of their own.
        """
        if not self._done:
            raise RuntimeError("export_chrome_trace: nothing has been recorded: end the profiler's block first")
        profiler, begun, labels = self._done[-1]
        trace = json.loads(profiler.chrome_trace())
        threads = {label.thread: number for number, label in enumerate(labels)}
        if labels:
            trace["traceEvents"].append({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "labels"}})
        for label in labels:
            times = {"ts": (label.start - begun) / 1e3, "dur": (label.end - label.start) / 1e3}
            trace["traceEvents"].append({"ph": "X", "name": label.name, "pid": 0, "tid": threads[label.thread], **times, "args": {}})
        opened: Any = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "wt") as file:
            json.dump(trace, file)


_active: Recorded | None = None
"""The profiler that is recording: a process has one at a time."""


class record_function(contextlib.ContextDecorator):
    """A context manager, or a decorator of functions, that gives a block of a program a name in the profile."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._starts: list[int] = []

    def _recreate_cm(self) -> record_function:
        return record_function(self.name)

    def __enter__(self) -> record_function:
        self._starts.append(time.perf_counter_ns())
        return self

    def __exit__(self, *error: object) -> None:
        label = _Label(self.name, self._starts.pop(), time.perf_counter_ns(), threading.get_ident())
        profiler = _active
        # Blocks that began before the recording are not part of it.
        if profiler is not None and label.start >= profiler._begun:
            profiler._labels.append(label)


class profile(Recorded):
    """A context manager that records what runs on every device.

    Args:
        schedule: which steps are recorded, as a function from the number of a step to a ``ProfilerAction``; ``step()``
            begins the next one. Without it, all are. Steps of warm-up are not recorded.
        on_trace_ready: called with the profiler after each recording.
        acc_events: whether ``key_averages`` has all recordings, or only the last one.

    ``activities``, ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_flops`` and ``with_modules`` are hints
    without effect: all devices are recorded, names contain shapes, and the trace shows the memory.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
    ) -> None:
        super().__init__()
        if experimental_config is not None or execution_trace_observer is not None:
            raise NotImplementedError("profile: experimental_config and execution_trace_observer are not supported")
        self._schedule, self._ready, self._accumulates = schedule, on_trace_ready, acc_events
        self.step_num = 0
        self.current_action = ProfilerAction.NONE

    def _chosen(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else self._schedule(self.step_num)

    def _finish(self) -> None:
        if not self._accumulates:
            self._done.clear()
        self._end()
        if self._ready is not None:
            self._ready(self)

    def start(self) -> None:
        """Begins as the ``with`` block does."""
        self.current_action = self._chosen()
        if self.current_action in _RECORDS:
            self._begin()

    def stop(self) -> None:
        """Ends as the ``with`` block does."""
        if self._running is not None:
            self._finish()
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Begins the next step of the schedule."""
        before = self.current_action
        self.step_num += 1
        self.current_action = self._chosen()
        if before is ProfilerAction.RECORD and self.current_action not in _RECORDS:
            warnings.warn("profile: the schedule ends a recording without RECORD_AND_SAVE", UserWarning, stacklevel=2)
        if self._running is not None and (before is ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDS):
            self._finish()
        if self._running is None and self.current_action in _RECORDS:
            self._begin()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Recorded], None]:
    """A function for ``on_trace_ready`` that writes each trace to a file in a folder."""

    def write(profiler: Recorded) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".gz" if use_gzip else ""
        profiler.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json{ending}"))

    return write
