"""micrograd_rs against Andrej Karpathy's micrograd in Python: microseconds of processor time, and how many times as fast.

Expressions are built operator by operator and differentiated; the network is `MLP(10, [20, 20, 1])`, called and
differentiated. Both packages run in processes of their own, taking turns; a figure is the median of the turns' fastest
runs, since other work on a machine only ever adds time.

Usage: python benchmarks/micrograd.py [python with micrograd], where `python` has micrograd_rs; without an argument, it
has both.
"""

import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import time

TURNS = 7


def workloads(package):
    """Functions by name. `package` is that of the process."""
    if package == "micrograd":
        Value, MLP = importlib.import_module("micrograd.engine").Value, importlib.import_module("micrograd.nn").MLP
    else:
        ours = importlib.import_module("micrograd_rs")
        Value, MLP = ours.Value, ours.MLP

    def readme():
        # The example of micrograd's README.
        a, b = Value(-4.0), Value(2.0)
        c = a + b
        d = a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        d += d * 2 + (b + a).relu()
        d += 3 * d + (b - a).relu()
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
        g.backward()

    def chain():
        a, b = Value(1.0), Value(0.5)
        c = a
        for _ in range(100):
            c = c * b + a
        c.backward()

    random.seed(1)
    model = MLP(10, [20, 20, 1])
    x = [Value(random.uniform(-1, 1)) for _ in range(10)]

    def network():
        model(x).backward()

    def step():
        loss = (model(x) - 1.0) ** 2
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data -= 0.001 * parameter.grad

    return {
        "README's expression": readme,
        "200 sums and products": chain,
        "MLP(10, [20, 20, 1])": network,
        "its training step": step,
    }


def fastest(function):
    runs = 1
    while True:
        start = time.process_time_ns()
        for _ in range(runs):
            function()
        taken = time.process_time_ns() - start
        if taken > 5e6:
            break
        runs *= 2
    best = taken / runs
    for _ in range(10):
        start = time.process_time_ns()
        for _ in range(runs):
            function()
        best = min(best, (time.process_time_ns() - start) / runs)
    return best / 1e3


def turn(python, package):
    command = [python, os.path.abspath(__file__), "--measure", package]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    if sys.argv[1:2] == ["--measure"]:
        # This file has the name of the package that is measured.
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
        print(json.dumps({name: fastest(function) for name, function in workloads(sys.argv[2]).items()}))
        return
    peer = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    turns = [(turn(sys.executable, "micrograd_rs"), turn(peer, "micrograd")) for _ in range(TURNS)]
    print(f"{'microseconds':<24}{'micrograd_rs':>14}{'micrograd':>14}{'times':>8}")
    for name in turns[0][0]:
        ours = statistics.median(own[name] for own, _ in turns)
        theirs = statistics.median(other[name] for _, other in turns)
        print(f"{name:<24}{ours:>14.1f}{theirs:>14.1f}{theirs / ours:>8.1f}")


if __name__ == "__main__":
    main()
