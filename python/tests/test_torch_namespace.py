"""``neurenix.torch``: names, semantics and modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest
from neurenix import _engine


@pytest.fixture(autouse=True)
def pytorch_promotes() -> None:
    _engine.set_promotion("pytorch")


def run(tmp_path: Path, program: str, *arguments: str) -> str:
    """Runs a program that says ``import torch``; what it printed."""
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, "-m", "neurenix.torch", str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_have_pytorch_semantics() -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 4.0]])
    assert torch.std(x).item() == pytest.approx(1.2909944) and nx.std(x).item() == pytest.approx(1.1180340)
    values, indices = torch.max(x, 1)
    assert values.tolist() == [3.0, 4.0] and indices.tolist() == [0, 1]
    assert torch.max(x, torch.tensor(2.0)).tolist() == [[3.0, 2.0], [2.0, 4.0]]
    assert torch.max(input=x).item() == 4.0
    assert torch.sort(x, dim=1, descending=True).indices.tolist() == [[0, 1], [1, 0]]
    assert torch.nonzero(x > 2).tolist() == [[0, 0], [1, 1]]
    assert [grid.tolist() for grid in torch.meshgrid(torch.arange(2), torch.arange(2))] == [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    assert torch.sum(torch.tensor([1, 2], dtype=torch.uint8)).dtype == torch.int64
    assert torch.pow(2, torch.tensor([1.0, 3.0])).tolist() == [2.0, 8.0]
    assert torch.squeeze(torch.zeros(2, 1), 0).shape == (2, 1)


def test_numbers_do_not_promote() -> None:
    x = torch.ones(2)
    assert (x * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    assert (torch.tensor(1) + torch.tensor([1], dtype=torch.int32)).dtype == torch.int32
    assert (torch.tensor([1]) * torch.tensor(0.5)).dtype == torch.float32


def test_writes_reach_what_was_viewed() -> None:
    x = torch.zeros(2, 3)
    x[0][1] = 5
    x.t()[2].fill_(7)
    x.view(-1)[3:].mul_(2)
    assert x.tolist() == [[0, 5, 7], [0, 0, 14]] and x.shape.numel() == 6 and x._version == 3
    layer = torch.nn.Linear(2, 2)
    layer.state_dict()["bias"][0] = 3.0
    assert layer.bias[0].item() == 3.0


def test_complex_numbers() -> None:
    z = torch.view_as_complex(torch.tensor([[3.0, 4.0]]))
    assert z.dtype == torch.complex64 and torch.abs(z).tolist() == [5.0] and torch.is_complex(z)
    assert torch.fft.ifft(torch.fft.fft(torch.arange(4.0))).real.tolist() == pytest.approx([0, 1, 2, 3])


def test_results_go_where_out_says() -> None:
    kept = torch.zeros(2)
    assert torch.add(torch.ones(2), torch.ones(2), out=kept) is kept and kept.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="out has shape"):
        torch.add(torch.ones(2), torch.ones(2), out=torch.zeros(3))
    empty = torch.empty(0)
    assert torch.add(torch.ones(2), torch.ones(2), out=empty) is empty and empty.tolist() == [2.0, 2.0]
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    for place in (torch.zeros(2, 2), torch.empty(0)):
        assert torch.linalg.inv(x, out=place) is place and place.tolist() == [[0.5, 0.0], [0.0, 0.25]]
    spectrum = torch.zeros(2, dtype=torch.complex64)
    assert torch.fft.fft(x[0], out=spectrum) is spectrum and spectrum.tolist() == [2.0, 2.0]
    assert torch.special.expit(torch.zeros(1), out=kept[:1]).item() == 0.5 and kept.tolist() == [0.5, 2.0]
    values, vectors = torch.zeros(2), torch.zeros(2, 2)
    torch.linalg.eigh(x, out=(values, vectors))
    assert values.tolist() == [2.0, 4.0] and vectors.abs().tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_norms_convert_and_drivers_are_hints() -> None:
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    for norm in (torch.linalg.vector_norm(x, dtype=torch.float64), torch.linalg.matrix_norm(x, dtype=torch.float64)):
        assert norm.dtype == torch.float64 and norm.item() == 5.0
    assert torch.linalg.svdvals(x, driver="gesvd").tolist() == torch.linalg.svd(x, driver="gesvda").S.tolist() == [4.0, 3.0]


def test_constructors_of_one_dtype() -> None:
    assert torch.LongTensor([1, 2]).dtype == torch.int64 and torch.FloatTensor(2, 3).shape == (2, 3)
    assert isinstance(torch.zeros(1), torch.FloatTensor) and not isinstance(torch.zeros(1), torch.LongTensor)


def test_missing_names_say_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"no torch\.fx: graphs of functions"):
        torch.fx  # noqa: B018
    with pytest.raises(AttributeError, match=r"no torch\.no_such_name \(docs/compatibility.md"):
        torch.no_such_name  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"no torch\.hub: download"):
        import neurenix.torch.hub  # type: ignore[import-not-found]  # noqa: F401


def test_modules_are_those_of_neurenix() -> None:
    import neurenix.torch.nn.functional as F
    from neurenix.torch.utils.data import DataLoader

    assert F is nx.nn.functional and DataLoader is nx.data.DataLoader and torch.nn is nx.nn
    assert nx.nn.__spec__ is not None and nx.nn.__spec__.name == "neurenix.nn"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    assert nx.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    assert nx.get_float32_matmul_precision() == "highest"


def test_a_program_runs_unmodified(tmp_path: Path) -> None:
    program = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch.cuda.amp import GradScaler
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() and "--cuda" in sys.argv else "cpu")
    torch.manual_seed(1)
    model = nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    data = TensorDataset(torch.eye(2), torch.LongTensor([0, 1]))
    for epoch in range(20):
        for inputs, labels in DataLoader(data, batch_size=2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
    print(loss.item() < 0.3, sys.argv[1:], torch.__name__)
"""
    assert run(tmp_path, program, "--epochs", "3") == "True ['--epochs', '3'] neurenix.torch\n"


