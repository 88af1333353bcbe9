"""Views share their elements with the tensor that they were taken from, as in PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest


def test_writes_through_a_state_dict_reach_the_module() -> None:
    """Copies weights as nanoGPT does for GPT-2."""
    model, given = nx.nn.Linear(2, 3), nx.rand(3, 2)
    state = model.state_dict()
    with nx.no_grad():
        state["weight"].copy_(given)
    state["bias"].zero_()
    assert model.weight.tolist() == given.tolist() and model.bias.tolist() == [0.0] * 3
    assert model.weight.requires_grad and not state["weight"].requires_grad
    with nx.no_grad():
        model.bias.fill_(2.0)
    assert state["bias"].tolist() == [2.0] * 3, "PyTorch's entries follow, too"
    state["weight"][1].fill_(4.0)
    assert model.weight[1].tolist() == [4.0, 4.0]


def test_writes_through_detach_reach_the_tensor() -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    (w * 3).sum().backward()
    detached = w.detach()
    detached.mul_(2.0)
    detached[0] = 7.0
    assert w.tolist() == [7.0, 4.0] and w.requires_grad and w.grad is not None and w.grad.tolist() == [3.0, 3.0]
    assert not detached.requires_grad and detached.is_leaf and detached.grad is None
    x = nx.zeros(2)
    x.detach().add_(1.0)
    x.detach().detach().add_(1.0)
    assert x.tolist() == [2.0, 2.0]
    copied = x.detach().clone()
    copied.fill_(9.0)
    assert x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("share", [lambda x: x.detach(), lambda x: x.data])
def test_what_is_detached_may_have_gradients_of_its_own(share: Callable[[nx.Tensor], nx.Tensor]) -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    x = share(w).requires_grad_()
    assert x.is_leaf and x.requires_grad
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0] and w.grad is None
    with nx.no_grad():
        x.add_(1.0)
    assert x.tolist() == [2.0, 3.0] and w.tolist() == [2.0, 3.0]
    with nx.no_grad():
        w.add_(1.0)
    assert x.tolist() == [3.0, 4.0] and x.requires_grad and x.grad is not None
    with pytest.raises(RuntimeError, match="an int64 tensor cannot require gradients"):
        share(nx.tensor([1])).requires_grad_()


def test_gradients_flow_through_what_is_added_to_a_detached_tensor() -> None:
    start, w = nx.zeros(2), nx.Tensor([1.0, 2.0], requires_grad=True)
    total = start.detach()
    total += w * 2
    total += w * 3
    assert total.requires_grad and not total.is_leaf
    total.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [5.0, 5.0]
    assert total.tolist() == [5.0, 10.0] and start.tolist() == [5.0, 10.0] and not start.requires_grad


def test_a_detached_result_shares_its_elements_but_not_its_graph() -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    result = w * 2
    detached = result.detach()
    assert not detached.requires_grad
    detached.add_(1.0)
    result.data[1] = 9.0
    assert result.tolist() == [3.0, 9.0] == detached.tolist() and result.requires_grad
    result.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0], "as if nothing had been written"
    infinite = w / 0
    infinite.detach().fill_(1.0)
    assert infinite.tolist() == [1.0, 1.0]


def test_two_detached_results_do_not_keep_the_graph() -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    result = w * 2
    first, second = result.detach(), result.detach()
    del result
    first.add_(1.0)
    assert second.tolist() == [3.0, 5.0] and not second._has_graph() and not first._has_graph()


VIEWS: list[tuple[Callable[[nx.Tensor], nx.Tensor], int]] = [
    (lambda x: x[0], 2),
    (lambda x: x[:, 1:], 2),
    (lambda x: x[1:3], 2),
    (lambda x: x[None], 4),
    (lambda x: x[..., 0], 2),
    (lambda x: x[::2, ::2], 1),
    (lambda x: x.view(-1), 4),
    (lambda x: x.view_as(x), 4),
    (lambda x: x.reshape(-1), 4),
    (lambda x: x.flatten(), 4),
    (lambda x: x.unflatten(0, (1, -1)), 4),
    (lambda x: x.ravel(), 4),
    (lambda x: x.T, 4),
    (lambda x: x.mT, 4),
    (lambda x: x.t(), 4),
    (lambda x: x.t()[0], 2),
    (lambda x: x.transpose(0, 1), 4),
    (lambda x: x.swapaxes(0, 1), 4),
    (lambda x: x.permute(1, 0), 4),
    (lambda x: x.movedim(0, 1), 4),
    (lambda x: x.unsqueeze(0), 4),
    (lambda x: x.squeeze(), 4),
    (lambda x: x.narrow(0, 0, 1), 2),
    (lambda x: x.select(0, 1), 2),
    (lambda x: x.unbind()[0], 2),
    (lambda x: x.split(1)[0], 2),
    (lambda x: x.chunk(2)[1], 2),
    (lambda x: nx.tensor_split(x, 2)[1], 2),
    (lambda x: next(iter(x)), 2),
    (lambda x: x.diagonal(), 2),
    (lambda x: x.diagonal(1), 1),
    (lambda x: x.unfold(0, 1, 1), 4),
    (lambda x: x.expand(2, 2), 4),
    (lambda x: x.expand_as(x), 4),
    (lambda x: x.view(-1)[2:], 2),
    (lambda x: x.data[0], 2),
    (lambda x: x.detach()[0], 2),
    (lambda x: x[0][1], 1),
]


@pytest.mark.parametrize(("view", "count"), VIEWS)
def test_an_operation_in_place_on_a_view_changes_the_base(view: Callable[[nx.Tensor], nx.Tensor], count: int) -> None:
    x = nx.zeros(2, 2)
    view(x).add_(1.0)
    assert x.sum().item() == count
    part = view(x)
    part += 1.0
    assert x.sum().item() == 2 * count
    part[...] = 5.0
    assert x.sum().item() == 5 * count
    x.fill_(7.0)
    assert set(part.flatten().tolist()) == {7.0}
    x[...] = nx.arange(4.0).reshape(2, 2)
    assert part.tolist() == view(nx.arange(4.0).reshape(2, 2)).tolist()


def test_idioms() -> None:
    x = nx.zeros(3, 3)
    x[1:3].fill_(5)
    x[0][1] = 5
    x.t()[0] = 1
    assert x.tolist() == [[1.0, 5.0, 0.0], [1.0, 5.0, 5.0], [1.0, 5.0, 5.0]]
    x.diagonal().fill_(2)
    x.view(-1)[1] = 9
    assert x.tolist() == [[2.0, 9.0, 0.0], [1.0, 2.0, 5.0], [1.0, 5.0, 2.0]]
    for row in x:
        row.zero_()
    assert x.tolist() == [[0.0] * 3] * 3
    embedding, lstm = nx.nn.Embedding(3, 2), nx.nn.LSTM(2, 3)
    embedding.weight.data[0].zero_()
    nx.nn.init.constant_(lstm.bias_ih_l0[3:6], 1.0)
    assert embedding.weight[0].tolist() == [0.0, 0.0] and lstm.bias_ih_l0[3:6].tolist() == [1.0] * 3
    x[0] += 1.0
    x[1:, 0] *= 2.0
    x[0][2] -= 4.0
    x.data += 1.0
    x.data[2] += 1.0
    assert x.tolist() == [[2.0, 2.0, -2.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]


def test_copies_are_apart() -> None:
    x = nx.arange(6.0).reshape(2, 3)
    expected = x.tolist()
    for copied in (x[[0, 1]], x[x > 3], x.clone(), x + 0, x.t().reshape(-1), x.t().flatten(), x[:, ::2].ravel()):
        copied.zero_()
    assert x.tolist() == expected


def test_views_share_their_base_after_its_last_name_is_gone() -> None:
    x = nx.zeros(4)
    first, second = x[:3], x[1:]
    x.add_(1.0)
    del x
    first.mul_(2.0)
    assert second.tolist() == [2.0, 2.0, 1.0]
    del first
    second.add_(1.0)
    assert second.tolist() == [3.0, 3.0, 2.0]
    stale = (x := nx.zeros(2))[:1]
    x.add_(1.0)
    del x
    assert stale.tolist() == [1.0]


def test_a_view_does_not_keep_its_base() -> None:
    """The engine would store the value of a base that still has a handle."""
    device = nx.Device("cpu")
    source = nx.rand(64, 1024, device="cpu").evaluate()
    (source * 2).sum().item()
    total = (source * 2).view(1024, 64).transpose(0, 1)
    before = device.memory()["allocated"]
    total = total.sum().evaluate()
    assert device.memory()["allocated"] - before < 64 * 1024


def test_repeated_elements_cannot_be_changed() -> None:
    for view in (nx.zeros(1, 3).expand(2, 3), nx.zeros(3).expand(2, 3)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            view.add_(1.0)
    windows = (x := nx.arange(5.0)).unfold(0, 3, 1)
    assert windows.tolist() == [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    with pytest.raises(RuntimeError, match="more than one element"):
        windows.zero_()
    x.unfold(0, 2, 3).zero_()
    assert x.tolist() == [0.0, 0.0, 2.0, 0.0, 0.0]
    assert windows.tolist() == [[0.0, 0.0, 2.0], [0.0, 2.0, 0.0], [2.0, 0.0, 0.0]]


def test_a_view_of_a_leaf_cannot_be_changed_while_gradients_are_recorded() -> None:
    w = nx.ones(2, 2, requires_grad=True)
    row = w[0]
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place"):
        row.mul_(2.0)
    with nx.no_grad():
        row.mul_(2.0)
    assert w.tolist() == [[2.0, 2.0], [1.0, 1.0]] and row.requires_grad
    (row * 3).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[3.0, 3.0], [0.0, 0.0]]


def test_gradients_flow_through_changes_of_views() -> None:
    """With the gradients that PyTorch computes."""
    w = nx.Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    x = w * 1.0
    pairs = x.view(2, 2)
    pairs[0].mul_(10.0)
    pairs.t()[1] += w[:2]
    (x * nx.Tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.tolist() == [10.0, 21.0, 3.0, 6.0]
    assert w.grad is not None and w.grad.tolist() == [12.0, 24.0, 3.0, 4.0]
    w.grad = None
    y = w * 1.0
    half = y[2:]
    y.mul_(5.0)
    (half * half).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [0.0, 0.0, 150.0, 200.0]
    w.grad = None
    z = w * 1.0
    with nx.no_grad():
        z[:2].fill_(0.0)
    z.sum().backward()
    assert z.tolist() == [0.0, 0.0, 3.0, 4.0]
    assert w.grad is not None and w.grad.tolist() == [1.0] * 4, "the change was not recorded"


def test_a_base_takes_over_gradients_from_what_is_written_to_a_view() -> None:
    w, x = nx.Tensor([1.0, 2.0], requires_grad=True), nx.zeros(2, 2)
    row = x[1]
    row.copy_(w * 3)
    assert x.requires_grad and row.requires_grad and not x.is_leaf
    (x * 2).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [6.0, 6.0]


def test_an_optimizer_step_changes_views() -> None:
    w = nx.ones(2, 2, requires_grad=True)
    row, data = w[0], w.data[1]
    (w * 3).sum().backward()
    nx.optim.SGD([w], lr=1.0).step()
    assert row.tolist() == [-2.0, -2.0] == data.tolist()


def test_parameters_may_be_views_of_one_tensor() -> None:
    flat = nx.zeros(6)
    first, second = flat[:2].requires_grad_(), flat[2:].view(2, 2).requires_grad_()
    ((first * 2).sum() + (second * 3).sum()).backward()
    nx.optim.SGD([{"params": [first]}, {"params": [second]}], lr=1.0).step()
    assert flat.tolist() == [-2.0, -2.0, -3.0, -3.0, -3.0, -3.0]
    assert first.requires_grad and first.is_leaf and second.tolist() == [[-3.0, -3.0]] * 2
    with nx.no_grad():
        flat.add_(1.0)
    assert first.tolist() == [-1.0, -1.0] and first.grad is not None and first.grad.tolist() == [2.0, 2.0]


def test_a_gradient_is_one_tensor() -> None:
    w = nx.ones(2, 2, requires_grad=True)
    (w * 3).sum().backward()
    gradient = w.grad
    assert gradient is not None and w.grad is not None
    gradient[0].mul_(2.0)
    w.grad[1, 1] = 9.0
    w.grad[1] += 1.0
    assert gradient.tolist() == [[6.0, 6.0], [4.0, 10.0]] == w.grad.tolist()
    (w * 3).sum().backward()
    assert gradient.tolist() == [[9.0, 9.0], [7.0, 13.0]], "accumulated in place"
    w.grad = None
    (w * 3).sum().backward()
    assert gradient.tolist() == [[9.0, 9.0], [7.0, 13.0]] and w.grad.tolist() == [[3.0, 3.0]] * 2
    gradient.zero_()
    assert w.grad.tolist() == [[3.0, 3.0]] * 2


def test_new_data_leaves_the_views() -> None:
    x = nx.zeros(2)
    row = x[:1]
    x.data = nx.ones(2)
    row.fill_(5.0)
    assert x.tolist() == [1.0, 1.0] and row.tolist() == [5.0]


def test_versions_count_changes() -> None:
    """As PyTorch's do, except that changes of ``data`` count."""
    x = nx.zeros(2, 2)
    assert x._version == 0
    x.add_(1.0)
    x[0] = 1.0
    x[0][1] = 2.0
    row = x[1]
    row.zero_()
    assert x._version == 4 == row._version
    assert (x + 1)._version == 0


