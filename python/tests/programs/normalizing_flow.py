"""Real NVP: coupling layers with masks, and a multivariate normal distribution as prior."""

import torch
from torch import distributions, nn

from common import STEPS, numbers, same_weights


class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super(RealNVP, self).__init__()
        self.prior, self.mask = prior, nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s, t = self.s[i](z_) * (1 - self.mask[i]), self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp


def losses():
    mask = torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 2)
    prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    flow = RealNVP(
        lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh()),
        lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2)),
        mask,
        prior,
    )
    same_weights(flow.t, 1)
    same_weights(flow.s, 2)
    optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad == True], lr=1e-3)
    for step in range(STEPS):
        loss = -flow.log_prob(numbers(32, 2, seed=step) * 0.5 + 1).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        yield loss.item()
