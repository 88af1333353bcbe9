"""Drawing tokens from the logits of a language model."""

from __future__ import annotations

import math

from .. import _engine
from .._arguments import guard as _guard
from .._autograd import no_grad
from .._engine import Generator, Tensor

__all__ = ["sample"]


def sample(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draws an index of the last dimension with the probabilities ``softmax(logits / temperature)``: (..., V) to (...), in
    ``int64``.

    ``temperature=0`` takes the greatest logit. ``top_k`` keeps the ``k`` greatest logits, then ``top_p`` keeps the most
    probable ones whose probabilities sum to at least ``top_p`` (Holtzman et al., 2020); one is always kept. The same
    seed draws the same indices.

    >>> import neurenix as nx
    >>> logits = nx.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]])
    >>> nx.nn.sample(logits, temperature=0).tolist()
    [1, 0]
    >>> nx.nn.sample(logits, top_k=1).tolist()
    [1, 0]
    """
    check_sampling(temperature, top_k, top_p)
    if not logits.ndim or not logits.shape[-1]:
        raise ValueError(f"sample: expected logits of shape (..., V) with V at least 1, got {tuple(logits.shape)}")
    if not logits.is_floating_point():
        raise TypeError(f"sample: expected floating-point logits, got {logits.dtype.name}")
    with no_grad():
        if temperature == 0:
            return logits.argmax(-1)
        scores = logits.float() / temperature
        order: Tensor | None = None
        if top_k is not None or top_p is not None:
            size = scores.shape[-1]
            scores, order = scores.topk(size if top_k is None else min(top_k, size), -1)
        if top_p is not None:
            probabilities = scores.softmax(-1)
            before = probabilities.cumsum(-1) - probabilities
            # Exactly 0 for the most probable one, which is always kept.
            scores = scores.masked_fill(before >= top_p, -math.inf)
        # The maximum after adding Gumbel noise has the distribution of the softmax. The uniform numbers include 0, whose
        # noise is the least, and exclude 1: the noise is finite where it could win.
        uniform = _engine.rand(tuple(scores.shape), dtype="float32", device=scores.device, generator=generator)
        chosen = (scores - (-uniform.log()).log()).argmax(-1)
        return chosen if order is None else order.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises an error for settings of :func:`sample` that are out of range."""
    if not 0.0 <= temperature < math.inf:
        raise ValueError(f"sample: temperature is {temperature}, it must be finite and not negative")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int)):
        raise TypeError(f"sample: expected an int or None as top_k, got {type(top_k).__name__}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"sample: top_k is {top_k}, it must be at least 1, or None to keep all")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"sample: top_p is {top_p}, it must be greater than 0 and at most 1, or None to keep all")


_guard(globals())