def test_a_compiled_function_changes_what_views_are_taken_from() -> None:
    x, w = nx.zeros(2, 2), nx.ones(2, 2, requires_grad=True)
    outside = x[0]

    @nx.compile
    def step(given: nx.Tensor) -> nx.Tensor:
        x[1].add_(given)
        outside.add_(given * 2)
        inside = x.t()
        inside[0].mul_(2.0)
        return x.sum() + w[0].sum()

    assert step(nx.ones(2)).item() == 11.0
    assert x.tolist() == [[4.0, 2.0], [2.0, 1.0]] and outside.tolist() == [4.0, 2.0]
    assert step(nx.ones(2)).item() == 26.0
    assert x.tolist() == [[12.0, 4.0], [6.0, 2.0]] and outside.tolist() == [12.0, 4.0]


def test_strides() -> None:
    x = nx.zeros(2, 3)
    assert x.stride() == (3, 1) and x.t().stride() == (1, 3) and x[:, ::2].stride(1) == 2
    assert x.t().view(-1).shape == (6,) and x.diagonal().stride() == (4,)
    assert not x.t().is_contiguous() and x[1].is_contiguous() and not x[:, 1].is_contiguous()


NUMPY: list[Callable[[Any, random.Random], Any]] = [
    lambda x, r: x[r.randrange(len(x)), ...],
    lambda x, r: x[r.randint(0, 3) :],
    lambda x, r: x[::2],
    lambda x, r: x[..., : r.randint(1, 3)],
    lambda x, r: x[None],
    lambda x, r: x.swapaxes(0, -1),
    lambda x, r: x.squeeze(),
    lambda x, r: x.T if x.ndim == 2 else x[...],
    lambda x, r: x.diagonal() if isinstance(x, nx.Tensor) and x.ndim == 2 else _diagonal(x),
]
"""Views that NumPy and tensors have under one name."""


