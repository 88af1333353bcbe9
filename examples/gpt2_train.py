"""Trains a GPT-2 on a text and lets it write.

    python examples/gpt2_train.py --text FILE --device cuda:0 --layers 12 --width 768 --heads 12 --length 1024 --batch 16

Tokens are bytes, so that any text will do; without --text, the model learns from this project's documents. The default sizes
suit a processor: less than a minute on two cores. On a GPU, products are computed in bfloat16 unless --precision is float32.
Prints the loss, tokens per second and memory, draws the loss curve to gpt2_train.png, and ends with a sample.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import neurenix as nx
from neurenix import models, nn, optim


def read_text(path: Path | None) -> bytes:
    """The text to learn from."""
    if path is not None:
        return path.read_bytes()
    folder = Path(__file__).parents[1] / "docs"
    return b"\n".join(page.read_bytes() for page in sorted(folder.glob("*.md")))


def check(arguments: argparse.Namespace, text: bytes) -> None:
    """Refuses settings before anything is computed."""
    if arguments.length < 2 or len(text) <= arguments.length:
        raise ValueError(f"--length must be at least 2 and less than the {len(text)} bytes of the text, got {arguments.length}")
    if not 0 < len(arguments.prompt.encode()) < arguments.length:
        raise ValueError(f"--prompt must have 1 to {arguments.length - 1} bytes")
    if arguments.width % arguments.heads:
        raise ValueError(f"--width {arguments.width} must be a multiple of --heads {arguments.heads}")
    if not arguments.curve.absolute().parent.is_dir():
        raise ValueError(f"--curve: there is no folder {arguments.curve.absolute().parent}")


def positive(text: str) -> int:
    """A number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def learning_rate(step: int, steps: int, most: float) -> float:
    """A linear warm-up over a tenth of the steps, then a linear decay to a tenth."""
    warm = max(1, steps // 10)
    return most * (step + 1) / warm if step < warm else most * (1 - 0.9 * (step - warm) / max(1, steps - warm))


def train(arguments: argparse.Namespace) -> models.GPT2:
    """Trains a new model and returns it."""
    device = nx.Device(arguments.device) if arguments.device else nx.get_default_device()
    nx.set_default_device(device)
    nx.manual_seed(arguments.seed)
    text = read_text(arguments.text)
    check(arguments, text)
    data = nx.tensor(list(text))
    config = models.GPT2Config(
        vocab_size=256,
        n_positions=arguments.length,
        n_embd=arguments.width,
        n_layer=arguments.layers,
        n_head=arguments.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = models.GPT2(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(text):,} bytes of text, {count:,} parameters, on {device.name}", file=sys.stderr)
    precision = arguments.precision or ("float32" if device.name == "cpu" else "bfloat16")
    # Norms and biases do not decay.
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = optim.AdamW(groups, lr=arguments.learning_rate, betas=(0.9, 0.95))
    history, offsets = nx.data.History(), nx.arange(arguments.length)
    tokens, begun = 0, time.perf_counter()
    for step in nx.data.progress(range(arguments.steps), "training"):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments.steps, arguments.learning_rate)
        places = nx.randint(0, len(text) - arguments.length, (arguments.batch, 1)) + offsets
        low: Any = contextlib.nullcontext() if precision == "float32" else nx.autocast(dtype=precision)
        with low:
            logits = model(data[places])
            loss = nn.functional.cross_entropy(logits.reshape(-1, 256), data[places + 1].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == 0:
            # The first step also compiles its kernels.
            tokens, begun = -arguments.batch * arguments.length, time.perf_counter()
        tokens += arguments.batch * arguments.length
        if step % arguments.every == arguments.every - 1 or step == arguments.steps - 1:
            value = loss.item()
            history.record(loss=value)
            rate = f"{tokens / (time.perf_counter() - begun):,.0f} tokens/s, " if tokens else ""
            peak = device.memory()["peak"] / 1e6
            print(f"step {step + 1}: loss {value:.3f}, {rate}at most {peak:,.0f} MB", file=sys.stderr)
    history.plot(arguments.curve)
    print(f"the loss curve is in {arguments.curve}", file=sys.stderr)
    return model


def write(model: models.GPT2, arguments: argparse.Namespace) -> str:
    """Continues the prompt."""
    model.eval()
    prompt = list(arguments.prompt.encode())
    room = arguments.length - len(prompt)
    made = models.generate(model, prompt, min(arguments.sample, room), temperature=0.8, top_k=40)
    return bytes([*prompt, *made]).decode("utf-8", "replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="the file to learn from (default: this project's documents)")
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: the first accelerator, else cpu)")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of products")
    parser.add_argument("--steps", type=positive, default=300)
    parser.add_argument("--batch", type=positive, default=8, help="pieces of the text per step")
    parser.add_argument("--length", type=positive, default=128, help="bytes of a piece")
    parser.add_argument("--layers", type=positive, default=4)
    parser.add_argument("--width", type=positive, default=128)
    parser.add_argument("--heads", type=positive, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--every", type=positive, default=20, help="steps between two lines of output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", default="The ", help="how the sample begins")
    parser.add_argument("--sample", type=positive, default=120, help="bytes of the sample")
    parser.add_argument("--curve", type=Path, default=Path("gpt2_train.png"))
    arguments = parser.parse_args()
    try:
        print(write(train(arguments), arguments))
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        sys.exit(f"gpt2_train: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
