"""Curves drawn as a PNG image with NumPy alone."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_WIDTH, _HEIGHT = 520, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 46, 46
_COLORS = ((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189), (140, 86, 75))
_DARK, _LIGHT = (60, 60, 60), (225, 225, 225)
# Letters of 3 by 5 points: a digit of base 8 for each row.
_FONT = dict(
    pair.split("=")
    for pair in (
        "0=75557 1=26227 2=71747 3=71717 4=55711 5=74717 6=74757 7=71111 8=75757 9=75717 A=25755 B=65656 C=34443 "
        "D=65556 E=74647 F=74644 G=34553 H=55755 I=72227 J=11152 K=55655 L=44447 M=57755 N=65555 O=25552 P=65644 "
        "Q=25563 R=65655 S=34216 T=72222 U=55557 V=55552 W=55775 X=55255 Y=55222 Z=71247 .=00002 -=00700 +=02720 "
        "_=00007 /=11244 %=51245 (=12221 )=42224 :=02020"
    ).split()
)
_SCALE = 2


def _text_width(text: str) -> int:
    return 4 * _SCALE * len(text) - _SCALE


def _write(image: Any, text: str, x: int, y: int) -> None:
    """Text with its upper left corner at a point."""
    for number, letter in enumerate(text.upper()):
        for row, bits in enumerate(_FONT.get(letter, "00000")):
            for column in range(3):
                if int(bits) >> (2 - column) & 1:
                    top, left = y + row * _SCALE, x + (4 * number + column) * _SCALE
                    image[max(top, 0) : top + _SCALE, max(left, 0) : left + _SCALE] = _DARK


def _line(image: Any, start: tuple[float, float], end: tuple[float, float], color: Sequence[int]) -> None:
    """A line two pixels wide with smooth edges."""
    (x0, y0), (x1, y1) = start, end
    left, right = math.floor(min(x0, x1)) - 2, math.ceil(max(x0, x1)) + 3
    top, bottom = math.floor(min(y0, y1)) - 2, math.ceil(max(y0, y1)) + 3
    ys, xs = np.mgrid[top:bottom, left:right]
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((xs - x0) * dx + (ys - y0) * dy) / max(dx * dx + dy * dy, 1e-12), 0.0, 1.0)
    distance = np.hypot(xs - x0 - along * dx, ys - y0 - along * dy)
    share = np.clip(1.5 - distance, 0.0, 1.0)[..., None]
    part = image[top:bottom, left:right]
    part[:] = part * (1.0 - share) + np.array(color) * share


def _ticks(low: float, high: float, whole: bool) -> list[float]:
    """About five round numbers from ``low`` to ``high``."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= 6)
    step = max(step, 1.0) if whole else step
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _panel(curves: Mapping[str, Sequence[float]], title: str) -> Any:
    image = np.full((_HEIGHT, _WIDTH, 3), 255.0)
    values = [value for curve in curves.values() for value in curve if math.isfinite(value)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - room, high + room
    last = max(max(len(curve) for curve in curves.values()), 2)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(epoch: float, value: float) -> tuple[float, float]:
        x = _LEFT + (epoch - 1) / (last - 1) * (right - _LEFT)
        return x, bottom - (value - low) / (high - low) * (bottom - _TOP)

    for tick in _ticks(low, high, False):
        y = round(place(1, tick)[1])
        image[y, _LEFT:right] = _LIGHT
        label = f"{tick:.4g}" if abs(tick) > (high - low) * 1e-6 else "0"
        _write(image, label, _LEFT - 8 - _text_width(label), y - 2 * _SCALE)
    for tick in _ticks(1, last, True):
        x = round(place(tick, low)[0])
        image[_TOP:bottom, x] = _LIGHT
        label = f"{tick:.0f}"
        _write(image, label, x - _text_width(label) // 2, bottom + 8)
    image[_TOP : bottom + 1, _LEFT] = _DARK
    image[bottom, _LEFT : right + 1] = _DARK
    _write(image, title, _LEFT, 10)
    _write(image, "epoch", (_LEFT + right - _text_width("epoch")) // 2, bottom + 26)
    x = _LEFT
    for number, (name, curve) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        points = [place(epoch, value) for epoch, value in enumerate(curve, 1)]
        # A value that is not finite leaves a gap; one between gaps is a dot.
        drawn = [math.isfinite(value) for value in curve]
        for i in range(len(curve)):
            if drawn[i]:
                follows = i + 1 < len(curve) and drawn[i + 1]
                _line(image, points[i], points[i + 1] if follows else points[i], color)
        _line(image, (x, 32), (x + 18, 32), color)
        _write(image, name, x + 26, 32 - 2 * _SCALE)
        x += 44 + _text_width(name)
    return image


def png(panels: Sequence[tuple[str, Mapping[str, Sequence[float]]]]) -> bytes:
    """Panels side by side, as the bytes of a PNG file."""
    pixels = np.concatenate([_panel(curves, title) for title, curves in panels], axis=1)
    pixels = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    height, width, _ = pixels.shape
    # Each row begins with the number of its filter: 0, none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    image = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + image
