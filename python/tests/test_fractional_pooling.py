"""Fractional max pooling. Expected numbers are PyTorch's (2.15), or follow from the definition."""

from __future__ import annotations

import neurenix as nx
import numpy as np
import pytest

F, nn = nx.nn.functional, nx.nn


def test_two_dimensions_have_the_numbers_of_pytorch() -> None:
    x = ((nx.arange(35.0) * 5) % 19).reshape(1, 1, 5, 7).requires_grad_()
    samples = nx.tensor([[[0.3, 0.8]]])
    values, indices = F.fractional_max_pool2d(x, 2, (3, 4), return_indices=True, _random_samples=samples)
    assert values.tolist() == [[[[16.0, 15.0, 17.0, 11.0], [18.0, 12.0, 17.0, 8.0], [15.0, 17.0, 11.0, 18.0]]]]
    assert indices.tolist() == [[[[7, 3, 11, 6], [15, 10, 11, 13], [22, 30, 25, 34]]]]
    values.sum().backward()
    assert x.grad is not None
    counts = np.bincount(np.ravel(indices.tolist()), minlength=35)
    assert x.grad.flatten().tolist() == counts.tolist() and counts.max() == 2
    layer = nn.FractionalMaxPool2d(2, output_size=(3, 4), _random_samples=samples)
    assert layer(x).tolist() == values.tolist()
    assert layer(x[0]).tolist() == values[0].tolist()


def test_three_dimensions_have_the_numbers_of_pytorch() -> None:
    x = ((nx.arange(60.0) * 7) % 31).reshape(1, 3, 4, 5)
    layer = nn.FractionalMaxPool3d(
        (1, 2, 2), output_ratio=(0.7, 0.5, 0.6), return_indices=True, _random_samples=nx.tensor([[[0.6, 0.1, 0.9]]])
    )
    values, indices = layer(x)
    assert values.tolist() == [[[[11.0, 18.0, 28.0], [19.0, 26.0, 29.0]], [[12.0, 19.0, 29.0], [20.0, 27.0, 30.0]]]]
    assert indices.tolist() == [[[[6, 7, 4], [16, 17, 13]], [[46, 47, 44], [56, 57, 53]]]]


def test_windows_of_a_dimension_follow_the_paper() -> None:
    """Numbers from 0 in a row are their own positions, and a window of one element gives where it begins."""
    x = nx.arange(10.0).reshape(1, 1, 1, 10)
    for sample in (0.0, 0.4, 0.99):
        drawn = nx.tensor([[[sample, 0.5]]])
        found = F.fractional_max_pool2d(x, (1, 2), (1, 5), _random_samples=drawn).flatten().tolist()
        # Places floor((i + u) 8 / 4) - floor(u 8 / 4), the last one at the end; the greatest is one further.
        assert found == [np.floor((i + sample) * 2) - np.floor(sample * 2) + 1 for i in range(4)] + [9]


def test_random_places_differ_and_agree_with_their_indices() -> None:
    x = nx.randn(4, 3, 20, 17)
    values, indices = F.fractional_max_pool2d_with_indices(x, (3, 2), output_ratio=0.5)
    assert values.shape == indices.shape == (4, 3, 10, 8)
    assert x.flatten(2).gather(-1, indices.flatten(2)).tolist() == values.flatten(2).tolist()
    assert len({tuple(plane) for plane in (indices.flatten(2).flatten(0, 1).tolist())}) == 12


def test_the_gradient_of_an_unknown_place_is_that_of_its_element() -> None:
    x = nx.randn(2, 6, 6, 6, dtype=nx.float64).requires_grad_()
    samples = nx.rand(1, 2, 3, dtype=nx.float64)
    assert nx.autograd.gradcheck(lambda x: F.fractional_max_pool3d(x, 2, 3, _random_samples=samples), (x,))


def test_nan_and_no_windows() -> None:
    x = nx.tensor([[[1.0, float("nan")], [3.0, 4.0]]])
    assert F.fractional_max_pool2d(x, 2, 1).isnan().all()
    assert F.fractional_max_pool2d(x, 2, (0, 1)).shape == (1, 0, 1)


def test_refusals() -> None:
    x = nx.ones(1, 1, 4, 4)
    for match, call in [
        ("output_size or output_ratio", lambda: F.fractional_max_pool2d(x, 2)),
        ("do not fit", lambda: F.fractional_max_pool2d(x, 3, 3)),
        ("a number or 2 numbers", lambda: F.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5, 0.5))),
        ("random samples of shape", lambda: F.fractional_max_pool2d(x, 2, 2, _random_samples=nx.ones(2))),
        ("3 or 4 dimensions", lambda: F.fractional_max_pool2d(x[0, 0], 2, 2)),
        ("either", lambda: nn.FractionalMaxPool2d(2)),
        ("either", lambda: nn.FractionalMaxPool2d(2, 2, 0.5)),
        ("between 0 and 1", lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5)),
    ]:
        with pytest.raises(ValueError, match=match):
            call()  # type: ignore[no-untyped-call]
