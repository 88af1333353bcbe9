"""A network that solves a differential equation: its residual contains second derivatives."""

import torch
import torch.nn as nn

from common import STEPS, same_weights


def losses():
    model = same_weights(nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        u = model(x)
        dudx = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        d2udx2 = torch.autograd.grad(dudx, x, torch.ones_like(dudx), create_graph=True)[0]
        residual = d2udx2 + 16 * u
        boundary = (u[0] - 1).pow(2).squeeze() + dudx[0].pow(2).squeeze()
        loss = torch.mean(residual**2) * 1e-2 + boundary
        loss.backward()
        optimizer.step()
        yield loss.item()
