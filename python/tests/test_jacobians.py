"""Jacobians and Hessians of several arguments."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import pytest


def product(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
    return x * y.sum()


def test_jacobians_of_several_arguments() -> None:
    x, y = nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 4.0, 5.0])
    by_x, by_y = nx.jacobian(product, (0, 1))(x, y)
    assert by_x.tolist() == [[12.0, 0.0], [0.0, 12.0]]
    assert by_y.tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    assert nx.jacobian(product, -1)(x, y).tolist() == by_y.tolist()
    (alone,) = nx.jacobian(product, [1])(x, y)
    assert alone.tolist() == by_y.tolist()
    none, other = nx.jacobian(lambda x, y: x[:0] * y.sum(), (0, 1))(x, y)
    assert none.shape == (0, 2) and other.shape == (0, 3)


def test_hessians_of_several_arguments() -> None:
    x, y = nx.Tensor([1.0, 2.0]), nx.Tensor([3.0])
    (xx, xy), (yx, yy) = nx.hessian(lambda x, y: (x * x * y).sum(), (0, 1))(x, y)
    assert xx.tolist() == [[6.0, 0.0], [0.0, 6.0]] and yy.tolist() == [[0.0]]
    assert xy.tolist() == [[2.0], [4.0]] and yx.tolist() == [[2.0, 4.0]]


def test_arguments_that_are_not_there() -> None:
    x = nx.ones(2)
    wrongs: list[Any] = [2, -3, (0, 2)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="jacobian: no argument"):
            nx.jacobian(product, wrong)(x, x)
        with pytest.raises(ValueError, match="no argument"):
            nx.hessian(product, wrong)(x, x)
    with pytest.raises(TypeError, match="jacobian: the function must return a tensor, got float"):
        number: Any = lambda x: 1.0  # noqa: E731
        nx.jacobian(number)(x)
