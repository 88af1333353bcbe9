"""Names, arguments and signatures of PyTorch that older programs use; the values are PyTorch 2.15's."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import neurenix.torch as torch
import pytest
from neurenix import _engine
from neurenix.torch import nn


@pytest.fixture(autouse=True)
def pytorch_promotes() -> None:
    _engine.set_promotion("pytorch")


def module(name: str) -> object:
    return importlib.import_module(f"neurenix.torch.{name}")


def test_names_of_layers_and_initial_values() -> None:
    lstm = nn.LSTM(2, 3)
    assert lstm.flatten_parameters() is None and "flatten_parameters" not in lstm.state_dict()
    assert isinstance(nn.Conv2d(1, 1, 1), module("nn.modules.conv")._ConvNd)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), nn.modules.conv._ConvTransposeNd)
    w = torch.empty(6, 4, 3)
    assert nn.init._calculate_fan_in_and_fan_out(w) == (12, 18)
    assert nn.init._calculate_correct_fan(w, "FAN_OUT") == 18
    with pytest.raises(ValueError, match="fan_in"):
        nn.init._calculate_correct_fan(w, "both")
    with pytest.warns(FutureWarning, match="use nn.init.constant_"):
        assert nn.init.constant(torch.empty(2), 3.0).tolist() == [3.0, 3.0]
    for name in "uniform normal xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal eye".split():
        with pytest.warns(FutureWarning):
            assert getattr(nn.init, name)(torch.zeros(3, 3)).abs().sum().item() > 0
    v = torch.tensor([3.0, 4.0], requires_grad=True)
    (v * v / 2).sum().backward()
    with pytest.warns(FutureWarning):
        assert nn.utils.clip_grad_norm([v], 1.0).item() == 5.0
    assert v.grad.tolist() == pytest.approx([0.6, 0.8], abs=1e-6)


def test_older_arguments_of_losses() -> None:
    x, y = torch.tensor([[1.0, 3.0], [2.0, 0.0]]), torch.tensor([1, 1])
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.CrossEntropyLoss(size_average=False)(x, y).item() == pytest.approx(2.2538560, abs=1e-5)
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert nn.MSELoss(reduce=False)(x, x + 2).tolist() == [[4.0, 4.0], [4.0, 4.0]]
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.functional.mse_loss(x, x + 2, size_average=False).item() == 16.0
    with pytest.warns(UserWarning, match="reduction='mean'"):
        assert nn.functional.soft_margin_loss(x, x, reduce=True).item() == pytest.approx(0.2561706, abs=1e-6)
    with pytest.warns(UserWarning):
        assert nn.MSELoss(False)(x, x + 2).item() == 16.0
    assert nn.MSELoss("sum").reduction == nn.L1Loss(reduction="sum").reduction == "sum"


def test_base_classes_of_losses() -> None:
    class Own(nn.modules.loss._WeightedLoss):
        def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):  # type: ignore[no-untyped-def]
            super().__init__(weight, size_average, reduce, reduction)

    own = Own(torch.ones(2), reduction="sum")
    assert own.reduction == "sum" and own.weight.tolist() == [1.0, 1.0]
    assert isinstance(own, nn.modules.loss._Loss) and isinstance(nn.MSELoss(), nn.modules.loss._Loss)
    assert isinstance(nn.CrossEntropyLoss(), nn.modules.loss._WeightedLoss)


def test_names_of_the_namespace() -> None:
    assert torch.vmap(lambda a: a.sum())(torch.ones(2, 3)).tolist() == [3.0, 3.0]
    assert issubclass(torch.OutOfMemoryError, Exception) and torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.compiler.is_compiling() is False and module("compiler").disable(len) is len
    assert torch.compiler.disable()(len) is len
    module("serialization").add_safe_globals([dict])
    assert torch.serialization.load is torch.load
    assert isinstance(1.5, module("types")._Number) and module("types").Device is not None
    assert module("nn.common_types")._size_2_t == int | tuple[int, int]
    x = torch.zeros(1, 2, 3, 4)
    assert x.storage_offset() == 0 and x.is_contiguous()
    assert x.is_contiguous(memory_format=torch.contiguous_format)
    assert not x.is_contiguous(memory_format=torch.channels_last)
    assert torch.zeros(1, 3, 4, 2).permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)


def test_forked_random_numbers() -> None:
    torch.manual_seed(3)
    with torch.random.fork_rng(devices=[]):
        inside = torch.rand(2)
    with pytest.raises(KeyError), torch.random.fork_rng():
        torch.rand(5)
        raise KeyError
    assert torch.rand(2).tolist() == inside.tolist()
    with torch.random.fork_rng(enabled=False):
        torch.manual_seed(4)
    assert torch.random.initial_seed() == 4


def test_required_settings() -> None:
    class Own(torch.optim.Optimizer):
        def __init__(self, params, lr=module("optim.optimizer").required):  # type: ignore[no-untyped-def]
            super().__init__(params, {"lr": lr})

    w = torch.zeros(1, requires_grad=True)
    assert Own([{"params": [w], "lr": 0.5}]).param_groups[0]["lr"] == 0.5
    with pytest.raises(ValueError, match="required setting lr"):
        Own([w])


def test_chained_streams() -> None:
    class Count(torch.utils.data.IterableDataset):
        def __init__(self, end: int) -> None:
            self.end = end

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.end))

    both = torch.utils.data.ChainDataset([Count(2), Count(3)])
    assert [x.tolist() for x in torch.utils.data.DataLoader(both, batch_size=3)] == [[0, 1, 0], [1, 2]]
    assert list(Count(1) + Count(2)) == [0, 0, 1]


def test_decorators_of_functions_under_autocast() -> None:
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, x, y):  # type: ignore[no-untyped-def]
            seen.append((x.dtype, torch.is_autocast_enabled()))
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            seen.append((gradient.dtype, torch.is_autocast_enabled()))
            x, y = ctx.saved_tensors
            return gradient * y, gradient * x

    class Plain(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            seen.append(torch.is_autocast_enabled())
            return gradient * 2

    x = torch.tensor([2.0], dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu"):
        z = Product.apply(x, torch.tensor([3.0]))
        plain = Plain.apply(x)
    assert z.dtype == torch.float32 and z.tolist() == [6.0]
    z.sum().backward()
    plain.sum().backward()
    assert seen == [(torch.float32, False), (torch.float32, False), True] and x.grad.tolist() == [5.0]
    assert torch.amp.custom_fwd(device_type="cuda")(lambda ctx, a: a)(type("C", (), {})(), 1) == 1


def test_missing_names_say_what_to_use() -> None:
    for module, name, text in (
        (nn, "Foo", "has no torch.nn.Foo"),
        (nn, "CrossMapLRN2d", "LocalResponseNorm"),
        (nn.functional, "foo", "has no torch.nn.functional.foo"),
        (nn.functional, "conv_tbc", "conv1d"),
        (torch.optim.lr_scheduler, "Foo", "has no torch.optim.lr_scheduler.Foo"),
    ):
        with pytest.raises(AttributeError, match=text):
            getattr(module, name)
        assert not hasattr(module, name)


def test_modules_need_no_import() -> None:
    program = (
        "import torch; from torch import nn\n"
        "print(isinstance(nn.BatchNorm1d(2), nn.modules.batchnorm._BatchNorm), torch.optim.adam.Adam is torch.optim.Adam,"
        " nn.modules.conv._ConvNd.__name__, nn.common_types._size_1_t)"
    )
    run = "import sys, runpy; from neurenix.torch._modules import install; install('torch'); exec(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", run, program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True _Convolution ")


def test_files_that_are_not_of_tensors(tmp_path: Path) -> None:
    for content, text in ((b"", "is empty"), (b"<html>Not Found</html>", "is text that begins with '<html>Not Found</html>'")):
        path = tmp_path / "weights.pt"
        path.write_bytes(content)
        for file in (path, io.BytesIO(content)):
            with pytest.raises(ValueError, match=text):
                torch.load(file)


def test_threads_of_the_environment() -> None:
    program = "import neurenix.torch as torch; print(torch.get_num_threads())"
    for given, expected in (("1", "1"), ("1,2", "1"), ("0", None), ("many", None)):
        environment = {**os.environ, "OMP_NUM_THREADS": given}
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        environment.pop("OMP_NUM_THREADS")
        alone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert found.stdout.strip() == (expected or alone.stdout.strip()), found.stderr


def test_memory_that_is_not_shared_is_said_so() -> None:
    for share in (torch.ones(2).share_memory_, torch.nn.Linear(1, 1).share_memory):
        with pytest.warns(UserWarning, match="copies"):
            share()
