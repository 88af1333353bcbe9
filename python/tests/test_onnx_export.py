"""Networks as ONNX files: every layer is checked by ONNX's own checker, compared with ONNX Runtime, and read back."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from neurenix import nn
from onnx.reference import ReferenceEvaluator

Tensors = tuple[nx.Tensor, ...]
DEFAULT, NEWEST, NEWEST_OF_RUNTIME = 21, 28, 26


def image(*shape: int) -> Tensors:
    return (nx.randn(*shape),)


def classes(rows: int = 4, count: int = 3) -> Tensors:
    return nx.randn(rows, count), nx.randint(0, count, (rows,))


def signs(*shape: int) -> nx.Tensor:
    """Numbers that are 1 or -1."""
    return (nx.randn(*shape) > 0).float() * 2 - 1


# What is exported, with inputs. Names say what is special.
LAYERS: dict[str, tuple[Callable[[], Any], Callable[[], Tensors]]] = {
    **{
        name: (getattr(nn, name), lambda: image(2, 4, 6, 6))
        for name in (
            *("CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU"),
            *("LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax2d"),
            *("Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Flatten", "Identity", "Dropout2d"),
        )
    },
    **{
        f"{name}(1)": (lambda name=name: getattr(nn, name)(1), lambda: image(2, 4, 6, 6))
        for name in ("Softmax", "LogSoftmax", "Softmin", "ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d", "CircularPad2d")
    },
    **{
        f"{name}(2)": (lambda name=name: getattr(nn, name)(2), lambda: image(2, 4, 6, 6))
        for name in ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "PixelShuffle", "PixelUnshuffle")
    },
    "GELU tanh": (lambda: nn.GELU("tanh"), lambda: image(2, 4)),
    "Threshold": (lambda: nn.Threshold(0.1, -2.0), lambda: image(2, 4)),
    "ConstantPad1d": (lambda: nn.ConstantPad1d((1, 2), 0.5), lambda: image(2, 4, 6)),
    "Linear": (lambda: nn.Linear(4, 3), lambda: image(5, 4)),
    "Linear of three axes": (lambda: nn.Linear(4, 3, bias=False), lambda: image(2, 5, 4)),
    "Bilinear": (lambda: nn.Bilinear(3, 4, 2), lambda: (nx.randn(5, 3), nx.randn(5, 4))),
    "Embedding": (lambda: nn.Embedding(10, 4), lambda: (nx.randint(0, 10, (2, 5)),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10, 4), lambda: (nx.randint(0, 10, (2, 5)),)),
    "CosineSimilarity": (nn.CosineSimilarity, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "PairwiseDistance": (nn.PairwiseDistance, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.5).eval(), lambda: image(2, 4)),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.5).eval(), lambda: image(2, 4, 3)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), lambda: image(1, 4, 3, 3)),
    "DataParallel": (lambda: nn.DataParallel(nn.Linear(4, 3)), lambda: image(2, 4)),
    "FractionalMaxPool2d": (
        lambda: nn.FractionalMaxPool2d(2, (3, 4), _random_samples=nx.tensor([[[0.3, 0.8], [0.1, 0.5]]])),
        lambda: image(1, 2, 6, 7),
    ),
    "FractionalMaxPool3d": (
        lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5, _random_samples=nx.tensor([[[0.3, 0.8, 0.6]]])),
        lambda: image(1, 1, 4, 6, 4),
    ),
    "LPPool1d": (lambda: nn.LPPool1d(2, 2), lambda: image(1, 2, 6)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), lambda: image(1, 2, 6, 6)),
    "LPPool3d": (lambda: nn.LPPool3d(2, 2), lambda: image(1, 2, 4, 4, 4)),
    **{
        f"MaxUnpool{dims}d": (
            lambda dims=dims: getattr(nn, f"MaxUnpool{dims}d")(2),
            lambda dims=dims: getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)(*image(1, 2, *(4,) * dims)),
        )
        for dims in (1, 2, 3)
    },
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [2, 5]),
        lambda: (nx.randn(3, 8), nx.tensor([0, 11, 4])),
    ),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 3)), lambda: image(4, 6)),
    "Upsample nearest": (lambda: nn.Upsample(scale_factor=2), lambda: image(1, 2, 4, 5)),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: image(1, 2, 4, 5)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3), lambda: image(2, 4, 8)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), lambda: image(2, 4, 8, 9)),
    "Conv2d groups": (lambda: nn.Conv2d(4, 6, (3, 2), groups=2, dilation=2, bias=False), lambda: image(2, 4, 8, 9)),
    "Conv2d same": (lambda: nn.Conv2d(4, 4, 3, padding="same", groups=4), lambda: image(2, 4, 5, 5)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), lambda: image(1, 2, 4, 5, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 3, 3), lambda: image(2, 4, 6)),
    "ConvTranspose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        lambda: image(2, 4, 5, 5),
    ),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), lambda: image(1, 2, 3, 3, 3)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), lambda: image(5, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, affine=False), lambda: image(2, 4, 3, 3)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), lambda: image(2, 2, 3, 3, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), lambda: image(2, 4, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), lambda: image(2, 4, 3, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(6), lambda: image(2, 4, 6)),
    "LayerNorm without weights": (lambda: nn.LayerNorm((4, 6), elementwise_affine=False), lambda: image(2, 4, 6)),
    "RMSNorm": (lambda: nn.RMSNorm(6), lambda: image(2, 4, 6)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), lambda: image(2, 4, 3, 3)),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, stride=2, padding=1), lambda: image(2, 4, 9)),
    "MaxPool2d ceil": (lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True), lambda: image(2, 4, 8, 8)),
    "AvgPool2d padded": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), lambda: image(2, 4, 8, 8)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), lambda: image(1, 2, 4, 4, 4)),
    "Fold": (lambda: nn.Fold((4, 5), (2, 2)), lambda: image(1, 12, 12)),
    "Unfold": (lambda: nn.Unfold((2, 2)), lambda: image(1, 3, 4, 5)),
    "LSTM": (lambda: nn.LSTM(3, 4), lambda: image(5, 2, 3)),
    "LSTM of two layers, both directions": (
        lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
        lambda: image(2, 5, 3),
    ),
    "GRU": (lambda: nn.GRU(3, 4), lambda: image(5, 2, 3)),
    "RNN": (lambda: nn.RNN(3, 4), lambda: image(5, 2, 3)),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), lambda: image(2, 3)),
    "GRUCell": (lambda: nn.GRUCell(3, 4), lambda: image(2, 3)),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: (nx.randn(2, 5, 8), nx.randn(2, 6, 8), nx.randn(2, 6, 8)),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda: image(2, 5, 8),
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        lambda: (nx.randn(2, 5, 8), nx.randn(2, 4, 8)),
    ),
    "SwiGLU": (lambda: nn.SwiGLU(8, 12), lambda: image(2, 8)),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, classes),
    "NLLLoss": (nn.NLLLoss, classes),
    "MSELoss": (nn.MSELoss, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "SmoothL1Loss": (nn.SmoothL1Loss, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, lambda: (nx.randn(3, 4), nx.rand(3, 4))),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), lambda: (nx.randn(3, 4), nx.rand(3, 4))),
    **{
        f"{name}{axes}d": (
            lambda name=name, axes=axes, args=args: getattr(nn, f"{name}{axes}d")(*args),
            lambda axes=axes: image(1, 2, *(4, 6, 5)[:axes]),
        )
        for name, dimensions, args in (
            *((f"{kind}Pad", (1, 3), (1,)) for kind in ("Zero", "Reflection", "Replication", "Circular")),
            *(("ConstantPad", (2, 3), (1, 0.5)), ("InstanceNorm", (1, 3), (2,)), ("Dropout", (1, 3), ())),
            *(("AvgPool", (1,), (2,)), ("MaxPool", (3,), (2,))),
            *((f"Adaptive{kind}Pool", (1, 3), (2,)) for kind in ("Avg", "Max")),
        )
        for axes in dimensions
    },
    "Dropout": (nn.Dropout, lambda: image(2, 4)),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), lambda: image(1, 2, 4, 5)),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=2), lambda: image(1, 2, 4, 5)),
    "SparseLinear": (lambda: nn.SparseLinear(8, 4), lambda: image(5, 8)),
    "RNNCell": (lambda: nn.RNNCell(3, 4), lambda: image(2, 3)),
    "RotaryEmbedding": (lambda: nn.RotaryEmbedding(8), lambda: (nx.randn(2, 3, 5, 8), nx.randn(2, 3, 5, 8))),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), lambda: image(2, 4)),
    "Transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        lambda: (nx.randn(2, 5, 8), nx.randn(2, 4, 8)),
    ),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        lambda: image(2, 5, 8),
    ),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2),
        lambda: (nx.randn(2, 5, 8), nx.randn(2, 4, 8)),
    ),
    "BCELoss": (nn.BCELoss, lambda: (nx.rand(3, 4) * 0.8 + 0.1, nx.rand(3, 4))),
    "L1Loss": (nn.L1Loss, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "HuberLoss": (nn.HuberLoss, lambda: (nx.randn(3, 4), nx.randn(3, 4))),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda: (nx.randn(3, 4), signs(3, 4))),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, lambda: (nx.randn(3, 4), signs(3, 4))),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, lambda: (nx.randn(3, 4), nx.randn(3, 4), signs(3))),
    "MarginRankingLoss": (nn.MarginRankingLoss, lambda: (nx.randn(3), nx.randn(3), signs(3))),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, lambda: (nx.randn(3, 4), nx.randn(3, 4), nx.rand(3, 4) + 0.1)),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, lambda: (nx.randn(3, 4), nx.rand(3, 4))),
    "MultiMarginLoss": (nn.MultiMarginLoss, classes),
    "MultiLabelMarginLoss": (
        nn.MultiLabelMarginLoss,
        lambda: (nx.randn(2, 4), nx.tensor([[3, 0, -1, 1], [1, -1, 2, 0]])),
    ),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, lambda: (nx.randn(3, 4), (nx.rand(3, 4) > 0.5).float())),
    "TripletMarginLoss": (nn.TripletMarginLoss, lambda: (nx.randn(3, 4), nx.randn(3, 4), nx.randn(3, 4))),
    "TripletMarginWithDistanceLoss": (
        nn.TripletMarginWithDistanceLoss,
        lambda: (nx.randn(3, 4), nx.randn(3, 4), nx.randn(3, 4)),
    ),
}


_CONTAINER = "it computes nothing itself"
_BASE = "a base class"
# The layers without an example, with the reason.
EXCEPTIONS = {
    **dict.fromkeys(("ModuleDict", "ModuleList", "ParameterDict", "ParameterList"), _CONTAINER),
    **dict.fromkeys(("Activation", "Loss", "Module", "RNNBase", "RNNCellBase"), _BASE),
    **{name: "it becomes a layer that has one" for name in dir(nn) if name.startswith("Lazy")},
    "CTCLoss": "it reads the lengths of its targets",
    "SyncBatchNorm": "it is BatchNorm in evaluation, and needs several processes in training",
}


def test_every_layer_has_an_example() -> None:
    layers = {name for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    assert layers - {type(make()).__name__ for make, _ in LAYERS.values()} == set(EXCEPTIONS)


def test_what_has_no_export_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "network.onnx"
    inputs = (nx.randn(6, 2, 4).log_softmax(-1), nx.randint(1, 4, (2, 3)), nx.tensor([6, 5]), nx.tensor([3, 2]))
    with pytest.raises(ValueError, match="cannot be written"):
        nx.onnx.export(nn.CTCLoss(), inputs, path)
    assert not path.exists()


def flat(results: Any) -> list[nx.Tensor]:
    """The tensors of results."""
    if isinstance(results, (tuple, list)):
        return [tensor for result in results for tensor in flat(result)]
    return [] if results is None else [results]


class Flat(nn.Module):
    """A module whose results are a flat tuple."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: nx.Tensor) -> Any:
        return tuple(flat(self.inner(*args)))


