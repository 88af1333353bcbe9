"""A neural radiance field: positional encodings, and the integral along rays."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


def positional_encoding(x, L):
    out = [x]
    for j in range(L):
        out.append(torch.sin(2**j * x))
        out.append(torch.cos(2**j * x))
    return torch.cat(out, dim=1)


class NerfModel(nn.Module):
    def __init__(self, hidden_dim=32):
        super(NerfModel, self).__init__()
        self.block1 = nn.Sequential(nn.Linear(3 * 9, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, hidden_dim + 1))
        self.block2 = nn.Sequential(nn.Linear(3 * 5 + hidden_dim, hidden_dim // 2), nn.ReLU(), nn.Linear(hidden_dim // 2, 3), nn.Sigmoid())

    def forward(self, o, d):
        tmp = self.block1(positional_encoding(o, 4))
        h, sigma = tmp[:, :-1], F.relu(tmp[:, -1])
        return self.block2(torch.cat((h, positional_encoding(d, 2)), dim=1)), sigma


def compute_accumulated_transmittance(alphas):
    accumulated_transmittance = torch.cumprod(alphas, 1)
    return torch.cat((torch.ones((accumulated_transmittance.shape[0], 1)), accumulated_transmittance[:, :-1]), dim=-1)


def render_rays(nerf_model, ray_origins, ray_directions, hn=0.0, hf=0.5, nb_bins=12):
    t = torch.linspace(hn, hf, nb_bins).expand(ray_origins.shape[0], nb_bins)
    mid = (t[:, :-1] + t[:, 1:]) / 2.0
    lower, upper = torch.cat((t[:, :1], mid), -1), torch.cat((mid, t[:, -1:]), -1)
    t = lower + (upper - lower) * 0.3
    delta = torch.cat((t[:, 1:] - t[:, :-1], torch.tensor([1e10]).expand(ray_origins.shape[0], 1)), -1)
    x = ray_origins.unsqueeze(1) + t.unsqueeze(2) * ray_directions.unsqueeze(1)
    ray_directions = ray_directions.expand(nb_bins, ray_directions.shape[0], 3).transpose(0, 1)
    colors, sigma = nerf_model(x.reshape(-1, 3), ray_directions.reshape(-1, 3))
    colors, sigma = colors.reshape(x.shape), sigma.reshape(x.shape[:-1])
    alpha = 1 - torch.exp(-sigma * delta)
    weights = compute_accumulated_transmittance(1 - alpha).unsqueeze(2) * alpha.unsqueeze(2)
    c = (weights * colors).sum(dim=1)
    weight_sum = weights.sum(-1).sum(-1)
    return c + 1 - weight_sum.unsqueeze(-1)


def losses():
    model = same_weights(NerfModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[10, 20, 40], gamma=0.5)
    origins, directions = numbers(16, 3) * 0.1, F.normalize(numbers(16, 3, seed=1), dim=-1)
    truth = torch.sigmoid(numbers(16, 3, seed=2))
    for _ in range(STEPS):
        loss = ((truth - render_rays(model, origins, directions)) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item()
