"""Compiled steps from Python, ours and PyTorch's in one run: an MLP's training step, and GPT-2's generation with random
weights. Prints milliseconds a step and ratios.

Generation is greedy with a static cache, and each token is read by the host. PyTorch's model is written out below; "graph"
is a CUDA graph of its eager step, "compiled" is torch.compile (mode="reduce-overhead" on GPUs). The floor is the bytes of
the weights over the bandwidth that a copy reaches.

Usage: compiled.py [--device cuda:0] [--batches 1,32] [--tokens 200] [--no-compile] [--no-training]
"""

import argparse
import statistics
import time

import neurenix as nx
import torch
import torch.nn as tnn
import torch.nn.functional as F
from timing import graph_of

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0")
parser.add_argument("--batches", default="1,32")
parser.add_argument("--tokens", type=int, default=200)
parser.add_argument("--no-compile", action="store_true")
parser.add_argument("--no-training", action="store_true")
arguments = parser.parse_args()

is_cpu = arguments.device == "cpu"
place = "cpu" if is_cpu else "cuda"
nx.set_default_device(arguments.device)
torch.set_default_device(place)
PROMPT = 8


def wait():
    if not is_cpu:
        torch.cuda.synchronize()


def timed(step, read, count=300):
    for _ in range(20):
        step()
    read(step())
    times = []
    for _ in range(7):
        begun = time.perf_counter()
        for _ in range(count // 7):
            result = step()
        read(result)
        times.append((time.perf_counter() - begun) / (count // 7) * 1e3)
    return statistics.median(times)


def ours_mlp(batch):
    model = nx.nn.Sequential(nx.nn.Linear(784, 512), nx.nn.ReLU(), nx.nn.Linear(512, 256), nx.nn.ReLU(), nx.nn.Linear(256, 10))
    optimizer = nx.optim.Adam(model.parameters())
    x, y = nx.randn(batch, 784).evaluate(), nx.randint(0, 10, (batch,)).evaluate()

    def step():
        loss = nx.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def torch_mlp(batch):
    model = tnn.Sequential(tnn.Linear(784, 512), tnn.ReLU(), tnn.Linear(512, 256), tnn.ReLU(), tnn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=not is_cpu)
    x, y = torch.randn(batch, 784), torch.randint(0, 10, (batch,))

    def step():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=is_cpu)
        return loss

    return step


class TorchGPT2(tnn.Module):
    """GPT-2 124M, a step of one token with a static cache."""

    def __init__(self, batch, length):
        super().__init__()
        self.wte, self.wpe = tnn.Embedding(50257, 768), tnn.Embedding(1024, 768)
        self.layers = tnn.ModuleList(
            tnn.ModuleDict(
                {
                    **{name: tnn.LayerNorm(768) for name in ("ln_1", "ln_2")},
                    **{"qkv": tnn.Linear(768, 2304), "proj": tnn.Linear(768, 768)},
                    **{"fc": tnn.Linear(768, 3072), "out": tnn.Linear(3072, 768)},
                }
            )
            for _ in range(12)
        )
        self.ln_f = tnn.LayerNorm(768)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(12, batch, 12, length, 64))

    def forward(self, tokens, position):
        hidden = self.wte(tokens) + self.wpe(position)
        mask = (torch.arange(self.keys.shape[3], device=position.device) <= position).unsqueeze(0)
        for number, layer in enumerate(self.layers):
            query, key, value = layer["qkv"](layer["ln_1"](hidden)).view(-1, 1, 3, 12, 64).unbind(2)
            self.keys[number].index_copy_(2, position, key.transpose(1, 2))
            self.values[number].index_copy_(2, position, value.transpose(1, 2))
            mixed = F.scaled_dot_product_attention(
                query.transpose(1, 2), self.keys[number], self.values[number], attn_mask=mask
            )
            hidden = hidden + layer["proj"](mixed.transpose(1, 2).reshape(-1, 1, 768))
            hidden = hidden + layer["out"](F.gelu(layer["fc"](layer["ln_2"](hidden)), approximate="tanh"))
        return (self.ln_f(hidden[:, -1]) @ self.wte.weight.T).argmax(-1, keepdim=True)


def ours_generation(batch, dtype):
    model = nx.models.GPT2(nx.models.GPT2Config(), dtype=dtype).eval()
    prompt = [[i + 1 for i in range(PROMPT)]] * batch
    marks = []
    for _ in nx.models.generate(model, prompt, arguments.tokens, temperature=0):
        marks.append(time.perf_counter())
    return statistics.median(b - a for a, b in zip(marks[5:], marks[6:])) * 1e3


@torch.no_grad()
def torch_generation(batch, dtype, kind):
    length = -(-(PROMPT + arguments.tokens) // 64) * 64
    model = TorchGPT2(batch, length).to(dtype).eval()
    tokens, position = torch.ones(batch, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    function = torch.compile(model, mode="default" if is_cpu else "reduce-overhead") if kind == "compiled" else model

    def step():
        return function(tokens, position)

    run = graph_of(step) if kind == "graph" else step
    times = []
    for number in range(arguments.tokens):
        begun = time.perf_counter()
        position.fill_(number)
        tokens.copy_(run())
        tokens.tolist()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[5:]) * 1e3


def bandwidth():
    source = torch.empty(1 << 28 if is_cpu else 1 << 31, dtype=torch.uint8)
    target = torch.empty_like(source)
    times = []
    for _ in range(5):
        wait()
        begun = time.perf_counter()
        target.copy_(source)
        wait()
        times.append(time.perf_counter() - begun)
    return 2 * source.numel() / min(times)


def row(name, ours, theirs, floor=None):
    others = ", ".join(f"{kind} {ms:.3f}" for kind, ms in theirs.items())
    least = "" if floor is None else f", floor {floor:.3f}"
    print(f"{name}: ours {ours:.4f} ms; PyTorch {others}{least}; {min(theirs.values()) / ours:.2f} times the fastest", flush=True)


print(f"{arguments.device}, PyTorch {torch.__version__}", "" if is_cpu else torch.cuda.get_device_name())
if not arguments.no_training:
    for batch in (64, 128, 1024):
        theirs = {"eager": timed(torch_mlp(batch), lambda loss: loss.item())}
        if not is_cpu:
            theirs["graph"] = timed(graph_of(torch_mlp(batch)), lambda loss: loss.item())
        plain = timed(ours_mlp(batch), lambda loss: loss.item())
        row(f"MLP Adam step, batch {batch}", timed(nx.compile(ours_mlp(batch)), lambda loss: loss.item()), theirs)
        print(f"  not compiled: {plain:.4f} ms")
speed = bandwidth()
print(f"a copy: {speed / 1e9:.0f} GB/s")
for batch in map(int, arguments.batches.split(",")):
    ours_dtype, dtype, size = ("float32", torch.float32, 4) if is_cpu else ("bfloat16", torch.bfloat16, 2)
    theirs = {"eager": torch_generation(batch, dtype, "eager")}
    if not is_cpu:
        theirs["graph"] = torch_generation(batch, dtype, "graph")
    if not arguments.no_compile:
        theirs["compiled"] = torch_generation(batch, dtype, "compiled")
    ours = ours_generation(batch, ours_dtype)
    row(f"GPT-2 124M, a token for each of {batch}", ours, theirs, 124.4e6 * size / speed * 1e3)
    print(f"  {batch / ours * 1e3:,.0f} tokens/s")
