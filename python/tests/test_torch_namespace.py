"""``neurenix.torch``: names, semantics and modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import neurenix as nx
import neurenix.torch as torch
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
