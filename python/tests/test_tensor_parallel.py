"""Layers that are divided among ranks, against the whole layers: results and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from neurenix.distributed.tensor_parallel import (
    ColumnParallelLinear,
    ColwiseParallel,
    ParallelAttention,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    Replicate,
    RowParallelLinear,
    RowwiseParallel,
    SequenceParallel,
    SequenceParallelLayerNorm,
    SequenceParallelRMSNorm,
    Shard,
    VocabParallelEmbedding,
    gather_from_sequence,
    parallelize_module,
    scatter_to_sequence,
    vocab_parallel_cross_entropy,
)
from neurenix.nn import functional as F
from on_ranks import close, part, same_states

CASES = [
    *((size, name) for size in (2, 3) for name in ("linear_layers", "regions", "vocabularies", "initial_values")),
    *((2, name) for name in ("attention", "norms", "a_block", "prepared_inputs", "what_cannot_be", "language_models")),
    (4, "language_models"),
    (2, "additions_to_layers"),
]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


def own(tensor: nx.Tensor, dim: int = 0) -> nx.Tensor:
    """This rank's part along a dimension: all but the last ones are equal."""
    size = tensor.shape[dim]
    length = -(-size // dist.get_world_size())
    first = min(dist.get_rank() * length, size)
    return tensor.narrow(dim, first, min(length, size - first))


def gradients(run: Callable[[nx.Tensor], nx.Tensor], x: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
    """The result of a function, and the gradient of its argument for some loss of all of the result."""
    x = x.clone().requires_grad_()
    y = run(x)
    (y.square() * (nx.arange(y.numel(), dtype=nx.float32).reshape(y.shape) % 7 - 2)).sum().backward()
    return y.detach(), x.grad


def same(first: tuple[nx.Tensor, nx.Tensor], second: tuple[nx.Tensor, nx.Tensor]) -> None:
    for found, expected in zip(first, second, strict=True):
        close(found, expected)


def linear_layers() -> None:
    x = nx.randn(2, 4, 6)
    # 7 features cannot be divided evenly.
    for inner in (6, 7):
        for bias in (True, False):
            for together in (True, False):
                up, down = nn.Linear(6, inner, bias), nn.Linear(inner, 6, bias)
                column = ColumnParallelLinear.from_linear(up, gather_output=together)
                row = RowParallelLinear.from_linear(down, input_is_parallel=not together)
                shape = (2, 4, inner if together else own(nx.zeros(inner)).numel())
                assert column(x).shape == shape
                same(gradients(lambda x: row(column(x).gelu()), x), gradients(lambda x: down(up(x).gelu()), x))
                close(column.weight.grad, own(up.weight.grad))
                close(row.weight.grad, own(down.weight.grad, 1))
                if bias:
                    close(column.bias.grad, own(up.bias.grad))
                    close(row.bias.grad, down.bias.grad)
    # Precisions.
    with nx.autocast(dtype=nx.bfloat16):
        assert column(x).dtype == nx.bfloat16
    assert row.double()(column.double()(x.double())).dtype == nx.float64


def regions() -> None:
    """All ranks compute one loss from their positions of a sequence."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = nx.randn(2, 2 * size, 3)
    for dim in (1, 0, -2):
        given = x if dim else x.transpose(0, 1)
        # Divided and joined again.
        round_trip = lambda x: gather_from_sequence(scatter_to_sequence(x, dim, shared=True) * 3, dim, shared=True)
        same(gradients(round_trip, given), gradients(lambda x: x * 3, given))
        # Each rank has a summand.
        weights = [float(other + 1) for other in range(size)]
        summed = lambda x: gather_from_sequence(scatter_to_sequence(x * weights[rank], dim), dim, shared=True)
        found, gradient = gradients(summed, given)
        expected, whole = gradients(lambda x: x * sum(weights), given)
        close(found, expected)
        close(gradient, whole * (weights[rank] / sum(weights)))
        # Each rank goes on with a part of the computation, of which the sum is the result.
        y = gather_from_sequence(scatter_to_sequence(given, dim, shared=True), dim)
        assert y.tolist() == given.tolist()

        def partly(x: nx.Tensor) -> nx.Tensor:
            mine = gather_from_sequence(scatter_to_sequence(x, dim, shared=True), dim) * weights[rank]
            return dist.functional.all_reduce(mine, shared=True)

        same(gradients(partly, given), (expected, whole))
    with pytest.raises(ValueError, match=f"cannot be divided among {size} ranks"):
        scatter_to_sequence(nx.zeros(2, 2 * size + 1, 3))


def vocabularies() -> None:
    """13 words cannot be divided evenly."""
    words, width = 13, 6
    table = nn.Embedding(words, width, padding_idx=2)
    head = nn.Linear(width, words)
    divided = VocabParallelEmbedding.from_embedding(table)
    column = ColumnParallelLinear.from_linear(head, gather_output=False)
    index = nx.tensor([[1, 2, 12, 0, 2], [5, 7, 6, 3, 1]])
    target = nx.tensor([[2, -100, 12, 0, 1], [5, 7, -100, 3, 11]])
    for settings in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"ignore_index": 3}):
        own_target = target.masked_fill(target == -100, 3) if "ignore_index" in settings else target
        for module in (table, head, divided, column):
            module.zero_grad()
        expected = F.cross_entropy(head(table(index)).reshape(-1, words), own_target.reshape(-1), **settings)
        found = vocab_parallel_cross_entropy(column(divided(index)), own_target, num_classes=words, **settings)
        close(found.detach().reshape(-1), expected.detach().reshape(-1))
        expected.sum().backward()
        found.sum().backward()
        close(divided.weight.grad, own(table.weight.grad))
        close(column.weight.grad, own(head.weight.grad))
        close(column.bias.grad, own(head.bias.grad))
    close(divided(index).detach(), table(index).detach(), 0.0)
    # Large scores.
    scores = nx.tensor([[1e4, -1e4, 0.0, 3e4, 3e4 - 2, 5.0]])
    divisible = scores[:, : scores.shape[1] // dist.get_world_size() * dist.get_world_size()]
    label = nx.tensor([3])
    close(vocab_parallel_cross_entropy(own(divisible, 1), label), F.cross_entropy(divisible, label))
    # Without their number the ranks cannot know where their classes begin.
    with pytest.raises(ValueError, match=r"the ranks have \[7, 6\] classes: pass num_classes|\[5, 5, 3\] classes"):
        vocab_parallel_cross_entropy(own(nx.zeros(1, words), 1), label)
    for wrong in (words, -1):
        with pytest.raises(IndexError, match="out of range"):
            vocab_parallel_cross_entropy(own(nx.zeros(1, words), 1), nx.tensor([wrong]), num_classes=words).item()
        with pytest.raises(IndexError, match="out of range"):
            divided(nx.tensor([wrong])).tolist()
    with pytest.raises(ValueError, match="expected scores of shape"):
        vocab_parallel_cross_entropy(nx.zeros(2, 3), nx.tensor([0, 1]), num_classes=100)


def initial_values() -> None:
    """They are the parts of one layer, also of ranks with other random states."""
    nx.manual_seed(5 + dist.get_rank())
    column, row = ColumnParallelLinear(5, 9), RowParallelLinear(9, 5)
    table = VocabParallelEmbedding(9, 4, padding_idx=1)
    nx.manual_seed(5)
    expected = [nn.Linear(5, 9), nn.Linear(9, 5), nn.Embedding(9, 4, padding_idx=1)]
    same_states(column.state_dict(), {name: own(value) for name, value in expected[0].state_dict().items()})
    same_states(row.state_dict(), {"weight": own(expected[1].weight.detach(), 1), "bias": expected[1].bias.detach()})
    same_states(table.state_dict(), {"weight": own(expected[2].weight.detach())})


def attention() -> None:
    x = nx.randn(2, 4, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    for bias in (True, False):
        whole = nn.MultiheadAttention(8, 4, bias=bias, batch_first=True)
        if bias:
            nn.init.normal_(whole.in_proj_bias)
        expected = gradients(lambda x: whole(x, x, x, attn_mask=mask, need_weights=False)[0], x)
        for is_sequence in (False, True):
            layer = ParallelAttention.from_attention(whole, sequence_parallel=is_sequence)

            def run(x: nx.Tensor) -> nx.Tensor:
                if not is_sequence:
                    return layer(x, is_causal=True)
                return gather_from_sequence(layer(scatter_to_sequence(x, shared=True), mask), shared=True)

            same(gradients(run, x), expected)
            queries, keys, values = whole.in_proj_weight.grad.chunk(3)
            close(layer.q_proj.weight.grad, own(queries))
            close(layer.k_proj.weight.grad, own(keys))
            close(layer.v_proj.weight.grad, own(values))
            close(layer.out_proj.weight.grad, own(whole.out_proj.weight.grad, 1))
            if bias:
                close(layer.out_proj.bias.grad, whole.out_proj.bias.grad)
                close(layer.v_proj.bias.grad, own(whole.in_proj_bias.grad.chunk(3)[2]))
    # Two heads share keys and values.
    grouped = ParallelAttention(8, 4, num_key_value_heads=2)
    assert grouped.k_proj.weight.shape == (2, 8) and grouped(x).shape == x.shape
    for sizes in ((9, 3), (8, 4, 3)):
        with pytest.raises(ValueError, match="divide"):
            ParallelAttention(*sizes)


def norms() -> None:
    x = nx.randn(2, 4, 6)
    for whole, layer in [
        (nn.LayerNorm(6), SequenceParallelLayerNorm(6)),
        (nn.LayerNorm(6, bias=False), SequenceParallelLayerNorm(6, bias=False)),
        (nn.LayerNorm((4, 6), elementwise_affine=False), None),
        (nn.RMSNorm(6, eps=1e-3), SequenceParallelRMSNorm(6, eps=1e-3)),
    ]:
        if layer is None:
            continue
        nn.init.normal_(whole.weight)
        layer.load_state_dict(whole.state_dict())
        run = lambda x: gather_from_sequence(layer(scatter_to_sequence(x, shared=True)), shared=True)
        same(gradients(run, x), gradients(whole, x))
        for found, expected in zip(layer.parameters(), whole.parameters(), strict=True):
            close(found.grad, expected.grad)


class Block(nn.Module):
    """A transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        # The bias of keys has no effect.
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8, bias=name != "k") for name in "qkvo")
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        h = self.norm1(x)
        q, k, v = (each(h).unflatten(-1, (-1, 2)).transpose(1, 2) for each in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.norm2(x)).gelu())


