"""The official example of REINFORCE, with given actions and rewards instead of a game."""

from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

from common import STEPS, numbers, same_weights


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1, self.dropout, self.affine2 = nn.Linear(4, 32), nn.Dropout(p=0.0), nn.Linear(32, 3)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def losses():
    policy = same_weights(Policy())
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    eps = 1.1920929e-07
    for episode in range(STEPS):
        states, actions = numbers(8, 4, seed=episode), numbers(8, seed=episode, low=3)
        entropy = 0
        for state, action in zip(states, actions):
            m = Categorical(policy(state.float().unsqueeze(0)))
            assert m.sample().shape == (1,)
            policy.saved_log_probs.append(m.log_prob(action.unsqueeze(0)))
            entropy = entropy + m.entropy()
            policy.rewards.append(state[1].item())
        R, policy_loss, returns = 0, [], deque()
        for r in policy.rewards[::-1]:
            R = r + 0.99 * R
            returns.appendleft(R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        for log_prob, R in zip(policy.saved_log_probs, returns):
            policy_loss.append(-log_prob * R)
        optimizer.zero_grad()
        policy_loss = torch.cat(policy_loss).sum() - 0.01 * entropy.sum()
        policy_loss.backward()
        optimizer.step()
        del policy.rewards[:]
        del policy.saved_log_probs[:]
        yield policy_loss.item()
