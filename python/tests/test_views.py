"""Views share their values with another tensor, and the errors of in-place operations on views."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import neurenix as nx
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


def test_a_detached_result_does_not_keep_its_graph() -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    result = w * 2
    detached = result.detach()
    assert not detached.requires_grad and detached.detach_() is detached
    with pytest.warns(UserWarning, match="changes only this view"):
        detached.add_(1.0)
    assert result.tolist() == [2.0, 4.0] and result.requires_grad
    last = (w * 2).detach()
    last.clamp_(max=3.0)  # Its base tensor is no longer referenced.
    assert last.tolist() == [2.0, 3.0]


VIEWS: list[Callable[[nx.Tensor], nx.Tensor]] = [
    lambda x: x[0],
    lambda x: x[:, 1:],
    lambda x: x[None],
    lambda x: x.view(-1),
    lambda x: x.reshape(-1),
    lambda x: x.flatten(),
    lambda x: x.ravel(),
    lambda x: x.T,
    lambda x: x.mT,
    lambda x: x.t(),
    lambda x: x.transpose(0, 1),
    lambda x: x.permute(1, 0),
    lambda x: x.movedim(0, 1),
    lambda x: x.unsqueeze(0),
    lambda x: x.squeeze(),
    lambda x: x.narrow(0, 0, 1),
    lambda x: x.select(0, 1),
    lambda x: x.unbind()[0],
    lambda x: x.split(1)[0],
    lambda x: x.chunk(2)[1],
    lambda x: next(iter(x)),
    lambda x: x.diagonal(),
    lambda x: x.view(-1)[2:],
    lambda x: x.data[0],
    lambda x: x.detach()[0],
]


@pytest.mark.parametrize("view", VIEWS)
def test_an_operation_in_place_on_a_view_warns(view: Callable[[nx.Tensor], nx.Tensor]) -> None:
    x = nx.zeros(2, 2)
    with pytest.warns(UserWarning, match=r"changes only this view.*x\[1:3\] = value.*x\.copy_\(\)"):
        view(x).add_(1.0)
    row = view(x)
    with pytest.warns(UserWarning, match="changes only this view"):
        row += 1.0
    with pytest.warns(UserWarning, match="changes only this view"):
        row[0] = 1.0
    assert x.sum().item() == 0.0


def test_the_warning_comes_once_for_each_line() -> None:
    x = nx.zeros(2, 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(5):
            x[0].add_(1.0)
    assert len(seen) == 1 and seen[0].filename == __file__


def test_what_does_what_pytorch_does_does_not_warn() -> None:
    x = nx.zeros(3, 3)
    x[0] += 1.0
    x[1:, 0] *= 2.0
    x[:, 1] = 4.0
    x.data += 1.0
    assert x.tolist() == [[2.0, 5.0, 2.0], [1.0, 5.0, 1.0], [1.0, 5.0, 1.0]]
    # The base tensors of these views are no longer referenced.
    alone = nx.zeros(2, 2).view(-1)
    alone += 1.0
    x = x.view(-1)
    x.mul_(2.0)
    # These are copies, not views.
    for copied in (x[[0, 1]], x[x > 3], x.clone(), x + 0):
        copied.zero_()
    leaf = nx.ones(2, requires_grad=True)
    leaf.sum().backward()
    leaf.grad[0] = 5.0
    leaf.grad.mul_(2.0)
    assert leaf.grad.tolist() == [10.0, 2.0]


def test_a_view_of_a_gradient_warns() -> None:
    leaf = nx.ones(2, requires_grad=True)
    leaf.sum().backward()
    with pytest.warns(UserWarning, match="changes only this view"):
        leaf.grad[:1].mul_(2.0)