def _diagonal(x: Any) -> Any:
    return np.lib.stride_tricks.as_strided(x, (min(x.shape),), (sum(x.strides),)) if x.ndim == 2 else x[...]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_do_what_numpy_does(seed: int) -> None:
    """Views, views of views, changes of any of them: NumPy's arrays share their elements in the same way."""
    draw = random.Random(seed)
    shape = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 3)))
    array = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    pool = [(nx.tensor(array.copy()), array)]
    for number in range(25):
        tensor, array = draw.choice(pool)
        action = draw.random()
        if action < 0.4 and array.size > 0 and array.ndim > 0:
            view, state = draw.choice(NUMPY), draw.getrandbits(32)
            pool.append((view(tensor, random.Random(state)), view(array, random.Random(state))))
        elif action < 0.5 and len(pool) > 1:
            pool.pop(draw.randrange(len(pool)))
        elif action < 0.7:
            tensor += number
            array += number
        elif action < 0.85:
            tensor[...] = number
            array[...] = number
        else:
            tensor.mul_(0.5)
            array *= 0.5
        for known, expected in pool:
            assert known.tolist() == expected.tolist()


def test_shapes_change_in_place() -> None:
    x = nx.arange(6.0).reshape(2, 3).clone()
    same, row = x, x[1]
    assert x.t_() is x and x.unsqueeze_(0).shape == (1, 3, 2) and same.shape == (1, 3, 2)
    row[0] = 9
    x[0, 2] = 7
    assert x.tolist() == [[[0, 9], [1, 4], [7, 7]]] and row.tolist() == [9, 4, 7]
    assert x.squeeze_().transpose_(0, 1).swapaxes_(0, 1).swapdims_(-1, -2).shape == (2, 3)
    assert nx.zeros(1, 2, 1).squeeze_(0).shape == (2, 1) and nx.ones(3).t_().shape == (3,)
    with pytest.raises(IndexError):
        x.unsqueeze_(5)
    assert x.shape == (2, 3)


