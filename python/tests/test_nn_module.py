"""Modules: parts, states, hooks, containers."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import neurenix as nx
from neurenix import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.scale = nn.Parameter(nx.ones(4))
        self.register_buffer("seen", nx.zeros(()))
        self.register_buffer("scratch", nx.zeros(2), persistent=False)
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.last(self.first(x) * self.scale)


def test_names_and_order():
    net = Net()
    assert list(net.state_dict()) == ["scale", "seen", "first.weight", "first.bias", "last.1.weight", "last.1.bias"]
    assert isinstance(net.parameters(), list) and len(net.parameters()) == 5
    assert next(net.parameters()) is net.scale
    assert [name for name, _ in net.named_children()] == ["first", "last"]
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert len(list(net.modules())) == 5
    assert net.get_submodule("last.1") is net.last[1] and net.get_parameter("first.bias") is net.first.bias
    net.tied = net.first
    assert len(net.parameters()) == 5


def test_attributes():
    net = Net()
    with pytest.raises(TypeError, match="scale is a parameter"):
        net.scale = nx.ones(4)
    with pytest.raises(KeyError, match="dot"):
        net.register_buffer("a.b", None)
    with pytest.raises(KeyError, match="already"):
        net.register_module("forward", nn.ReLU())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        net.nothing
    del net.scale
    assert "scale" not in net.state_dict()

    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match="super"):
        Early()


def test_state_round_trip_and_errors_change_nothing():
    net, other = Net(), Net()
    x = nx.randn(2, 3)
    assert not np.allclose(net(x).detach().numpy(), other(x).detach().numpy())
    # Load arrays, as from a PyTorch state.
    result = other.load_state_dict({name: value.numpy() for name, value in net.state_dict().items()})
    assert result.missing_keys == [] and result.unexpected_keys == []
    np.testing.assert_array_equal(net(x).detach().numpy(), other(x).detach().numpy())

    before = {name: value.numpy() for name, value in other.state_dict().items()}
    bad = {name: nx.zeros(value.shape) for name, value in net.state_dict().items()}
    bad["last.1.weight"] = nx.zeros(5, 5)
    bad["extra"] = bad.pop("scale")
    with pytest.raises(RuntimeError) as caught:
        other.load_state_dict(bad)
    for part in ("Unexpected", "'extra'", "Missing", "'scale'", "last.1.weight", "(5, 5)", "(2, 4)"):
        assert part in str(caught.value)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(bad, strict=False)
    for name, value in other.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert other.load_state_dict({}, strict=False).missing_keys == list(before)


def test_a_state_follows_its_module_and_a_copy_does_not():
    net = Net()
    state = net.state_dict()
    kept = copy.deepcopy(state)
    with nx.no_grad():
        net.scale.mul_(5.0)
    assert state["scale"].tolist() == [5.0] * 4 and kept["scale"].tolist() == [1.0] * 4
    net.load_state_dict(kept)
    assert net.scale.tolist() == state["scale"].tolist() == [1.0] * 4


def test_copies_and_pickles():
    net = Net()
    for other in (net.clone(), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(other.scale, nn.Parameter) and other.scale is not net.scale
        with nx.no_grad():
            other.scale.fill_(7.0)
        assert net.scale.tolist() == [1.0] * 4


def test_modes_and_conversions():
    net = Net()
    assert net.is_training() and not net.eval().last[1].training and net.train().is_training()
    net.half()
    assert net.scale.dtype == nx.float16 and net.seen.dtype == nx.float16
    net.double().to("cpu").to(nx.float32)
    assert net.first.weight.dtype == nx.float32
    with pytest.raises(TypeError, match="floating-point dtype"):
        net.to(nx.int32)
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net(nx.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0.0] * 4
    net.zero_grad()
    assert net.scale.grad is None
    seen = []
    net.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_hooks():
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda module, args, result: result * 10)
    assert layer(nx.tensor(1.0)).item() == 20.0
    before.remove()
    assert layer(nx.tensor(1.0)).item() == 10.0
    after.remove()
    with layer.register_forward_hook(lambda module, args, kwargs, result: None, with_kwargs=True):
        assert layer(nx.tensor(1.0)).item() == 1.0


def test_repr():
    assert repr(Net()) == (
        "Net(\n  (first): Linear(in_features=3, out_features=4, bias=True)\n  (last): Sequential(\n    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, bias=True)\n  )\n)"
    )


def test_sequential():
    a, b, c = nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)
    for model in (nn.Sequential(a, b, c), nn.Sequential([a, b, c]), nn.Sequential({"x": a, "y": b, "z": c})):
        assert len(model) == 3 and model[0] is a and model[-1] is c and list(model) == [a, b, c]
        assert isinstance(model[1:], nn.Sequential) and len(model[1:]) == 2
    model.append(nn.Tanh())
    assert list(model.state_dict())[0] == "x.weight" and len(model) == 4
    plain = nn.Sequential(a, b, c)
    plain[1] = nn.Tanh()
    del plain[0]
    assert list(plain.state_dict()) == ["1.weight", "1.bias"]
    plain.insert(0, a)
    before = list(plain)
    for change in (lambda: plain.insert(0, 3), lambda: plain.extend([nn.ReLU(), 3]), lambda: plain.append(None)):
        with pytest.raises(TypeError, match="Module"):
            change()
        assert list(plain) == before
    assert plain[0] is a and len(plain) == 3
    with pytest.raises(IndexError, match="out of range for 3 submodules"):
        plain[3]


def test_lists_and_dictionaries():
    layers = nn.ModuleList([nn.Linear(1, 1), nn.ReLU()])
    layers += [nn.Tanh()]
    assert len(layers) == 3 and len(layers[:2]) == 2
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    assert list(named) == ["a", "b"] and "a" in named and list(named.state_dict()) == ["a.weight", "a.bias"]
    values = nn.ParameterList([nx.ones(1), nn.Parameter(nx.ones(2))])
    assert len(values) == 2 and all(isinstance(p, nn.Parameter) for p in values) and len(values.parameters()) == 2


def test_linear_takes_images():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2 * 4 * 4, 3))
    assert model(nx.zeros(5, 1, 4, 4)).shape == (5, 3)


def test_settings_are_checked():
    for make in (
        lambda: nn.Conv2d(1, 1, 3, padding_mode="mirror"),
        lambda: nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect"),
        lambda: nn.Conv2d(1, 1, 3, stride=2, padding="same"),
        lambda: nn.Conv2d(3, 2, 3, groups=2),
        lambda: nn.Dropout(1.5),
        lambda: nn.GroupNorm(2, 3),
        lambda: nn.MultiheadAttention(5, 2),
        lambda: nn.RNN(1, 1, nonlinearity="sin"),
        lambda: nn.MSELoss(reduction="median"),
        lambda: nn.BatchNorm2d(3)(nx.zeros(2, 3)),
        lambda: nn.GELU("exact")(nx.zeros(1)),
    ):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(TypeError, match="slope"):
        nn.LeakyReLU(slope=0.1)
    assert nn.GELU(True)(nx.ones(1)).item() != nn.GELU(False)(nx.ones(1)).item() == nn.GELU("none")(nx.ones(1)).item()


def test_masks_of_attention():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x = nx.randn(1, 3, 4)
    future = nx.ones(3, 3).triu(1).bool()
    padding = nx.tensor([[False, False, True]])
    full, weights = attention(x, x, x, key_padding_mask=padding, attn_mask=future)
    fused, nothing = attention(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
    assert nothing is None
    np.testing.assert_allclose(full.detach().numpy(), fused.detach().numpy(), atol=1e-6)
    assert weights[0, 0].tolist() == [1.0, 0.0, 0.0] and weights[0, 2, 2].item() == 0.0


def test_dropout():
    x = nx.ones(4, 8, 3, 3)
    layer = nn.Dropout2d(0.5)
    kept = layer(x).reshape(32, 9).numpy()
    assert all(row.min() == row.max() for row in kept) and 0 < (kept[:, 0] == 2.0).sum() < 32
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())


@pytest.mark.parametrize("kind", ["conv", "lstm", "attention", "norm"])
def test_gradients_by_finite_differences(kind):
    layer, x = {
        "conv": lambda: (nn.Conv2d(2, 2, 2, padding="same"), nx.randn(1, 2, 3, 3, dtype="float64")),
        "lstm": lambda: (nn.LSTM(2, 3), nx.randn(3, 1, 2, dtype="float64")),
        "attention": lambda: (nn.TransformerEncoderLayer(4, 2, 6, 0.0, "gelu"), nx.randn(3, 1, 4, dtype="float64")),
        "norm": lambda: (nn.BatchNorm1d(3), nx.randn(5, 3, dtype="float64")),
    }[kind]()
    layer.double()

    def loss(value):
        result = layer(value)
        result = result[0] if isinstance(result, tuple) else result
        return (result * nx.linspace(-1, 2, result.numel(), dtype="float64").reshape(result.shape)).sum()

    slope = nx.grad(loss)(x).detach().numpy()
    values = x.numpy()
    for index in list(np.ndindex(values.shape))[::3]:
        ends = []
        for step in (1e-6, -1e-6):
            moved = values.copy()
            moved[index] += step
            ends.append(loss(nx.tensor(moved)).item())
        assert slope[index] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)


def test_init():
    w = nn.Parameter(nx.zeros(200, 100))
    for fill, std in (
        (nn.init.xavier_uniform_, (2 / 300) ** 0.5),
        (nn.init.xavier_normal_, (2 / 300) ** 0.5),
        (nn.init.kaiming_uniform_, (2 / 100) ** 0.5),
        (nn.init.kaiming_normal_, (2 / 100) ** 0.5),
        (nn.init.normal_, 1.0),
        (nn.init.uniform_, (1 / 12) ** 0.5),
        (nn.init.trunc_normal_, 0.8796),
    ):
        assert fill(w) is w
        assert w.detach().numpy().std() == pytest.approx(std, rel=0.02)
    assert np.abs(w.detach().numpy()).max() <= 2.0
    assert nn.init.calculate_gain("relu") == pytest.approx(2**0.5)
    with pytest.raises(ValueError, match="2 dimensions"):
        nn.init.xavier_normal_(nx.zeros(3))


def test_utils():
    a, b = nn.Parameter([3.0]), nn.Parameter([[4.0]])
    ((a * a).sum() / 2 + (b * b).sum() / 2).backward()
    assert nn.utils.clip_grad_norm_([a, b], 1.0).item() == pytest.approx(5.0)
    assert a.grad.item() == pytest.approx(0.6) and b.grad.item() == pytest.approx(0.8)
    nn.utils.clip_grad_value_([a, b], 0.7)
    assert a.grad.item() == pytest.approx(0.6) and b.grad.item() == pytest.approx(0.7)
    assert nn.utils.parameters_to_vector([a, b]).tolist() == [3.0, 4.0]
    nn.utils.vector_to_parameters(nx.tensor([1.0, 2.0]), [a, b])
    assert a.tolist() == [1.0] and b.tolist() == [[2.0]]
    with pytest.raises(ValueError, match="2 elements"):
        nn.utils.vector_to_parameters(nx.zeros(3), [a, b])


def test_a_move_keeps_gradients_and_is_all_or_nothing(monkeypatch):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net(nx.randn(4, 2)).square().sum().backward()
    before = {name: (tensor.dtype, tensor.tolist()) for name, tensor in net.state_dict().items()}
    grad = net[0].weight.grad.tolist()

    def full(_tensors):
        raise MemoryError("the device is full")

    with monkeypatch.context() as patch:
        patch.setattr(nx._engine, "evaluate", full)
        with pytest.raises(MemoryError):
            net.double()
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in net.state_dict().items()} == before
    with pytest.raises(ValueError, match="cuda:99"):
        net.to("cuda:99")
    assert net[0].weight.grad.tolist() == grad
    net.double()
    assert net[0].weight.dtype == nx.float64 and net[0].weight.requires_grad
    assert net[0].weight.grad.dtype == nx.float64 and net[0].weight.grad.tolist() == grad
    assert net[1].num_batches_tracked.dtype == nx.int64 and not net[1].running_mean.requires_grad
    optimizer = nx.optim.SGD(net.parameters(), lr=1.0)
    optimizer.step()
    assert np.allclose(np.array(before["0.weight"][1]) - np.array(grad), net[0].weight.tolist())


def test_a_state_goes_into_a_dictionary_that_is_given():
    net, state = nn.Linear(2, 1), {"other": 1}
    assert net.state_dict(destination=state, prefix="net.", keep_vars=True) is state
    assert list(state) == ["other", "net.weight", "net.bias"] and state["net.weight"] is net.weight


def test_more_starting_values():
    for shape in ((3, 5), (5, 3), (4, 2, 3)):
        matrix = nn.init.orthogonal_(nx.zeros(shape), gain=2.0).numpy().reshape(shape[0], -1)
        product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)
    x = nx.randn(1, 4, 5, 5)
    assert nx.array_equal(nn.functional.conv2d(x, nn.init.dirac_(nx.zeros(4, 4, 3, 3)), padding=1), x)
    grouped = nn.functional.conv2d(x, nn.init.dirac_(nx.zeros(4, 2, 3, 3), 2), padding=1, groups=2)
    assert nx.array_equal(grouped, x)
    sparse = nn.init.sparse_(nx.ones(10, 4), 0.25, std=1.0)
    assert (sparse == 0).sum(0).tolist() == [3] * 4
    for wrong in (
        lambda: nn.init.orthogonal_(nx.zeros(3)),
        lambda: nn.init.dirac_(nx.zeros(3, 3)),
        lambda: nn.init.dirac_(nx.zeros(3, 3, 3), 2),
        lambda: nn.init.sparse_(nx.zeros(3, 3), 1.5),
    ):
        with pytest.raises(ValueError):
            wrong()


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 3, 2, 2)])
def test_softmax_without_a_dimension_is_pytorchs(shape):
    x, dim = nx.randn(shape), 0 if len(shape) in (1, 3) else 1
    for name in ("softmax", "log_softmax", "softmin"):
        function = getattr(nn.functional, name)
        with pytest.warns(UserWarning, match=f"dim={dim}"):
            assert nx.array_equal(function(x), function(x, dim))
    for name, function in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"), ("Softmin", "softmin")):
        layer, expected = getattr(nn, name), getattr(nn.functional, function)(x, dim)
        assert repr(layer()) == f"{name}(dim=None)" and nx.array_equal(layer(dim)(x), expected)
        with pytest.warns(UserWarning, match=f"dim={dim}"):
            assert nx.array_equal(layer()(x), expected)


@pytest.mark.parametrize("rule", ["Constant", "Zero", "Reflection", "Replication", "Circular"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding_layers_are_classes_of_their_own(rule: str, dims: int) -> None:
    layer_class = getattr(nn, f"{rule}Pad{dims}d")
    value = (0.5,) if rule == "Constant" else ()
    names = ["padding", "value"] if value else ["padding"]
    assert list(inspect.signature(layer_class).parameters) == names
    layer = pickle.loads(pickle.dumps(layer_class(1, *value)))
    widths = (1,) * (2 * dims)
    text = f"padding={widths}, value=0.5" if value else f"{widths}"
    assert type(layer) is layer_class and repr(layer) == f"{rule}Pad{dims}d({text})"
    assert f"({', '.join('NC' + ('L', 'HW', 'DHW')[dims - 1])})" in layer_class.__doc__
    assert layer(nx.ones((1, 1) + (2,) * dims)).shape == (1, 1) + (4,) * dims
    with pytest.raises(ValueError, match=f"{rule}Pad{dims}d"):
        layer_class((1, 1, 1), *value)

    class Own(layer_class):  # type: ignore[misc, valid-type]
        pass

    assert repr(Own(1, *value)).startswith("Own(")


def test_a_state_is_a_dictionary() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.tolist()
    with pytest.raises(TypeError, match="dictionary"):
        layer.load_state_dict([("weight", nx.zeros(2, 2)), ("bias", nx.zeros(2))])
    assert layer.weight.tolist() == before


def test_embeddings_of_vectors_that_are_there():
    vectors = nx.Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for layer in (nn.Embedding.from_pretrained(vectors), nn.Embedding(3, 2, _weight=vectors, _freeze=True)):
        assert layer(nx.tensor([2, 0])).tolist() == [[5.0, 6.0], [1.0, 2.0]] and not layer.weight.requires_grad
        assert isinstance(layer.weight, nn.Parameter)
    assert nn.Embedding.from_pretrained(vectors, freeze=False, padding_idx=1).weight.tolist() == vectors.tolist()
    assert nn.EmbeddingBag(3, 2, mode="sum", _weight=vectors)(nx.tensor([[0, 1]])).tolist() == [[4.0, 6.0]]
    assert nn.Embedding(3, 2, 1).weight[1].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="3, 2"):
        nn.Embedding(2, 2, _weight=vectors)
    for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        with pytest.raises(ValueError, match="not supported"):
            nn.Embedding(3, 2, **options)
        with pytest.raises(ValueError, match="not supported"):
            nn.functional.embedding(nx.tensor([0]), vectors, **options)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_that_is_refused_is_not_counted(momentum):
    layer = nn.BatchNorm1d(3, momentum=momentum)
    layer(nx.Tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]))
    before = {name: value.tolist() for name, value in layer.state_dict().items()}
    assert before["num_batches_tracked"] == 1
    with pytest.raises(ValueError):
        layer(nx.ones(2, 4))
    assert {name: value.tolist() for name, value in layer.state_dict().items()} == before
    layer(nx.Tensor([[5.0, 6.0, 7.0], [7.0, 8.0, 9.0]]))
    # The batch means of the first feature are 2 and 6.
    expected = 4.0 if momentum is None else 0.9 * 0.2 + 0.1 * 6.0
    assert layer.running_mean[0].item() == pytest.approx(expected)


def test_a_causal_hint_without_a_mask_is_an_error():
    place = {"dropout": 0.0, "batch_first": True}
    layer = nn.TransformerEncoderLayer(4, 2, 8, **place)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, **place), 1)
    whole = nn.Transformer(4, 2, 1, 1, 8, **place)
    x = nx.randn(2, 3, 4)
    for call in (
        lambda: layer(x, is_causal=True),
        lambda: encoder(x, is_causal=True),
        lambda: decoder(x, x, tgt_is_causal=True),
        lambda: decoder(x, x, memory_is_causal=True),
        lambda: whole(x, x, src_is_causal=True),
        lambda: whole(x, x, tgt_is_causal=True),
    ):
        with pytest.raises(ValueError, match="is_causal"):
            call()
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert nx.array_equal(encoder(x, mask, is_causal=True), encoder(x, mask))
    assert nx.array_equal(whole(x, x, tgt_mask=mask, tgt_is_causal=True), whole(x, x, tgt_mask=mask))


@pytest.mark.parametrize("widths", [(0, -4), (-4, 0), (-2, -2), (5, -4)])
def test_no_more_is_cut_off_than_there_is(widths):
    with pytest.raises(ValueError, match="remove more elements"):
        nx.ones(3).pad(widths)
    assert nx.Tensor([1.0, 2.0, 3.0]).pad((-1, -1)).tolist() == [2.0] and nx.ones(3).pad((-2, -1)).shape == (0,)
