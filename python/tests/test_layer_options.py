"""Options of layers, against formulas in NumPy."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import neurenix as nx
import numpy as np
import pytest
from neurenix import data, nn, optim

F = nn.functional


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype("float32")


def test_average_pools_divide_by_what_is_given() -> None:
    a = numbers(2, 3, 4, 6)
    sums = a.reshape(2, 3, 2, 2, 3, 2).sum((3, 5))
    assert np.allclose(F.avg_pool2d(nx.Tensor(a), 2, divisor_override=3).numpy(), sums / 3, atol=1e-5)
    assert np.allclose(nn.AvgPool2d(2, divisor_override=3)(nx.Tensor(a)).numpy(), sums / 3, atol=1e-5)
    # Padded elements count as 0.
    bordered = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(2, 3, 3, 2, 4, 2).sum((3, 5))
    found = F.avg_pool2d(nx.Tensor(a), 2, padding=1, count_include_pad=False, divisor_override=1)
    assert np.allclose(found.numpy(), bordered, atol=1e-5)
    assert F.avg_pool3d(nx.ones(1, 1, 2, 2, 2), 2, divisor_override=2).item() == 4.0
    assert F.avg_pool2d(nx.ones(1, 1, 2, 2), 2).item() == 1.0
    for error, wrong in [
        (ValueError, lambda: F.avg_pool2d(nx.Tensor(a), 2, divisor_override=0)),
        (TypeError, lambda: nn.AvgPool1d(2, divisor_override=3)),
    ]:
        with pytest.raises(error, match="divisor_override"):
            wrong()


def test_adaptive_maxima_say_where_they_stand() -> None:
    x = nx.Tensor(numbers(2, 3, 4, 6))
    values, places = nn.AdaptiveMaxPool2d((2, 3), return_indices=True)(x)
    assert nx.array_equal(values, F.adaptive_max_pool2d(x, (2, 3)))
    assert nx.array_equal(x.reshape(2, 3, 24).gather(2, places.reshape(2, 3, 6)), values.reshape(2, 3, 6))
    assert F.adaptive_max_pool1d(nx.Tensor([[[1.0, 3.0, 2.0]]]), None, True)[1].tolist() == [[[0, 1, 2]]]
    values, places = F.adaptive_max_pool2d(x, (3, 3), True)
    assert nx.array_equal(values, F.adaptive_max_pool2d(x, (3, 3)))
    assert nx.array_equal(x.reshape(2, 3, 24).gather(2, places.reshape(2, 3, 9)), values.reshape(2, 3, 9))


def test_instances_have_running_statistics() -> None:
    a = numbers(4, 3, 5)
    layer = nn.InstanceNorm1d(3, affine=True, track_running_stats=True, momentum=0.25)
    assert list(layer.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    centre, spread = a.mean(2, keepdims=True), a.var(2, keepdims=True)
    assert np.allclose(layer(nx.Tensor(a)).detach().numpy(), (a - centre) / np.sqrt(spread + 1e-5), atol=1e-5)
    mean = 0.25 * a.mean(2).mean(0)
    variance = 0.75 + 0.25 * a.var(2, ddof=1).mean(0)
    assert np.allclose(layer.running_mean.numpy(), mean, atol=1e-6) and np.allclose(layer.running_var.numpy(), variance, atol=1e-6)
    layer.eval()
    expected = (a - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5)
    assert np.allclose(layer(nx.Tensor(a)).detach().numpy(), expected, atol=1e-5)
    assert np.allclose(layer.running_mean.numpy(), mean, atol=1e-6), "nothing is learnt outside training"
    plain = nn.InstanceNorm1d(3).eval()
    assert np.allclose(plain(nx.Tensor(a)).numpy(), (a - centre) / np.sqrt(spread + 1e-5), atol=1e-5)
    # As in PyTorch, the second and third arguments are running statistics, not weights.
    assert nx.allclose(F.instance_norm(nx.Tensor(a), None, None, nx.ones(3), nx.zeros(3)), plain(nx.Tensor(a)), atol=1e-6)
    with pytest.raises(ValueError, match="running_mean"):
        F.instance_norm(nx.Tensor(a), use_input_stats=False)


def test_running_statistics_are_reset() -> None:
    layer = nn.BatchNorm1d(2)
    layer(nx.randn(4, 2) + 3.0)
    layer.weight.data.fill_(5.0)
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0, 0.0] and layer.running_var.tolist() == [1.0, 1.0]
    assert layer.num_batches_tracked.item() == 0 and layer.weight.tolist() == [5.0, 5.0]
    layer.reset_parameters()
    assert layer.weight.tolist() == [1.0, 1.0] and layer.bias.tolist() == [0.0, 0.0]
    nn.BatchNorm1d(2, affine=False, track_running_stats=False).reset_parameters()


def test_instances_without_variance_leave_running_statistics() -> None:
    layer = nn.InstanceNorm2d(3, track_running_stats=True)
    for shape in ((2, 3, 1, 1), (3, 1, 1), (2, 3, 0, 4), (0, 3, 4, 4)):
        with pytest.raises(ValueError, match=r"^instance_norm: an input of shape .* has no variance .*use_input_stats=False"):
            layer(nx.ones(shape))
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.running_var.tolist() == [1.0] * 3
    assert layer.eval()(nx.ones(2, 3, 1, 1)).shape == (2, 3, 1, 1), "by the running ones"
    for plain in (nn.InstanceNorm1d(3), nn.InstanceNorm1d(3).eval()):
        with pytest.raises(ValueError, match="no variance"):
            plain(nx.ones(2, 3, 1))
    assert nn.InstanceNorm1d(3)(nx.ones(0, 3, 4)).shape == (0, 3, 4)


@pytest.mark.parametrize("size", [1, 2])
def test_running_statistics_of_instances_are_moved_together(size: int) -> None:
    mean, variance = nx.zeros(3), nx.ones(size)
    with pytest.raises(ValueError, match=rf"^instance_norm: running statistics of shape \({size},\) do not fit .* \(2, 3, 5\)"):
        F.instance_norm(nx.Tensor(numbers(2, 3, 5)), mean, variance)
    assert mean.tolist() == [0.0] * 3 and variance.tolist() == [1.0] * size


def test_attention_to_further_places() -> None:
    nx.manual_seed(1)
    layer = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True).eval()
    assert layer.bias_k.shape == layer.bias_v.shape == (1, 1, 4)
    assert list(layer.state_dict())[2:4] == ["bias_k", "bias_v"]
    a = numbers(2, 3, 4)
    mask = np.array([[False, True, True], [False, False, True], [False, False, False]])
    state = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    parts = [
        a @ state["in_proj_weight"][4 * i : 4 * i + 4].T + state["in_proj_bias"][4 * i : 4 * i + 4] for i in range(3)
    ]
    zeros = np.zeros((2, 1, 4), "float32")
    keys = np.concatenate([parts[1], np.broadcast_to(state["bias_k"], (2, 1, 4)), zeros], 1)
    values = np.concatenate([parts[2], np.broadcast_to(state["bias_v"], (2, 1, 4)), zeros], 1)

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(2, -1, 2, 2).transpose(0, 2, 1, 3)

    scores = heads(parts[0]) @ heads(keys).transpose(0, 1, 3, 2) / np.sqrt(2.0)
    scores = np.where(np.pad(mask, ((0, 0), (0, 2))), -np.inf, scores)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    mixed = (shares @ heads(values)).transpose(0, 2, 1, 3).reshape(2, 3, 4)
    expected = mixed @ state["out_proj.weight"].T + state["out_proj.bias"]
    x = nx.Tensor(a)
    for need_weights in (True, False):
        result, weights = layer(x, x, x, attn_mask=nx.Tensor(mask), need_weights=need_weights)
        assert np.allclose(result.detach().numpy(), expected, atol=1e-5)
        if weights is not None:
            assert np.allclose(weights.detach().numpy(), shares.mean(1), atol=1e-5)


def test_images_of_other_sizes() -> None:
    a = numbers(1, 2, 4, 6)
    x = nx.Tensor(a)
    area = a.reshape(1, 2, 2, 2, 3, 2).mean((3, 5))
    assert np.allclose(F.interpolate(x, (2, 3), mode="area").numpy(), area, atol=1e-6)
    assert np.allclose(F.interpolate(x, scale_factor=0.5, mode="area").numpy(), area, atol=1e-6)
    rows, columns = (np.floor((np.arange(new) + 0.5) * old / new).astype(int) for old, new in ((4, 7), (6, 5)))
    exact = a[:, :, rows][..., columns]
    assert nx.array_equal(F.interpolate(x, (7, 5), mode="nearest-exact"), nx.Tensor(exact))
    assert F.interpolate(x, scale_factor=2, mode="nearest-exact").tolist() == a.repeat(2, 2).repeat(2, 3).tolist()
    both = F.interpolate(x, scale_factor=(2.0, 3.0))
    assert both.tolist() == a.repeat(2, 2).repeat(3, 3).tolist()
    for factors in ((2.0, 3.0), (0.5, 2.0)):
        sizes = (int(4 * factors[0]), int(6 * factors[1]))
        expected = F.interpolate(x, sizes, mode="bilinear")
        assert nx.allclose(F.interpolate(x, scale_factor=factors, mode="bilinear"), expected, atol=1e-5)
    recomputed = F.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)
    assert nx.array_equal(recomputed, F.interpolate(x, (5, 7), mode="bilinear"))
    assert nx.array_equal(nn.UpsamplingNearest2d(scale_factor=2)(x), F.interpolate(x, scale_factor=2))
    by_factor = F.interpolate(x, scale_factor=2, mode="bicubic")
    assert nx.allclose(by_factor, F.interpolate(x, (8, 12), mode="bicubic"), atol=1e-6)
    corners = nn.UpsamplingBilinear2d((7, 11))(x).numpy()
    assert np.allclose(corners[..., ::2, ::2], a, atol=1e-5)
    for error, wrong in [
        (ValueError, {"mode": "bicubic"}),
        (ValueError, {"scale_factor": -1.0}),
        (NotImplementedError, {"scale_factor": 2, "mode": "bilinear", "antialias": True}),
        (ValueError, {"scale_factor": (2, 2, 2)}),
        (ValueError, {"mode": "area"}),
        (ValueError, {"mode": "nearest-exact"}),
        (ValueError, {"size": (2, 2), "scale_factor": (2.0, 3.0)}),
    ]:
        with pytest.raises(error, match="interpolate"):
            F.interpolate(x, **wrong)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bicubic"])
def test_images_without_samples_are_refused(mode: str) -> None:
    for shape, options in [
        ((1, 1, 0, 3), {"size": (2, 2)}),
        ((1, 1, 3, 0), {"scale_factor": 2.0}),
        ((1, 1, 2, 3), {"size": (0, 2)}),
        ((1, 1, 2, 3), {"scale_factor": 0.4}),
    ]:
        with pytest.raises(ValueError, match="^interpolate: .*(none of these dimensions may be|nonempty)"):
            F.interpolate(nx.ones(shape), mode=mode, **options)
    assert F.interpolate(nx.ones(0, 1, 2, 3), (4, 5), mode=mode).shape == (0, 1, 4, 5)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("sizes", [(7, 5), (2, 12), (4, 6), (1, 1)])
def test_bicubic_images_are_the_cubic_convolution(sizes: tuple[int, int], corners: bool) -> None:
    def matrix(old: int, new: int) -> np.ndarray:
        weights = np.zeros((new, old))
        for place in range(new):
            at = (place * (old - 1) / max(new - 1, 1)) if corners else (place + 0.5) * old / new - 0.5
            for sample in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
                d = abs(at - sample)
                inner, outer = 1.25 * d**3 - 2.25 * d**2 + 1, -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
                weights[place, min(max(sample, 0), old - 1)] += inner if d <= 1 else outer
        return weights

    a = numbers(2, 3, 4, 6)
    expected = matrix(4, sizes[0]) @ a @ matrix(6, sizes[1]).T
    x = nx.Tensor(a, requires_grad=True)
    found = F.interpolate(x, sizes, mode="bicubic", align_corners=corners)
    assert np.allclose(found.detach().numpy(), expected, atol=1e-5)
    found.sum().backward()
    gradient = matrix(4, sizes[0]).sum(0)[:, None] * matrix(6, sizes[1]).sum(0)
    assert x.grad is not None and np.allclose(x.grad.numpy(), np.broadcast_to(gradient, a.shape), atol=1e-5)


def test_layers_of_channels_and_slopes() -> None:
    a = numbers(2, 5, 4, 6)
    x = nx.Tensor(a)
    apart = nn.PixelUnshuffle(2)(x)
    assert apart.shape == (2, 20, 2, 3) and nx.array_equal(nn.PixelShuffle(2)(apart), x)
    with pytest.raises(ValueError, match="multiples"):
        F.pixel_unshuffle(x, 5)
    shares = nn.Softmax2d()(x)
    assert nx.allclose(shares.sum(1), nx.ones(2, 4, 6), atol=1e-6) and nx.allclose(nn.Softmax2d()(x[0]), shares[0])
    with pytest.raises(ValueError, match="3 or 4"):
        nn.Softmax2d()(x[0, 0])
    for size in (1, 3, 4):
        squares = np.pad(a * a, ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))
        total = sum(squares[:, shift : shift + 5] for shift in range(size))
        expected = a / (2.0 + 0.5 / size * total) ** 0.75
        assert np.allclose(nn.LocalResponseNorm(size, alpha=0.5, k=2.0)(x).numpy(), expected, atol=1e-5)
    layer = nn.RReLU(0.1, 0.3)
    drawn = layer(x).numpy() / a
    below = drawn[a < 0]
    assert (drawn[a > 0] == 1).all() and below.min() >= 0.0999 and below.max() <= 0.3001 and below.std() > 0.02
    assert np.allclose(layer.eval()(x).numpy(), np.where(a < 0, 0.2 * a, a), atol=1e-6)


def test_parameters_by_name() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ParameterDict({"left": nx.zeros(2), "right": nn.Parameter(nx.ones(3))})

    model = Model()
    assert list(model.state_dict()) == ["parts.left", "parts.right"] and len(model.parameters()) == 2
    parts = model.parts
    assert isinstance(parts["left"], nn.Parameter) and "left" in parts and len(parts) == 2 and list(parts) == ["left", "right"]
    parts.update([("more", nx.zeros(1))])
    assert list(parts.keys()) == ["left", "right", "more"] and [value.numel() for value in parts.values()] == [2, 3, 1]
    assert parts.pop("more").shape == (1,) and parts.get("more") is None and dict(parts.items())["right"].tolist() == [1.0] * 3
    del parts["left"]
    assert "Parameter containing" in repr(pickle.loads(pickle.dumps(parts))) and len(model.parameters()) == 1
    with pytest.raises(KeyError, match="dot"):
        parts["a.b"] = nx.zeros(1)


def test_bags_with_given_vectors() -> None:
    vectors = nx.Tensor(numbers(5, 3))
    bags = nn.EmbeddingBag.from_pretrained(vectors, mode="sum")
    assert not bags.weight.requires_grad and nn.EmbeddingBag.from_pretrained(vectors, freeze=False).weight.requires_grad
    assert nx.allclose(bags(nx.tensor([[1, 4]])), vectors[1:2] + vectors[4:5])
    with pytest.raises(ValueError, match="matrix"):
        nn.EmbeddingBag.from_pretrained(nx.ones(3))


def test_sums_of_adagrad_begin_at_a_given_value() -> None:
    """The update of J. Duchi et al., 2011: the gradient over the root of the sum of squares."""
    place = nn.Parameter(nx.tensor([1.0, 2.0]))
    optimizer = optim.Adagrad([place], lr=0.5, initial_accumulator_value=3.0, eps=0.0)
    for expected in ([0.75, 1.75], [0.75 - 0.5 / 5**0.5, 1.75 - 0.5 / 5**0.5]):
        optimizer.zero_grad()
        place.sum().backward()
        optimizer.step()
        assert place.tolist() == pytest.approx(expected, rel=1e-6)
    assert optimizer.state_dict()["state"][0]["sum"].tolist() == [5, 5]


def test_arguments_that_are_accepted_or_refused_by_name() -> None:
    place = nn.Parameter(nx.ones(1))
    for rule in (optim.NAdam, optim.RAdam):
        rule([place], decoupled_weight_decay=False)
    with pytest.raises(ValueError, match="initial_accumulator_value"):
        optim.Adagrad([place], initial_accumulator_value=-1.0)
    x = nx.ones(2, requires_grad=True)
    unused = nx.ones(3, requires_grad=True)
    loss = (x * x).sum()
    for _ in range(2):
        first, second = nx.grad(loss, [x, unused], retain_graph=True, allow_unused=True)
        assert first.tolist() == [2.0, 2.0] and second.tolist() == [0.0] * 3


def test_sequences_of_different_lengths() -> None:
    from neurenix.nn.utils.rnn import pad_sequence, unpad_sequence

    parts = [nx.Tensor(numbers(length, 2)) for length in (2, 4, 0)]
    together = pad_sequence(parts, padding_value=-1.0)
    assert together.shape == (4, 3, 2) and together[2:, 0].tolist() == [[-1.0, -1.0]] * 2
    assert nx.array_equal(together.transpose(0, 1), pad_sequence(parts, True, -1.0))
    back = unpad_sequence(together, nx.tensor([2, 4, 0]))
    assert [part.tolist() for part in back] == [part.tolist() for part in parts]
    left = pad_sequence([nx.tensor([1]), nx.tensor([2, 3])], batch_first=True, padding_side="left")
    assert left.tolist() == [[0, 1], [2, 3]] and left.dtype == nx.int64
    for wrong in (
        lambda: pad_sequence([]),
        lambda: pad_sequence([nx.ones(())]),
        lambda: pad_sequence(parts, padding_side="both"),
        lambda: unpad_sequence(together, [1, 2]),
    ):
        with pytest.raises(ValueError, match="pad_sequence"):
            wrong()


def test_data_sets_and_samplers_can_be_subscripted() -> None:
    class Squares(data.Dataset[int]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index * index

    class Backwards(data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([2, 1, 0])

        def __len__(self) -> int:
            return 3

    batches = [batch.tolist() for batch in data.DataLoader(Squares(), 3, sampler=Backwards())]
    assert batches == [[4, 1, 0]] and data.IterableDataset[str] is data.IterableDataset
