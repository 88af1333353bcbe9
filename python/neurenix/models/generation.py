"""Generation of tokens."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

from .. import _engine
from .._autograd import no_grad
from .._compile import compile
from .._engine import Generator, Tensor
from ..nn import KeyValueCache
from ..nn.cache import CacheStep
from ..nn.sampling import check_sampling, sample
from ._pretrained import read_config
from .gpt2 import GPT2
from .language_model import LanguageModel
from .llama import Llama

MODELS: dict[str, type[LanguageModel]] = {kind.config_class.model_type: kind for kind in (GPT2, Llama)}

# Lengths of caches are multiples of it, so that generations of similar lengths share plans.
_STEP = 64


def from_pretrained(folder: str | os.PathLike[str], *, device: Any = None, dtype: Any = None) -> LanguageModel:
    """The model in a folder with Hugging Face's files: of the class that ``model_type`` in ``config.json`` names. See
    :meth:`LanguageModel.from_pretrained`.
    """
    kind = read_config(folder).get("model_type")
    if kind not in MODELS:
        raise NotImplementedError(f"{os.fspath(folder)}: model_type {kind!r} is not supported; supported: {', '.join(MODELS)}")
    return MODELS[kind].from_pretrained(folder, device=device, dtype=dtype)


@overload
def generate(
    model: LanguageModel,
    tokens: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    generator: Generator | None = ...,
    stop_tokens: int | Collection[int] | None = ...,
    cache: KeyValueCache | None = ...,
) -> Iterator[int]: ...
@overload
def generate(
    model: LanguageModel,
    tokens: Tensor | Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    temperature: float = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    generator: Generator | None = ...,
    stop_tokens: int | Collection[int] | None = ...,
    cache: KeyValueCache | None = ...,
) -> Iterator[Any]: ...
def generate(
    model: LanguageModel,
    tokens: Any,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
    stop_tokens: int | Collection[int] | None = None,
    cache: KeyValueCache | None = None,
) -> Iterator[Any]:
    """Continues ``tokens``, token ids of shape (L) or (N, L), and yields each new token as soon as it is drawn: an ``int``,
    or for (N, L) a list of N.

    It ends after ``max_new_tokens``, or after a stop token, which is the last one yielded. A sequence of (N, L) that has
    reached a stop token repeats it until all have. ``temperature``, ``top_k``, ``top_p`` and ``generator`` are those of
    :func:`neurenix.nn.sample`. The model runs in its current mode: call ``model.eval()`` to turn dropout off. Without
    ``cache``, a GPU may compute a token while the caller handles the one before. A caller that stops early may then find
    that the generator has drawn once more.

    The default cache is static. Pass one to continue where an earlier generation stopped: ``tokens`` then are only those
    that are not in it yet, including the last one that was yielded. Logits that contain NaN raise ``RuntimeError``.

    >>> import neurenix as nx
    >>> sizes = dict(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    >>> model = nx.models.GPT2(nx.models.GPT2Config(**sizes)).eval()
    >>> len(list(nx.models.generate(model, [3, 1, 2], max_new_tokens=4)))
    4
    """
    if not isinstance(model, LanguageModel):
        raise TypeError(f"generate: expected a LanguageModel, got {type(model).__name__}")
    check_sampling(temperature, top_k, top_p)
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"generate: max_new_tokens is {max_new_tokens!r}, it must be a positive integer")
    prompt = tokens if isinstance(tokens, Tensor) else _engine.tensor(tokens, device="cpu")
    if prompt.ndim not in (1, 2) or not prompt.numel() or prompt.is_floating_point() or prompt.dtype.name == "bool":
        raise ValueError(
            f"generate: expected token ids of shape (L) or (N, L), not empty, got {prompt.dtype.name} of shape "
            f"{tuple(prompt.shape)}"
        )
    vocabulary = model.config.vocab_size
    least, greatest = int(prompt.min().item()), int(prompt.max().item())
    if least < 0 or greatest >= vocabulary:
        outside = least if least < 0 else greatest
        raise ValueError(f"generate: the token id {outside} is outside the vocabulary of {vocabulary} tokens")
    stops = {stop_tokens} if isinstance(stop_tokens, int) else set(stop_tokens or ())
    for stop in stops:
        if not 0 <= stop < vocabulary:
            raise ValueError(f"generate: the stop token {stop!r} is outside the vocabulary of {vocabulary} tokens")
    # The last token is not fed to the model.
    total = prompt.shape[-1] + max_new_tokens - 1
    if cache is not None:
        total += cache.length
    room = model.context_length if cache is None or cache.max_length is None else min(cache.max_length, model.context_length)
    if total > room:
        raise ValueError(
            f"generate: {total} tokens (with those in the cache, the prompt and max_new_tokens) do not fit into {room}: pass a "
            "shorter prompt or a smaller max_new_tokens"
        )
    # With a cache of the caller, or random numbers after a stop token, a step too many could be seen.
    is_random = temperature != 0 or model.training
    overlaps = cache is None and model.device.type != "cpu" and not (is_random and stops)
    if cache is None:
        cache = model.new_cache(min(-(-total // _STEP) * _STEP, room))
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "generator": generator}
    return _steps(model, prompt.to(device=model.device), max_new_tokens, settings, stops, cache, overlaps)


def _steps(
    model: LanguageModel,
    prompt: Tensor,
    max_new_tokens: int,
    settings: dict[str, Any],
    stops: set[int],
    cache: KeyValueCache,
    overlaps: bool,
) -> Iterator[Any]:
    is_single = prompt.ndim == 1
    tokens = prompt.unsqueeze(0) if is_single else prompt
    stopped: dict[int, int] = {}
    compiled = None
    ahead: Tensor | None = None
    for number in range(max_new_tokens):
        # Not around the yield, where it would also apply to the caller.
        with no_grad():
            if ahead is not None:
                chosen = ahead
            elif number == 0 or cache.max_length is None:
                chosen = _chosen(model(tokens, cache, 1), settings)
                cache.evaluate(chosen)
            else:
                if compiled is None:
                    compiled = compile(functools.partial(_next, model, cache.layers(), settings))
                chosen = compiled(tokens.squeeze(-1), *cache.next_step())
            reading, length = chosen._begin_read(), cache.length
            # A device computes the next step while the host handles this one.
            is_last = number + 1 == max_new_tokens
            ahead = compiled(chosen, *cache.next_step()) if compiled is not None and overlaps and not is_last else None
        read = reading.wait()
        if any(token < 0 for token in read):
            raise RuntimeError(
                f"generate: the model's logits after {length} tokens contain NaN: check its weights, or use a dtype with a "
                f"greater range than {model.dtype.name}"
            )
        found = [stopped.get(row, token) for row, token in enumerate(read)]
        if ahead is None:
            # Host data, which needs no check of its range.
            tokens = _engine.tensor([[token] for token in found], device=model.device)
        stopped.update((row, token) for row, token in enumerate(found) if token in stops)
        yield found[0] if is_single else found
        if len(stopped) == len(found):
            return


def _next(
    model: LanguageModel,
    layers: list[tuple[Tensor, Tensor]],
    settings: dict[str, Any],
    tokens: Tensor,
    *place: Tensor,
) -> Tensor:
    """A step with one token for each sequence; compiled, so that the host only launches it."""
    # The remainder is known to be in range, also where the token is -1.
    known = (tokens % model.config.vocab_size).unsqueeze(-1)
    return _chosen(model(known, CacheStep(layers, *place), 1), settings)


def _chosen(logits: Tensor, settings: dict[str, Any]) -> Tensor:
    """The next token of each sequence, or -1 if its logits contain NaN."""
    last = logits[:, -1]
    return _engine.where(last.isnan().any(-1), -1, sample(last, **settings))
