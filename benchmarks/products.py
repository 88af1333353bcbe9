"""Matrix products of bfloat16, of float32 rounded to TF32, of 8-bit floats and of int8, ours and PyTorch's (cuBLAS) in
alternating turns of one run.

Shapes are M x K x N. The layout names the factors: N is stored as it is multiplied, T transposed. Among them are the
products of GPT-2's training step with 16 x 1,024 tokens: those of its layers, of their inputs' gradients (NT) and of
their weights' gradients (TN). TFLOP/s are medians of three turns, each the fastest of five samples of some 20 ms or
200 products, by the host's clock. The floor is the time of the operations at 989 TFLOP/s (TF32: at half of that, 8
bits: at twice that), or of reading the factors and writing the product once at 4.8 TB/s, whichever is longer (an H200's
published peaks). The error is the root of the mean square against PyTorch's product of the factors as float64, relative
to that product. "split" is float32 as sums of bfloat16 numbers, beside PyTorch's IEEE float32. Products of float8_e4m3fn give bfloat16; "fast" is PyTorch's use_fast_accum, which adds all terms in the
matrix units.
Each product is measured in a process of its own: in one process, the ninth size of a product and later ones are
arguments of a slower kernel.

Usage: python benchmarks/products.py [DEVICE] [PART OF A NAME]
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from timing import BYTES, OPERATIONS, device_argument, in_processes, turns

import neurenix as nx

SHAPES = [
    ("NN", 2048, 2048, 2048),
    ("NN", 4096, 4096, 4096),
    ("NN", 8192, 8192, 8192),
    ("NT", 8192, 8192, 8192),
    ("TN", 8192, 8192, 8192),
    ("TT", 8192, 8192, 8192),
    ("NN", 16384, 768, 3072),
    ("NN", 16384, 3072, 768),
    ("NN", 16384, 768, 768),
    ("NN", 16384, 768, 2304),
    ("NN", 16384, 768, 50304),
    ("NT", 16384, 3072, 768),
    ("NT", 16384, 768, 3072),
    ("NT", 16384, 50304, 768),
    ("TN", 768, 16384, 3072),
    ("TN", 3072, 16384, 768),
    ("TN", 768, 16384, 2304),
    ("TN", 768, 16384, 768),
    ("TN", 768, 16384, 50304),
    ("NN", 1000, 1000, 1000),
    ("NN TF32", 4096, 4096, 4096),
    ("NN TF32", 8192, 8192, 8192),
    ("NT TF32", 8192, 8192, 8192),
    ("NN split", 4096, 4096, 4096),
    ("NN split", 8192, 8192, 8192),
    ("TN split", 4096, 4096, 4096),
    ("NT float8", 4096, 4096, 4096),
    ("NT float8", 8192, 8192, 8192),
    ("NT float8 fast", 8192, 8192, 8192),
    ("NT float8", 16384, 768, 3072),
    ("NT float8", 16384, 3072, 768),
    ("NT int8", 4096, 4096, 4096),
    ("NT int8", 8192, 8192, 8192),
]


class Kind(NamedTuple):
    """The factors' dtype, how many times the rate of 16-bit products the units have, and PyTorch's product."""

    dtype: torch.dtype
    rate: float
    product: Callable[[Any, Any], Any]


def _scaled(fast):
    one = torch.ones((), device="cuda")
    return lambda a, b: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)


def kind_of(name):
    """What follows the layout in a row's name."""
    match name:
        case "":
            return Kind(torch.bfloat16, 1, torch.matmul)
        case "TF32":
            nx.set_float32_matmul_precision("high")
            torch.set_float32_matmul_precision("high")
            return Kind(torch.float32, 0.5, torch.matmul)
        case "split":
            nx.set_float32_matmul_precision("split")
            return Kind(torch.float32, 1 / 6, torch.matmul)
        case "int8":
            return Kind(torch.int8, 2, torch._int_mm)
    return Kind(torch.float8_e4m3fn, 2, _scaled(name == "float8 fast"))


def measure(device, name, m, k, n):
    layout, _, rest = name.partition(" ")
    dtype, rate, theirs = kind_of(rest)
    stored = [(m, k) if layout[0] == "N" else (k, m), (k, n) if layout[1] == "N" else (n, k)]
    if dtype == torch.int8:
        factors = [torch.randint(-128, 128, shape, device="cuda", dtype=dtype) for shape in stored]
    else:
        factors = [torch.randn(*shape, device="cuda").to(dtype) for shape in stored]
    # Not all versions of PyTorch exchange 8-bit floats.
    wide = [factor.float() if dtype.itemsize == 1 else factor for factor in factors]
    mine = [nx.from_dlpack(factor).to(device).to(str(dtype).removeprefix("torch.")) for factor in wide]
    a, b = (x if kind == "N" else x.T for x, kind in zip(factors, layout))
    c, d = (x if kind == "N" else x.transpose(0, 1) for x, kind in zip(mine, layout))
    result = {torch.int8: "int32", torch.float8_e4m3fn: "bfloat16"}.get(dtype)
    ours = lambda: (c.matmul(d, out_dtype=result) if result else c @ d).evaluate()  # noqa: E731
    exact = a.double() @ b.double()
    product = torch.from_dlpack(ours().to("cuda:0")).double()
    error = ((product - exact).norm() / exact.norm()).item()
    their_error = ((theirs(a, b).double() - exact).norm() / exact.norm()).item()
    del exact, product
    times = turns((lambda: theirs(a, b), torch.cuda.synchronize), (ours, nx.synchronize))
    operations = 2 * m * k * n
    bytes_moved = dtype.itemsize * (m * k + k * n) + (4 if result == "int32" else max(dtype.itemsize, 2)) * m * n
    floor = max(operations / (OPERATIONS * rate), bytes_moved / BYTES)
    rates = [operations / each / 1e12 for each in times]
    row = f"| {name} {m} x {k} x {n} | {floor * 1e6:.1f} | {rates[0]:.0f} | {rates[1]:.0f} |"
    print(f"{row} {rates[1] / rates[0]:.2f} | {their_error:.1e} | {error:.1e} |", flush=True)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| product | floor, us | PyTorch, TFLOP/s | ours | ours / PyTorch | error of PyTorch | ours |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    in_processes(measure, device, [row for row in SHAPES if wanted in row[0]])


if __name__ == "__main__":
    main()
