"""Attention of 16-bit floats, ours and PyTorch's (cuDNN and flash) in alternating turns of one run.

Shapes are batch x heads x positions x features, of queries, keys and values alike. TFLOP/s count the products of the
forward pass (2) and of the backward pass (5), half of them if attention is causal. "Both" is a forward and a backward
pass. Times are medians of three turns, each the fastest of five samples of some 20 ms or 200 calls, by the host's
clock. The floor is the time of the operations at 989 TFLOP/s (an H200's published peak). Errors are the root of the
mean square against attention in float32, relative to it: of the output, and the worst one of the gradients.

Usage: python benchmarks/attention.py [DEVICE]
"""

import statistics

import torch
from timing import OPERATIONS, device_argument, in_processes, seconds
from torch.nn.attention import SDPBackend, sdpa_kernel

import neurenix as nx

SHAPES = [
    (8, 16, 1024, 128, True),
    (4, 16, 4096, 128, True),
    (2, 16, 8192, 128, True),
    (4, 16, 4096, 128, False),
    (16, 12, 1024, 64, True),
    (4, 32, 4096, 64, True),
    (2, 32, 8192, 64, True),
    (4, 32, 4096, 64, False),
    (4, 8, 4096, 256, True),
]
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def relative(actual, expected):
    return ((actual.float() - expected).norm() / expected.norm()).item()


def measure(device, batch, heads, positions, features, causal):
    shape = (batch, heads, positions, features)
    matrices = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    mine = [nx.from_dlpack(matrix).to(device) for matrix in matrices]
    for inputs in (matrices, mine):
        for matrix in inputs[:3]:
            matrix.requires_grad_()

    def forward(functional, inputs):
        q, k, v, _ = inputs
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def both(functional, inputs):
        for matrix in inputs[:3]:
            matrix.grad = None
        forward(functional, inputs).backward(inputs[3])
        return [matrix.grad for matrix in inputs[:3]]

    def ours_forward():
        with nx.no_grad():
            return forward(nx.nn.functional, mine).evaluate()

    def ours_both():
        gradients = both(nx.nn.functional, mine)
        nx.evaluate(gradients)
        return gradients

    def theirs_forward():
        with torch.no_grad():
            return forward(torch.nn.functional, matrices)

    rates, share = [], 2 if causal else 1
    for mine_runs, theirs_runs, products in [
        (ours_forward, theirs_forward, 2),
        (ours_both, lambda: both(torch.nn.functional, matrices), 7),
    ]:
        ours, theirs = [], []
        for _ in range(3):
            ours.append(seconds(mine_runs, nx.synchronize))
            turns = []
            for backend in BACKENDS:
                with sdpa_kernel(backend):
                    turns.append(seconds(theirs_runs, torch.cuda.synchronize))
            theirs.append(min(turns))
        operations = products * 2 * batch * heads * positions**2 * features / share
        best, own = statistics.median(theirs), statistics.median(ours)
        floor = operations / OPERATIONS
        rates.append(f"{floor * 1e6:.0f} | {operations / best / 1e12:.0f} | {operations / own / 1e12:.0f}")
        rates.append(f"{best / own:.2f}")

    # In float32 the scores of all positions would not fit: the first batch and head are compared.
    exact = [matrix[:1, :1].detach().float().requires_grad_() for matrix in matrices]
    with sdpa_kernel(SDPBackend.MATH):
        output = forward(torch.nn.functional, exact)
    output.backward(exact[3].detach())
    to_torch = lambda x: torch.from_dlpack(x.detach().to("cuda:0"))[:1, :1]
    errors = [relative(to_torch(ours_forward()), output.detach())]
    gradients = ours_both()
    errors.append(max(relative(to_torch(a), b.grad) for a, b in zip(gradients, exact[:3])))
    kind = "causal" if causal else "full"
    row = " x ".join(map(str, shape))
    print(f"| {row} {kind} | {' | '.join(rates)} | {errors[0]:.1e} | {errors[1]:.1e} |", flush=True)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| attention | forward: floor, us | PyTorch, TFLOP/s | ours | ours / PyTorch | both: floor, us |", end="")
    print(" PyTorch, TFLOP/s | ours | ours / PyTorch | error | of gradients |")
    print("|---" + "|---:" * 10 + "|", flush=True)
    in_processes(measure, device, SHAPES)


if __name__ == "__main__":
    main()