def check_file(path: pathlib.Path, inputs: Tensors, expected: list[nx.Tensor]) -> None:
    """Checks a file, and compares its numbers in another runtime and when it is read back."""
    onnx.checker.check_model(str(path), full_check=True)
    file = onnx.load(str(path))
    arrays = {port.name: tensor.numpy() for port, tensor in zip(file.graph.input, inputs)}
    if file.opset_import[0].version > NEWEST_OF_RUNTIME:
        theirs = ReferenceEvaluator(file).run(None, arrays)
    else:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        theirs = session.run(None, arrays)
    again = nx.onnx.load(path).run(arrays)
    assert len(theirs) == len(again) == len(expected)
    for other, own, wanted in zip(theirs, again.values(), expected):
        wanted = wanted.detach().numpy()
        assert other.shape == own.shape == wanted.shape and other.dtype == own.dtype == wanted.dtype
        np.testing.assert_allclose(other, wanted, 1e-4, 1e-5)
        np.testing.assert_allclose(own, wanted, 1e-4, 1e-5)


# ONNX's reference evaluator refuses transposed convolutions with groups.
REFUSED = ("ConvTranspose2d",)
# Layers that need operators of a newer opset than 13.
OLDEST = {"SparseLinear": 18}
# Layers that opsets between the oldest and the newest write differently.
VARIANTS = ("Fold", "GELU", "GroupNorm", "LayerNorm", "Mish", "MultiheadAttention", "RMSNorm", "TransformerDecoderLayer")


