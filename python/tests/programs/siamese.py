"""The official example of a Siamese network, and contrastive and triplet losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(), nn.MaxPool2d(2, stride=2), nn.Conv2d(4, 8, 3), nn.PReLU())
        self.fc = nn.Sequential(nn.Linear(8 * 3 * 3, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))

    def forward_once(self, x):
        output = self.cnn(x)
        return self.fc(output.view(output.size()[0], -1))

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )


def losses():
    net = same_weights(SiameseNetwork())
    criterion, triplet = ContrastiveLoss(), nn.TripletMarginLoss(margin=1.0, p=2)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    img0, img1, label = numbers(8, 1, 12, 12), numbers(8, 1, 12, 12, seed=1), numbers(8, 1, low=2).float()
    for _ in range(STEPS):
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss = criterion(output1, output2, label) + triplet(output1, output2, output2.roll(1, 0))
        loss.backward()
        optimizer.step()
        yield loss.item()
