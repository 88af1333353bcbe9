"""ONNX files: the node tests of ONNX's own package, and networks as modules."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import neurenix as nx
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

FILE = pathlib.Path(__file__).parent / "onnx_cases.py"
spec = importlib.util.spec_from_file_location("onnx_cases", FILE)
assert spec is not None and spec.loader is not None
onnx_cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(onnx_cases)
cases, check_equal, failure, ours = onnx_cases.cases, onnx_cases.check_equal, onnx_cases.failure, onnx_cases.ours

# What fails, and why; docs/onnx.md has the same list. Anything else must pass.
RANDOM = {
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}
"""Their results are another generator's numbers."""
ROUNDED = {
    "test_attention_3d_causal_bf16",
    "test_attention_3d_causal_bf16_expanded",
    "test_attention_4d_attn_mask_causal_bf16",
    "test_attention_4d_attn_mask_causal_bf16_expanded",
    "test_attention_4d_causal_bf16",
    "test_attention_4d_causal_bf16_expanded",
    "test_attention_4d_causal_fp16_expanded",
    "test_attention_4d_causal_padded_kv_bf16",
    "test_attention_4d_causal_padded_kv_bf16_expanded",
    "test_attention_4d_padded_kv_bf16",
    "test_attention_4d_padded_kv_bf16_expanded",
    "test_dft_inverse",
    "test_dft_inverse_opset19",
}
"""The tolerance is smaller than a rounding error of the type, and intermediate results are rounded elsewhere."""
DECODING = {
    f"test_image_decoder_decode_{name}"
    for name in (
        "bmp_rgb",
        "jpeg2k_rgb",
        "jpeg_bgr",
        "jpeg_grayscale",
        "jpeg_rgb",
        "png_rgb",
        "pnm_rgb",
        "tiff_rgb",
        "webp_rgb",
    )
}
"""ImageDecoder is not supported."""


# ONNX's own generators warn.
@pytest.mark.filterwarnings("ignore")
def test_node_cases() -> None:
    failures = {}
    count = 0
    for case in cases():
        count += 1
        why = failure(ours, case)
        if why is not None:
            failures[case.name] = why
    assert count == 1884
    unexpected = {name: message for name, message in failures.items() if name not in RANDOM | ROUNDED | DECODING}
    assert not unexpected
    # On other processors, sums may be rounded in other places, and some of these be within the tolerance.
    assert RANDOM | DECODING <= set(failures)


DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
GRADIENTS = {"test_gradient_of_add", "test_gradient_of_add_and_mul"}
"""The operator Gradient is not supported."""


LIGHT = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "zfnet512")
SLOW = pytest.param("vgg19", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*LIGHT, SLOW])
def test_light_models(name: str) -> None:
    path = DATA / "light" / f"light_{name}.onnx"
    model = nx.onnx.load(path)
    [port] = model.inputs
    assert port.shape is not None
    shape = [size if isinstance(size, int) else 1 for size in port.shape]
    count = int(np.prod(shape))
    [result] = model.run({port.name: (np.arange(count).reshape(shape) / count).astype(np.float32)}).values()
    expected = onnx.load_tensor(str(path).replace(".onnx", "_output_0.pb"))
    check_equal(result, numpy_helper.to_array(expected), 1e-3, 1e-7)


def recorded(path: pathlib.Path, info: Any) -> Any:
    """A value of a case on disk."""
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.load_tensor(str(path)))


