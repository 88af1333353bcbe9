"""Matrix products of bfloat16, and of float32 rounded to TF32, ours and PyTorch's (cuBLAS) in alternating turns of one
run.

Shapes are M x K x N. The layout names the factors: N is stored as it is multiplied, T transposed. Among them are the
products of GPT-2's training step with 16 x 1,024 tokens: those of its layers, of their inputs' gradients (NT) and of
their weights' gradients (TN). TFLOP/s are medians of three turns, each the fastest of five samples of some 20 ms or
200 products, by the host's clock. The floor is the time of the operations at 989 TFLOP/s (TF32: at half of that), or
of reading the factors and writing the product once at 4.8 TB/s, whichever is longer (an H200's published peaks). The
error is the root of the mean square against PyTorch's product of the factors as float64, relative to that product.
Each product is measured in a process of its own: in one process, the ninth size of a product and later ones are
arguments of a slower kernel.

Usage: python benchmarks/products.py [DEVICE]
"""

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
]


def measure(device, layout, m, k, n):
    rounds = layout.endswith("TF32")
    if rounds:
        nx.set_float32_matmul_precision("high")
        torch.set_float32_matmul_precision("high")
    dtype = torch.float32 if rounds else torch.bfloat16
    stored = [(m, k) if layout[0] == "N" else (k, m), (k, n) if layout[1] == "N" else (n, k)]
    factors = [torch.randn(*shape, device="cuda", dtype=dtype) for shape in stored]
    mine = [nx.from_dlpack(factor).to(device) for factor in factors]
    a, b = (x if kind == "N" else x.T for x, kind in zip(factors, layout))
    c, d = (x if kind == "N" else x.transpose(0, 1) for x, kind in zip(mine, layout))
    exact = a.double() @ b.double()
    product = torch.from_dlpack((c @ d).evaluate().to("cuda:0")).double()
    error = ((product - exact).norm() / exact.norm()).item()
    del exact, product
    times = turns((lambda: a @ b, torch.cuda.synchronize), (lambda: (c @ d).evaluate(), nx.synchronize))
    operations = 2 * m * k * n
    elements = m * k + k * n + m * n
    floor = max(operations / (OPERATIONS / 2 if rounds else OPERATIONS), dtype.itemsize * elements / BYTES)
    rates = [operations / each / 1e12 for each in times]
    row = f"| {layout} {m} x {k} x {n} | {floor * 1e6:.1f} | {rates[0]:.0f} | {rates[1]:.0f} |"
    print(f"{row} {rates[1] / rates[0]:.2f} | {error:.1e} |", flush=True)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| product | floor, us | PyTorch, TFLOP/s | ours | ours / PyTorch | error |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    in_processes(measure, device, SHAPES)


if __name__ == "__main__":
    main()