def test_programs_import_their_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("import torch\nanswer = torch.ones(2).sum().item()\n")
    assert run(tmp_path, "from neighbour import answer\nprint(answer)\n") == "2.0\n"


def test_without_a_program_the_usage_is_shown() -> None:
    done = subprocess.run([sys.executable, "-m", "neurenix.torch"], capture_output=True, text=True)
    assert done.returncode == 2 and "SCRIPT" in done.stdout


def test_close_tensors() -> None:
    torch.testing.assert_close({"a": torch.ones(2)}, {"a": torch.ones(2) + 1e-7})
    with pytest.raises(AssertionError, match="2 of 2 elements differ"):
        torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-3)
    with pytest.raises(AssertionError, match="dtypes differ"):
        torch.testing.assert_close(torch.ones(2), torch.ones(2).double())


def test_several_results_go_where_out_says() -> None:
    spread, mean = torch.zeros(()), torch.zeros(())
    found = torch.std_mean(torch.tensor([1.0, 3.0]), out=(spread, mean))
    assert found[0] is spread and mean.item() == 2.0 and spread.item() == pytest.approx(2**0.5)
    values, indices = torch.zeros(2), torch.zeros(2, dtype=torch.int64)
    assert torch.sort(torch.tensor([2.0, 1.0]), out=(values, indices)).values is values and indices.tolist() == [1, 0]


def test_started_processes_import_the_same_modules(tmp_path: Path) -> None:
    program = """
import multiprocessing
import sys
import torch
import torch.multiprocessing as mp
from torch.nn import Linear

def work(rank, queue, x):
    queue.put((rank, torch.__version__, Linear.__module__, (x * rank).tolist()))

if __name__ == "__main__":
    for start in "spawn", "forkserver":
        context = mp.get_context(start)
        queue = context.SimpleQueue()
        mp.spawn(work, args=(queue, torch.ones(2)), nprocs=2, start_method=start)
        process = context.Process(target=work, args=(2, queue, torch.ones(2)))
        process.start()
        process.join()
        for rank, version, module, values in sorted(queue.get() for _ in range(3)):
            print(rank, version == torch.__version__, module, values)
"""
    expected = [f"{rank} True neurenix.nn.linear {[float(rank)] * 2}" for rank in range(3)]
    assert run(tmp_path, program).splitlines() == expected * 2


@pytest.mark.parametrize(
    "values", [[1, 2], (1, 2), range(1, 3), np.array([1, 2]), np.array([1.0, 2.0]), [True, 2], [torch.tensor(1), 2], [np.float64(1), 2]]
)
def test_a_new_tensor_has_the_default_dtype(values: Any) -> None:
    assert torch.Tensor(values).dtype == torch.float32 and torch.Tensor(values).tolist() == [1.0, 2.0]


def test_the_class_of_tensors_can_be_called_asked_and_derived() -> None:
    assert torch.Tensor([True]).tolist() == [1.0] and torch.Tensor([]).dtype == torch.float32
    for sizes in ((2, 3), (torch.Size([2, 3]),), (np.int64(2), 3)):
        assert torch.Tensor(*sizes).shape == (2, 3)
    assert torch.Tensor(torch.tensor([1])).dtype == torch.int64 and torch.Tensor(3).shape == (3,)
    for value in (True, 2.5, None, "a"):
        with pytest.raises(TypeError):
            torch.Tensor(value)
    x = torch.zeros(1)
    assert isinstance(x, torch.Tensor) and type(x) == torch.Tensor and {torch.Tensor: 1}[type(x)] == 1  # noqa: E721
    assert issubclass(torch.nn.Parameter, torch.Tensor) and not isinstance(3, torch.Tensor)

    class Named(torch.Tensor):
        def __new__(cls, values: Any, name: str) -> Any:
            made = super().__new__(cls, values)
            made.label = name
            return made

    named = Named([1, 2], "a")
    assert type(named) is Named and named.dtype == torch.float32 and named.label == "a"
    assert isinstance(named, torch.Tensor) and isinstance(named, Named) and not isinstance(x, Named) and Named != torch.Tensor
    torch.Tensor.doubled = lambda self: self * 2  # type: ignore[attr-defined]
    assert torch.ones(1).doubled().tolist() == [2.0]  # type: ignore[attr-defined]
    del torch.Tensor.doubled  # type: ignore[attr-defined]
    assert not hasattr(x, "doubled")


def test_numbers_are_formatted_as_numbers() -> None:
    loss = torch.tensor(0.1, requires_grad=True)
    assert f"{loss}" == "{}".format(loss) == "0.10000000149011612" and f"{loss:.3f}" == "0.100"
    assert f"{torch.tensor(3)} {torch.tensor(True)} {torch.tensor(1 + 2j)}" == "3 True (1+2j)"
    assert f"{torch.tensor([1.5])}" == "tensor([1.5000])" and str(torch.tensor(1.5)) == "tensor(1.5000)"
    assert f"{torch.nn.Parameter(torch.tensor(2.5))}".startswith("Parameter containing:")
