"""A temporal convolutional network: dilated causal convolutions, and the older weight normalisation."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

from common import STEPS, numbers, same_weights


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super(TemporalBlock, self).__init__()
        padding = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(n_inputs, n_outputs, kernel_size, stride=1, padding=padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(n_outputs, n_outputs, kernel_size, stride=1, padding=padding, dilation=dilation))
        self.net = nn.Sequential(self.conv1, Chomp1d(padding), nn.ReLU(), self.conv2, Chomp1d(padding), nn.ReLU())
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


def losses():
    model = nn.Sequential(TemporalBlock(2, 8, 3, 1), TemporalBlock(8, 8, 3, 2))
    linear = nn.Linear(8, 1)
    same_weights(model, 1)
    same_weights(linear, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *linear.parameters()], lr=4e-3)
    x, y = numbers(8, 2, 20), numbers(8, 1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = linear(model(x)[:, :, -1])
        loss = F.mse_loss(output, y)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        yield loss.item()
