"""Proximal policy optimisation: clipped ratios, generalised advantages, several epochs for each batch."""

import torch
import torch.nn as nn
from torch.distributions.normal import Normal

from common import STEPS, numbers, same_weights


def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(4, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(4, 16)), nn.Tanh(), layer_init(nn.Linear(16, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_action_and_value(self, x, action):
        action_mean = self.actor_mean(x)
        action_std = torch.exp(self.actor_logstd.expand_as(action_mean))
        probs = Normal(action_mean, action_std)
        return probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


def losses():
    agent = same_weights(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    obs, actions, rewards = numbers(20, 4), numbers(20, 2, seed=1), numbers(20, seed=2)
    dones = torch.zeros(20)
    dones[7] = 1
    with torch.no_grad():
        logprobs, _, values = agent.get_action_and_value(obs, actions)
        values = values.flatten()
        advantages, lastgaelam = torch.zeros_like(rewards), 0
        for t in reversed(range(20)):
            nextvalues = values[t + 1] if t < 19 else torch.tensor(0.0)
            delta = rewards[t] + 0.99 * nextvalues * (1 - dones[t]) - values[t]
            advantages[t] = lastgaelam = delta + 0.99 * 0.95 * (1 - dones[t]) * lastgaelam
        returns = advantages + values
    for epoch in range(STEPS // 2):
        for start in (0, 10):
            mb_inds = list(range(start, start + 10))
            newlogprob, entropy, newvalue = agent.get_action_and_value(obs[mb_inds], actions[mb_inds])
            logratio = newlogprob - logprobs[mb_inds]
            ratio = logratio.exp()
            mb_advantages = advantages[mb_inds]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
            newvalue = newvalue.view(-1)
            v_clipped = values[mb_inds] + torch.clamp(newvalue - values[mb_inds], -0.2, 0.2)
            v_loss = 0.5 * torch.max((newvalue - returns[mb_inds]) ** 2, (v_clipped - returns[mb_inds]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            yield loss.item()
