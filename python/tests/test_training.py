"""Optimisers, data, files, mixed precision, and complete training loops."""

import pickle
import threading
import time
import zlib

import numpy as np
import pytest

import neurenix as nx
from neurenix import amp, data, nn, optim


def digits_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracy(model, dataset):
    inputs, labels = dataset.tensors
    with nx.no_grad():
        return (model(inputs).argmax(1) == labels).float().mean().item()


def test_digits_are_on_the_default_device():
    before = nx.get_default_device()
    try:
        for device in nx.devices():
            nx.set_default_device(device)
            train, _ = data.digits()
            inputs, labels = next(iter(data.DataLoader(train, batch_size=8)))
            assert inputs.device == labels.device == digits_model()(inputs).device == device
    finally:
        nx.set_default_device(before)
    assert data.digits("cpu")[1].tensors[0].device.type == "cpu"


def test_digits_are_learnt():
    train, test = data.digits()
    model = digits_model()
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)
    loader = data.DataLoader(train, batch_size=64, shuffle=True)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-2, epochs=8, steps_per_epoch=len(loader), cycle_momentum=False
    )
    for _ in range(8):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            schedule.step()
    assert accuracy(model, test) > 0.95


def test_running_statistics_are_computed_with_the_step():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(nx.randn(4, 3)).square().sum().backward()
        optimizer.step()
        assert model[1].running_mean.is_evaluated and model[1].num_batches_tracked.is_evaluated
    assert model[1].num_batches_tracked.item() == 3


def quadratic(*parameters):
    sum((p * p).sum() for p in parameters).backward()


def test_groups():
    a, b = nn.Parameter([1.0]), nn.Parameter([1.0])
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5, "momentum": 0.9}], lr=0.1)
    quadratic(a, b)
    optimizer.step()
    assert a.item() == pytest.approx(0.8) and b.item() == pytest.approx(0.0)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert a.item() == pytest.approx(0.8) and b.item() == pytest.approx(-1.9)
    # After a change of the momentum, the velocity is kept.
    optimizer.param_groups[1]["momentum"] = 0.5
    optimizer.step()
    assert b.item() == pytest.approx(-1.9 - 0.5 * (0.5 * 3.8 + 2.0))
    c = nn.Parameter([1.0])
    optimizer.add_param_group({"params": [c]})
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [c]})
    assert len(optimizer.param_groups) == 3
    optimizer.zero_grad()
    quadratic(c)
    optimizer.step()
    assert c.item() == pytest.approx(0.8) and a.item() == pytest.approx(0.8)


def test_settings_are_checked():
    w = nn.Parameter([1.0])
    for make in (
        lambda: optim.SGD([], 0.1),
        lambda: optim.SGD([w], -1.0),
        lambda: optim.SGD([w], 0.1, nesterov=True),
        lambda: optim.Adam([w], betas=(1.0, 0.9)),
        lambda: optim.Adam([w], differentiable=True),
        lambda: optim.Adam([w * 2]),
        lambda: optim.AdamW([w], weight_decay=float("nan")),
    ):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(TypeError, match="speed"):
        optim.Adam([w], speed=3)
    with pytest.raises(TypeError, match="expected a list of parameters"):
        optim.Adam(w)
    assert optim.AdamW([w]).param_groups[0]["weight_decay"] == 0.01


