"""An LSTM of two layers of 512 units over 64 sequences of 256 steps, ours and PyTorch's in alternating turns of one run.

Inputs have 512 features; all numbers are float16. Milliseconds are medians of three turns, each the fastest of five samples of some
20 ms, by the host's clock. "Both" is a forward and a backward pass. "Graph" is PyTorch's in a CUDA graph. The floor is
the time of the products at 989 TFLOP/s (an H200's published peak). The difference is the greatest of an element, of
outputs and of the input's gradient.

Usage: python benchmarks/recurrent.py [DEVICE]
"""

import torch
from timing import OPERATIONS, device_argument, graph_of, turns

import neurenix as nx

LAYERS, UNITS, BATCH, STEPS = 2, 512, 64, 256


def measure(device):
    nx.set_default_device(device)
    theirs = torch.nn.LSTM(UNITS, UNITS, LAYERS, dtype=torch.float16, device="cuda")
    own = nx.nn.LSTM(UNITS, UNITS, LAYERS, dtype=nx.float16)
    own.load_state_dict({key: nx.from_dlpack(value.detach()).to(device) for key, value in theirs.state_dict().items()})
    x = torch.randn(STEPS, BATCH, UNITS, dtype=torch.float16, device="cuda", requires_grad=True)
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

    # Four gates, each with products of the input and of the state.
    operations = 2 * LAYERS * STEPS * BATCH * 4 * UNITS * 2 * UNITS
    for what, run, own_run, times in [("forward", forward, own_forward, 1), ("both", both, own_both, 3)]:
        sides = [(run, torch.cuda.synchronize), (graph_of(run), torch.cuda.synchronize), (own_run, nx.synchronize)]
        eager, graph, ours = (each * 1e3 for each in turns(*sides))
        floor = times * operations / OPERATIONS * 1e3
        difference = (torch.from_dlpack(own_run().to("cuda:0")).float() - run().float()).abs().max().item()
        row = f"| {what} | {floor:.3f} | {eager:.2f} | {graph:.2f} | {ours:.2f} |"
        print(f"{row} {min(eager, graph) / ours:.2f} | {difference:.1e} |", flush=True)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| LSTM | floor, ms | PyTorch, ms | graph | ours | speedup over the fastest | difference |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    measure(device)


if __name__ == "__main__":
    main()
