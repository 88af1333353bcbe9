"""The official example of super-resolution with a shuffle of pixels."""

import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim

from common import STEPS, numbers, same_weights


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight)

    def forward(self, x):
        return self.pixel_shuffle(self.conv4(self.relu(self.conv2(self.relu(self.conv1(x))))))


def losses():
    model = same_weights(Net(upscale_factor=2))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    input, target = numbers(2, 1, 8, 8), numbers(2, 1, 16, 16)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.MSELoss()(model(input), target)
        loss.backward()
        optimizer.step()
        yield loss.item()
