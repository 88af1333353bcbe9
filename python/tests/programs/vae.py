"""The official example of a variational autoencoder, with given noise."""

import torch
from torch import nn, optim
from torch.nn import functional as F

from common import STEPS, numbers, same_weights


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc21, self.fc22 = nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 64))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def losses():
    model = same_weights(VAE())
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    data = torch.sigmoid(numbers(16, 1, 8, 8))
    for step in range(STEPS):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, numbers(16, 4, seed=step))
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        yield loss.item() / len(data)
        optimizer.step()
