"""``SummaryWriter``: its files, read by a reader that shares no code with it."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest
from neurenix.torch.utils.tensorboard import SummaryWriter


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32).to_bytes(4, "little")


def fields(message: bytes) -> dict[int, list[Any]]:
    """The values of a message's fields by number."""
    found: dict[int, list[Any]] = {}
    file = io.BytesIO(message)

    def varint() -> int:
        value = shift = 0
        while (byte := file.read(1)[0]) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
        return value | byte << shift

    while file.tell() < len(message):
        key = varint()
        value: Any
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 2:
            length = varint()
            value = file.read(length)
            assert len(value) == length
        else:
            kind, size = {1: ("<d", 8), 5: ("<f", 4)}[key & 7]
            (value,) = struct.unpack(kind, file.read(size))
        found.setdefault(key >> 3, []).append(value)
    return found


def events(folder: Path) -> Iterator[dict[int, list[Any]]]:
    """The events in the only file of a folder."""
    (path,) = folder.glob("events.out.tfevents.*")
    file = io.BytesIO(path.read_bytes())
    while length := file.read(8):
        assert file.read(4) == masked(length)
        data = file.read(struct.unpack("<Q", length)[0])
        assert file.read(4) == masked(data)
        yield fields(data)


def values(folder: Path) -> dict[str, list[tuple[int, dict[int, list[Any]]]]]:
    """The steps and the fields of all values, by tag."""
    found: dict[str, list[tuple[int, dict[int, list[Any]]]]] = {}
    for event in events(folder):
        for summary in event.get(5, []):
            for value in fields(summary)[1]:
                parts = fields(value)
                found.setdefault(parts[1][0].decode(), []).append((event.get(2, [0])[0], parts))
    return found


def pixels(value: dict[int, list[Any]]) -> np.ndarray:
    """The pixels of an image, which is a PNG file without filters."""
    image = fields(value[4][0])
    height, width, channels = (image[field][0] for field in (1, 2, 3))
    png = image[4][0]
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, packed = 8, b""
    while place < len(png):
        length = int.from_bytes(png[place : place + 4], "big")
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        assert zlib.crc32(kind + data) == int.from_bytes(png[place + 8 + length : place + 12 + length], "big")
        if kind == b"IHDR":
            assert data == struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
        packed += data if kind == b"IDAT" else b""
        place += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def test_scalars(tmp_path: Path) -> None:
    assert torch.utils.tensorboard.SummaryWriter is SummaryWriter
    with SummaryWriter(tmp_path, filename_suffix=".end") as writer:
        writer.add_scalar("loss/train", torch.tensor(0.5, requires_grad=True), 3, walltime=12.5)
        writer.add_scalar("loss/train", np.float32(0.25), 2**40)
        writer.add_scalar("none", 1)
        writer.flush()
        assert len([*events(tmp_path)]) == 4
        writer.add_scalars("both", {"a": 1.0, "b": torch.ones(1)}, 5)
        with pytest.raises(ValueError, match="expected one number, got shape"):
            writer.add_scalar("loss", torch.ones(2))
        assert writer.get_logdir() == str(tmp_path)
    first, second, *_ = events(tmp_path)
    assert first[3] == [b"brain.Event:2"] and second[1] == [12.5] and second[2] == [3]
    found = values(tmp_path)
    assert [(step, value[2]) for step, value in found["loss/train"]] == [(3, [0.5]), (2**40, [0.25])]
    assert found["none"][0][0] == 0
    for name in "ab":
        assert [(step, value[2]) for step, value in values(tmp_path / f"both_{name}")["both"]] == [(5, [1.0])]
    with pytest.raises(ValueError, match="the writer is closed"):
        writer.add_scalar("loss", 1.0)


def test_the_module_is_the_first_import_of_a_program() -> None:
    for module in ("neurenix.utils.tensorboard", "neurenix.utils.checkpoint"):
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


def test_the_folder_and_purged_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SummaryWriter(comment="_lr=1", purge_step=7).close()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_lr=1")
    assert [(event.get(2), event.get(7)) for event in events(folder)][1] == ([7], [b"\x08\x01"])


def test_histograms(tmp_path: Path) -> None:
    x = torch.tensor([-2.0, 0.0, 0.5, 0.5, 3.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("default", x, 1)
        writer.add_histogram("limits", x, 1, bins=[-4, -2, 0, 1, 2, 4, 8])
        writer.add_histogram("fewer", np.arange(10), 1, bins=10, max_bins=3)
        writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5, 1], [1, 1], 1)
        for wrong, message in (([], "no values"), ([float("nan")], "infinite or NaN"), ([9.0], "within the bins")):
            with pytest.raises(ValueError, match=message):
                writer.add_histogram("wrong", wrong, bins=[0, 1])

    def parts(tag: str) -> tuple[list[float], list[float], list[float]]:
        field = fields(values(tmp_path)[tag][0][1][5][0])
        return [field[n][0] for n in range(1, 6)], *([*np.frombuffer(field[n][0], "<f8")] for n in (6, 7))

    numbers, limits, counts = parts("default")
    assert numbers == [-2.0, 3.0, 5.0, 2.0, 13.5] and sum(counts) == 5 and counts[0] == 0
    # Each limit is 10 % from the next, and each element lies in its bin.
    limit = np.array(limits)
    assert np.allclose(limit[1:][limit[:-1] > 0] / limit[:-1][limit[:-1] > 0], 1.1)
    assert counts[int(np.searchsorted(limit, 0.5, side="right"))] == 2
    assert parts("limits")[1:] == ([-2, 0, 1, 2, 4], [0, 1, 3, 0, 1])
    assert parts("fewer")[1:] == ([0.0, 2.7, 5.4, 8.1, 9.0], [0, 3, 3, 3, 1])
    assert parts("raw") == ([0, 1, 2, 1, 1], [0.5, 1], [1, 1])


