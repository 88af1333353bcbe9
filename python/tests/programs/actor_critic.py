"""The official example of actor-critic, with given actions and rewards instead of a game."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from common import STEPS, numbers, same_weights

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 32)
        self.action_head, self.value_head = nn.Linear(32, 2), nn.Linear(32, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def losses():
    model = same_weights(Policy())
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    for episode in range(STEPS):
        states, actions = numbers(10, 4, seed=episode), numbers(10, seed=episode, low=2)
        for state, action in zip(states, actions):
            probs, state_value = model(state)
            model.saved_actions.append(SavedAction(torch.log(probs[action]), state_value))
            model.rewards.append(state[0].item() * (1 if action == 1 else -1))
        R, returns = 0, []
        for r in model.rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        policy_losses, value_losses = [], []
        for (log_prob, value), R in zip(model.saved_actions, returns):
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        del model.rewards[:], model.saved_actions[:]
        yield loss.item()
