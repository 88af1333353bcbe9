"""The actor of soft actor-critic: squashed normal distributions, and two critics."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence
from torch.optim import Adam

from common import STEPS, numbers, same_weights

LOG_SIG_MAX, LOG_SIG_MIN, epsilon = 2, -20, 1e-6


class QNetwork(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim):
        super(QNetwork, self).__init__()
        self.linear1, self.linear2 = nn.Linear(num_inputs + num_actions, hidden_dim), nn.Linear(hidden_dim, 1)
        self.linear4, self.linear5 = nn.Linear(num_inputs + num_actions, hidden_dim), nn.Linear(hidden_dim, 1)

    def forward(self, state, action):
        xu = torch.cat([state, action], 1)
        return self.linear2(F.relu(self.linear1(xu))), self.linear5(F.relu(self.linear4(xu)))


class GaussianPolicy(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim):
        super(GaussianPolicy, self).__init__()
        self.linear1 = nn.Linear(num_inputs, hidden_dim)
        self.mean_linear, self.log_std_linear = nn.Linear(hidden_dim, num_actions), nn.Linear(hidden_dim, num_actions)

    def sample(self, state, noise):
        x = F.relu(self.linear1(state))
        mean, log_std = self.mean_linear(x), torch.clamp(self.log_std_linear(x), min=LOG_SIG_MIN, max=LOG_SIG_MAX)
        normal = Normal(mean, log_std.exp())
        assert normal.rsample().shape == mean.shape
        x_t = mean + normal.stddev * noise
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t)
        log_prob -= torch.log((1 - y_t.pow(2)) + epsilon)
        return y_t, log_prob.sum(1, keepdim=True), normal


def losses():
    policy, critic = same_weights(GaussianPolicy(3, 2, 24), 1), same_weights(QNetwork(3, 2, 24), 2)
    log_alpha = torch.zeros(1, requires_grad=True)
    policy_optim, critic_optim, alpha_optim = Adam(policy.parameters(), lr=3e-3), Adam(critic.parameters(), lr=3e-3), Adam([log_alpha], lr=3e-3)
    states = numbers(16, 3)
    for step in range(STEPS):
        noise = numbers(16, 2, seed=step)
        with torch.no_grad():
            action, log_pi, _ = policy.sample(states, noise)
            qf1_next, qf2_next = critic(states, action)
            target = states[:, :1] + 0.9 * (torch.min(qf1_next, qf2_next) - log_alpha.exp() * log_pi)
        qf1, qf2 = critic(states, action)
        qf_loss = F.mse_loss(qf1, target) + F.mse_loss(qf2, target)
        critic_optim.zero_grad()
        qf_loss.backward()
        critic_optim.step()
        pi, log_pi, normal = policy.sample(states, noise)
        min_qf_pi = torch.min(*critic(states, pi))
        policy_loss = ((log_alpha.exp().detach() * log_pi) - min_qf_pi).mean()
        policy_loss = policy_loss + 1e-3 * kl_divergence(normal, Normal(torch.zeros(2), torch.ones(2))).mean()
        policy_optim.zero_grad()
        policy_loss.backward()
        policy_optim.step()
        alpha_loss = -(log_alpha * (log_pi + -2.0).detach()).mean()
        alpha_optim.zero_grad()
        alpha_loss.backward()
        alpha_optim.step()
        yield qf_loss.item() + policy_loss.item() + alpha_loss.item()