def test_gradients_follow_shapes_that_change_in_place() -> None:
    w = nx.ones(3, requires_grad=True)
    y = w * 2
    y.unsqueeze_(1).mul_(nx.tensor([[1.0], [2.0], [3.0]]))
    y.squeeze_(1).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2, 4, 6]
    with pytest.raises(RuntimeError, match="leaf"), nx.no_grad():
        w.unsqueeze_(0)
    assert w.shape == (3,)
    detached = y.detach()
    assert not detached.unsqueeze_(0).requires_grad
    detached.zero_()
    assert y.tolist() == [0, 0, 0]


def test_an_overwritten_tensor_keeps_its_graph() -> None:
    """PyTorch's gradients of overwritten elements are 0, also if nothing else is left."""
    for overwrite in (lambda y: y.zero_(), lambda y: y.copy_(nx.ones(2)), lambda y: y.fill_(3.0)):
        x = nx.ones(2, requires_grad=True)
        y = x * 2
        overwrite(y)
        assert y.requires_grad
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0, 0]
    x = nx.ones(2, requires_grad=True)
    y = x * float("inf")
    assert y.zero_().tolist() == [0, 0] and y.requires_grad


def test_copies_cast_and_data_takes_other_dtypes() -> None:
    counts = nx.zeros(2, dtype="int64")
    assert counts.copy_(nx.tensor([1.7, -2.7])).tolist() == [1, -2] and counts.dtype == nx.int64
    weight = nx.nn.Parameter(nx.ones(2))
    weight.data = weight.data.to("float16")
    assert weight.dtype == nx.float16 and weight.requires_grad
    (weight * 3).sum().backward()
    assert weight.grad is not None and weight.grad.dtype == nx.float16 and weight.grad.tolist() == [3, 3]
