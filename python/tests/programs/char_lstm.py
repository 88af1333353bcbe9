"""A language model of characters: an LSTM whose state is carried from batch to batch, and clipped gradients by hand."""

import torch
import torch.nn as nn

from common import STEPS, numbers, same_weights


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers):
        super(RNNModel, self).__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, "LSTM")(ninp, nhid, nlayers, dropout=0.0)
        self.decoder = nn.Linear(nhid, ntoken)
        self.init_weights()
        self.nhid, self.nlayers = nhid, nlayers

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, input, hidden):
        emb = self.encoder(input)
        output, hidden = self.rnn(emb, hidden)
        return torch.log_softmax(self.decoder(output).view(-1, 40), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def losses():
    model = same_weights(RNNModel(40, 16, 24, 2))
    criterion = nn.NLLLoss()
    source = numbers(STEPS * 6 + 1, 4, low=40)
    hidden = model.init_hidden(4)
    lr = 2.0
    for i in range(0, source.size(0) - 1, 6):
        seq_len = min(6, len(source) - 1 - i)
        data, targets = source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        yield loss.item()
