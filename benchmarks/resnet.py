"""A training step of ResNet-50, ours and PyTorch's (eager and torch.compile, channels last) in one run.

Images of 3 x 224 x 224, SGD with momentum, bfloat16 autocast, random weights and images. The step ends with the update;
the loss is read after eight steps. Ours is measured before and after PyTorch's, each after three steps, the first of
which is reported by itself. Peak memory is what each one's allocator has handed out.

Usage: python benchmarks/resnet.py [DEVICE] [BATCH]
"""

import sys

import torch
from timing import device_argument, training

import neurenix as nx


def resnet50(nn):
    """The network with the modules of this library: torch.nn or neurenix.nn."""

    class Bottleneck(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.shortcut = None
            if stride != 1 or channels != 4 * width:
                projection = nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

        def forward(self, x):
            relu = nn.functional.relu
            y = relu(self.bn1(self.conv1(x)))
            y = relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return relu(y + (x if self.shortcut is None else self.shortcut(x)))

    blocks, channels = [], 64
    for stage, count in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(count):
            blocks.append(Bottleneck(channels, width, 2 if block == 0 and stage > 0 else 1))
            channels = 4 * width
    stem = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, stride=2, padding=1), *blocks, *pooled)


def ours(device, batch):
    nx.set_default_device(device)
    model = resnet50(nx.nn)
    optimizer = nx.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = nx.randn((batch, 3, 224, 224)).evaluate()
    labels = nx.randint(0, 1000, (batch,)).evaluate()

    def step():
        with nx.autocast("cuda", dtype=nx.bfloat16):
            loss = nx.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training("ours", batch, step, nx.synchronize, lambda: nx.Device(device).memory()["peak"])
    nx.Device(device).empty_cache()


def theirs(name, batch, transform):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.backends.cudnn.benchmark = True
    model = resnet50(torch.nn).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn((batch, 3, 224, 224), device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    function = transform(model)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(function(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training(name, batch, step, torch.cuda.synchronize, torch.cuda.max_memory_allocated)


def main():
    device = device_argument()
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    print(f"PyTorch {torch.__version__}, {device}, batch {batch}\n")
    print("| ResNet-50 | step, ms | images/s | peak memory, GB | first step, s |")
    print("|---|---:|---:|---:|---:|", flush=True)
    ours(device, batch)
    theirs("PyTorch eager", batch, lambda model: model)
    theirs("PyTorch compiled", batch, torch.compile)
    ours(device, batch)


if __name__ == "__main__":
    main()
