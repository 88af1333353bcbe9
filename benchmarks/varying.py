"""Numbers and sizes that change: what a step with new ones costs, and what kernels cost that take them as arguments.

Steps: milliseconds with one number or length, and with another each time; the mean of 200, after as many to warm up. The
result is computed in each step; the device is waited for at the end.

Kernels: milliseconds with sizes built into the code, and with sizes as arguments, which they become when a second size
comes. Each is measured in a process of its own, in which the other sizes come first or not at all. Best of 7 turns.

Usage: python benchmarks/varying.py DEVICE   (cuda:0, opencl:0, ..)
"""

import json
import subprocess
import sys
import time

import neurenix as nx

STEPS = 200
F = nx.nn.functional
# Inputs by a length, what is computed, and lengths: the last one is measured. The others have the same divisors up to 64
# and the same power of two below them, so that the code differs in numbers only.
WORKS = {
    "exp(x) + 1, 4096 rows of n": (lambda n: [(4096, n)], lambda x: x.exp() + 1, (5120, 6144, 7168)),
    "the same, transposed": (lambda n: [(4096, n)], lambda x: x.transpose(0, 1).exp() + 1, (5120, 6144, 7168)),
    "sums of 8192 rows of n": (lambda n: [(8192, n)], lambda x: x.sum(1), (5120, 6144, 7168)),
    "softmax, 8192 rows of n": (lambda n: [(8192, n)], lambda x: F.softmax(x, 1), (5120, 6144, 7168)),
    "softmax, n rows of 4096": (lambda n: [(n, 4096)], lambda x: F.softmax(x, 1), (5120, 6144, 7168)),
    "layer norm, n rows of 4096": (lambda n: [(n, 4096)], lambda x: F.layer_norm(x, (4096,)), (5120, 6144, 7168)),
    "matmul, n x 2048 x 2048": (lambda n: [(n, 2048), (2048, 2048)], lambda a, b: a @ b, (1280, 1536, 1792)),
    "matmul, 2048 x n x 2048": (lambda n: [(2048, n), (n, 2048)], lambda a, b: a @ b, (1280, 1536, 1792)),
    "conv, 64 x 64 x n x 56, kernel 3": (
        lambda n: [(64, 64, n, 56), (64, 64, 3, 3)],
        lambda x, w: F.conv2d(x, w, padding=1),
        (40, 48, 56),
    ),
}


def seconds(step, count):
    """The time of a step, when `count` follow each other and the device is waited for."""
    nx.synchronize()
    begun = time.perf_counter()
    for number in range(count):
        step(number)
    nx.synchronize()
    return (time.perf_counter() - begun) / count


def work(name, kind):
    inputs, compute, lengths = WORKS[name]
    for length in lengths[:-1] if kind == "arguments" else ():
        compute(*(nx.randn(*shape).evaluate() for shape in inputs(length))).evaluate()
    tensors = [nx.randn(*shape).evaluate() for shape in inputs(lengths[-1])]
    step = lambda _: compute(*tensors).evaluate()
    seconds(step, 5)
    return {"ms": min(seconds(step, 20) for _ in range(7)) * 1e3, "explain": compute(*tensors).explain() or ""}


def steps():
    for size in (1024, 1 << 20):
        x = nx.randn(size).evaluate()
        numbers = lambda k: (x * k + x).exp().evaluate()
        seconds(lambda number: numbers(2.5 + number), STEPS)
        same, other = seconds(lambda _: numbers(2.25), STEPS), seconds(lambda number: numbers(3.25 + number), STEPS)
        print(f"| (x * k + x).exp(), {size:,} elements | {same * 1e3:.4f} | {other * 1e3:.4f} | {other / same:.2f} |")
        rows = x.reshape(2, -1)
        lengths = lambda n: (rows[:, :n] * 3.5 + 1).exp().evaluate()
        first = rows.shape[1] // 4
        seconds(lambda number: lengths(first - number // 2), STEPS)
        same, other = seconds(lambda _: lengths(first), STEPS), seconds(lambda number: lengths(first + 1 + number), STEPS)
        print(f"| a slice of about {2 * first:,} elements | {same * 1e3:.4f} | {other * 1e3:.4f} | {other / same:.2f} |", flush=True)


if len(sys.argv) == 4:
    nx.set_default_device(sys.argv[1])
    print(json.dumps(work(*sys.argv[2:])))
    sys.exit()

nx.set_default_device(sys.argv[1])
print(f"{sys.argv[1]}\n\n| step | the same, ms | another each time, ms | ratio |\n|---|---:|---:|---:|")
steps()
print("\n| kernel | sizes built in, ms | sizes as arguments, ms | ratio |\n|---|---:|---:|---:|")
for name in WORKS:
    results = {}
    for kind in ("built in", "arguments"):
        command = [sys.executable, __file__, sys.argv[1], name, kind]
        results[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    built, arguments = results["built in"], results["arguments"]
    note = "" if "for other sizes too" in arguments["explain"] else " (no kernel took arguments)"
    print(f"| {name}{note} | {built['ms']:.4f} | {arguments['ms']:.4f} | {arguments['ms'] / built['ms']:.3f} |", flush=True)
