"""Training steps of convolutional networks for images of 3 x 32 x 32, written for PyTorch.

Each function builds a network; ``step`` returns a function that trains it once on a fixed batch. ``programs.py``
measures them with both libraries.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32


def convolve(channels, outputs, kernel, stride=1, groups=1):
    """A convolution without a bias, and its batch normalization."""
    convolution = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def head(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


class Residual(nn.Module):
    """The sum of a branch and its input, or a projection of it, and then ReLU."""

    def __init__(self, branch, shortcut=()):
        super().__init__()
        self.branch, self.shortcut = nn.Sequential(*branch), nn.Sequential(*shortcut)

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x))


class Skip(nn.Module):
    """The sum of a branch and its input."""

    def __init__(self, branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x):
        return x + self.branch(x)


def vgg_11():
    layers, channels = [], 3
    for outputs in [64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"]:
        if outputs == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [*convolve(channels, outputs, 3), nn.ReLU()]
            channels = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def resnet_18():
    layers, channels = [*convolve(3, 64, 3), nn.ReLU()], 64
    for outputs, first in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        for stride in [first, 1]:
            branch = [*convolve(channels, outputs, 3, stride), nn.ReLU(), *convolve(outputs, outputs, 3)]
            changes = stride != 1 or channels != outputs
            layers.append(Residual(branch, convolve(channels, outputs, 1, stride) if changes else ()))
            channels = outputs
    return nn.Sequential(*layers, *head(512))


def resnext():
    """One block of ResNeXt-29 (32 groups of 4 channels) for each size of image."""
    layers, channels = [*convolve(3, 64, 3), nn.ReLU()], 64
    for width, stride in [(128, 1), (256, 2), (512, 2)]:
        branch = [*convolve(channels, width, 1), nn.ReLU(), *convolve(width, width, 3, stride, 32), nn.ReLU()]
        layers.append(Residual([*branch, *convolve(width, 2 * width, 1)], convolve(channels, 2 * width, 1, stride)))
        channels = 2 * width
    return nn.Sequential(*layers, *head(channels))


def mobilenet_v1():
    layers, channels = [*convolve(3, 32, 3), nn.ReLU()], 32
    sizes = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for outputs, stride in sizes:
        layers += [*convolve(channels, channels, 3, stride, channels), nn.ReLU()]
        layers += [*convolve(channels, outputs, 1), nn.ReLU()]
        channels = outputs
    return nn.Sequential(*layers, *head(channels))


def mobilenet_v2():
    layers, channels = [*convolve(3, 32, 3), nn.ReLU6()], 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outputs, count, first in stages:
        for index in range(count):
            stride, width = first if index == 0 else 1, channels * expansion
            block = [*convolve(channels, width, 1), nn.ReLU6(), *convolve(width, width, 3, stride, width), nn.ReLU6()]
            block += convolve(width, outputs, 1)
            layers += [Skip(block)] if stride == 1 and channels == outputs else block
            channels = outputs
    return nn.Sequential(*layers, *convolve(channels, 1280, 1), nn.ReLU6(), *head(1280))


class Dense(nn.Module):
    """A dense layer: its outputs and its inputs."""

    def __init__(self, channels, growth):
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(4 * growth)
        self.squeeze = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.grow = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.squeeze(F.relu(self.first(x)))
        return torch.cat([self.grow(F.relu(self.second(y))), x], 1)


def densenet_bc():
    """A DenseNet-BC of growth 12 with the dense blocks of DenseNet-121 for CIFAR, a third as deep."""
    layers, channels, growth = [nn.Conv2d(3, 24, 3, padding=1, bias=False)], 24, 12
    for place, count in enumerate([2, 4, 8, 5]):
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
        if place < 3:
            norm = [nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [*norm, nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *head(channels))


class Excitation(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels, squeezed):
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        y = F.silu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        return x * self.excite(y).sigmoid()


def efficientnet_b0():
    """The first block of each stage of EfficientNet-B0 for CIFAR."""
    layers, channels = [*convolve(3, 32, 3), nn.SiLU()], 32
    stages = [(1, 16, 3, 1), (6, 24, 3, 2), (6, 40, 5, 2), (6, 80, 3, 2), (6, 112, 5, 1), (6, 192, 5, 2), (6, 320, 3, 1)]
    for expansion, outputs, kernel, stride in stages:
        width = channels * expansion
        layers += [*convolve(channels, width, 1), nn.SiLU()] if expansion > 1 else []
        layers += [*convolve(width, width, kernel, stride, width), nn.SiLU(), Excitation(width, channels // 4)]
        layers += convolve(width, outputs, 1)
        channels = outputs
    return nn.Sequential(*layers, *head(channels))


class Shuffle(nn.Module):
    """Interleaves the channels of groups."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        n, c, h, w = x.size()
        return x.view(n, self.groups, c // self.groups, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)


def shufflenet():
    """Two blocks of ShuffleNet (3 groups) for each size of image."""
    layers, channels = [*convolve(3, 24, 1), nn.ReLU()], 24
    for outputs in [240, 480, 960]:
        for stride in [2, 1]:
            width, groups = outputs // 4, 1 if channels == 24 else 3
            branch = [*convolve(channels, width, 1, groups=groups), nn.ReLU(), Shuffle(groups)]
            branch += convolve(width, width, 3, stride, width) + convolve(width, outputs, 1, groups=3)
            layers.append(Residual(branch) if stride == 1 else nn.Sequential(*branch, nn.ReLU()))
            channels = outputs
    return nn.Sequential(*layers, *head(channels))


def step(network):
    """A function that trains the network once with SGD and reads the loss."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def train():
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return train
