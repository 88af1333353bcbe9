"""Lazy modules of one's own, and the two halves of clipping by norm, as PyTorch 2.15."""

from __future__ import annotations

import math
from typing import Any

import neurenix as nx
import pytest
from neurenix import nn
from neurenix.nn.lazy import LazyModuleMixin
from neurenix.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class Affine(LazyModuleMixin, nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = UninitializedParameter()
        self.register_buffer("shift", UninitializedBuffer())

    def initialize_parameters(self, x: Any, count: int = 1) -> None:
        if self.has_uninitialized_params():
            self.weight.materialize((x.shape[1],))
            self.shift.materialize((count,))
            with nx.no_grad():
                self.weight.fill_(2.0)
                self.shift.fill_(1.0)

    def forward(self, x: Any, count: int = 1) -> Any:
        return x * self.weight + self.shift


def test_the_first_call_gives_shapes() -> None:
    layer: Any = Affine()
    assert layer.has_uninitialized_params() and is_lazy(layer.weight) and is_lazy(layer.shift)
    y = layer(nx.ones(2, 3), count=3)
    assert y.tolist() == [[3.0] * 3] * 2 and not layer.has_uninitialized_params()
    assert type(layer.weight) is nn.Parameter and len(list(layer.parameters())) == 1
    y.sum().backward()
    assert layer.weight.grad.tolist() == [2.0] * 3
    loaded: Any = Affine()
    loaded.load_state_dict(layer.state_dict())
    assert loaded.weight.tolist() == [2.0] * 3 and not loaded.has_uninitialized_params()
    assert loaded(nx.ones(1, 3)).tolist() == [[3.0] * 3]


def test_a_lazy_module_becomes_another() -> None:
    class Becoming(Affine):
        cls_to_become = nn.Identity

    layer = Becoming()
    layer(nx.ones(1, 2))
    assert type(layer) is nn.Identity
    assert isinstance(nn.LazyLinear(2), LazyModuleMixin)


def test_mistakes_of_lazy_modules() -> None:
    class Forgetful(LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = UninitializedParameter()

    with pytest.raises(NotImplementedError, match="initialize_parameters"):
        Forgetful()(nx.ones(1))
    Forgetful.initialize_parameters = lambda self, x: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="not been fully initialized"):
        Forgetful()(nx.ones(1))
    with pytest.raises(RuntimeError, match="LazyModuleMixin"):
        UninitializedParameter().materialize((1,))


def test_total_norms() -> None:
    tensors = [nx.tensor([3.0, -4.0]), nx.tensor([[1.0, 2.0]])]
    assert nn.utils.get_total_norm(tensors).item() == pytest.approx(math.sqrt(30))
    assert nn.utils.get_total_norm(tensors, 1.0).item() == 10.0
    assert nn.utils.get_total_norm(tensors, math.inf).item() == 4.0
    assert nn.utils.get_total_norm([]).item() == 0.0
    with pytest.raises(RuntimeError, match="norm is nan"):
        nn.utils.get_total_norm(nx.tensor([math.nan]), error_if_nonfinite=True)


def test_clipping_with_a_given_norm() -> None:
    p = nn.Parameter([3.0, 4.0])
    (p * p).sum().backward()
    assert p.grad is not None
    nn.utils.clip_grads_with_norm_([p], 20.0, nx.tensor(10.0))
    assert p.grad.tolist() == [6.0, 8.0]
    nn.utils.clip_grads_with_norm_(p, 1.0, nx.tensor(10.0))
    assert p.grad.tolist() == pytest.approx([0.6, 0.8])
