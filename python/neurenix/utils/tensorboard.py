"""Event files for TensorBoard: :class:`SummaryWriter`. They are written without the ``tensorboard`` package, which
shows them.

>>> import tempfile
>>> from neurenix.utils.tensorboard import SummaryWriter
>>> with SummaryWriter(tempfile.mkdtemp()) as writer:
...     for step in range(3):
...         writer.add_scalar("loss", 1 / (step + 1), step)
"""

from __future__ import annotations

import io
import json
import os
import socket
import time
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._engine import Tensor
from . import _events

__all__ = ["SummaryWriter"]


def _array(values: Any) -> Any:
    """Numbers, tensors, arrays and lists of them as an array."""
    if isinstance(values, Tensor):
        return values.numpy(force=True)
    if isinstance(values, (list, tuple)):
        return np.array([_array(part) for part in values])
    return np.asarray(values)


def _number(name: str, value: Any) -> float:
    array = _array(value)
    if array.size != 1:
        raise ValueError(f"{name}: expected one number, got shape {array.shape}")
    return float(array.reshape(()))


def _pixels(name: str, values: Any, dataformats: str, images: bool) -> Any:
    """Images as bytes ``(height, width, 3 or 4)``; several of them in a grid."""
    array = _array(values)
    wanted = "NCHW" if images else "CHW"
    formats = dataformats.upper()
    if len(set(formats)) != len(formats) or not set("HW") <= set(formats) <= set(wanted) or ("N" in formats) != images:
        raise ValueError(f"{name}: dataformats {dataformats!r} is not an order of {wanted}")
    if array.ndim != len(formats):
        raise ValueError(f"{name}: expected the dimensions {formats}, got shape {array.shape}")
    if "C" not in formats:
        array, formats = array[..., None], f"{formats}C"
    array = array.transpose([formats.index(axis) for axis in ("NHWC" if images else "HWC")])
    if array.dtype != np.uint8:
        array = np.clip(np.nan_to_num(array.astype(np.float64)) * 255, 0, 255).astype(np.uint8)
    if images:
        count, height, width, channels = array.shape
        columns = min(count, 8)
        rows = -(-count // columns)
        grid = np.zeros((rows * columns, height, width, channels), np.uint8)
        grid[:count] = array
        array = grid.reshape(rows, columns, height, width, channels).swapaxes(1, 2).reshape(rows * height, columns * width, channels)
    if array.shape[-1] == 1:
        array = array.repeat(3, -1)
    if array.shape[-1] not in (3, 4):
        raise ValueError(f"{name}: expected 1, 3 or 4 channels, got {array.shape[-1]}")
    return array


class SummaryWriter:
    """Writes scalars, histograms, images, sounds, text and hyperparameters to an event file in the folder ``log_dir``,
    ``runs/DATE_HOST`` with ``comment`` if none is given. Steps from ``purge_step`` on that an earlier file of the folder
    has are hidden. ``max_queue`` has no effect.

    Every value has a tag, a ``global_step``, and the time, unless ``walltime`` gives it in seconds. What is written
    reaches the file after ``flush_secs`` seconds, on ``flush()`` and on ``close()``.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = os.path.join("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self._file = self._opened(self.log_dir)
        self._others: dict[str, _events.EventFile] = {}

    def _opened(self, folder: str) -> _events.EventFile:
        file = _events.EventFile(folder, self.flush_secs, self.filename_suffix)
        if self.purge_step is not None:
            file.write(_events.part(7, _events.integer(1, 1)), self.purge_step, None)
        return file

    def _other(self, name: str) -> _events.EventFile:
        """The file of another run, in a folder inside this one's."""
        folder = os.path.join(self.log_dir, name)
        if folder not in self._others:
            self._others[folder] = self._opened(folder)
        return self._others[folder]

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a number, or a tensor of one element. It is stored as ``float32``; ``new_style`` and
        ``double_precision`` have no effect.
        """
        field = _events.single(2, _number("add_scalar", scalar_value))
        self._file.summary(_events.value(tag, field), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Adds several numbers to one diagram: each is a run of its own, ``log_dir/main_tag_tag``."""
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            file = self._other(f"{main_tag.replace('/', '_')}_{tag}")
            file.summary(_events.value(main_tag, _events.single(2, _number("add_scalars", value))), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds a histogram of values. ``bins`` are limits, a number of bins, one of NumPy's rules such as ``"auto"``,
        or ``"tensorflow"``: limits that grow by 10 %.
        """
        field = _events.part(5, _events.histogram(_array(values), bins, max_bins))
        self._file.summary(_events.value(tag, field), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a histogram from its parts: ``bucket_limits`` are the right limits of the bins."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(f"add_histogram_raw: {len(bucket_limits)} limits for {len(bucket_counts)} counts")
        data = _events.raw_histogram(min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._file.summary(_events.value(tag, _events.part(5, data)), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "CHW"
    ) -> None:
        """Adds an image of 1, 3 or 4 channels: bytes, or numbers from 0 to 1. ``dataformats`` is the order of its
        dimensions: ``"CHW"``, ``"HWC"`` or ``"HW"``.
        """
        field = _events.part(4, _events.image(_pixels("add_image", img_tensor, dataformats, False)))
        self._file.summary(_events.value(tag, field), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "NCHW"
    ) -> None:
        """Adds images as one, in rows of 8."""
        field = _events.part(4, _events.image(_pixels("add_images", img_tensor, dataformats, True)))
        self._file.summary(_events.value(tag, field), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Adds a figure of matplotlib, or a list of figures of one size, and closes them unless ``close=False``."""
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figures = [*figure] if isinstance(figure, (list, tuple)) else [figure]
        drawn = []
        for each in figures:
            canvas: Any = FigureCanvasAgg(each)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[..., :3])
            if close:
                pyplot.close(each)
        if isinstance(figure, (list, tuple)):
            self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, drawn[0], global_step, walltime, "HWC")

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100, walltime: float | None = None
    ) -> None:
        """Adds a sound of one channel: numbers from -1 to 1."""
        samples = np.clip(_array(snd_tensor).astype(np.float64).squeeze(), -1, 1)
        if samples.ndim != 1:
            raise ValueError(f"add_audio: expected one channel, got shape {samples.shape}")
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(sample_rate)
            sound.writeframes((samples * 32767).astype("<i2").tobytes())
        fields = _events.single(1, sample_rate) + _events.integer(2, 1) + _events.integer(3, len(samples))
        fields += _events.part(4, file.getvalue()) + _events.part(5, "audio/wav")
        self._file.summary(_events.value(tag, _events.part(6, fields)), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """Adds text, which TensorBoard reads as Markdown."""
        fields = _events.part(9, _events.metadata("text")), _events.part(8, _events.text([str(text_string)]))
        self._file.summary(_events.value(f"{tag}/text_summary", *fields), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Adds hyperparameters (numbers, text, truth values) and the metrics that they led to, as a run of its own in
        the folder ``run_name``, the time if none is given. ``hparam_domain_discrete`` gives the values that are
        possible.
        """
        file = self._other(str(time.time()) if run_name is None else run_name)
        for tag, content in _hyperparameters(hparam_dict, metric_dict, hparam_domain_discrete or {}):
            file.summary(_events.value(tag, _events.part(9, _events.metadata("hparams", content))), None, None)
        for tag, metric in metric_dict.items():
            file.summary(_events.value(tag, _events.single(2, _number("add_hparams", metric))), global_step, None)
        file.flush()

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """An error: the engine's graphs have no place in TensorBoard's format."""
        raise NotImplementedError("add_graph: TensorBoard's graphs are not written; x.explain() shows the steps of a computation")

    def flush(self) -> None:
        """Writes everything to the files."""
        for file in (self._file, *self._others.values()):
            file.flush()

    def close(self) -> None:
        """Writes everything, and closes the files."""
        for file in (self._file, *self._others.values()):
            file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hyperparameters(
    values: Mapping[str, Any], metrics: Mapping[str, Any], domains: Mapping[str, Sequence[Any]]
) -> list[tuple[str, bytes]]:
    """The three summaries of the hyperparameter plugin, by tag."""
    if unknown := set(domains) - set(values):
        raise ValueError(f"add_hparams: hparam_domain_discrete has {sorted(unknown)}, which is not in hparam_dict")
    if not values or not metrics:
        raise ValueError("add_hparams: expected at least one hyperparameter and one metric")
    infos, session = b"", b""
    for name, given in values.items():
        kind, value = _hyperparameter(name, given)
        domain = b""
        if name in domains:
            domain = _events.part(5, b"".join(_events.part(1, _hyperparameter(name, each)[1]) for each in domains[name]))
        infos += _events.part(4, _events.part(1, name) + _events.integer(4, kind) + domain)
        session += _events.part(1, _events.part(1, name) + _events.part(2, value))
    infos += b"".join(_events.part(5, _events.part(1, _events.part(2, name))) for name in metrics)
    return [
        ("_hparams_/experiment", _events.part(2, infos)),
        ("_hparams_/session_start_info", _events.part(3, session)),
        ("_hparams_/session_end_info", _events.part(4, _events.integer(1, 1))),
    ]


def _hyperparameter(name: str, value: Any) -> tuple[int, bytes]:
    """The type of a hyperparameter, and its value."""
    if isinstance(value, (Tensor, np.generic)):
        value = value.item()
    if isinstance(value, bool):
        return 2, _events.integer(4, value)
    if isinstance(value, (int, float)):
        return 3, _events.double(2, value)
    if isinstance(value, str):
        return 1, _events.part(3, value)
    if value is None or isinstance(value, (list, tuple, dict)):
        return 1, _events.part(3, json.dumps(value, default=str))
    raise TypeError(f"add_hparams: {name} must be a number, text or a truth value, not {type(value).__name__}")
