"""Deep Q-learning from the tutorial: a memory of transitions, a target network that follows slowly."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from common import STEPS, numbers, same_weights

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(list(self.memory), batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1, self.layer2 = nn.Linear(n_observations, 32), nn.Linear(32, 32)
        self.layer3 = nn.Linear(32, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


def losses():
    random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    policy_net, target_net = same_weights(DQN(4, 2)).to(device), DQN(4, 2).to(device)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    memory = ReplayMemory(1000)
    states, actions = numbers(41, 4), numbers(40, low=2)
    for i in range(40):
        state = torch.tensor(states[i].tolist(), dtype=torch.float32, device=device).unsqueeze(0)
        following = states[i + 1].unsqueeze(0) if i % 7 else None
        memory.push(state, actions[i].view(1, 1), following, torch.tensor([float(i % 3)], device=device))
    for _ in range(STEPS):
        batch = Transition(*zip(*memory.sample(16)))
        non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool)
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
        state_action_values = policy_net(state_batch).gather(1, action_batch)
        next_state_values = torch.zeros(16, device=device)
        with torch.no_grad():
            next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
        expected = (next_state_values * 0.99) + reward_batch
        loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        target_net_state_dict, policy_net_state_dict = target_net.state_dict(), policy_net.state_dict()
        for key in policy_net_state_dict:
            target_net_state_dict[key] = policy_net_state_dict[key] * 0.05 + target_net_state_dict[key] * 0.95
        target_net.load_state_dict(target_net_state_dict)
        yield loss.item()
