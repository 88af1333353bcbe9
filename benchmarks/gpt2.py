"""A training step of GPT-2 124M, ours and PyTorch's (eager and torch.compile) in one run.

16 x 1,024 tokens, AdamW, bfloat16 autocast (and ours with 8-bit products), no dropout, a vocabulary of 50,304, random weights and tokens. The step
ends with the update; the loss is read after eight steps. Ours is measured before and after PyTorch's, each after three
steps, the first of which is reported by itself. Peak memory is what each one's allocator has handed out.

Usage: python benchmarks/gpt2.py [DEVICE]
"""

import torch
from timing import device_argument, training
from torch import nn

import neurenix as nx

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 16, 1024, 768, 12, 12, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.c_attn(self.ln_1(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(LENGTH, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x)).view(-1, VOCABULARY)
        return nn.functional.cross_entropy(logits.float(), targets)


def ours(device, name, dtype):
    nx.set_default_device(device)
    config = nx.models.GPT2Config(vocab_size=VOCABULARY, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = nx.models.GPT2(config)
    optimizer = nx.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = nx.randint(0, VOCABULARY, (BATCH, LENGTH)).evaluate()
    targets = nx.randint(0, VOCABULARY, (BATCH * LENGTH,)).evaluate()

    def step():
        with nx.autocast("cuda", dtype=dtype):
            loss = nx.nn.functional.cross_entropy(model(tokens).reshape(BATCH * LENGTH, -1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training(name, BATCH * LENGTH, step, nx.synchronize, lambda: nx.Device(device).memory()["peak"])
    nx.Device(device).empty_cache()


def theirs(name, transform):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = GPT2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="cuda")
    targets = torch.randint(0, VOCABULARY, (BATCH * LENGTH,), device="cuda")
    function = transform(model)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = function(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training(name, BATCH * LENGTH, step, torch.cuda.synchronize, torch.cuda.max_memory_allocated)


def main():
    device = device_argument()
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| GPT-2 124M | step, ms | tokens/s | peak memory, GB | first step, s |")
    print("|---|---:|---:|---:|---:|", flush=True)
    ours(device, "ours", nx.bfloat16)
    theirs("PyTorch eager", lambda model: model)
    theirs("PyTorch compiled", torch.compile)
    ours(device, "ours", nx.bfloat16)
    ours(device, "ours, linear layers in 8 bits", nx.float8_e4m3fn)


if __name__ == "__main__":
    main()