PLAIN: dict[str, ParallelStyle] = {
    **{name: ColwiseParallel() for name in ("q", "k", "v", "up")},
    **{name: RowwiseParallel() for name in ("out", "down")},
}
SEQUENCE: dict[str, ParallelStyle] = {
    "norm?": SequenceParallel(),
    **{name: ColwiseParallel(input_layouts=Shard(1)) for name in ("q", "k", "v", "up")},
    **{name: RowwiseParallel(output_layouts=Shard(1)) for name in ("out", "down")},
}


def a_block() -> None:
    x = nx.randn(2, 4, 8)
    whole = Block()
    expected = gradients(whole, x)
    for plan in (PLAIN, SEQUENCE):
        block = Block()
        block.load_state_dict(whole.state_dict())
        names = list(block.state_dict())
        if dist.get_rank() == 1:
            # Rank 0's values count.
            nn.init.zeros_(block.q.weight)
        block = parallelize_module(block, dist.init_device_mesh("cpu", (2,)), plan)
        assert list(block.state_dict()) == names and block.q.weight.shape == (4, 8) and block.down.weight.shape == (8, 6)

        def run(x: nx.Tensor) -> nx.Tensor:
            if plan is PLAIN:
                return block(x)
            return gather_from_sequence(block(scatter_to_sequence(x, shared=True)), shared=True)

        same(gradients(run, x), expected)
        for name, parameter in whole.named_parameters():
            dim = 1 if name in ("out.weight", "down.weight") else 0
            is_divided = name.split(".")[0] in ("q", "k", "v", "up") or dim
            close(block.get_parameter(name).grad, own(parameter.grad, dim) if is_divided else parameter.grad)
        # The norm of all gradients knows which ones are parts.
        limits = [nn.utils.clip_grad_norm_(each.parameters(), 1e9, kind) for each in (whole, block) for kind in (2.0, float("inf"))]
        close(limits[2], limits[0])
        close(limits[3], limits[1])
        whole.zero_grad()
        gradients(whole, x)


