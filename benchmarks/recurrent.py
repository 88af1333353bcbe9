"""Recurrent layers, two of 512 units over sequences of 256 steps, ours and PyTorch's in alternating turns of one run.

Inputs have 512 features. Milliseconds are medians of three turns, each the fastest of five samples of some
20 ms, by the host's clock. "Both" is a forward and a backward pass. "Graph" is PyTorch's in a CUDA graph. The floor is
the time of the products at 989 TFLOP/s (an H200's published peak of 16-bit numbers). PyTorch rounds factors of float32
to TF32 in its recurrent layers, ours does not. The difference is the greatest of an element, of
outputs and of the input's gradient.

Usage: python benchmarks/recurrent.py [DEVICE]
"""

import torch
from timing import OPERATIONS, device_argument, graph_of, turns

import neurenix as nx

LAYERS, UNITS, STEPS = 2, 512, 256
# The layer, its gates, the type of all numbers, and the sequences.
CASES = [("LSTM", 4, "float16", 64), ("GRU", 3, "float16", 64), ("LSTM", 4, "float16", 512), ("LSTM", 4, "float32", 64)]


def measure(device, kind, gates, dtype, batch):
    nx.set_default_device(device)
    torch_dtype = getattr(torch, dtype)
    theirs = getattr(torch.nn, kind)(UNITS, UNITS, LAYERS, dtype=torch_dtype, device="cuda")
    own = getattr(nx.nn, kind)(UNITS, UNITS, LAYERS, dtype=getattr(nx, dtype))
    own.load_state_dict({key: nx.from_dlpack(value.detach()).to(device) for key, value in theirs.state_dict().items()})
    x = torch.randn(STEPS, batch, UNITS, dtype=torch_dtype, device="cuda", requires_grad=True)
    mine = nx.from_dlpack(x.detach()).to(device).requires_grad_()

    def forward():
        with torch.no_grad():
            return theirs(x)[0]

    def own_forward():
        with nx.no_grad():
            return own(mine)[0].evaluate()

    def both():
        return torch.autograd.grad(theirs(x)[0].sum(), [x, *theirs.parameters()])[0]

    def own_both():
        for each in (mine, *own.parameters()):
            each.grad = None
        own(mine)[0].sum().backward()
        nx.evaluate([mine.grad, *(each.grad for each in own.parameters())])
        return mine.grad

    # Each gate has products of the input and of the state.
    operations = 2 * LAYERS * STEPS * batch * gates * UNITS * 2 * UNITS
    for what, run, own_run, times in [("forward", forward, own_forward, 1), ("both", both, own_both, 3)]:
        sides = [(run, torch.cuda.synchronize), (graph_of(run), torch.cuda.synchronize), (own_run, nx.synchronize)]
        eager, graph, ours = (each * 1e3 for each in turns(*sides))
        floor = times * operations / OPERATIONS * 1e3
        difference = (torch.from_dlpack(own_run().to("cuda:0")).float() - run().float()).abs().max().item()
        row = f"| {kind} {dtype}, {batch}, {what} | {floor:.3f} | {eager:.2f} | {graph:.2f} | {ours:.2f} |"
        print(f"{row} {min(eager, graph) / ours:.2f} | {difference:.1e} |", flush=True)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| layer, sequences | floor, ms | PyTorch, ms | graph | ours | speedup over the fastest | difference |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for case in CASES:
        measure(device, *case)


if __name__ == "__main__":
    main()
