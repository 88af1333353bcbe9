"""A selective state space layer, with its recurrence step by step."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class MambaBlock(nn.Module):
    def __init__(self, d_model=8, d_state=4, dt_rank=2):
        super().__init__()
        d_inner = 2 * d_model
        self.d_inner, self.d_state, self.dt_rank = d_inner, d_state, dt_rank
        self.in_proj = nn.Linear(d_model, d_inner * 2, bias=False)
        self.conv1d = nn.Conv1d(d_inner, d_inner, kernel_size=4, groups=d_inner, padding=3, bias=True)
        self.x_proj = nn.Linear(d_inner, dt_rank + d_state * 2, bias=False)
        self.dt_proj = nn.Linear(dt_rank, d_inner, bias=True)
        A = torch.arange(1, d_state + 1).float().repeat(d_inner, 1)
        self.A_log, self.D = nn.Parameter(torch.log(A)), nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x):
        (b, l, d) = x.shape
        (x, res) = self.in_proj(x).split(split_size=[self.d_inner, self.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)
        x = F.silu(x)
        y = self.ssm(x) * F.silu(res)
        return self.out_proj(y)

    def ssm(self, x):
        A = -torch.exp(self.A_log.float())
        (delta, B, C) = self.x_proj(x).split(split_size=[self.dt_rank, self.d_state, self.d_state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, x)
        h, ys = torch.zeros((x.size(0), self.d_inner, self.d_state), device=deltaA.device), []
        for i in range(x.size(1)):
            h = deltaA[:, i] * h + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, i, :]))
        return torch.stack(ys, dim=1) + x * self.D


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def losses():
    embedding, block, norm = nn.Embedding(15, 8), same_weights(MambaBlock(), 1), RMSNorm(8)
    same_weights(embedding, 2)
    optimizer = torch.optim.AdamW([*embedding.parameters(), *block.parameters(), *norm.parameters()], lr=5e-3)
    data = numbers(3, 9, low=15)
    for _ in range(STEPS):
        x = embedding(data[:, :-1])
        logits = norm(block(norm(x)) + x) @ embedding.weight.T
        loss = F.cross_entropy(logits.reshape(-1, 15), data[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
