"""Writes text with a language model: GPT-2 or Llama, from a folder with Hugging Face's files.

    python examples/generate_text.py FOLDER --prompt "Once upon a time" --temperature 0.8 --top-k 40

The folder contains config.json and model.safetensors (or several files with model.safetensors.index.json). If it contains
tokenizer.json, the package "tokenizers" is needed (pip install tokenizers); otherwise tokens are bytes. Without a folder, a
small random model writes random bytes, which shows how the parts fit together.
"""

from __future__ import annotations

import argparse
import codecs
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neurenix as nx
from neurenix import models


class Bytes:
    """Text as the bytes of its UTF-8 encoding."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""
        tokens = list(text.encode())
        if max(tokens, default=0) >= self.vocab_size:
            raise ValueError(f"the prompt contains bytes outside the model's vocabulary of {self.vocab_size} tokens")
        return tokens

    def writer(self, prompt: list[int]) -> Callable[[int], str]:
        """A function of the next token after a prompt: returns the text that is complete since its last call."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def write(token: int) -> str:
            text = decoder.decode(bytes([token])) if token < 256 else f"<{token}>"
            # Control characters would change the terminal's state.
            return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)

        return write


class Tokenizer:
    """Text as tokenizer.json divides it."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Library
        except ImportError:
            raise ValueError(f'{path} requires the package "tokenizers": pip install tokenizers') from None
        self.library: Any = Library.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""
        return list(self.library.encode(text).ids)

    def writer(self, prompt: list[int]) -> Callable[[int], str]:
        """A function of the next token after a prompt: returns the text that is complete since its last call."""
        # With the prompt, because the first token of a text loses its space.
        tokens = list(prompt)
        written = len(self.library.decode(tokens))

        def write(token: int) -> str:
            nonlocal written
            tokens.append(token)
            text: str = self.library.decode(tokens)
            # A character may take several tokens; until the last one, it is decoded as this mark.
            if text.endswith("\N{REPLACEMENT CHARACTER}"):
                return ""
            new, written = text[written:], len(text)
            return new

        return write


def options() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="the model's folder; a small random model if it is left out")
    parser.add_argument("--prompt", default="Hello", help='the text to continue (default: "Hello")')
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="stop after N tokens (default: 64)")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0 takes the most probable token (default: 1)")
    parser.add_argument("--top-k", type=int, metavar="K", help="choose among the K most probable tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="choose among the most probable tokens that sum to P")
    parser.add_argument("--seed", type=int, default=0, help="the same seed writes the same text (default: 0)")
    parser.add_argument("--device", help='such as "cpu" or "cuda" (default: the best one found)')
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], help="of the weights (default: as in the file)")
    return parser.parse_args()


def prepared(given: argparse.Namespace) -> tuple[models.LanguageModel, Bytes | Tokenizer]:
    """The model and its tokenizer."""
    if given.device is not None:
        nx.set_default_device(given.device)
    nx.manual_seed(given.seed)
    if given.folder is None:
        config = models.GPT2Config(vocab_size=256, n_positions=1024, n_embd=64, n_layer=2, n_head=4)
        model: models.LanguageModel = models.GPT2(config, dtype=given.dtype).eval()
    else:
        model = models.from_pretrained(given.folder, dtype=given.dtype)
        if (given.folder / "tokenizer.json").is_file():
            return model, Tokenizer(given.folder / "tokenizer.json")
    return model, Bytes(model.config.vocab_size)


def write(given: argparse.Namespace) -> None:
    """Writes the prompt and its continuation to standard output, and the speed to standard error."""
    model, tokenizer = prepared(given)
    tokens = tokenizer.encode(given.prompt)
    if not tokens:
        raise ValueError("the prompt has no tokens: pass --prompt with some text")
    made = models.generate(
        model,
        tokens,
        given.max_new_tokens,
        temperature=given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        stop_tokens=model.config.eos_token_id if isinstance(tokenizer, Tokenizer) else None,
    )
    print(given.prompt, end="", flush=True)
    text, times = tokenizer.writer(tokens), [time.perf_counter()]
    for token in made:
        times.append(time.perf_counter())
        print(text(token), end="", flush=True)
    print()
    first = f"{len(tokens)} tokens of the prompt and the first new one in {times[1] - times[0]:.2f} s"
    others = f"; then {(len(times) - 2) / (times[-1] - times[1]):.1f} tokens/s" if len(times) > 2 else ""
    print(f"[{first}{others}; {model.device}]", file=sys.stderr)


def main() -> int:
    """Runs the command and returns its exit code."""
    try:
        write(options())
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"generate_text: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
