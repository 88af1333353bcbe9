"""Training steps of PyTorch programs on the CPU: ours (through neurenix.torch) beside PyTorch's, in one run.

The programs are those of python/tests/programs (their steps after the tenth, of 50) and the networks of networks.py
(steps after the third). Each side runs in a process of its own, in turns; a time is the least of three turns, in
milliseconds a step.

Usage: python benchmarks/programs.py [--threads N] [--turns N] [NAMES...]
"""

import argparse
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import time
import timeit
import warnings

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE.parent / "python" / "tests" / "programs"


NETWORKS = "vgg_11 resnet_18 resnext mobilenet_v1 mobilenet_v2 densenet_bc efficientnet_b0 shufflenet".split()


def every_name():
    return NETWORKS + sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "common")


def milliseconds(name):
    """The median time of a step."""
    if name in NETWORKS:
        networks = importlib.import_module("networks")
        train, warm, count = networks.step(getattr(networks, name)), 3, 5
    else:
        program = importlib.import_module(name)
        losses = program.losses()
        if isinstance(losses, list):
            # A program whose optimizer calls the steps.
            return min(timeit.repeat(program.losses, number=1, repeat=3)) * 1e3 / len(losses)
        train, warm, count = lambda: next(losses, None), 10, 40
    for _ in range(warm):
        train()
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        if train() is None:
            break
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e3


def one_side(library, threads, names):
    """Prints a line of JSON for each name."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(PROGRAMS))
    if library == "neurenix":
        from neurenix.torch._modules import install

        install("torch")
    import torch

    torch.set_num_threads(threads)
    for name in names:
        print(json.dumps([name, milliseconds(name)]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--side")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.side:
        one_side(given.side, given.threads, given.names)
        return
    chosen = given.names or every_name()
    best = {library: dict.fromkeys(chosen, float("inf")) for library in ["neurenix", "torch"]}
    for _ in range(given.turns):
        for library, times in best.items():
            command = [sys.executable, __file__, "--side", library, "--threads", str(given.threads), *chosen]
            printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            for name, time_of_step in map(json.loads, printed.splitlines()):
                times[name] = min(times[name], time_of_step)
    print("| program | ours (ms) | PyTorch (ms) | ratio |\n|---|---|---|---|")
    ratios = []
    for name in chosen:
        ours, theirs = best["neurenix"][name], best["torch"][name]
        ratios.append(ours / theirs)
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")
    print(f"\nmedian {statistics.median(ratios):.2f}, greatest {max(ratios):.2f}, {len(ratios)} programs")


if __name__ == "__main__":
    main()
