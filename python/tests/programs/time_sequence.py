"""The official example that predicts a sine wave with cells of LSTM and LBFGS."""

import torch
import torch.nn as nn
import torch.optim as optim

from common import numbers, same_weights


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 12), nn.LSTMCell(12, 12), nn.Linear(12, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t, c_t = torch.zeros(input.size(0), 12, dtype=torch.double), torch.zeros(input.size(0), 12, dtype=torch.double)
        h_t2, c_t2 = torch.zeros(input.size(0), 12, dtype=torch.double), torch.zeros(input.size(0), 12, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def losses():
    data = torch.sin(torch.arange(24.0).unsqueeze(0) / 3 + numbers(5, 1)).double()
    input, target = data[:, :-1], data[:, 1:]
    seq = same_weights(Sequence())
    seq.double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8)
    found = []
    for i in range(3):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            found.append(loss.item())
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            assert seq(input, future=3).shape == (5, 26)
    return found[:50]
