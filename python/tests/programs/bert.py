"""Masked language modelling with encoder layers, a padding mask, and two groups of decay."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class BERT(nn.Module):
    def __init__(self, vocab, d_model=16):
        super().__init__()
        self.token, self.position, self.segment = nn.Embedding(vocab, d_model, padding_idx=0), nn.Embedding(12, d_model), nn.Embedding(2, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead=4, dim_feedforward=32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.transform = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.LayerNorm(d_model, eps=1e-12))
        self.decoder = nn.Linear(d_model, vocab)
        self.decoder.weight = self.token.weight
        self.is_next = nn.Linear(d_model, 2)

    def forward(self, ids, segments):
        pos = torch.arange(ids.size(1), dtype=torch.long).unsqueeze(0).expand_as(ids)
        x = self.token(ids) * math.sqrt(16) + self.position(pos) + self.segment(segments)
        x = self.encoder(x, src_key_padding_mask=ids.eq(0))
        return self.decoder(self.transform(x)), self.is_next(x[:, 0])


def losses():
    model = same_weights(BERT(25))
    no_decay = ["bias", "norm1.weight", "norm2.weight"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, eps=1e-6)
    labels, segments = numbers(4, 10, low=24) + 1, numbers(4, 10, seed=1, low=2)
    masked = numbers(4, 10, seed=2) > 0.8
    ids = labels.masked_fill(masked, 3)
    ids[0, 7:] = 0
    targets = torch.where(masked, labels, torch.full_like(labels, -100))
    for _ in range(STEPS):
        prediction_scores, next_scores = model(ids, segments)
        loss = F.cross_entropy(prediction_scores.view(-1, 25), targets.view(-1)) + F.cross_entropy(next_scores, segments[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
