"""Speech recognition in miniature: convolutions, a GRU, and connectionist temporal classification."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.layer_norm = nn.LayerNorm(8)
        self.fully_connected = nn.Linear(32, 16)
        self.birnn = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(24, 7)

    def forward(self, x):
        x = self.cnn(x)
        x = F.gelu(self.layer_norm(x.transpose(2, 3).contiguous())).transpose(2, 3).contiguous()
        sizes = x.size()
        x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3]).transpose(1, 2)
        x, _ = self.birnn(self.fully_connected(x))
        return self.classifier(x)


def losses():
    model = same_weights(SpeechModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, steps_per_epoch=STEPS, epochs=1, anneal_strategy="linear")
    criterion = nn.CTCLoss(blank=6, zero_infinity=True)
    spectrograms, labels = numbers(3, 1, 16, 24), numbers(3, 5, low=6)
    input_lengths, label_lengths = torch.tensor([12, 12, 10]), torch.tensor([5, 3, 4])
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = F.log_softmax(model(spectrograms), dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item()
