"""A network whose layers see the outputs of all earlier ones."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class Bottleneck(nn.Module):
    def __init__(self, in_planes, growth_rate):
        super(Bottleneck, self).__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, 4 * growth_rate, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth_rate)
        self.conv2 = nn.Conv2d(4 * growth_rate, growth_rate, kernel_size=3, padding=1, bias=False)

    def forward(self, x):
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return torch.cat([out, x], 1)


class Transition(nn.Module):
    def __init__(self, in_planes, out_planes):
        super(Transition, self).__init__()
        self.bn = nn.BatchNorm2d(in_planes)
        self.conv = nn.Conv2d(in_planes, out_planes, kernel_size=1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)


class DenseNet(nn.Module):
    def __init__(self, nblocks, growth_rate=4, reduction=0.5):
        super(DenseNet, self).__init__()
        num_planes = 2 * growth_rate
        self.conv1 = nn.Conv2d(3, num_planes, kernel_size=3, padding=1, bias=False)
        self.dense1 = nn.Sequential(*[Bottleneck(num_planes + i * growth_rate, growth_rate) for i in range(nblocks)])
        num_planes += nblocks * growth_rate
        out_planes = int(math.floor(num_planes * reduction))
        self.trans1 = Transition(num_planes, out_planes)
        self.dense2 = nn.Sequential(*[Bottleneck(out_planes + i * growth_rate, growth_rate) for i in range(nblocks)])
        num_planes = out_planes + nblocks * growth_rate
        self.bn, self.linear = nn.BatchNorm2d(num_planes), nn.Linear(num_planes, 10)

    def forward(self, x):
        out = self.dense2(self.trans1(self.dense1(self.conv1(x))))
        out = F.avg_pool2d(F.relu(self.bn(out)), 4)
        return self.linear(out.view(out.size(0), -1))


def losses():
    net = same_weights(DenseNet(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x, y = numbers(8, 3, 8, 8), numbers(8, low=10)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()