@pytest.mark.parametrize(
    ("name", "opset"),
    [(name, opset) for name in LAYERS for opset in (OLDEST.get(name, 13), DEFAULT, NEWEST) if opset < NEWEST or name not in REFUSED]
    + [(name, opset) for name in VARIANTS for opset in (15, 17, 18, 20, 23, NEWEST_OF_RUNTIME)],
)
def test_layers(name: str, opset: int, tmp_path: pathlib.Path) -> None:
    make, example = LAYERS[name]
    model = Flat(make())
    for parameter in model.parameters():
        parameter.data = nx.randn(parameter.shape) * 0.5
    for label, buffer in model.named_buffers():
        if label.endswith("running_var"):
            buffer.copy_(nx.rand(buffer.shape) + 0.5)
    model.eval()
    inputs = example()
    expected = flat(model(*inputs))
    path = tmp_path / "layer.onnx"
    nx.onnx.export(model, inputs, path, opset=opset)
    assert onnx.load(str(path)).opset_import[0].version == opset
    check_file(path, inputs, expected)


def test_the_newest_opset_is_that_of_onnx(tmp_path: pathlib.Path) -> None:
    assert onnx.defs.onnx_opset_version() == NEWEST
    model, x, path = nn.GELU(), nx.randn(2, 3), tmp_path / "network.onnx"
    # Each opset came with a version of the file format.
    versions = {row[2]: row[1] for row in onnx.helper.VERSION_TABLE}
    for opset in range(13, NEWEST + 1):
        nx.onnx.export(model, x, path, opset=opset)
        assert onnx.load(str(path)).ir_version == versions[opset]
        check_file(path, (x,), [model(x)])


