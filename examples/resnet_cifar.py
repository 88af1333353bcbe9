"""Trains a residual network (He et al., 2015) on CIFAR-10.

    python examples/resnet_cifar.py FOLDER --device cuda:0 --epochs 20

FOLDER contains the binary version of CIFAR-10 (www.cs.toronto.edu/~kriz/cifar.html, "CIFAR-10 binary version", unpacked).
With --synthetic N instead of a folder, it learns to tell N generated images of coloured gradients apart, which shows that
everything works. On a GPU, convolutions are computed in bfloat16 unless --precision says otherwise. Prints the loss, the
accuracy on the test set, images per second and memory, and draws the curves to resnet_cifar.png.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from neurenix import nn, optim

Images = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def read(folder: Path, names: list[str]) -> Images:
    """Images (N, 3, 32, 32) and labels (N) of files whose records are a label and 3,072 bytes."""
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ValueError(f"{folder} must contain the binary version of CIFAR-10, and has no {', '.join(missing)}")
    contents = [np.fromfile(folder / name, np.uint8) for name in names]
    for name, content in zip(names, contents):
        if content.size % 3073 or not content.size or content[::3073].max() > 9:
            raise ValueError(f"{folder / name} is not a file of CIFAR-10 (binary version), or it is incomplete")
    records = np.concatenate(contents).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def synthetic(count: int) -> Images:
    """Images of two noisy gradients, in one of ten pairs of colour and direction, which is the label."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 10, count)
    ramp = np.linspace(0, 160, 32)
    images = generator.integers(0, 96, (count, 3, 32, 32)).astype(np.float64)
    for image, label in zip(images, labels):
        image[label % 3] += ramp[:, None] if label < 5 else ramp[None, :]
        image[(label + 1 + label // 3 % 2) % 3] += 48
    return images.clip(0, 255).astype(np.uint8), labels


class Block(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.shortcut is None else self.shortcut(x))).relu()


def network(width: int, blocks: int) -> nn.Module:
    """Three stages of blocks; each halves the image and doubles the channels."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            layers.append(Block(channels, width << stage, 2 if block == 0 and stage > 0 else 1))
            channels = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def normalised(pixels: nx.Tensor) -> nx.Tensor:
    """Bytes as numbers of about mean 0 and variance 1."""
    return (pixels.float() - 120.0) / 64.0


def augmented(pixels: nx.Tensor) -> nx.Tensor:
    """The images of a batch, each shifted by up to four pixels and perhaps mirrored."""
    count, place = pixels.shape[0], nx.arange(32)
    down = nx.randint(0, 9, (count, 1)) + place
    across = nx.randint(0, 9, (count, 1)) + nx.where(nx.rand(count, 1) < 0.5, place, 31 - place)
    image, channel = nx.arange(count).reshape(-1, 1, 1, 1), nx.arange(3).reshape(-1, 1, 1)
    return pixels.pad((4, 4, 4, 4))[image, channel, down.reshape(-1, 1, 32, 1), across.reshape(-1, 1, 1, 32)]


def low(precision: str) -> Any:
    return contextlib.nullcontext() if precision == "float32" else nx.autocast(dtype=precision)


def positive(text: str) -> int:
    """A number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def accuracy(model: nn.Module, images: nx.Tensor, labels: nx.Tensor, batch: int, precision: str) -> float:
    model.eval()
    right = 0
    with nx.no_grad(), low(precision):
        for at in range(0, len(labels), batch):
            scores = model(normalised(images[at : at + batch]))
            right += (scores.argmax(1) == labels[at : at + batch]).sum().item()
    model.train()
    return right / len(labels)


def train(arguments: argparse.Namespace) -> float:
    """Trains a network and returns its accuracy on the test set."""
    if not arguments.curve.absolute().parent.is_dir():
        raise ValueError(f"--curve: there is no folder {arguments.curve.absolute().parent}")
    device = nx.Device(arguments.device) if arguments.device else nx.get_default_device()
    nx.set_default_device(device)
    nx.manual_seed(arguments.seed)
    if arguments.synthetic:
        if arguments.synthetic < 5:
            raise ValueError("--synthetic needs at least 5 images, of which a fifth is the test set")
        images, labels = synthetic(arguments.synthetic)
        held = len(labels) // 5
        training, test = (images[held:], labels[held:]), (images[:held], labels[:held])
    else:
        training = read(arguments.folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
        test = read(arguments.folder, ["test_batch.bin"])
    inputs, targets, test_inputs, test_targets = (nx.tensor(each) for each in (*training, *test))
    steps, batch = len(targets) // arguments.batch, arguments.batch
    if steps == 0:
        raise ValueError(f"{len(targets)} training images do not fill a batch of {batch}: use a smaller --batch")
    precision = arguments.precision or ("float32" if device.name == "cpu" else "bfloat16")
    model = network(arguments.width, arguments.blocks)
    optimizer = optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    most, total_steps = arguments.learning_rate, steps * arguments.epochs
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, most, total_steps=total_steps, cycle_momentum=False)
    history, found = nx.data.History(), 0.0
    for epoch in range(arguments.epochs):
        begun, total = time.perf_counter(), nx.zeros(())
        order = nx.randperm(len(targets))
        for step in nx.data.progress(range(steps), f"epoch {epoch + 1}"):
            chosen = order[step * batch : (step + 1) * batch]
            with low(precision):
                scores = model(normalised(augmented(inputs[chosen])))
                loss = nn.functional.cross_entropy(scores, targets[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total = (total + loss.detach()).evaluate()
        mean = total.item() / steps
        rate = steps * batch / (time.perf_counter() - begun)
        found = accuracy(model, test_inputs, test_targets, batch, precision)
        history.record(loss=mean, accuracy=found)
        peak = device.memory()["peak"] / 1e6
        line = f"epoch {epoch + 1}: loss {mean:.3f}, accuracy {found:.1%}, {rate:,.0f} images/s, at most {peak:,.0f} MB"
        print(line, file=sys.stderr)
    history.plot(arguments.curve)
    print(f"the curves are in {arguments.curve}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="the binary version of CIFAR-10")
    parser.add_argument("--synthetic", type=int, default=0, metavar="N", help="learn from N generated images")
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: the first accelerator, else cpu)")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of convolutions")
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--batch", type=positive, default=128)
    parser.add_argument("--width", type=positive, default=32, help="channels of the first stage")
    parser.add_argument("--blocks", type=positive, default=2, help="blocks of a stage")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--curve", type=Path, default=Path("resnet_cifar.png"))
    arguments = parser.parse_args()
    if bool(arguments.folder) == bool(arguments.synthetic):
        parser.error("name either the folder of CIFAR-10 or --synthetic N")
    try:
        print(f"accuracy on the test set: {train(arguments):.1%}")
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        sys.exit(f"resnet_cifar: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
