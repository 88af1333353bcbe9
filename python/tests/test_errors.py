"""Exceptions: their classes, Python's names in messages, and agreement with PyTorch in special cases."""

from __future__ import annotations

import math
import re
import warnings

import neurenix as nx
import numpy as np
import pytest
from neurenix import _engine

RUST = re.compile(r"to_dtype|to_device|with_grad|backward_retain|_scalar\(|::|\.gradient\(\)")


def test_messages_have_pythons_names() -> None:
    leaf = nx.Tensor([1.0], requires_grad=True)
    used = (leaf * 2).sum()
    used.backward()
    calls = [
        lambda: used.backward(),
        lambda: nx.ones(2).sum().backward(),
        lambda: nx.ones(2, dtype=nx.bool) @ nx.ones(2, dtype=nx.bool),
        lambda: nx.ones(2, dtype=nx.bool) - nx.ones(2, dtype=nx.bool),
        lambda: nx.ones(2) & nx.ones(2),
        lambda: nx.Tensor([1]).requires_grad_(),
        lambda: nx.nn.functional.cross_entropy(nx.ones(2, 3), nx.ones(2)),
        lambda: nx.ones(3)[nx.ones(1)],
        lambda: nx.nn.functional.softmax(nx.ones(2, dtype=nx.int64), dim=0),
    ]
    told = []
    for call in calls:
        try:
            call()
        except Exception as error:
            told.append(str(error))
    assert len(told) >= 6
    for message in told:
        assert not RUST.search(message), message
    assert any("backward(retain_graph=True)" in message for message in told)
    assert any("requires_grad=True" in message for message in told)