def prepared_inputs() -> None:
    x = nx.randn(2, 4, 8)
    whole = Block()
    expected = gradients(whole, x)
    block = Block()
    block.load_state_dict(whole.state_dict())
    model = parallelize_module(nn.Sequential(block), None, {f"0.{name}": style for name, style in PLAIN.items()})
    plan = {
        "0": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
    }
    model = parallelize_module(model, dist.GroupMember.WORLD, plan)
    run = lambda x: gather_from_sequence(model(scatter_to_sequence(x, shared=True)), shared=True)
    assert model(own(x, 1)).shape == (2, 2, 8)
    same(gradients(run, x), expected)


def llama() -> Any:
    nx.manual_seed(7)
    sizes = dict(vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
    return nx.models.Llama(nx.models.LlamaConfig(**sizes, num_key_value_heads=2, tie_word_embeddings=True))


def language_models() -> None:
    """A mesh of data x tensor: training equals that of one process with the whole batch."""
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    data, tensor = mesh.get_group("data"), mesh.get_group("tensor")
    tokens, targets = nx.randint(0, 13, (4, 6)), nx.randint(0, 13, (4, 6))

    def train(model: Any, rows: Any, loss_of: Callable[[nx.Tensor, nx.Tensor], nx.Tensor], is_recorded: bool) -> list[Any]:
        optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)

        def step(tokens: nx.Tensor, targets: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
            optimizer.zero_grad()
            value = loss_of(model(tokens), targets)
            value.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            return value.detach(), norm

        step = nx.compile(step) if is_recorded else step
        return [step(*rows) for _ in range(3)]

    whole = lambda scores, targets: F.cross_entropy(scores.reshape(-1, 13), targets.reshape(-1))
    parts = lambda scores, targets: vocab_parallel_cross_entropy(scores, targets, num_classes=13, group=tensor)
    expected = train(llama(), (tokens, targets), whole, False)
    for is_sequence in (False, True):
        gathered = {"input_layouts": Shard(1)} if is_sequence else {}
        divided = {"output_layouts": Shard(1)} if is_sequence else {}
        plan: dict[str, ParallelStyle] = {
            "model.embed_tokens": RowwiseParallel(**divided),
            "model.layers.*.self_attn.[qkv]_proj": ColwiseParallel(**gathered),
            "model.layers.*.self_attn.o_proj": RowwiseParallel(**divided),
            "model.layers.*.mlp.gate_proj": ColwiseParallel(**gathered),
            "model.layers.*.mlp.up_proj": ColwiseParallel(**gathered),
            "model.layers.*.mlp.down_proj": RowwiseParallel(**divided),
            "lm_head": ColwiseParallel(**gathered),
        }
        if is_sequence:
            plan |= {"model.layers.*.*norm": SequenceParallel(), "model.norm": SequenceParallel()}
        for is_recorded in (False, True):
            model = parallelize_module(llama(), mesh["tensor"], plan)
            assert model.lm_head.weight is model.model.embed_tokens.weight
            if data.size() > 1:
                strategy = ShardingStrategy.SHARD_GRAD_OP if is_recorded else ShardingStrategy.FULL_SHARD
                layer = type(model.model.layers[0])
                model = FullyShardedDataParallel(
                    model, device_mesh=mesh["data"], sharding_strategy=strategy, auto_wrap_policy={layer}
                )
            found = train(model, part((tokens, targets), data), parts, is_recorded)
            for (value, norm), (expected_value, expected_norm) in zip(found, expected, strict=True):
                close(dist.functional.all_reduce(value, "avg", data), expected_value)
                close(norm, expected_norm)


class Scaled(nn.Linear):
    def forward(self, input: nx.Tensor) -> nx.Tensor:
        return super().forward(input) * 10


class ScaledNorm(nn.LayerNorm):
    forward = Scaled.forward


class ScaledEmbedding(nn.Embedding):
    forward = Scaled.forward


class Named(nn.Linear):
    """Its forward() is that of the layer."""


def additions_to_layers() -> None:
    """What takes a layer's place would not have them."""
    for style, layer in [
        (ColwiseParallel(), Scaled(4, 4)),
        (RowwiseParallel(), Scaled(4, 4)),
        (RowwiseParallel(), ScaledEmbedding(4, 4)),
        (SequenceParallel(), ScaledNorm(4)),
    ]:
        with pytest.raises(TypeError, match=f"{type(layer).__name__} has a forward"):
            parallelize_module(nn.Sequential(layer), None, {"0": style})
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        model = nn.Sequential(nn.Linear(4, 4))
        handle = getattr(model[0], register)(lambda *given: None)
        with pytest.raises(ValueError, match="Linear has hooks"):
            parallelize_module(model, None, {"0": ColwiseParallel()})
        handle.remove()
        parallelize_module(model, None, {"0": ColwiseParallel()})
    model = parallelize_module(nn.Sequential(Named(4, 4)), None, {"0": ColwiseParallel()})
    assert type(model[0]) is ColumnParallelLinear


def what_cannot_be() -> None:
    def parallelized(plan: Any, model: nn.Module | None = None) -> None:
        parallelize_module(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(1, 1, 1)) if model is None else model, None, plan)

    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    for call, error, message in [
        (lambda: parallelized({"2": ColwiseParallel()}), ValueError, "has no '2'"),
        (lambda: parallelized({"1": ColwiseParallel()}), TypeError, "Conv1d cannot be divided"),
        (lambda: parallelized({"1": SequenceParallel()}), TypeError, "Conv1d cannot be divided"),
        (lambda: parallelized({"0": ColwiseParallel()}, tied), ValueError, "shared with a layer"),
        (lambda: ColwiseParallel(output_layouts=Shard(0)), NotImplementedError, "output_layouts"),
        (lambda: RowwiseParallel(use_local_output=False), NotImplementedError, "use_local_output"),
        (lambda: ColumnParallelLinear(3, 1), ValueError, "cannot be divided among 2 ranks"),
        (lambda: ParallelAttention(9, 3), ValueError, "cannot be divided among 2 ranks"),
        (lambda: PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=()), ValueError, "same length"),
    ]:
        with pytest.raises(error, match=message):
            call()
