"""Compares the workloads of `neurenix bench` with PyTorch on a GPU in one run. Prints a table with speedups.

Training steps of both sides are timed back to back, with one wait at the end of a sample. PyTorch's kernels are timed
with CUDA events, ours with the host's clock over samples of about ten milliseconds. "compiled" is torch.compile, "graph"
is a CUDA graph of the eager step. The speedup is relative to PyTorch's fastest variant.

Usage: workloads.py [DEVICE] [--neurenix PROGRAM] [--filter TEXT] [--no-compile]
"""

import argparse
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from timing import graph_of

parser = argparse.ArgumentParser()
here = os.path.dirname(os.path.abspath(__file__))
parser.add_argument("--neurenix", default=os.path.join(here, "..", "target", "release", "neurenix"))
parser.add_argument("device", nargs="?", default="cuda:0")
parser.add_argument("--filter", default="")
parser.add_argument("--no-compile", action="store_true")
arguments = parser.parse_args()
if not os.path.exists(arguments.neurenix):
    parser.error(f"{arguments.neurenix} does not exist: run cargo build --release, or name the program with --neurenix")

# Use the definitions of `torch_cpu.py` on the GPU. No workload matches the filter, so it measures nothing itself.
sys.argv = ["torch_cpu.py", str(torch.get_num_threads()), "\0"]
torch.set_default_device("cuda")
with open(os.path.join(here, "torch_cpu.py")) as file:
    workloads = {"__name__": "workloads"}
    exec(compile(file.read(), "torch_cpu.py", "exec"), workloads)


def by_events(run):
    times, begun = [], time.time()
    for _ in range(5):
        run()
    while len(times) < 20 or time.time() - begun < 0.3:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def by_clock(run, steps=200):
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps * 1e3


rows = {}


def kernel(name, function, *inputs):
    if arguments.filter not in name:
        return
    row = rows.setdefault(name, {})
    row["eager"] = by_events(lambda: function(*inputs))
    if not arguments.no_compile:
        torch._dynamo.reset()
        compiled = torch.compile(function)
        row["compiled"] = by_events(lambda: compiled(*inputs))


def mlp_graph(batch):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)
    inputs, targets = torch.randn(batch, 784), torch.randint(0, 10, (batch,))
    return graph_of(workloads["trainer"](model, inputs, targets, optimizer))


def training(name, make, graph=None):
    if arguments.filter not in name:
        return
    row = rows.setdefault(name, {})
    row["eager"] = by_clock(make())
    if graph:
        rows[f"{name}, replayed"] = {"graph": by_clock(graph(), 1000)}


def gelu(a, b, c, d):
    return F.gelu(a * b + c, approximate="tanh") * d


kernel("gelu(a*b+c)*d 64M", gelu, *(torch.randn(1 << 26) for _ in range(4)))
kernel("gelu(a*b+c)*d 64M bf16", gelu, *(torch.randn(1 << 26).bfloat16() for _ in range(4)))
x, w = torch.randn(16384, 4096).bfloat16(), torch.randn(4096).bfloat16()
kernel("softmax 16384x4096 bf16", lambda x: F.softmax(x, -1), x)
kernel("layer norm 16384x4096 bf16", lambda x, w: F.layer_norm(x, (4096,), w, w), x, w)
kernel("RMS norm 16384x4096 bf16", lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), x, w)
kernel("row sums 16384x4096 bf16", lambda x: x.sum(1), x)
kernel("column sums 16384x4096 bf16", lambda x: x.sum(0), x)
kernel("sum of all 16384x4096 bf16", lambda x: x.sum(), x)
del x, w
no_compile, arguments.no_compile = arguments.no_compile, True
for name, dtype in (("f32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    for n in (4096, 8192):
        a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
        kernel(f"matmul {name} {n}", torch.matmul, a, b)
        del a, b
arguments.no_compile = no_compile
for batch in (1, 64, 128, 1024):
    name = f"MLP Adam step, batch {batch}"
    training(name, lambda: workloads["mlp"](batch), lambda: mlp_graph(batch))
training("CNN Adam step, batch 64", workloads["cnn"])
training("LSTM Adam step, batch 32", workloads["lstm"])
training("GPT AdamW step, 8x128", workloads["gpt"])

ours = {}
command = [arguments.neurenix, "bench", "--json", "--device", arguments.device, "--seconds", "0.5"]
command += ["--filter", arguments.filter]
for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
    row = json.loads(line)
    ours[row["name"]] = row["ms"]

print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, device {arguments.device}\n")
print("| workload | ours, ms | PyTorch eager, ms | compiled | graph | speedup over the fastest of PyTorch |")
print("|---|---:|---:|---:|---:|---:|")
for name, row in rows.items():
    if name not in ours:
        continue
    cell = lambda key: f"{row[key]:.3f}" if key in row else ""
    ratio = min(row.values()) / ours[name]
    print(f"| {name} | {ours[name]:.3f} | {cell('eager')} | {cell('compiled')} | {cell('graph')} | {ratio:.2f} |")