def test_images(tmp_path: Path) -> None:
    image = torch.tensor([[[0.0, 0.5], [1.0, 2.0]]]).repeat(3, 1, 1)
    image[2] = 0
    several = torch.arange(10, dtype=torch.uint8).reshape(10, 1, 1, 1).expand(10, 1, 2, 2)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("image", image, 1)
        writer.add_image("rows", image.permute(1, 2, 0), 1, dataformats="HWC")
        writer.add_image("grey", torch.tensor([[7, 8]], dtype=torch.uint8), 1, dataformats="HW")
        writer.add_image("alpha", torch.ones(4, 1, 1), 1)
        writer.add_images("several", several, 1)
        with pytest.raises(ValueError, match="expected 1, 3 or 4 channels, got 2"):
            writer.add_image("wrong", torch.ones(2, 1, 1))
        with pytest.raises(ValueError, match="is not an order of CHW"):
            writer.add_image("wrong", torch.ones(2, 1, 1), dataformats="NCHW")
    found = values(tmp_path)
    expected = [[[0, 0, 0], [127, 127, 0]], [[255, 255, 0], [255, 255, 0]]]
    assert pixels(found["image"][0][1]).tolist() == expected and pixels(found["rows"][0][1]).tolist() == expected
    assert pixels(found["grey"][0][1]).tolist() == [[[7] * 3, [8] * 3]]
    assert pixels(found["alpha"][0][1]).tolist() == [[[255] * 4]]
    grid = pixels(found["several"][0][1])
    assert grid.shape == (4, 16, 3) and grid[::2, ::2, 0].tolist() == [[*range(8)], [8, 9, 0, 0, 0, 0, 0, 0]]


def test_figures(tmp_path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=50)
    (line,) = axes.plot(torch.arange(3), torch.tensor([1.0, 4.0, 9.0]))
    assert line.get_ydata().tolist() == [1.0, 4.0, 9.0]
    axes.imshow(torch.rand(4, 4))
    axes.hist(torch.randn(20), bins=5)
    axes.scatter(torch.rand(3), torch.rand(3), c=torch.rand(3))
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("figure", figure, 2)
        writer.add_figure("figures", [pyplot.figure(figsize=(1, 1), dpi=20) for _ in range(2)], 2)
    assert not pyplot.get_fignums()
    found = values(tmp_path)
    drawn = pixels(found["figure"][0][1])
    assert drawn.shape == (50, 100, 3) and drawn.min() < 100 and drawn.max() == 255
    assert pixels(found["figures"][0][1]).shape == (20, 40, 3)


def test_text_sound_and_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "é", 3)
        writer.add_audio("sound", torch.tensor([[0.0, 1.0, -2.0]]), 3, sample_rate=8000)
        writer.add_hparams(
            {"lr": 0.1, "name": "adam", "flag": True, "layers": [1, 2]}, {"loss": torch.tensor(0.5)}, {"lr": [0.1, 0.2]}, "run"
        )
        with pytest.raises(TypeError, match="add_hparams: lr must be a number"):
            writer.add_hparams({"lr": object()}, {"loss": 1})
        with pytest.raises(NotImplementedError, match="add_graph"):
            writer.add_graph(torch.nn.Linear(1, 1))
    found = values(tmp_path)
    ((step, text),) = found["note/text_summary"]
    tensor = fields(text[8][0])
    assert step == 3 and tensor[1] == [7] and tensor[8] == ["é".encode()]
    assert fields(fields(text[9][0])[1][0])[1] == [b"text"]
    sound = fields(found["sound"][0][1][6][0])
    assert (sound[1], sound[2], sound[3], sound[5]) == ([8000.0], [1], [3], [b"audio/wav"])
    assert np.frombuffer(sound[4][0][-6:], "<i2").tolist() == [0, 32767, -32767]
    run = values(tmp_path / "run")
    assert run["loss"][0][1][2] == [0.5]

    def content(tag: str) -> dict[int, list[Any]]:
        plugin = fields(fields(run[tag][0][1][9][0])[1][0])
        assert plugin[1] == [b"hparams"]
        return fields(plugin[2][0])

    experiment = fields(content("_hparams_/experiment")[2][0])
    kinds = {fields(info)[1][0]: fields(info)[4][0] for info in experiment[4]}
    assert kinds == {b"lr": 3, b"name": 1, b"flag": 2, b"layers": 1}
    domain = [fields(value)[2][0] for value in fields(fields(experiment[4][0])[5][0])[1]]
    assert domain == [0.1, 0.2] and fields(fields(experiment[5][0])[1][0])[2] == [b"loss"]
    session = {fields(pair)[1][0]: fields(fields(pair)[2][0]) for pair in fields(content("_hparams_/session_start_info")[3][0])[1]}
    assert session == {b"lr": {2: [0.1]}, b"name": {3: [b"adam"]}, b"flag": {4: [1]}, b"layers": {3: [b"[1, 2]"]}}
    assert fields(content("_hparams_/session_end_info")[4][0]) == {1: [1]}


def test_checksums_of_long_records(tmp_path: Path) -> None:
    from neurenix.utils._events import crc32c as fast

    data = np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8).tobytes()
    for length in (0, 1, 255, 256, 257, 511, 512, 3000):
        assert fast(data[:length]) == crc32c(data[:length])
    assert fast(data * 100) == fast(bytes(data * 100)) != fast(data * 99)
    assert nx.utils.tensorboard.SummaryWriter is SummaryWriter
