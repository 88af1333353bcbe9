"""Scaled losses, and states of random numbers that are carried elsewhere."""

from __future__ import annotations

import copy
import pickle

import neurenix as nx
import pytest


@pytest.mark.parametrize(
    ("dtype", "scaled"), [("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("bfloat16", "float32")]
)
def test_a_scaled_loss_is_not_narrowed(dtype: str, scaled: str) -> None:
    scaler = nx.amp.GradScaler(init_scale=2.0**16)
    loss = scaler.scale(nx.tensor(1 + 2.0**-30, dtype="float64").to(dtype))
    assert loss.dtype.name == scaled
    assert loss.item() == (2.0**16 + 2.0**-14 if dtype == "float64" else 2.0**16)


def test_a_generator_is_copied_and_pickled_with_its_state() -> None:
    generator = nx.Generator(7)
    nx.rand(5, generator=generator)
    copies = [copy.copy(generator), copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    expected = nx.rand(5, generator=generator).tolist()
    for each in copies:
        assert each.initial_seed() == 7
        assert nx.rand(5, generator=each).tolist() == expected, "each goes on by itself from where it was copied"
