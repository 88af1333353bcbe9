"""Recommendation: factors and biases of users and items, data from a loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import STEPS, numbers, same_weights


class Ratings(Dataset):
    def __init__(self):
        self.users, self.items, self.ratings = numbers(80, low=12), numbers(80, seed=1, low=15), numbers(80, seed=2).tanh() * 2 + 3

    def __len__(self):
        return len(self.ratings)

    def __getitem__(self, idx):
        return self.users[idx], self.items[idx], self.ratings[idx]


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=6):
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(n_users, n_factors), nn.Embedding(n_items, n_factors)
        self.user_biases, self.item_biases = nn.Embedding(n_users, 1), nn.Embedding(n_items, 1)

    def forward(self, user, item):
        pred = self.user_biases(user) + self.item_biases(item)
        pred += (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
        return pred.squeeze()


def losses():
    model = same_weights(MatrixFactorization(12, 15))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-4)
    loader = DataLoader(Ratings(), batch_size=16, shuffle=False, drop_last=True)
    for epoch in range(STEPS // 5):
        for users, items, ratings in loader:
            optimizer.zero_grad()
            loss = nn.MSELoss()(model(users, items), ratings)
            loss.backward()
            optimizer.step()
            yield loss.item()
