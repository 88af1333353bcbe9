"""Custom kernels: an error is raised by the call that causes it and contains the kernel's name."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest

VECTOR = ("float32", "n")


def kernel(**options: Any) -> nx.CustomKernel:
    options = {"cpu": lambda x, *scalars: 2 * x, **options}
    return nx.CustomKernel("twice", inputs=[("x", *VECTOR)], outputs=[("y", *VECTOR)], **options)


def test_an_argument_of_another_kind_is_a_type_error() -> None:
    for given in ([1.0, 2.0], np.ones(2, np.float32), 3.0):
        kind = type(given).__name__
        with pytest.raises(TypeError, match=rf"^custom kernel twice: x: expected a tensor, got {kind}: .*asarray"):
            kernel()(given)
    with pytest.raises(TypeError, match=r"^custom kernel twice: x: expected float32, given int64: convert with \.float\(\)"):
        kernel()(nx.tensor([1, 2]))
    with pytest.raises(TypeError, match="^custom kernel twice: expected a number, got str"):
        kernel(scalars=[("count", "int32")])(nx.ones(2), "2")


def test_shapes_and_counts_that_do_not_fit_are_value_errors() -> None:
    with pytest.raises(ValueError, match="^custom kernel twice: x: expected shape"):
        kernel()(nx.ones(2, 2))
    with pytest.raises(ValueError, match="^custom kernel twice: inputs: expected 1 tensor, given 2"):
        kernel()(nx.ones(2), nx.ones(2))
    with pytest.raises(ValueError, match="^custom kernel twice: inputs: expected 1 tensor, given 0"):
        kernel()()


def test_functions_are_looked_at_when_the_kernel_is_made() -> None:
    with pytest.raises(TypeError, match="^custom kernel twice: cpu: expected a function, got int"):
        kernel(cpu=3)
    with pytest.raises(TypeError, match="^custom kernel twice: cpu: expected a function, got CustomKernel"):
        kernel(cpu=kernel())
    with pytest.raises(TypeError, match="^custom kernel twice: gradient: expected a function, got str"):
        kernel(gradient="2")


def test_what_functions_give_is_told_with_the_kernels_name() -> None:
    with pytest.raises(ValueError, match="^custom kernel twice: cpu: expected 1 array, got 2"):
        kernel(cpu=lambda x: (x, x))(nx.ones(3)).evaluate()
    with pytest.raises(ValueError, match="^custom kernel twice: cpu: got an array of shape"):
        kernel(cpu=lambda x: x[:1])(nx.ones(3)).evaluate()
    with pytest.raises(TypeError, match="^custom kernel twice: cpu: the function returned None: return an array"):
        kernel(cpu=lambda x: None)(nx.ones(3)).evaluate()
    x = nx.ones(3, requires_grad=True)
    with pytest.raises(TypeError, match="^custom kernel twice: gradient: expected a list with a tensor or None for each input, got list"):
        kernel(gradient=lambda inputs, outputs, gradients: [2.0])(x).sum().backward()


def test_a_gradient_can_be_another_kernel() -> None:
    slope = nx.CustomKernel(
        "slope",
        inputs=[("x", *VECTOR), ("y", *VECTOR), ("dy", *VECTOR)],
        outputs=[("dx", *VECTOR)],
        cpu=lambda x, y, dy: 2 * dy,
    )
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    kernel(gradient=slope)(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_languages_are_those_of_text() -> None:
    for language in ("spirv", "fortran"):
        with pytest.raises(ValueError) as raised:
            kernel(sources={language: "void twice() {}"})
        message = str(raised.value)
        assert message.startswith(f'custom kernel twice: "{language}" is not a supported source language')
        assert message.endswith('"cuda", "hip", "opencl", "wgsl", "msl"')
