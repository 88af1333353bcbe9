"""Two GPUs of one machine: all-reduce, and a training step of GPT-2 124M, ours and PyTorch's, in one run.

The step is that of gpt2.py, with 16 x 1,024 tokens for each process: one process, and two with
DistributedDataParallel. An all-reduce of n bytes moves n (1 GiB: 325 GB/s is NCCL's own rate between two H200s); its
time is the mean of 20. Each side and number of processes runs in processes of its own.

Usage: python benchmarks/data_parallel.py [PROCESSES]
"""

import os
import subprocess
import sys
import time

SIZES = [1 << 20, 16 << 20, 256 << 20, 1 << 30]


def reduce(all_reduce, make, wait):
    """Prints the rate of each size in GB/s."""
    rates = []
    for size in SIZES:
        x = make(size // 4)
        for _ in range(20):
            all_reduce(x)
        wait(x)
        begun = time.perf_counter()
        for _ in range(20):
            all_reduce(x)
        wait(x)
        rates.append(size / ((time.perf_counter() - begun) / 20) / 1e9)
    return "all-reduce of 1, 16, 256, 1024 MiB: " + ", ".join(f"{rate:.0f}" for rate in rates) + " GB/s"


def steps(step, wait, tokens):
    for _ in range(6):
        step()
    wait()
    begun = time.perf_counter()
    for _ in range(20):
        step()
    wait()
    each = (time.perf_counter() - begun) / 20
    return f"GPT-2: {each * 1e3:.1f} ms a step, {tokens / each:.0f} tokens/s"


def ours(rank, world):
    import neurenix as nx

    device = f"cuda:{rank}"
    nx.set_default_device(device)
    nx.distributed.init_process_group()
    lines = []
    if world > 1:
        lines.append(reduce(nx.distributed.all_reduce, nx.ones, lambda x: x.sum().item()))
    vocabulary, batch, length = 50304, 16, 1024
    config = nx.models.GPT2Config(vocab_size=vocabulary, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = nx.models.GPT2(config)
    optimizer = nx.optim.AdamW(model.parameters(), lr=1e-4)
    parallel = nx.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    tokens = nx.randint(0, vocabulary, (batch, length)).evaluate()
    targets = nx.randint(0, vocabulary, (batch * length,)).evaluate()

    def step():
        with nx.autocast("cuda", dtype=nx.bfloat16):
            loss = nx.nn.functional.cross_entropy(parallel(tokens).reshape(batch * length, -1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    lines.append(steps(step, nx.synchronize, world * batch * length))
    return lines


def theirs(rank, world):
    import torch
    import torch.distributed as dist

    from gpt2 import BATCH, GPT2, LENGTH, VOCABULARY

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    lines = []
    if world > 1:
        lines.append(reduce(dist.all_reduce, lambda n: torch.ones(n, device="cuda"), lambda x: x.sum().item()))
    torch.set_default_device("cuda")
    model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    parallel = model
    if world > 1:
        parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    compiled = torch.compile(parallel)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    targets = torch.randint(0, VOCABULARY, (BATCH * LENGTH,))
    for name, run in [("eager", parallel), ("torch.compile", compiled)]:

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        lines.append(f"{name}: " + steps(step, torch.cuda.synchronize, world * BATCH * LENGTH))
    return lines


def main():
    if "RANK" in os.environ:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        for line in {"neurenix": ours, "torch": theirs}[sys.argv[1]](rank, world):
            if rank == 0:
                print(f"{sys.argv[1]}, {world} processes: {line}", flush=True)
        return
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    for port, (library, world) in enumerate((library, world) for library in ["neurenix", "torch"] for world in [1, most]):
        place = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29611 + port)}
        ranks = [{**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
        processes = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, library], env=env) for env in ranks]
        if any([process.wait() for process in processes]):
            print(f"{library}, {world} processes: failed", flush=True)


if __name__ == "__main__":
    main()
