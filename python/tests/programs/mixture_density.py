"""A mixture density network, with a mixture of normal distributions."""

import torch
import torch.nn as nn
import torch.distributions as D

from common import STEPS, numbers, same_weights


def losses():
    net = same_weights(nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 9)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x = numbers(40, 1)
    y = torch.sin(3 * x) + 0.1 * numbers(40, 1, seed=1)
    for _ in range(STEPS):
        logits, mu, log_sigma = net(x).split(3, dim=1)
        mixture = D.MixtureSameFamily(D.Categorical(logits=logits), D.Normal(mu, log_sigma.exp()))
        loss = -mixture.log_prob(y.squeeze(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
