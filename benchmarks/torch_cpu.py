"""Runs the workloads of `neurenix bench` in PyTorch. Prints a JSON line for each:
{"name": .., "ms": median, "peak_bytes": ..}.

The peak is the greatest number of bytes in use by PyTorch's CPU allocator during one run: the running sum of all its
allocations and releases since before the workload was prepared.

Usage: torch_cpu.py [threads] [filter]
"""

import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""


def peak(make):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run = make()
        run()
        with record_function("measured"):
            run()
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    [measured] = [event for event in events if event.name() == "measured"]
    now = most = 0
    for event in events:
        if event.name() == "[memory]" and event.start_ns() <= measured.end_ns():
            if event.start_ns() >= measured.start_ns():
                most = max(most, now)
            now += event.nbytes()
    return max(most, now)


def measure(name, make, seconds=1.5, warm=3, memory=True):
    if FILTER not in name:
        return
    run = make()
    for _ in range(warm):
        run()
    times, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    result = {"name": name, "ms": times[len(times) // 2] * 1e3}
    if memory:
        del run
        result["peak_bytes"] = peak(make)
    print(json.dumps(result), flush=True)


def matmul(n):
    a, b = torch.randn(n, n), torch.randn(n, n)
    return lambda: a @ b


def chain():
    a, b, c, d = (torch.randn(1 << 24) for _ in range(4))
    return lambda: F.gelu(a * b + c, approximate="tanh") * d


def softmax():
    x = torch.randn(4096, 1024)
    return lambda: F.softmax(x, -1)


def layer_norm():
    x = torch.randn(4096, 1024)
    return lambda: F.layer_norm(x, (1024,))


def sum_columns():
    x = torch.randn(4096, 1024)
    return lambda: x.sum(0)


def trainer(model, inputs, targets, optimizer):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return step


def mlp(batch):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    targets = torch.randint(0, 10, (batch,))
    return trainer(model, torch.randn(batch, 784), targets, torch.optim.Adam(model.parameters()))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(4096, 10),
    )
    targets = torch.randint(0, 10, (64,))
    return trainer(model, torch.randn(64, 3, 32, 32), targets, torch.optim.Adam(model.parameters()))


class LastStepLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def lstm():
    model = LastStepLstm()
    targets = torch.randint(0, 10, (32,))
    return trainer(model, torch.randn(32, 64, 64), targets, torch.optim.Adam(model.parameters()))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=512, length=128, width=128, layers=4, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def gpt():
    model = Gpt()
    ids, targets = torch.randint(0, 512, (8, 128)), torch.randint(0, 512, (8 * 128,))
    return trainer(model, ids, targets, torch.optim.AdamW(model.parameters()))


def host_sums():
    x = torch.randn(1)

    def run():
        y = x
        for _ in range(1000):
            y = y + x
        return y

    return run


def host_products():
    x, w, b = torch.randn(1, 2), torch.randn(2, 2), torch.randn(1, 2)

    def run():
        y = x
        for _ in range(100):
            y = torch.tanh(y @ w + b)
        return y

    return run


for n in (64, 128, 256, 512, 1024, 2048):
    measure(f"matmul f32 {n}", lambda n=n: matmul(n))
measure("gelu(a*b+c)*d 16M", chain)
measure("softmax 4096x1024", softmax)
measure("layer norm 4096x1024", layer_norm)
measure("column sums 4096x1024", sum_columns)
for batch in (1, 64, 128, 1024):
    measure(f"MLP Adam step, batch {batch}", lambda batch=batch: mlp(batch))
measure("CNN Adam step, batch 64", cnn)
measure("LSTM Adam step, batch 32", lstm)
measure("GPT AdamW step, 8x128", gpt)
measure("host: 1000 sums", host_sums, memory=False)
measure("host: 100 products, sums, tanh", host_products, memory=False)