def test_closure():
    w = nn.Parameter([2.0])
    optimizer = optim.SGD([w], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with nx.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert w.item() == 1.0


def test_states_of_optimizers(tmp_path):
    def some():
        return [nn.Parameter([1.0, 2.0]), nn.Parameter([3.0])]

    first = some()
    optimizer = optim.Adam(first, lr=0.1)
    quadratic(*first)
    optimizer.step()
    nx.save(optimizer, tmp_path / "state.safetensors")
    second = [nn.Parameter(p) for p in first]
    other = optim.Adam(second, lr=0.3)
    other.load_state_dict(nx.load(tmp_path / "state.safetensors"))
    assert other.param_groups[0]["lr"] == 0.1 and other.param_groups[0]["betas"] == (0.9, 0.999)
    restored, own = pickle.loads(pickle.dumps((optimizer, first)))
    for parameters, each in ((first, optimizer), (second, other), (own, restored)):
        each.zero_grad()
        quadratic(*parameters)
        each.step()
    for a, b, c in zip(first, second, own, strict=True):
        assert a.tolist() == b.tolist() == c.tolist()
    assert other.state[second[1]]["step"].item() == 2.0

    before = other.state_dict()
    bad = other.state_dict()
    bad["state"][1]["exp_avg"] = nx.zeros(7)
    bad["param_groups"][0]["lr"] = 9.0
    with pytest.raises(ValueError, match="exp_avg"):
        other.load_state_dict(bad)
    with pytest.raises(ValueError, match="1 parameters in the state"):
        optim.SGD(some()).load_state_dict(optim.SGD([first[0]]).state_dict())
    assert other.param_groups[0]["lr"] == 0.1
    assert other.state_dict()["state"][1]["exp_avg"].tolist() == before["state"][1]["exp_avg"].tolist()


def test_batches():
    dataset = data.TensorDataset(nx.arange(10), nx.arange(20).reshape(10, 2))
    loader = data.DataLoader(dataset, batch_size=4, shuffle=True, generator=nx.Generator(3))
    batches = list(loader)
    assert len(loader) == 3 and [len(x) for x, _ in batches] == [4, 4, 2]
    order = [int(v) for x, _ in batches for v in x.tolist()]
    assert sorted(order) == list(range(10)) and order != list(range(10))
    assert all(y[:, 0].tolist() == [2 * v for v in x.tolist()] for x, y in batches)
    again = data.DataLoader(dataset, batch_size=4, shuffle=True, generator=nx.Generator(3))
    assert order == [int(v) for x, _ in again for v in x.tolist()]
    assert len(data.DataLoader(dataset, batch_size=4, drop_last=True)) == 2
    alone = list(data.DataLoader(dataset, batch_size=None))
    assert len(alone) == 10 and alone[3][0].item() == 3


class Squares(data.Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, index):
        if index >= 9:
            raise IndexError(index)
        return {"x": np.float32(index), "y": (index, [index**2]), "name": str(index)}


class Counting(data.IterableDataset):
    def __iter__(self):
        return iter(range(7))


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_of_any_samples(workers):
    batches = list(data.DataLoader(Squares(), batch_size=4, num_workers=workers))
    assert [batch["name"] for batch in batches] == [list("0123"), list("4567"), ["8"]]
    assert batches[1]["x"].tolist() == [4.0, 5.0, 6.0, 7.0] and batches[1]["y"][1][0].tolist() == [16, 25, 36, 49]
    counted = data.DataLoader(Counting(), batch_size=3, num_workers=workers, drop_last=True)
    assert [batch.tolist() for batch in counted] == [[0, 1, 2], [3, 4, 5]]

    def broken(samples):
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError, match="no batch"):
        list(data.DataLoader(Squares(), num_workers=workers, collate_fn=broken))
    for batch in data.DataLoader(Squares(), batch_size=2, num_workers=workers):
        assert batch["name"] == ["0", "1"]
        break


def test_parts_of_data():
    dataset = data.TensorDataset(nx.arange(10))
    parts = data.random_split(dataset, [0.75, 0.25], generator=nx.Generator(1))
    assert [len(part) for part in parts] == [8, 2]
    values = [int(v) for part in parts for (x,) in data.DataLoader(part, batch_size=5) for v in x.tolist()]
    assert sorted(values) == list(range(10))
    with pytest.raises(ValueError, match="10 samples"):
        data.random_split(dataset, [5, 6])
    both = dataset + data.TensorDataset(nx.arange(10, 12))
    assert len(both) == 12 and both[11][0].item() == 11
    for wrong in ({"batch_size": 0}, {"shuffle": True, "sampler": [1]}, {"num_workers": -1}):
        with pytest.raises(ValueError):
            data.DataLoader(dataset, **wrong)
    with pytest.raises(ValueError, match="same number"):
        data.TensorDataset(nx.zeros(2), nx.zeros(3))


