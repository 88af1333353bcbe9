"""A sparse mixture of experts: the best experts of each token, and a loss that balances them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class MoeLayer(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)) for _ in range(num_experts))
        self.top_k, self.num_experts = top_k, num_experts

    def forward(self, inputs):
        inputs_squashed = inputs.view(-1, inputs.shape[-1])
        gate_logits = self.gate(inputs_squashed)
        weights, selected_experts = torch.topk(gate_logits, self.top_k)
        weights = F.softmax(weights, dim=1, dtype=torch.float).type_as(inputs)
        results = torch.zeros_like(inputs_squashed)
        for i, expert in enumerate(self.experts):
            batch_idx, nth_expert = torch.where(selected_experts == i)
            results[batch_idx] += weights[batch_idx, nth_expert, None] * expert(inputs_squashed[batch_idx])
        density = F.one_hot(selected_experts, self.num_experts).float().sum(1).mean(0)
        self.balance = (density * gate_logits.softmax(-1).mean(0)).sum() * self.num_experts
        return results.view_as(inputs)


def losses():
    layer, head = same_weights(MoeLayer(12, 4, 2)), same_weights(nn.Linear(12, 5), 1)
    optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=5e-3)
    x, y = numbers(4, 6, 12), numbers(4, 6, low=5)
    for _ in range(STEPS):
        loss = F.cross_entropy(head(x + layer(x)).flatten(0, 1), y.flatten()) + 0.01 * layer.balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