@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator"])
def test_recorded_models(kind: str) -> None:
    folders = sorted((DATA / kind).iterdir())
    assert len(folders) == {"simple": 23, "pytorch-converted": 82, "pytorch-operator": 35}[kind]
    for folder in folders:
        if folder.name in GRADIENTS:
            with pytest.raises(NotImplementedError, match="Gradient"):
                nx.onnx.load(folder / "model.onnx")
            continue
        model = nx.onnx.load(folder / "model.onnx")
        graph = onnx.load(str(folder / "model.onnx")).graph
        for data in sorted(folder.glob("test_data_set_*")):
            paths = [(info, data / f"input_{place}.pb") for place, info in enumerate(graph.input)]
            inputs = {info.name: recorded(path, info) for info, path in paths if path.exists()}
            for place, (result, info) in enumerate(zip(model.run(inputs).values(), graph.output)):
                check_equal(result, recorded(data / f"output_{place}.pb", info), 1e-3, 1e-5)


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any], opset: int = 21) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def perceptron() -> bytes:
    rng = np.random.default_rng(0)
    weights = {
        "first.weight": rng.standard_normal((8, 2)).astype(np.float32),
        "first.bias": np.zeros(8, np.float32),
        "second.weight": rng.standard_normal((1, 8)).astype(np.float32),
        "second.bias": np.zeros(1, np.float32),
        "scale": np.array(2.0, np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["h"], transB=1),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Gemm", ["t", "second.weight", "second.bias"], ["z"], transB=1),
        helper.make_node("Mul", ["z", "scale"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])
    return model_of(nodes, [x], [y], weights)


def test_a_network_is_a_module() -> None:
    model = nx.onnx.loads(perceptron())
    assert model.inputs == [nx.onnx.Port("x", "float", ("batch", 2))]
    assert model.outputs == [nx.onnx.Port("y", "float", ("batch", 1))]
    assert [name for name, _ in model.named_parameters()] == ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert set(model.state_dict()) == {"first.weight", "first.bias", "second.weight", "second.bias", "scale"}
    x = nx.randn(5, 2)
    state = model.state_dict()
    hidden = (x @ state["first.weight"].T + state["first.bias"]).tanh()
    expected = (hidden @ state["second.weight"].T + state["second.bias"]) * 2
    np.testing.assert_allclose(model(x).detach().numpy(), expected.detach().numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(model(x=x).detach().numpy(), model.run({"x": x})["y"])
    assert model.run({"x": [[1, 2]]})["y"].shape == (1, 1)
    assert isinstance(model.run({"x": x.numpy()}, ["y"])["y"], np.ndarray)
    assert repr(model) == "OnnxModel(x: float (batch, 2) -> y: float (batch, 1))"


def test_run_as_in_onnx_runtime() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("a", "b", "c")]
    nodes = [helper.make_node(kind, ["x"], [name]) for kind, name in (("Exp", "a"), ("Neg", "b"), ("Abs", "c"))]
    content = model_of(nodes, [x], outputs, {})
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    feeds = {"x": np.array([-1.5, 2.0], np.float32)}
    for names in (None, [], ["c", "a"], ["b"], ["b", "a", "b"]):
        theirs, ours = session.run(names, feeds), nx.onnx.loads(content).run(names, feeds)
        assert isinstance(ours, list) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_network_is_trained_copied_and_restored() -> None:
    model = nx.onnx.loads(perceptron())
    copied = model.clone()
    x = nx.Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = nx.Tensor([[0.0], [1.0], [1.0], [0.0]])
    optimizer = nx.optim.Adam(model.parameters(), lr=0.05)

    def loss() -> nx.Tensor:
        return ((model(x) - y) ** 2).mean()

    first = loss().item()
    for _ in range(150):
        optimizer.zero_grad()
        error = loss()
        error.backward()
        optimizer.step()
    assert loss().item() < 0.05 < first
    assert ((copied(x) - y) ** 2).mean().item() == pytest.approx(first)
    copied.load_state_dict(model.state_dict())
    assert nx.equal(copied(x), model(x)).all()
    half = model.half()
    assert half(x.half()).dtype == nx.float16


def test_shapes_of_outputs_are_inferred() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["h"], axis=0),
        helper.make_node("Shape", ["h"], ["sizes"]),
        helper.make_node("ConstantOfShape", ["sizes"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])
    model = nx.onnx.loads(model_of(nodes, [x], [y], {}))
    assert model.outputs == [nx.onnx.Port("y", "float", ("2*batch", 3))]
    assert model(nx.ones(5, 3)).shape == (10, 3)


