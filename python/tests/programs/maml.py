"""Model-agnostic meta-learning: gradients of gradient steps."""

import torch
import torch.nn.functional as F

from common import STEPS, numbers


def net(x, params):
    x = F.linear(x, params[0], params[1])
    x = F.relu(x)
    return F.linear(x, params[2], params[3])


def losses():
    params = [numbers(16, 1, seed=1), numbers(16, seed=2) * 0.1, numbers(1, 16, seed=3) * 0.25, torch.zeros(1)]
    params = [p.requires_grad_() for p in params]
    optimizer = torch.optim.Adam(params, lr=5e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        meta_loss = 0
        for task in range(3):
            phase = numbers(1, seed=step * 3 + task)
            x = numbers(10, 1, seed=step)
            y = torch.sin(x + phase)
            new_params = params
            for k in range(2):
                loss = F.mse_loss(net(x[:5], new_params), y[:5])
                grads = torch.autograd.grad(loss, new_params, create_graph=True)
                new_params = [p - 0.05 * g for p, g in zip(new_params, grads)]
            meta_loss = meta_loss + F.mse_loss(net(x[5:], new_params), y[5:])
        meta_loss.backward()
        optimizer.step()
        yield meta_loss.item()
