"""Numbers and sizes that change: what a step with new ones costs, and what kernels cost that take them as arguments.

Steps: milliseconds with one number or length, and with another each time, in alternating turns after 200 steps to warm
up; medians of five turns, of 200 steps with numbers and 40 with lengths. Each step computes its result; the device is
waited for at the end of a turn.

Kernels: milliseconds with sizes built into the code, and with sizes as arguments, which they become when a second size
comes. Each is measured in a process of its own (DEVICE WORK KIND), in which other sizes come first or not at all. Best
of 7 turns.

Usage: python benchmarks/varying.py DEVICE   (cuda:0, opencl:0, ..)
"""

import json
import statistics
import subprocess
import sys
import time

import neurenix as nx

WARM_UP = 200
TURNS = 5
F = nx.nn.functional
ROWS = (5120, 6144, 7168)
SMALLER = (1280, 1536, 1792)
# Inputs by a length, what is computed, and lengths, of which the last one is measured. The powers of two that divide
# them are large, so that the code differs in numbers only.
WORKS = {
    "exp(x) + 1, 4096 rows of n": (lambda n: [(4096, n)], lambda x: x.exp() + 1, ROWS),
    "the same, transposed": (lambda n: [(4096, n)], lambda x: x.transpose(0, 1).exp() + 1, ROWS),
    "sums of 8192 rows of n": (lambda n: [(8192, n)], lambda x: x.sum(1), ROWS),
    "softmax, 8192 rows of n": (lambda n: [(8192, n)], lambda x: F.softmax(x, 1), ROWS),
    "softmax, n rows of 4096": (lambda n: [(n, 4096)], lambda x: F.softmax(x, 1), ROWS),
    "layer norm, n rows of 4096": (lambda n: [(n, 4096)], lambda x: F.layer_norm(x, (4096,)), ROWS),
    "matmul, n x 2048 x 2048": (lambda n: [(n, 2048), (2048, 2048)], lambda a, b: a @ b, SMALLER),
    "matmul, 2048 x n x 2048": (lambda n: [(2048, n), (n, 2048)], lambda a, b: a @ b, SMALLER),
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


def kernel(name, kind):
    """Milliseconds of a work, and how it is computed."""
    inputs, compute, lengths = WORKS[name]
    for length in lengths[:-1] if kind == "arguments" else ():
        compute(*(nx.randn(*shape).evaluate() for shape in inputs(length))).evaluate()
    tensors = [nx.randn(*shape).evaluate() for shape in inputs(lengths[-1])]

    def step(_):
        compute(*tensors).evaluate()

    seconds(step, 5)
    best = min(seconds(step, 20) for _ in range(7))
    return {"ms": best * 1e3, "explain": compute(*tensors).explain() or ""}


def kernels(device):
    print("\n| kernel | sizes built in, ms | sizes as arguments, ms | ratio |\n|---|---:|---:|---:|")
    for name in WORKS:
        results = {}
        for kind in ("built in", "arguments"):
            command = [sys.executable, __file__, device, name, kind]
            results[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        built, arguments = results["built in"], results["arguments"]
        note = "" if "for other sizes too" in arguments["explain"] else " (no kernel took arguments)"
        ratio = arguments["ms"] / built["ms"]
        print(f"| {name}{note} | {built['ms']:.4f} | {arguments['ms']:.4f} | {ratio:.3f} |", flush=True)


def row(name, step, same, others, count):
    """Prints the times of `step` for one value, and for `others(number)`, in turns of `count` steps."""
    seconds(lambda number: step(others(-number)), WARM_UP)
    turns = []
    for turn in range(TURNS):
        one = seconds(lambda _: step(same), count)
        many = seconds(lambda number, turn=turn: step(others(1 + turn * count + number)), count)
        turns.append((one, many))
    one, many = (statistics.median(times) for times in zip(*turns))
    print(f"| {name} | {one * 1e3:.4f} | {many * 1e3:.4f} | {many / one:.2f} |", flush=True)


def steps():
    print("\n| step | the same, ms | another each time, ms | ratio |\n|---|---:|---:|---:|")
    for size in (1024, 1 << 20):
        x = nx.randn(size).evaluate()
        rows = x.reshape(2, -1)
        middle = rows.shape[1] // 2
        row(
            f"(x * k + x).exp(), {size:,} elements",
            lambda k, x=x: (x * k + x).exp().evaluate(),
            2.25,
            lambda number: 3.5 + number,
            200,
        )
        row(
            f"a slice of about {size // 2:,} elements",
            lambda n, rows=rows: (rows[:, :n] * 3.5 + 1).exp().evaluate(),
            middle,
            lambda number, middle=middle: middle + number,
            40,
        )


nx.set_default_device(sys.argv[1])
if len(sys.argv) == 4:
    print(json.dumps(kernel(*sys.argv[2:])))
else:
    print(sys.argv[1])
    steps()
    kernels(sys.argv[1])