class Network(nn.Module):
    """Convolutions, a normalisation, and a shape that depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        h = self.body(x)
        return self.head(h.reshape(h.shape[0], -1)).softmax(-1)


def test_the_opset_by_its_name_in_pytorch(tmp_path: pathlib.Path) -> None:
    nx.onnx.export(nn.Linear(2, 3), nx.zeros(1, 2), tmp_path / "network.onnx", opset_version=17)
    assert onnx.load(tmp_path / "network.onnx").opset_import[0].version == 17


def test_a_batch_that_varies(tmp_path: pathlib.Path) -> None:
    model = Network().eval()
    path = tmp_path / "network.onnx"
    nx.onnx.export(model, nx.zeros(1, 1, 8, 8), path, dynamic_axes={"x": {0: "batch"}})
    read = onnx.load(str(path))
    assert read.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert read.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {tensor.name for tensor in read.graph.initializer} >= {"body.0.weight", "head.weight", "head.bias"}
    for batch in (1, 2, 7):
        x = nx.randn(batch, 1, 8, 8)
        check_file(path, (x,), [model(x)])


@pytest.mark.parametrize("opset", [13, DEFAULT, NEWEST_OF_RUNTIME])
def test_a_language_model_of_any_length(opset: int, tmp_path: pathlib.Path) -> None:
    config = nx.models.GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    model = nx.models.GPT2(config).eval()
    path = tmp_path / "gpt2.onnx"
    tokens = nx.randint(0, 64, (2, 6))
    nx.onnx.export(
        lambda tokens: model(tokens),
        tokens,
        path,
        dynamic_axes={"tokens": {0: "batch", 1: "length"}},
        opset=opset,
    )
    operators = {node.op_type for node in onnx.load(str(path)).graph.node}
    assert ("Attention" in operators) == (opset >= 23) and ("LayerNormalization" in operators) == (opset >= 17)
    for shape in ((1, 1), (2, 6), (3, 20)):
        tokens = nx.randint(0, 64, shape)
        check_file(path, (tokens,), [model(tokens)])


def test_what_was_exported_is_trained_further(tmp_path: pathlib.Path) -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    path = tmp_path / "network.onnx"
    nx.onnx.export(model, (nx.zeros(2, 3),), path, dynamic_axes={"input_0": [0]}, input_names=["input_0"])
    again = nx.onnx.load(path)
    assert set(again.state_dict()) >= set(model.state_dict())
    x = nx.randn(4, 3)
    again(x).square().mean().backward()
    assert all(parameter.grad is not None for parameter in again.parameters())


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x * x.shape[1] ** 2,
        lambda x: x[:, : max(2, x.shape[1] - 6)],
        lambda x: x + 1 if x.sum() > 0 else x - 1,
        lambda x: x.nonzero(),
    ],
)
def test_what_cannot_be_written_is_not(model: Callable[[nx.Tensor], nx.Tensor], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "network.onnx"
    with pytest.raises(ValueError, match="cannot be written"):
        nx.onnx.export(model, nx.randn(2, 4), path, dynamic_axes={"x": {1: "n"}})
    assert not path.exists()


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x[:, :, x.shape[2] // 2 :],
        lambda x: x.chunk(2, dim=3)[1],
        lambda x: x.reshape(x.shape[0], x.shape[1], x.shape[2] // 4, 4, x.shape[3] // 4, 4),
        lambda x: nn.functional.interpolate(x, size=(2 * x.shape[2], 3 * x.shape[3]), mode="bilinear"),
        lambda x: nn.functional.max_pool2d(x, 2),
    ],
)
def test_sizes_that_follow_from_others(model: Callable[[nx.Tensor], nx.Tensor], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "network.onnx"
    # A constant, which the file must not hold.
    nx.onnx.export(model, nx.ones(1, 2, 8, 8), path, dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}})
    for shape in ((1, 2, 8, 8), (3, 2, 16, 12)):
        x = nx.randn(shape)
        check_file(path, (x,), [model(x)])


def test_modes_stay_as_they_were(tmp_path: pathlib.Path) -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    model[0].eval()
    nx.onnx.export(model, nx.randn(2, 3), tmp_path / "network.onnx")
    assert model.training and not model[0].training and model[1].training


@pytest.mark.parametrize(("dtype", "difference"), [("float32", 5e-4), ("float64", 1e-8)])
def test_numbers_that_differ_are_not_written(dtype: str, difference: float, tmp_path: pathlib.Path) -> None:
    calls = [0]

    def drifting(x: nx.Tensor) -> nx.Tensor:
        calls[0] += 1
        return x * (1 + difference * calls[0])

    with pytest.raises(ValueError, match="changes from call to call"):
        nx.onnx.export(drifting, nx.ones(2, 3, dtype=dtype), tmp_path / "network.onnx")


def test_wrong_use_says_what_is_right(tmp_path: pathlib.Path) -> None:
    model = nn.Linear(3, 2)
    path = tmp_path / "network.onnx"
    with pytest.raises(ValueError, match="dynamic_axes names 'y', but the inputs are input"):
        nx.onnx.export(model, nx.zeros(2, 3), path, dynamic_axes={"y": [0]})
    with pytest.raises(IndexError, match="axis 5"):
        nx.onnx.export(model, nx.zeros(2, 3), path, dynamic_axes={"input": [5]})
    with pytest.raises(TypeError, match=r"as \{0: \"batch\"\}"):
        nx.onnx.export(model, nx.zeros(2, 3), path, dynamic_axes={"input": "batch"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="the name 'b' for sizes that differ, 2 and 3"):
        nx.onnx.export(model, nx.zeros(2, 3), path, dynamic_axes={"input": {0: "b", 1: "b"}})
    with pytest.raises(ValueError, match="opset is 1180591620717411303424, which is too large"):
        nx.onnx.export(model, nx.zeros(2, 3), path, opset=2**70)
    with pytest.raises(NotImplementedError, match="choose one from 13 to 28"):
        nx.onnx.export(model, nx.zeros(2, 3), path, opset=12)
    with pytest.raises(TypeError, match="must be tensors"):
        nx.onnx.export(model, 3.0, path)
    with pytest.raises(ValueError, match="2 input names for 1"):
        nx.onnx.export(model, nx.zeros(2, 3), path, input_names=["a", "b"])
    with pytest.raises(FileNotFoundError):
        nx.onnx.export(model, nx.zeros(2, 3), tmp_path / "missing" / "network.onnx")
    assert not path.exists()
    assert model.training