def test_progress_says_nothing_without_a_terminal(capfd):
    assert list(data.progress(range(3), "counting")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(data._progress, "_visible", lambda: True)
    assert list(data.progress([1, 2], "epoch")) == [1, 2]
    shown = capsys.readouterr().err
    assert shown.startswith("\repoch [") and "2/2" in shown and shown.endswith("\n")


def test_files(tmp_path):
    path = tmp_path / "all.safetensors"
    thing = {
        "model": digits_model().state_dict(),
        "list": [1, 2.5, None, True, "text", (nx.tensor([1, 2]), {})],
        3: {"a": {"b": nx.ones(1)}, "a.b": nx.zeros(1)},
        "half": nx.ones(2, dtype="bfloat16"),
    }
    nx.save(thing, path)
    back = nx.load(path)
    assert list(back) == list(thing) and back["list"][:5] == thing["list"][:5]
    assert isinstance(back["list"][5], tuple) and back["list"][5][0].tolist() == [1, 2]
    assert back[3]["a"]["b"].tolist() == [1.0] and back[3]["a.b"].tolist() == [0.0]
    assert back["half"].dtype == nx.bfloat16
    digits_model().load_state_dict(back["model"])
    with pytest.raises(TypeError, match="list.0 has the type object"):
        nx.save({"list": [object()]}, path)
    assert list(nx.load(path)) == list(thing)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        nx.load(tmp_path / "nowhere")
    (tmp_path / "broken").write_bytes(b"not a file of tensors")
    with pytest.raises(ValueError, match="broken"):
        nx.load(tmp_path / "broken")


def test_autocast():
    layer, x = nn.Linear(4, 4), nx.randn(2, 4)
    with amp.autocast("cpu", nx.float16):
        low = layer(x)
        assert low.dtype == nx.float16
        assert nn.functional.softmax(low, -1).dtype == nx.float32
        assert nn.functional.mse_loss(low, low).dtype == nx.float32
        assert nn.functional.layer_norm(low, (4,)).dtype == nx.float32
        norm = nn.BatchNorm1d(4)
        assert norm(low).dtype == nx.float16 and norm.running_mean.dtype == nx.float32
        products = (x @ x.mT, x.matmul(x.mT), x.mm(x.mT), nx.matmul(x, x.mT), nx.einsum("ij,kj->ik", x, x))
        assert all(product.dtype == nx.float16 for product in products)
        assert nn.functional.matmul(x, x.mT).dtype == nx.float16
        whole, double = nx.ones(2, 2, dtype="int64"), nx.ones(2, 2, dtype="float64")
        assert (whole @ whole).dtype == nx.int64 and (double @ double).dtype == nx.float64
        with amp.autocast(enabled=False):
            assert layer(x).dtype == nx.float32
        nn.functional.mse_loss(low, x).backward()
    assert layer(x).dtype == nx.float32 and layer.weight.grad.dtype == nx.float32

    @amp.autocast()
    def low_function(value):
        return layer(value)

    assert low_function(x).dtype == nx.bfloat16
    with amp.autocast():
        assert nn.Conv2d(1, 2, 3)(nx.zeros(1, 1, 4, 4)).dtype == nx.bfloat16
    with amp.autocast():
        attended, _ = nn.MultiheadAttention(4, 2)(x, x, x, need_weights=False)
    assert attended.dtype == nx.bfloat16
    with pytest.raises(ValueError, match="float32"):
        amp.autocast(dtype=nx.float32)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_autocast_reaches_recurrent_layers(kind):
    layer, cell = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True), getattr(nn, f"{kind}Cell")(3, 4)
    sequence, state = nx.randn(5, 2, 3), nx.zeros(4, 2, 4)
    state = (state, state) if kind == "LSTM" else state
    expected, _ = layer(sequence, state)
    with amp.autocast():
        output, _ = layer(sequence, state)
        step = cell(sequence[0])
    assert output.dtype == nx.bfloat16 and (step[0] if kind == "LSTM" else step).dtype == nx.bfloat16
    assert nx.allclose(output.float(), expected, atol=2e-2) and not nx.array_equal(output.float(), expected)
    output.float().sum().backward()
    assert layer.weight_hh_l1_reverse.grad.dtype == nx.float32 and layer.weight_hh_l1_reverse.dtype == nx.float32


