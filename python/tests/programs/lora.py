"""Low-rank adaptation of frozen layers, and distillation from the network before."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class LoRALayer(nn.Module):
    def __init__(self, layer, rank, alpha):
        super().__init__()
        self.layer = layer
        self.lora_A = nn.Parameter(layer.weight.new_zeros((rank, layer.in_features)))
        self.lora_B = nn.Parameter(layer.weight.new_zeros((layer.out_features, rank)))
        self.scaling = alpha / rank
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B)

    def forward(self, x):
        return self.layer(x) + (x @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)) * self.scaling


def add_adapters(module):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALayer(child, 2, 4))
        else:
            add_adapters(child)


def losses():
    student = same_weights(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Sequential(nn.Linear(24, 24), nn.Tanh()), nn.Linear(24, 5)))
    teacher = copy.deepcopy(student).eval()
    for p in student.parameters():
        p.requires_grad = False
    add_adapters(student)
    with torch.no_grad():
        for i, (n, p) in enumerate(student.named_parameters()):
            if "lora" in n:
                p.copy_(numbers(*p.shape, seed=i) * 0.1)
    trainable = list(filter(lambda p: p.requires_grad, student.parameters()))
    assert len(trainable) == 6 and sum(p.numel() for p in trainable) < sum(p.numel() for p in student.parameters())
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    x, y, T = numbers(16, 8), numbers(16, low=5), 2.0
    for _ in range(STEPS):
        with torch.no_grad():
            teacher_logits = teacher(x)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / T, dim=1), F.softmax(teacher_logits / T, dim=1), reduction="batchmean") * (T * T)
        loss = 0.3 * soft + 0.7 * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
