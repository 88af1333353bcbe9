"""The essence of makemore's MLP from the lecture: tensors that require gradients, batch normalisation by hand."""

import torch
import torch.nn.functional as F

from common import STEPS, numbers


def losses():
    n_embd, n_hidden, vocab_size, block_size = 6, 32, 27, 3
    C = numbers(vocab_size, n_embd, seed=1)
    W1 = numbers(n_embd * block_size, n_hidden, seed=2) * (5 / 3) / ((n_embd * block_size) ** 0.5)
    W2 = numbers(n_hidden, vocab_size, seed=3) * 0.1
    b2 = torch.zeros(vocab_size)
    bngain, bnbias = torch.ones((1, n_hidden)), torch.zeros((1, n_hidden))
    bnmean_running, bnstd_running = torch.zeros((1, n_hidden)), torch.ones((1, n_hidden))
    parameters = [C, W1, W2, b2, bngain, bnbias]
    assert sum(p.nelement() for p in parameters) > 1000
    for p in parameters:
        p.requires_grad = True
    Xtr, Ytr = numbers(256, block_size, low=27), numbers(256, seed=5, low=27)
    for i in range(STEPS):
        ix = (torch.arange(0, 32) * 7 + i * 32) % Xtr.shape[0]
        Xb, Yb = Xtr[ix], Ytr[ix]
        emb = C[Xb]
        hpreact = emb.view(emb.shape[0], -1) @ W1
        bnmeani, bnstdi = hpreact.mean(0, keepdim=True), hpreact.std(0, keepdim=True)
        hpreact = bngain * (hpreact - bnmeani) / bnstdi + bnbias
        with torch.no_grad():
            bnmean_running = 0.999 * bnmean_running + 0.001 * bnmeani
            bnstd_running = 0.999 * bnstd_running + 0.001 * bnstdi
        logits = torch.tanh(hpreact) @ W2 + b2
        loss = F.cross_entropy(logits, Yb)
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.data += -0.1 * p.grad
        yield loss.log10().item() + bnstd_running.mean().item()
