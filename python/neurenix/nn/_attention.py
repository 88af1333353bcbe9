"""Multi-head attention: what the layer and the function compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import _engine
from .._engine import Tensor
from . import functional as F

__all__ = ["multi_head_attention_forward"]

Projection = tuple[Tensor, Tensor | None]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    projections: Sequence[Projection | None],
    further: Sequence[Tensor | None],
    add_zero_attn: bool,
    dropout: float,
    output: Callable[[Tensor], Tensor],
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average_attn_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """The result (N, L, E) and the weights of queries (N, L, E), keys (N, S, K) and values (N, S, V). ``projections``
    map the three; where one is ``None``, the heads are given: (N, H, S, D). ``further`` are a key and a value that are
    appended. ``output`` maps the result.
    """
    (batch, rows), head = query.shape[:2], (query.shape[2] if projections[0] is None else projections[0][0].shape[0]) // num_heads

    def heads(x: Tensor, projection: Projection | None) -> Tensor:
        if projection is None:
            return x
        return F.linear(x, *projection).reshape(*x.shape[:2], num_heads, head).transpose(1, 2)

    q, k, v = (heads(x, projection) for x, projection in zip((query, key, value), projections, strict=True))
    columns = k.shape[2]
    mask = _mask(attn_mask, key_padding_mask, batch, num_heads, rows, columns)
    k, v = (_extended(x, bias, add_zero_attn) for x, bias in zip((k, v), further, strict=True))
    if mask is not None and k.shape[2] > columns:
        mask = mask.pad((0, k.shape[2] - columns))
    weights: Tensor | None = None
    if need_weights:
        scores = F.matmul(q * head**-0.5, k.transpose(-2, -1))
        weights = F.softmax(scores if mask is None else scores + mask.to(scores.dtype), -1)
        weights = F.dropout(weights, dropout) if dropout else weights
        mixed = F.matmul(weights, v)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout)
    return output(mixed.transpose(1, 2).reshape(batch, rows, num_heads * head)), weights


def _extended(heads: Tensor, bias: Tensor | None, add_zero_attn: bool) -> Tensor:
    """Appends a learnable position, and one of zeros, where requested."""
    shape = (*heads.shape[:2], 1, heads.shape[3])
    parts = [heads]
    if bias is not None:
        parts.append(bias.to(heads.dtype).reshape(1, *shape[1:]).broadcast_to(shape))
    if add_zero_attn:
        parts.append(_engine.zeros(shape, dtype=heads.dtype, device=heads.device))
    return _engine.cat(parts, 2) if len(parts) > 1 else heads


def _mask(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, rows: int, columns: int) -> Tensor | None:
    """Both masks as additive numbers: (1 or N, 1 or H, L, S)."""
    added = None
    if mask is not None:
        added = _additive(mask).reshape((1, 1, rows, columns) if mask.ndim == 2 else (batch, heads, rows, columns))
    if padding is not None:
        more = _additive(padding).reshape(batch, 1, 1, columns)
        added = more if added is None else added + more
    return added


def _additive(mask: Tensor) -> Tensor:
    if mask.dtype.is_floating_point:
        return mask
    return _engine.zeros(mask.shape, device=mask.device).masked_fill(mask.bool(), -float("inf"))


def part_of(part: int, size: int, together: Tensor | None, separate: Tensor | None, bias: Tensor | None) -> Projection:
    """Weight and bias of queries (0), keys (1) or values (2), from those of all three together."""
    weight = separate
    if weight is None:
        if together is None:
            raise ValueError("multi_head_attention_forward: the weight of a projection is missing")
        weight = together.narrow(0, part * size, size)
    return weight, None if bias is None else bias.narrow(0, part * size, size)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What ``nn.MultiheadAttention`` computes from its weights: the result and the weights of the positions, or
    ``None``.

    Queries are (L, N, E), or (L, E) without a batch; keys and values have S instead of L. ``in_proj_weight`` has the
    rows of all three projections; with ``use_separate_proj_weight`` they are given one by one. ``static_k`` and
    ``static_v``, (N * num_heads, S, E / num_heads), replace projected keys and values. ``is_causal`` is a hint about
    ``attn_mask`` and does not create a mask.

    >>> import neurenix as nx
    >>> x, w = nx.ones(5, 3, 8), nx.ones(24, 8)
    >>> given = w, None, None, None, False, 0.0, w[:8], None
    >>> output, weights = nx.functional.multi_head_attention_forward(x, x, x, 8, 2, *given)
    >>> output.shape, weights.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 5, 5]))
    """
    name = "multi_head_attention_forward"
    if is_causal and attn_mask is None:
        raise ValueError(f"{name}: is_causal=True requires attn_mask")
    if any(x.ndim != query.ndim or x.ndim not in (2, 3) for x in (query, key, value)):
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ValueError(f"{name}: query, key and value must have 3 dimensions, or 2 without a batch; their shapes are {shapes}")
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise ValueError(
            f"{name}: expected queries of embed_dim_to_check = {embed_dim_to_check} elements, for {num_heads} heads, "
            f"got {query.shape[-1]}"
        )
    single = query.ndim == 2
    if single:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    batch, separate = query.shape[0], (q_proj_weight, k_proj_weight, v_proj_weight)
    if use_separate_proj_weight and any(weight is None for weight in separate):
        raise ValueError(f"{name}: use_separate_proj_weight requires q_proj_weight, k_proj_weight and v_proj_weight")
    projections: list[Projection | None] = [
        part_of(part, embed_dim_to_check, in_proj_weight, separate[part] if use_separate_proj_weight else None, in_proj_bias)
        for part in range(3)
    ]

    def given(static: Tensor) -> Tensor:
        head = embed_dim_to_check // num_heads
        if static.ndim != 3 or static.shape[0] != batch * num_heads or static.shape[2] != head:
            shape = tuple(static.shape)
            raise ValueError(f"{name}: expected static keys and values of shape ({batch * num_heads}, S, {head}), got {shape}")
        return static.reshape(batch, num_heads, static.shape[1], head)

    if static_k is not None:
        key, projections[1] = given(static_k), None
    if static_v is not None:
        value, projections[2] = given(static_v), None
    result, weights = attention(
        *(query, key, value, num_heads, projections, [bias_k, bias_v], add_zero_attn, dropout_p if training else 0.0),
        lambda x: F.linear(x, out_proj_weight, out_proj_bias),
        *(key_padding_mask, need_weights, attn_mask, average_attn_weights),
    )
    if single:
        return result.squeeze(0), None if weights is None else weights.squeeze(0)
    return result.transpose(0, 1), weights