def test_exports_of_older_opsets(tmp_path: pathlib.Path) -> None:
    network = nx.nn.Sequential(nx.nn.Linear(4, 6), nx.nn.GELU(), nx.nn.LayerNorm(6))
    x, path = nx.randn(2, 4), tmp_path / "network.onnx"
    for opset in (13, 19, 21, 28):
        nx.onnx.export(network, x, path, opset=opset)
        model = onnx.load(str(path))
        onnx.checker.check_model(model, full_check=True)
        assert model.opset_import[0].version == opset
        assert ("Gelu" in [node.op_type for node in model.graph.node]) == (opset >= 20)
        network.eval()
        np.testing.assert_allclose(nx.onnx.load(path)(x).detach().numpy(), network(x).detach().numpy(), 1e-4, 1e-5)
    with pytest.raises(NotImplementedError, match="from 13 to 28"):
        nx.onnx.export(network, x, path, opset=12)


def test_statistics_of_normalisations_are_buffers() -> None:
    weights = {name: np.full(3, value, np.float32) for name, value in zip("sbmv", (2.0, 1.0, 0.5, 4.0))}
    nodes = [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], epsilon=0.0)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])
    model = nx.onnx.loads(model_of(nodes, [x], [y], weights))
    assert [name for name, _ in model.named_parameters()] == ["s", "b"]
    assert [name for name, _ in model.named_buffers()] == ["m", "v"]
    assert model.inputs[0].shape == (None, 3)
    assert model(nx.ones(1, 3)).tolist() == [[1.5, 1.5, 1.5]]


def test_what_is_missing_is_named_at_once() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    nodes = [
        helper.make_node("Fancy", ["x"], ["h"], "first", domain="com.example"),
        helper.make_node("Plain", ["h"], ["y"], "second", domain="com.example"),
    ]
    graph = helper.make_graph(nodes, "test", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)])
    with pytest.raises(NotImplementedError, match="(?s)com.example.Fancy.*first.*com.example.Plain.*second"):
        nx.onnx.loads(model.SerializeToString())


def test_wrong_use_says_what_is_right() -> None:
    model = nx.onnx.loads(perceptron())
    with pytest.raises(ValueError, match="\"x\" is missing"):
        model()
    with pytest.raises(ValueError, match="no input \"z\""):
        model.run({"x": np.zeros((1, 2), np.float32), "z": 1.0})
    with pytest.raises(TypeError, match="at most 1"):
        model(nx.zeros(1, 2), nx.zeros(1, 2))
    with pytest.raises(ValueError, match="no output 'q'"):
        model.run({"x": np.zeros((1, 2), np.float32)}, ["q"])
    with pytest.raises(ValueError, match='input "x" must be Float of shape .batch, 2., got Float of shape .1, 3.'):
        model(nx.zeros(1, 3))
    with pytest.raises(ValueError, match='input "x" must be Float .* got Int64'):
        model(nx.zeros(1, 2, dtype=nx.int64))
    with pytest.raises(TypeError, match="as keywords"):
        model({"x": nx.zeros(1, 2)})
    with pytest.raises(TypeError, match="a dictionary, got list"):
        model.run([nx.zeros(1, 2)])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="list of names of outputs, got str"):
        model.run("y", {"x": np.zeros((1, 2), np.float32)})
    with pytest.raises(TypeError, match="takes a path"):
        nx.onnx.loads("network.onnx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not an ONNX file"):
        nx.onnx.loads(b"something else")
    with pytest.raises(FileNotFoundError):
        nx.onnx.load("missing.onnx")


def test_names_that_a_module_cannot_have_stay_apart() -> None:
    weights = {"tensor_a__b": np.full(2, 5, np.float32), "a..b": np.full(2, 3, np.float32), "run": np.ones(2, np.float32)}
    nodes = [
        helper.make_node("Sub", ["tensor_a__b", "a..b"], ["d"]),
        helper.make_node("Add", ["d", "run"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    model = nx.onnx.loads(model_of(nodes, [x], [y], weights))
    assert len(model.state_dict()) == 3
    assert model(nx.zeros(2)).tolist() == [3.0, 3.0]


def test_weights_in_another_file(tmp_path: pathlib.Path) -> None:
    model = onnx.load_from_string(perceptron())
    path = tmp_path / "network.onnx"
    onnx.save(model, path, save_as_external_data=True, location="network.data", size_threshold=0)
    assert (tmp_path / "network.data").stat().st_size > 0
    x = nx.randn(3, 2)
    assert nx.equal(nx.onnx.load(path)(x), nx.onnx.loads(perceptron())(x)).all()
