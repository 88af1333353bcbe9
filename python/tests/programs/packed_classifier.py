"""Classification of texts of different lengths with packed sequences."""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from common import STEPS, numbers, same_weights


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.rnn = nn.GRU(8, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, text, text_lengths):
        packed = pack_padded_sequence(self.embedding(text), text_lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_output, hidden = self.rnn(packed)
        output, lengths = pad_packed_sequence(packed_output, batch_first=True)
        assert lengths.tolist() == text_lengths.tolist()
        hidden = torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)
        return self.fc(hidden + output.mean(1)).squeeze(1)


def losses():
    texts = [numbers(length, seed=length, low=29) + 1 for length in (5, 9, 3, 7)]
    lengths = torch.tensor([len(text) for text in texts])
    text, labels = pad_sequence(texts, batch_first=True), torch.tensor([0.0, 1.0, 1.0, 0.0])
    model = same_weights(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        optimizer.zero_grad()
        predictions = model(text, lengths)
        loss = criterion(predictions, labels)
        acc = (torch.round(torch.sigmoid(predictions)) == labels).float().mean()
        loss.backward()
        optimizer.step()
        yield loss.item() + acc.item()
