"""Blocks with squeeze and excitation, and swish, as in EfficientNet."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


def swish(x):
    return x * x.sigmoid()


class SE(nn.Module):
    def __init__(self, in_channels, se_channels):
        super(SE, self).__init__()
        self.se1 = nn.Conv2d(in_channels, se_channels, kernel_size=1, bias=True)
        self.se2 = nn.Conv2d(se_channels, in_channels, kernel_size=1, bias=True)

    def forward(self, x):
        out = F.adaptive_avg_pool2d(x, (1, 1))
        out = swish(self.se1(out))
        return x * self.se2(out).sigmoid()


class Block(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, expand_ratio=2):
        super(Block, self).__init__()
        channels = expand_ratio * in_channels
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size, stride, (1 if kernel_size == 3 else 2), groups=channels, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = SE(channels, int(in_channels * 0.25))
        self.conv3 = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.has_skip = (stride == 1) and (in_channels == out_channels)

    def forward(self, x):
        out = swish(self.bn1(self.conv1(x)))
        out = swish(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(self.se(out)))
        if self.has_skip:
            out = out + x
        return out


def losses():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), Block(8, 8, 3, 1), Block(8, 12, 5, 2))
    net = same_weights(nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[20, 40], gamma=0.3)
    x, y = numbers(8, 3, 12, 12), numbers(8, low=10)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item()
