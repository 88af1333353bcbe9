"""Measures the overhead of Python: recording small operations, the import, a training step compared with Rust's, the data
loader, and memory over many small operations. Prints a table with goals.

Install the package as users do (`pip install ./python`, which compiles with optimisation) and stop other programs.

    python benchmarks/python_overhead.py [--threads N] [--turns N]

Each part runs in fresh processes, in turns. The function of a part says how its figure is computed.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import repeat

TRAINING = "MLP Adam step, batch 64"


def fresh(*command):
    """Runs this Python in a new process and returns the result, with its output."""
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return result


def small():
    import neurenix as nx

    nx.set_default_device("cpu")
    return nx, nx.randn(16).evaluate(), nx.randn(16).evaluate()


# Parts: each runs in its own process and returns a dictionary of numbers.


def recording(arguments):
    """Nanoseconds of `a + b` on 16 floats, including Python's loop: recorded alone, and in chains of 1000 that are computed
    at the end. The fastest of 30 samples, because other work only adds time."""
    _, a, b = small()

    def sums(count):
        for _ in repeat(None, count):
            a + b

    def empty(count):
        for _ in repeat(None, count):
            pass

    def chain(count):
        c = a
        for _ in repeat(None, count):
            c = c + b
        c.evaluate()

    def one_by_one(count):
        for _ in repeat(None, count):
            (a + b).evaluate()

    def fastest(function, count):
        best = float("inf")
        for _ in range(30):
            start = time.perf_counter_ns()
            function(count)
            best = min(best, (time.perf_counter_ns() - start) / count)
        return best

    return {
        "recorded": fastest(sums, 20_000),
        "loop": fastest(empty, 20_000),
        "chain": fastest(chain, 1000),
        "computed": fastest(one_by_one, 1000),
    }


def training(arguments):
    """Milliseconds of the step that `neurenix bench` calls "MLP Adam step, batch 64": the median over 1.5 seconds."""
    import neurenix as nx
    from neurenix import nn, optim

    if arguments.threads:
        nx.set_num_threads(arguments.threads)
    nx.set_default_device("cpu")
    nx.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = nx.randn(64, 784).evaluate(), nx.random.randint(0, 10, (64,)).evaluate()

    def step():
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(4):
        step()
    times, begun = [], time.perf_counter()
    while time.perf_counter() - begun < 1.5:
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    return {"ms": statistics.median(times) / 1e6}


def loading(arguments):
    """Milliseconds of an epoch on the digits (batches of 64, shuffled) with the small network of docs/python.md, and those
    spent waiting for batches. The median of 20 epochs after two, without workers and with one."""
    import neurenix as nx
    from neurenix import nn, optim

    if arguments.threads:
        nx.set_num_threads(arguments.threads)
    nx.set_default_device("cpu")
    train, _ = nx.data.digits()
    told = {}
    for workers in (0, 1):
        nx.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = optim.AdamW(model.parameters(), lr=5e-3)
        loader = nx.data.DataLoader(train, 64, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        epochs = []
        for _ in range(22):
            begun, waited = time.perf_counter(), 0.0
            batches = iter(loader)
            while True:
                asked = time.perf_counter()
                batch = next(batches, None)
                waited += time.perf_counter() - asked
                if batch is None:
                    break
                inputs, labels = batch
                loss = nn.functional.cross_entropy(model(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            epochs.append((1e3 * (time.perf_counter() - begun), 1e3 * waited))
        for name, column in zip(("epoch", "waited"), zip(*epochs[2:], strict=True), strict=True):
            told[f"{name} {workers}"] = statistics.median(column)
    return told


def memory(arguments):
    """Growth over 100,000 operations on 16 floats, each computed and dropped, a tenth of them differentiated, after
    10,000 to warm up: the process in KiB, the device's memory in bytes, Python's objects."""
    nx, a, b = small()
    c = nx.ones(16, requires_grad=True)

    def operations(count):
        for at in range(count // 10):
            for _ in range(9):
                (a + b).evaluate()
            (c * a).sum().backward()
            if at % 100 == 0:
                c.grad = None
        c.grad = None

    def now():
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
        return resident, nx.Device("cpu").memory()["allocated"], sys.getallocatedblocks()

    operations(10_000)
    before = now()
    operations(100_000)
    return dict(zip(("KiB", "bytes", "objects"), (y - x for x, y in zip(before, now(), strict=True)), strict=True))


PARTS = {part.__name__: part for part in (recording, training, loading, memory)}


# The figures of the table.


def imports(turns):
    """Milliseconds by `-X importtime` (neurenix in total, and NumPy's part) and by the clock (a process that imports
    neurenix, and one that imports nothing): medians of fresh processes, with the files in the system's cache."""
    rows = []
    for turn in range(turns + 1):
        lines = fresh("-X", "importtime", "-c", "import neurenix").stderr.splitlines()
        cumulative = {}
        for line in lines:
            if line.startswith("import time:") and "[us]" not in line:
                _, total, name = line.removeprefix("import time:").split("|")
                cumulative[name.strip()] = int(total) / 1e3
        walls = []
        for program in ("import neurenix", "pass"):
            start = time.perf_counter()
            fresh("-c", program)
            walls.append(1e3 * (time.perf_counter() - start))
        if turn:
            rows.append((cumulative["neurenix"], cumulative.get("numpy", 0.0), *walls))
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def rust(arguments):
    """Milliseconds of the same step in Rust: `neurenix bench` of this installation, so the same build."""
    command = ["-m", "neurenix", "bench", "--json", "--device", "cpu", "--filter", TRAINING]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    rows = [json.loads(line) for line in fresh(*command).stdout.splitlines()]
    return next(row["ms"] for row in rows if row["name"] == TRAINING)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, help="threads of the CPU device (default: all cores)")
    parser.add_argument("--turns", type=int, default=7, help="number of turns of each part (default: 7)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments)))
        return

    def part(name):
        threads = ["--threads", str(arguments.threads)] if arguments.threads else []
        return json.loads(fresh(os.path.abspath(__file__), "--part", name, *threads).stdout)

    def several(name):
        turns = [part(name) for _ in range(arguments.turns)]
        return {key: [turn[key] for turn in turns] for key in turns[0]}

    rows = []

    def row(what, value, unit, goal=None):
        reached = "" if goal is None else ("yes" if value <= goal else "NO")
        rows.append((what, f"{value:,.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}", goal, reached))

    print(f"Python {sys.version.split()[0]}, load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")

    ns = {key: min(values) for key, values in several("recording").items()}
    row("a + b on 16 floats, recorded", ns["recorded"], "ns", 1000)
    row("of it the loop of Python's", ns["loop"], "ns")
    row("a sum in a chain of 1000, recorded and computed", ns["chain"], "ns")
    row("(a + b).evaluate()", ns["computed"], "ns")

    neurenix, numpy, wall, empty = imports(arguments.turns)
    row("import neurenix (-X importtime)", neurenix, "ms", 150)
    row("of it numpy", numpy, "ms")
    row("a process that imports neurenix, beyond one that imports nothing", wall - empty, "ms", 150)

    pairs = [(part("training")["ms"], rust(arguments)) for _ in range(arguments.turns)]
    python_ms, rust_ms = (min(column) for column in zip(*pairs, strict=True))
    row(f"{TRAINING}, Python", python_ms, "ms")
    row(f"{TRAINING}, Rust", rust_ms, "ms")
    row("Python / Rust, best of the turns", python_ms / rust_ms, "", 1.15)
    row("Python / Rust, median of pairs", statistics.median(a / b for a, b in pairs), "", 1.15)

    digits = {key: statistics.median(values) for key, values in several("loading").items()}
    for workers, name in ((0, "no worker"), (1, "one worker")):
        row(f"an epoch on the digits, {name}", digits[f"epoch {workers}"], "ms")
        share = 100 * digits[f"waited {workers}"] / digits[f"epoch {workers}"]
        row("of it waiting for batches", share, "%", 50)

    grown = {key: max(values) for key, values in several("memory").items()}
    row("100,000 small operations: the process grows by", grown["KiB"], "KiB", 1024)
    row("the device's memory by", grown["bytes"], "bytes", 0)
    row("Python's objects by", grown["objects"], "", 100)

    print(f"load average after: {os.getloadavg()[0]:.2f}\n")
    print("| | measured | goal, at most | reached |\n|---|---:|---:|---|")
    for what, measured, goal, reached in rows:
        print(f"| {what} | {measured.strip()} | {'' if goal is None else goal} | {reached} |")


if __name__ == "__main__":
    main()
