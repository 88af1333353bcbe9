"""The annotated transformer, with masks, label smoothing and a schedule with warm-up."""

import copy
import math

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR

from common import STEPS, numbers, same_weights


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    return torch.triu(torch.ones((1, size, size)), diagonal=1).type(torch.uint8) == 0


def attention(query, key, value, mask=None):
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super(MultiHeadedAttention, self).__init__()
        self.d_k, self.h, self.attn = d_model // h, h, None
        self.linears = clones(nn.Linear(d_model, d_model), 4)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2) for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask)
        return self.linears[-1](x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k))


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super(LayerNorm, self).__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return (1 + self.a_2) * (x - mean) / (std + self.eps) + self.b_2


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=50):
        super(PositionalEncoding, self).__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, : x.size(1)].requires_grad_(False)


class Layer(nn.Module):
    def __init__(self, d_model, h, crossed):
        super(Layer, self).__init__()
        self.attns = clones(MultiHeadedAttention(h, d_model), 2 if crossed else 1)
        self.ff = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))
        self.norms = clones(LayerNorm(d_model), 3 if crossed else 2)

    def forward(self, x, mask, memory=None, src_mask=None):
        y = self.norms[0](x)
        x = x + self.attns[0](y, y, y, mask)
        if memory is not None:
            x = x + self.attns[1](self.norms[1](x), memory, memory, src_mask)
        return x + self.ff(self.norms[-1](x))


class EncoderDecoder(nn.Module):
    def __init__(self, vocab, d_model=16, h=2):
        super(EncoderDecoder, self).__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(vocab, d_model), nn.Embedding(vocab, d_model)
        self.position, self.d_model = PositionalEncoding(d_model), d_model
        self.encoder, self.decoder = clones(Layer(d_model, h, False), 2), clones(Layer(d_model, h, True), 2)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, src, tgt, src_mask, tgt_mask):
        memory = self.position(self.src_embed(src) * math.sqrt(self.d_model))
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        x = self.position(self.tgt_embed(tgt) * math.sqrt(self.d_model))
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return torch.log_softmax(self.generator(x), dim=-1)


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.1):
        super(LabelSmoothing, self).__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx, self.confidence, self.smoothing, self.size = padding_idx, 1.0 - smoothing, smoothing, size

    def forward(self, x, target):
        true_dist = x.data.clone()
        true_dist.fill_(self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.data.unsqueeze(1), self.confidence)
        true_dist[:, self.padding_idx] = 0
        mask = torch.nonzero(target.data == self.padding_idx)
        if mask.dim() > 0:
            true_dist.index_fill_(0, mask.squeeze(), 0.0)
        return self.criterion(x, true_dist.clone().detach())


def rate(step, model_size, factor, warmup):
    step = max(step, 1)
    return factor * (model_size ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))


def losses():
    V = 11
    model = same_weights(EncoderDecoder(V))
    criterion = LabelSmoothing(size=V, padding_idx=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1e-9)
    lr_scheduler = LambdaLR(optimizer=optimizer, lr_lambda=lambda step: rate(step, 16, 1.0, 20))
    data = numbers(8, 7, low=V)
    src, tgt, tgt_y = data, data[:, :-1], data[:, 1:]
    src_mask = (src != 0).unsqueeze(-2)
    tgt_mask = (tgt != 0).unsqueeze(-2)
    tgt_mask = tgt_mask & subsequent_mask(tgt.size(-1)).type_as(tgt_mask.data)
    ntokens = (tgt_y != 0).data.sum()
    for _ in range(STEPS):
        out = model(src, tgt, src_mask, tgt_mask)
        loss = criterion(out.contiguous().view(-1, V), tgt_y.contiguous().view(-1)) / ntokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        lr_scheduler.step()
        yield loss.item()