def test_autocast_belongs_to_a_thread():
    seen = []
    with amp.autocast():
        thread = threading.Thread(target=lambda: seen.append((nx.ones(1, 1) @ nx.ones(1, 1)).dtype))
        thread.start()
        thread.join()
    assert seen == [nx.float32]


def test_scaling_of_gradients():
    w = nn.Parameter([1.0])
    optimizer, scaler = optim.SGD([w], lr=0.5), amp.GradScaler(init_scale=8.0, growth_interval=2)
    for expected in (8.0, 16.0):
        optimizer.zero_grad()
        scaler.scale((w * 1.0).sum()).backward()
        scaler.unscale_(optimizer)
        assert w.grad.item() == 1.0
        with pytest.raises(RuntimeError, match="already"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected
    assert w.item() == 0.0
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert w.item() == 0.0 and scaler.get_scale() == 8.0
    other = amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="update"):
        scaler.update()


def test_a_division_of_gradients_that_fails_changes_none(monkeypatch):
    first, second = nn.Parameter([1.0]), nn.Parameter([2.0])
    optimizer, scaler = optim.SGD([first, second], lr=0.5), amp.GradScaler(init_scale=8.0)
    scaler.scale((first + second).sum()).backward()

    def full(tensors):
        raise MemoryError("full")

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(amp._scaler._engine, "evaluate", full)
        scaler.unscale_(optimizer)
    assert first.grad.item() == second.grad.item() == 8.0
    scaler.step(optimizer)
    assert first.item() == 0.5 and second.item() == 1.5


def test_history(tmp_path):
    history = data.History()
    with pytest.raises(ValueError, match="no results"):
        history.plot(tmp_path / "curves.png")
    with pytest.raises(ValueError, match="no results"):
        history.plot()
    assert history._repr_png_() is None
    for epoch in range(1, 6):
        history.record(loss=nx.tensor(1.0 / epoch), test_loss=1.2 / epoch, accuracy=1 - 0.5 / epoch)
    history.record(loss=0.1, rate=3.0)
    assert history["loss"][:2] == [1.0, 0.5] and np.isnan(history["rate"][:5]).all() and np.isnan(history["accuracy"][5])
    assert repr(data.History({"loss": [0.25]})) == "History(1 epochs: loss=0.25)"
    assert history.plot() is history and not list(tmp_path.iterdir())
    assert history.plot(tmp_path / "curves.png") is history
    content = (tmp_path / "curves.png").read_bytes()
    assert content == history._repr_png_() and content.startswith(b"\x89PNG")
    # The decoded image has three panels side by side and contains the colours of the first two curves.
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    size = int.from_bytes(content[33:37], "big")
    assert content[37:41] == b"IDAT"
    rows = np.frombuffer(zlib.decompress(content[41 : 41 + size]), np.uint8).reshape(height, 1 + 3 * width)
    # Each row stores its difference from the row above.
    assert width == 3 * 800 and (rows[:, 0] == 2).all()
    pixels = np.cumsum(rows[:, 1:], 0, dtype=np.uint8).reshape(height, width, 3)
    for color in ((0x1F, 0x5F, 0xBF), (0xB5, 0x48, 0x0A)):
        assert (pixels == color).all(-1)[60:560, 100:760].sum() > 500


