"""What the benchmarks against PyTorch share: samples, turns, processes, and training steps."""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

Run = Callable[[], Any]

# Peaks that NVIDIA publishes for an H200: operations of dense 16-bit products and bytes of memory, in a second.
OPERATIONS = 989e12
BYTES = 4.8e12


def seconds(run: Run, wait: Run) -> float:
    """The fastest of five samples of some 20 ms, or of 200 runs, by the host's clock."""
    for _ in range(3):
        run()
    wait()
    begun = time.perf_counter()
    run()
    wait()
    count = max(3, min(200, int(0.02 / max(time.perf_counter() - begun, 1e-5))))
    samples = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        samples.append((time.perf_counter() - begun) / count)
    return min(samples)


def turns(*sides: tuple[Run, Run], count: int = 3) -> list[float]:
    """The median of each side's ``seconds`` over turns that alternate. A side is what runs and what waits for it."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(count):
        for each, (run, wait) in zip(times, sides):
            each.append(seconds(run, wait))
    return [statistics.median(each) for each in times]


def in_processes(measure: Callable[..., None], device: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Measures each row in a process of its own: in one process, the ninth size of a product and later ones are
    arguments of a slower kernel.
    """
    processes = multiprocessing.get_context("fork")
    for row in rows:
        process = processes.Process(target=measure, args=(device, *row))
        process.start()
        process.join()
        if process.exitcode != 0:
            sys.exit(f"{row}: exit code {process.exitcode}")


def training(name: str, items: int, step: Run, wait: Run, peak: Callable[[], int]) -> None:
    """Prints a row for a training step of so many items: after three steps, the mean of eight, whose loss is read at
    their end; items per second; the most memory that the library has handed out; and the first step by itself.
    """
    begun = time.perf_counter()
    step().item()
    first = time.perf_counter() - begun
    for _ in range(3):
        step()
    wait()
    begun = time.perf_counter()
    for _ in range(8):
        loss = step()
    loss.item()
    wait()
    each = (time.perf_counter() - begun) / 8
    print(f"| {name} | {each * 1e3:.1f} | {items / each:.0f} | {peak() / 1e9:.1f} | {first:.1f} |", flush=True)


def graph_of(step: Run) -> Run:
    """A CUDA graph of what a function of PyTorch's does. Returns its replay, which returns the function's result."""
    import torch

    side = torch.cuda.Stream()
    # The step's inputs are still being made on the current stream.
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return lambda: (graph.replay(), result)[1]


def device_argument() -> str:
    """The device that the command names."""
    return sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