@pytest.mark.parametrize(
    ("rust", "python"),
    [
        ("convert with .to_dtype()", "convert with .to(dtype)"),
        ("convert with .to_dtype(int64)", "convert with .long()"),
        ("move one with .to_device()", "move one with .to(device)"),
        ("keep it with backward_retain(), or", "keep it with backward(retain_graph=True), or"),
        ("must be bool: compare with .ne_scalar(0)", "must be bool: compare with != 0"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_the_table_of_names(rust: str, python: str) -> None:
    assert _engine._translated(rust) == python


def test_printing_what_cannot_be_computed_raises() -> None:
    inverse = _engine.inv(nx.zeros(2, 2))
    for show in (repr, str, print, "{}".format):
        with pytest.raises(RuntimeError, match="inv: a matrix is singular"):
            show(inverse)
    assert inverse.shape == (2, 2)


def test_backward_names_itself_and_the_remedy() -> None:
    leaf = nx.ones(2, 3, requires_grad=True)
    with pytest.raises(ValueError, match=r"^backward: .*only for a scalar: .*sum\(\).*backward\(gradient=\.\.\.\)"):
        (leaf * 2).backward()
    with pytest.raises(ValueError, match=r"^grad: .*only for a scalar: .*grad_outputs="):
        nx.grad(leaf * 2, [leaf])
    with pytest.raises(ValueError, match=r"^grad: .*only for a scalar"):
        nx.grad(lambda x: x * 2)(leaf)
    with pytest.raises(ValueError, match="^backward: shapes .* the output gradient must have the output's shape"):
        (leaf * 2).backward(nx.ones(3))
    loss = (leaf * 2).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match=r"^a graph that was released has no gradient: backward\(\) .*retain_graph=True"):
        loss.backward()


def test_a_leaf_is_not_changed_in_place_while_gradients_are_recorded() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    for change in (
        lambda: x.fill_(3.0),
        lambda: x.zero_(),
        lambda: x.copy_(nx.ones(2)),
        lambda: x.add_(1.0),
        lambda: x.mul_(2.0),
        lambda: x.__setitem__(0, 5.0),
    ):
        with pytest.raises(RuntimeError, match="leaf"):
            change()
    assert x.tolist() == [1.0, 2.0]
    with nx.no_grad():
        x.fill_(3.0)
    x.data.mul_(2.0)
    assert x.tolist() == [6.0, 6.0] and x.requires_grad


def test_what_a_kernels_gradient_raises_keeps_its_class() -> None:
    def fail(inputs: object, outputs: object, gradients: object) -> None:
        raise KeyError("mine")

    kernel = nx.CustomKernel(
        "twice",
        inputs=[("x", nx.float32, "n")],
        outputs=[("y", nx.float32, "n")],
        sources={},
        cpu=lambda x: x * 2,
        gradient=fail,
    )
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        kernel(x).sum().backward()
    assert x.grad is None


def test_the_derivatives_of_clamp_at_its_bounds_are_pytorchs() -> None:
    x = nx.Tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    x.clamp(0.0, 1.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    x.grad = None
    low, high = nx.Tensor(0.0, requires_grad=True), nx.Tensor(1.0, requires_grad=True)
    x.clamp(low, high).sum().backward()
    # Equal values share the gradient.
    assert x.grad.tolist() == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert low.grad.item() == 1.5 and high.grad.item() == 1.5
    clamped = nx.Tensor([math.nan, 1.0]).clamp(nx.Tensor(0.0), nx.Tensor(math.nan))
    assert np.isnan(clamped.numpy()).all()
    # As in PyTorch, the gradient at the bounds is 0.
    y = nx.Tensor([-1.0, 0.0, 1.0], requires_grad=True)
    nx.nn.functional.hardtanh(y).sum().backward()
    assert y.grad.tolist() == [0.0, 1.0, 0.0]


def test_gradients_of_std_and_norm_where_they_are_zero() -> None:
    x = nx.Tensor([2.0, 2.0, 2.0], requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    y = nx.Tensor([[1.0, 1.0], [1.0, 3.0]], requires_grad=True)
    y.std(dim=1).sum().backward()
    assert y.grad[0].tolist() == [0.0, 0.0]
    assert y.grad[1].tolist() == pytest.approx([-0.70710678, 0.70710678])
    z = nx.zeros(3).requires_grad_()
    z.norm().backward()
    assert z.grad.tolist() == [0.0, 0.0, 0.0]


def test_array_without_a_copy() -> None:
    x = nx.Tensor([1.0, 2.0])
    view = x.__array__(copy=False)
    assert view.base is not None and np.shares_memory(view, np.asarray(x))
    assert x.__array__(dtype=np.float32, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        x.__array__(dtype=np.float64, copy=False)
    own = x.__array__(copy=True)
    own[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_numpys_numbers_in_lists_keep_their_dtype() -> None:
    assert nx.Tensor([np.float64(1.0)]).dtype == nx.float64
    assert nx.Tensor([np.float64(1.0), 2.0]).dtype == nx.float64
    assert nx.Tensor([1.0, np.float64(2.0)]).dtype == nx.float64
    assert nx.Tensor([np.float32(1.0), 2]).dtype == nx.float32
    assert nx.Tensor([[np.int32(1)], [np.int32(2)]]).dtype == nx.int32
    assert nx.Tensor([np.int32(1), 2]).dtype == nx.int64
    assert nx.Tensor([np.bool_(True)]).dtype == nx.bool
    assert nx.Tensor([1.0, 2.0]).dtype == nx.float32 and nx.Tensor([1, 2]).dtype == nx.int64
    assert nx.Tensor([np.float64(1.0)], dtype=nx.float32).dtype == nx.float32


def test_a_module_that_does_not_fit_stays_where_it_is() -> None:
    model = nx.nn.Sequential(nx.nn.Linear(4, 4), nx.nn.Linear(4, 4))
    before = {name: value.tolist() for name, value in model.state_dict().items()}
    device = nx.Device("cpu")
    device.empty_cache()
    in_use = device.memory()["allocated"]
    device.set_memory_limit(in_use + 160)
    try:
        with pytest.raises(MemoryError):
            model.to(nx.float64)
    finally:
        device.set_memory_limit(None)
    assert all(value.dtype == nx.float32 for value in model.state_dict().values())
    assert {name: value.tolist() for name, value in model.state_dict().items()} == before
    assert all(value.dtype == nx.float64 for value in model.to(nx.float64).state_dict().values())


@pytest.mark.parametrize(
    ("call", "exception"),
    [
        (lambda: nx.Tensor([300], dtype=nx.uint8), ValueError),
        (lambda: nx.tensor(300, dtype=nx.uint8), ValueError),
        (lambda: nx.Tensor([[1], [-1]], dtype=nx.uint16), ValueError),
        (lambda: nx.full((2,), 128, dtype=nx.int8), ValueError),
        (lambda: nx.eye(-1), ValueError),
        (lambda: nx.exp(nx.ones(2), out=nx.zeros(2)), TypeError),
        (lambda: nx.linspace(0, 1, -1), ValueError),
        (lambda: nx.linspace(0, 1, -1, endpoint=False), ValueError),
        (lambda: nx.linspace(0, 1), TypeError),
        (lambda: nx.arange(1, 5, end=4), TypeError),
        (lambda: nx.arange(), TypeError),
        (lambda: nx.zeros(), TypeError),
        (lambda: nx.ones((2,), size=(2,)), TypeError),
        (lambda: nx.full((2,)), TypeError),
        (lambda: nx.rand(2, size=(2,)), TypeError),
        (lambda: nx.expand_dims(nx.ones(2), (0, 0)), ValueError),
        (lambda: nx.expand_dims(nx.ones(2), (0, 3)), IndexError),
        (lambda: nx.randperm(-2), ValueError),
        (lambda: list(nx.Tensor(3.0)), TypeError),
        (lambda: nx.ones(2, 2)[0, 0, 0], IndexError),
        (lambda: nx.ones(2, 2)[nx.ones(2, 2) > 0, 0], IndexError),
    ],
)
def test_what_does_not_fit_is_an_error_of_pythons_kind(call: object, exception: type[Exception]) -> None:
    with pytest.raises(exception):
        call()  # type: ignore[operator]


def test_a_number_that_does_not_fit_changes_nothing() -> None:
    x = nx.Tensor([1, 2], dtype=nx.uint8)
    index = nx.tensor([0])
    for change in (
        lambda: x.fill_(300),
        lambda: x.__setitem__(0, 300),
        lambda: x.__setitem__(slice(None), -1),
        lambda: x.masked_fill_(x > 1, 256),
        lambda: x.scatter_(0, index, 300),
        lambda: x.index_fill_(0, index, -1),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            change()
        assert x.tolist() == [1, 2]
    x[0] = 255
    x.scatter_(0, nx.tensor([1]), 254)
    assert x.tolist() == [255, 254]


def test_a_pickle_of_a_device_that_is_not_here_says_so() -> None:
    call, arguments = nx.ones(2, device="cpu").__reduce_ex__(4)[:2]
    arguments = tuple("vulkan:77" if each == "cpu" else each for each in arguments)
    with pytest.warns(RuntimeWarning, match="vulkan:77"):
        tensor = call(*arguments)
    assert tensor.device.name == "cpu" and tensor.tolist() == [1.0, 1.0]


def test_what_fits_just() -> None:
    assert nx.Tensor([255, 0], dtype=nx.uint8).tolist() == [255, 0]
    assert nx.Tensor([2**64 - 1], dtype=nx.uint64).tolist() == [2**64 - 1]
    assert nx.full((1,), -128, dtype=nx.int8).tolist() == [-128]
    assert nx.ones(2, 3)[..., None, 0].shape == (2, 1)
    nx.manual_seed(-1)
    first = nx.rand(3).tolist()
    nx.manual_seed(2**64 - 1)
    assert nx.rand(3).tolist() == first


def test_the_derivatives_of_atan2_at_the_origin_are_zero() -> None:
    y, x = nx.zeros(3, requires_grad=True), nx.zeros(3, requires_grad=True)
    nx.atan2(y, x).sum().backward()
    assert y.grad.tolist() == [0.0] * 3 and x.grad.tolist() == [0.0] * 3


def test_what_is_no_function_is_refused_when_it_is_given() -> None:
    with pytest.raises(TypeError, match="compile: expected a function, got int"):
        nx.compile(3)
    for name in ("grad", "jacobian"):
        with pytest.raises(TypeError, match=f"{name}: expected a function, got int"):
            getattr(nx, name)(3)
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        with pytest.raises(TypeError, match="expected a function as hook, got int"):
            getattr(nx.nn.ReLU(), register)(3)


def test_gradients_with_respect_to_what_is_no_tensor_name_the_argument() -> None:
    for given in (np.ones(2), [1.0], 3.0):
        kind = type(given).__name__
        for name in ("grad", "jacobian"):
            with pytest.raises(TypeError, match=rf"^{name}: argument 1: expected a tensor, got {kind}: .*nx\.asarray"):
                getattr(nx, name)(lambda x, y: x * y, argnums=1)(nx.ones(1), given)


def test_numbers_that_cannot_be_are_refused_at_once() -> None:
    for options in ({"kernel_size": 0}, {"stride": 0}, {"dilation": (1, 0)}):
        for layer in (nx.nn.Conv2d, nx.nn.ConvTranspose2d):
            with pytest.raises(ValueError, match=rf"{layer.__name__}: {next(iter(options))} is .*, it must be at least 1"):
                layer(3, 8, **{"kernel_size": 3, **options})
    optimizer = nx.optim.SGD([nx.ones(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ValueError, match="StepLR: step_size is 0"):
        nx.optim.lr_scheduler.StepLR(optimizer, 0)
    with pytest.raises(TypeError, match="DataLoader: expected a sequence, .*, got int"):
        nx.data.DataLoader(3)
    x = nx.zeros(2)
    for name, draw in (
        ("normal", lambda: nx.normal(0.0, -1.0, (2,))),
        ("normal_", lambda: x.normal_(0.0, -1.0)),
        ("normal_", lambda: nx.nn.init.normal_(x, 0.0, -1.0)),
        ("trunc_normal_", lambda: nx.nn.init.trunc_normal_(x, std=-1.0)),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: std is -1.0"):
            draw()
    assert x.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="stack: expected at least one tensor"):
        nx.stack([])
    with pytest.raises(IndexError, match="size: dimension 7 is out of range"):
        x.size(7)
    assert x.size(-1) == 2
    with pytest.raises(TypeError, match="xavier_uniform_: expected a tensor, got Linear"):
        nx.nn.init.xavier_uniform_(nx.nn.Linear(2, 2))


def test_states_of_another_kind_are_refused() -> None:
    x, h = nx.zeros(5, 2, 4), nx.zeros(1, 2, 8)
    with pytest.raises(TypeError, match=r"LSTM: expected a pair \(h, c\) as the state, got Tensor"):
        nx.nn.LSTM(4, 8)(x, h)
    with pytest.raises(TypeError, match=r"LSTMCell: expected a pair \(h, c\) as the state, got tuple of 3"):
        nx.nn.LSTMCell(4, 8)(x[0], (h[0], h[0], h[0]))
    for layer, name in ((nx.nn.GRU(4, 8), "GRU"), (nx.nn.RNN(4, 8), "RNN")):
        with pytest.raises(TypeError, match=f"{name}: expected a tensor h as the state, got tuple"):
            layer(x, (h, h))
    with pytest.raises(ValueError, match="the input's last dimension must be input_size, which is 4"):
        nx.nn.LSTM(4, 8)(nx.zeros(5, 2, 3))


def test_bools_and_words_are_refused_in_plain_words() -> None:
    with pytest.raises(TypeError, match="bool is not numeric: convert with .*, or use logical_and"):
        nx.ones(2, dtype=nx.bool) - nx.ones(2, dtype=nx.bool)
    with pytest.raises(TypeError, match="expected an index, got str"):
        nx.ones(2)["a"]  # type: ignore[index]


def test_classes_of_floats_are_refused() -> None:
    with pytest.raises(ValueError, match=r"class indices must be integers: convert with \.long\(\)"):
        nx.nn.functional.cross_entropy(nx.zeros(3, 4), nx.zeros(3))


def test_optimizers_refuse_modules_and_rates_that_are_not_numbers() -> None:
    linear = nx.nn.Linear(2, 2)
    for wrong in (linear, [linear], nx.nn.Sequential(linear), [{"params": linear}]):
        with pytest.raises(TypeError, match=r"got the module .*: pass module\.parameters\(\)"):
            nx.optim.SGD(wrong, lr=0.1)  # type: ignore[arg-type]
    for rate in ("a", "0.1", None):
        with pytest.raises(TypeError, match="lr must be a number, got"):
            nx.optim.Adam(linear.parameters(), lr=rate)  # type: ignore[arg-type]


def test_a_tensor_is_no_axis() -> None:
    with pytest.raises(TypeError, match=r"expected an axis .*, got a tensor: .*maximum\(\)") as refused:
        nx.sum(nx.ones(2, 2), nx.ones(2, 2))
    assert "1." not in str(refused.value)


def test_autocast_knows_kinds_of_devices() -> None:
    with pytest.raises(ValueError, match="device_type is 'banana', it must be one of cpu, cuda"):
        nx.amp.autocast("banana")
    for known in ("cpu", "cuda", "cuda:0", nx.Device("cpu")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert nx.amp.autocast(known).dtype == nx.bfloat16


def test_inputs_with_too_few_dimensions_are_refused_in_the_layers_words() -> None:
    x, scalar, one = nx.ones(3), nx.ones(()), nx.tensor([1])
    for message, wrong in [
        ("interpolate: expected an input of 3 to 5 dimensions, got shape (3,)", lambda: nx.nn.Upsample(scale_factor=2)(x)),
        ("pixel_shuffle: expected an input of at least 3 dimensions", lambda: nx.nn.PixelShuffle(2)(x)),
        ("pixel_unshuffle: expected an input of at least 3 dimensions", lambda: nx.nn.PixelUnshuffle(2)(x)),
        ("ctc_loss: expected an input of 2 or 3 dimensions", lambda: nx.nn.CTCLoss()(x, one, one, one)),
        ("adaptive_avg_pool2d: expected an input of 3 or 4 dimensions", lambda: nx.nn.AdaptiveAvgPool2d(2)(x)),
        ("adaptive_max_pool1d: expected an input of 2 or 3 dimensions", lambda: nx.nn.AdaptiveMaxPool1d(2)(scalar)),
        ("bilinear: expected input1 with a last dimension of 3, got shape ()", lambda: nx.nn.Bilinear(3, 3, 2)(scalar, x)),
        ("MultiheadAttention: query, key and value must have 3", lambda: nx.nn.TransformerEncoderLayer(4, 2)(nx.ones(4))),
        ("1180591620717411303424 does not fit in a 64-bit integer", lambda: nx.ones(2**70)),
        ("1180591620717411303424 does not fit in a 64-bit integer", lambda: x.reshape((2**70, 1))),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            wrong()


def test_windows_of_no_images() -> None:
    assert nx.nn.Unfold(2)(nx.ones(0, 3, 4, 4)).shape == (0, 12, 9)
