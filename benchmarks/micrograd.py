"""Compares micrograd_rs with Andrej Karpathy's micrograd and with another extension module: microseconds of processor
time, and speedups.

Expressions are built operator by operator and differentiated; the network `MLP(10, [20, 20, 1])` is called and
differentiated. Each package runs in its own processes, in turns. A figure is the median over the turns of each turn's
fastest run, because other work on a machine only adds time. Each process first checks that its numbers equal micrograd's.

A second table has nanoseconds of single operators, including the release of their results but not the loop, and of
`backward` per value, measured on a sum of a thousand values.

`--reference` names an extension module with `Value` and `MLP`, such as `benchmarks/rc_micrograd`:

    cargo build --release --manifest-path benchmarks/rc_micrograd/Cargo.toml
    python benchmarks/micrograd.py --reference benchmarks/rc_micrograd/target/release/librc_micrograd.so
"""

import argparse
import importlib
import importlib.machinery
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time

# The minimum speedups. The training step has no goal.
GOALS = {
    "micrograd": {"README's expression": 10, "200 sums and products": 10, "MLP(10, [20, 20, 1])": 100},
    "reference": {"README's expression": 3, "200 sums and products": 3, "MLP(10, [20, 20, 1])": 3},
}


def load(package):
    """Returns `Value` and `MLP` of `micrograd`, `micrograd_rs`, or the library at a path."""
    if package == "micrograd":
        return importlib.import_module("micrograd.engine").Value, importlib.import_module("micrograd.nn").MLP
    if package == "micrograd_rs":
        module = importlib.import_module(package)
    else:
        # Cargo builds libname.so; an installed module is name.abi3.so.
        name = os.path.basename(package).split(".")[0].removeprefix("lib")
        loader = importlib.machinery.ExtensionFileLoader(name, package)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
        loader.exec_module(module)
    return module.Value, module.MLP


def workloads(Value, MLP):
    """Returns the check numbers and the workloads by name."""

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
        return g.data, a.grad, b.grad

    def chain():
        a, b = Value(1.0), Value(0.5)
        c = a
        for _ in range(100):
            c = c * b + a
        c.backward()
        return c.data, a.grad, b.grad

    model = MLP(10, [20, 20, 1])
    random.seed(1)
    for parameter in model.parameters():
        # The same weights for every package.
        parameter.data = random.uniform(-1, 1)
    x = [Value(random.uniform(-1, 1)) for _ in range(10)]

    def network():
        y = model(x)
        y.backward()
        return y

    def step():
        loss = (model(x) - 1.0) ** 2
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data -= 0.001 * parameter.grad

    numbers = [*readme(), *chain(), network().data, x[0].grad, model.parameters()[0].grad]
    return numbers, {
        "README's expression": readme,
        "200 sums and products": chain,
        "MLP(10, [20, 20, 1])": network,
        "its training step": step,
    }


OPERATORS = ["a + b", "a * 2.0", "-a", "a ** 2"]
TIMES = 1000


def operators(Value):
    """Returns functions that apply one operator `TIMES` times, by the operator's text, and one with an empty loop."""
    names = {"a": Value(1.5), "b": Value(0.5), "times": [None] * TIMES}

    def loop(body):
        # Local variables, as in most programs: module globals are slower.
        source = f"def loop(a=a, b=b, times=times):\n    for _ in times:\n        {body}\n"
        exec(source, names)
        return names.pop("loop")

    return {operator: loop(operator) for operator in OPERATORS}, loop("pass")


def single(Value):
    """Returns the nanoseconds of each operator, and of `backward` per value."""
    functions, empty = operators(Value)
    nothing = fastest(empty)
    nanoseconds = {name: (fastest(function) - nothing) * 1e3 / TIMES for name, function in functions.items()}
    b = Value(0.5)
    # micrograd visits the values by recursion.
    sys.setrecursionlimit(10 * TIMES)
    result = Value(1.0)
    for _ in range(TIMES):
        result = result + b
    nanoseconds["backward"] = fastest(result.backward) * 1e3 / TIMES
    return nanoseconds


def fastest(function):
    """Returns the microseconds of a call."""
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


def measure(package):
    """Prints the check numbers, the microseconds of each workload, and the nanoseconds of each operator."""
    # This file has the name of a measured package, which it would hide.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    Value, MLP = load(package)
    numbers, functions = workloads(Value, MLP)
    microseconds = {name: fastest(function) for name, function in functions.items()}
    print(json.dumps([numbers, microseconds, single(Value)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="?", default=sys.executable, help="a Python interpreter with micrograd (default: this one)")
    parser.add_argument("--reference", metavar="LIBRARY", help="an extension module with Value and MLP")
    parser.add_argument("--turns", type=int, default=7, help="number of turns of each package (default: 7)")
    parser.add_argument("--measure", metavar="PACKAGE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure)

    sides = {"micrograd_rs": (sys.executable, "micrograd_rs"), "micrograd": (arguments.python, "micrograd")}
    if arguments.reference:
        sides["reference"] = (sys.executable, os.path.abspath(arguments.reference))
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    turns = [{side: turn(*command) for side, command in sides.items()} for _ in range(arguments.turns)]
    print(f"load average after: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    expected = turns[0]["micrograd"][0]
    for side in sides:
        for own, theirs in zip(turns[0][side][0], expected, strict=True):
            if abs(own - theirs) > 1e-9 * max(1.0, abs(theirs)):
                sys.exit(f"{side} computes {own} where micrograd computes {theirs}")

    def median(side, name, table=1):
        return statistics.median(each[side][table][name] for each in turns)

    others = [side for side in sides if side != "micrograd_rs"]
    print(f"{'microseconds':<24}{'micrograd_rs':>14}" + "".join(f"{side:>12}{'times':>8}{'goal':>6}" for side in others))
    for name in turns[0]["micrograd_rs"][1]:
        ours = median("micrograd_rs", name)
        row = f"{name:<24}{ours:>14.1f}"
        for side in others:
            theirs = median(side, name)
            row += f"{theirs:>12.1f}{theirs / ours:>8.1f}{GOALS[side].get(name, ''):>6}"
        print(row)
    print(f"\n{'nanoseconds':<24}{'micrograd_rs':>14}" + "".join(f"{side:>12}{'times':>8}" for side in others))
    for name in turns[0]["micrograd_rs"][2]:
        ours = median("micrograd_rs", name, 2)
        theirs = [median(side, name, 2) for side in others]
        print(f"{name:<24}{ours:>14.1f}" + "".join(f"{other:>12.1f}{other / ours:>8.1f}" for other in theirs))


if __name__ == "__main__":
    main()
