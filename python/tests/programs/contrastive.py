"""SimCLR: the normalised temperature-scaled cross-entropy of two views of each sample."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


def info_nce_loss(features, batch_size, n_views=2, temperature=0.5):
    labels = torch.cat([torch.arange(batch_size) for i in range(n_views)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    labels = torch.zeros(logits.shape[0], dtype=torch.long)
    return logits / temperature, labels


def losses():
    model = same_weights(nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8, bias=False)))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS, eta_min=0, last_epoch=-1)
    x = numbers(8, 10)
    for step in range(STEPS):
        images = torch.cat([x + 0.3 * numbers(8, 10, seed=step), x + 0.3 * numbers(8, 10, seed=step + 99)], dim=0)
        logits, labels = info_nce_loss(model(images), 8)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item()
