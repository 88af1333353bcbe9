"""The tutorial's translation with attention: two recurrent networks, steps one by one, and two optimisers."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

from common import STEPS, numbers, same_weights


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super(EncoderRNN, self).__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def forward(self, input):
        return self.gru(self.embedding(input))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super(BahdanauAttention, self).__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super(AttnDecoderRNN, self).__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(0)
        decoder_hidden, decoder_outputs, attentions = encoder_hidden, [], []
        for i in range(5):
            embedded = self.embedding(decoder_input)
            context, attn_weights = self.attention(decoder_hidden.permute(1, 0, 2), encoder_outputs)
            output, decoder_hidden = self.gru(torch.cat((embedded, context), dim=2), decoder_hidden)
            decoder_outputs.append(self.out(output))
            attentions.append(attn_weights)
            if target_tensor is not None and i % 2 == 0:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = decoder_outputs[-1].topk(1)
                decoder_input = topi.squeeze(-1).detach()
        decoder_outputs = F.log_softmax(torch.cat(decoder_outputs, dim=1), dim=-1)
        return decoder_outputs, decoder_hidden, torch.cat(attentions, dim=1)


def losses():
    encoder, decoder = same_weights(EncoderRNN(20, 16), 1), same_weights(AttnDecoderRNN(16, 20), 2)
    encoder_optimizer, decoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01), optim.Adam(decoder.parameters(), lr=0.01)
    criterion = nn.NLLLoss()
    input_tensor, target_tensor = numbers(6, 5, low=20), numbers(6, 5, seed=1, low=20)
    for _ in range(STEPS):
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoder_outputs, encoder_hidden = encoder(input_tensor)
        decoder_outputs, _, _ = decoder(encoder_outputs, encoder_hidden, target_tensor)
        loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target_tensor.view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        yield loss.item()