def test_a_data_set_that_changes_its_samples_is_asked_for_each() -> None:
    class Changed(nx.data.TensorDataset):
        def __getitem__(self, index):
            return tuple(tensor + 100 for tensor in super().__getitem__(index))

    batches = [batch[0].tolist() for batch in nx.data.DataLoader(Changed(nx.arange(4)), 2)]
    assert batches == [[100, 101], [102, 103]]

    class Part(nx.data.Subset):
        def __getitem__(self, index):
            return super().__getitem__(index)[0] + 100

    batches = [batch.tolist() for batch in nx.data.DataLoader(Part(Changed(nx.arange(4)), [3, 1]), 2)]
    assert batches == [[203, 201]]


def test_samples_that_come_together_are_collated() -> None:
    class Together(nx.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise AssertionError("samples are asked for together")

        def __getitems__(self, indices):
            return [{"x": float(index), "y": index} for index in indices]

    expected = [{"x": [0.0, 1.0], "y": [0, 1]}, {"x": [2.0, 3.0], "y": [2, 3]}]
    for dataset in (Together(), nx.data.Subset(Together(), range(4))):
        batches = list(nx.data.DataLoader(dataset, 2))
        assert [{name: part.tolist() for name, part in batch.items()} for batch in batches] == expected
        sums = nx.data.DataLoader(dataset, 2, collate_fn=lambda samples: sum(sample["y"] for sample in samples))
        assert list(sums) == [1, 5]


def test_parts_of_a_negative_size_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        nx.data.random_split(range(5), [-1, 6])


def test_samples_are_drawn_by_weight() -> None:
    sampler = data.WeightedRandomSampler([1.0, 0.0, 3.0], 4000)
    counts = np.bincount(list(sampler), minlength=3)
    assert len(sampler) == counts.sum() == 4000 and counts[1] == 0 and 2.6 < counts[2] / counts[0] < 3.4
    once = list(data.WeightedRandomSampler(nx.tensor([1.0, 2.0, 3.0]), 3, replacement=False))
    assert sorted(once) == [0, 1, 2]
    drawn = [list(data.WeightedRandomSampler([1, 1, 1], 9, generator=nx.Generator().manual_seed(4))) for _ in range(2)]
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match="samples without replacement"):
        list(data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False))
    for weights, count in (([], 1), ([-1.0, 2.0], 1), ([0.0], 1), ([1.0], 0), ([[1.0]], 1)):
        with pytest.raises(ValueError):
            data.WeightedRandomSampler(weights, count)


def test_workers_of_a_loader() -> None:
    begun, threads = [], set()

    class Watched(data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            info = data.get_worker_info()
            assert info.num_workers == 2 and info.dataset is self
            threads.add((threading.get_ident(), info.id))
            return index

    assert data.get_worker_info() is None
    loader = data.DataLoader(Watched(), 2, num_workers=2, worker_init_fn=begun.append, persistent_workers=True)
    for _ in range(3):
        assert [batch.tolist() for batch in loader] == [[n, n + 1] for n in range(0, 12, 2)]
    assert len(threads) <= 2 and sorted(begun) == list(range(len(begun))) and len(begun) <= 2, "threads are kept"
    for _ in data.DataLoader(Watched(), 2, num_workers=2, worker_init_fn=begun.append):
        break

    def refuse(number):
        raise OSError(f"worker {number} has no file")

    with pytest.raises(OSError, match="has no file"):
        list(data.DataLoader(Watched(), num_workers=2, worker_init_fn=refuse))

    class Slow(data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            time.sleep(0.3)
            return index

    with pytest.raises(RuntimeError, match="more than 0.05 seconds"):
        list(data.DataLoader(Slow(), num_workers=1, timeout=0.05))
    for options in ({"timeout": -1}, {"timeout": 1}, {"persistent_workers": True}, {"prefetch_factor": 2}):
        with pytest.raises(ValueError):
            data.DataLoader(Slow(), **options)
