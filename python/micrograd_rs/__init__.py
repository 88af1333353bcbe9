"""micrograd: automatic differentiation of scalars, batches and tensors, on the CPU or a GPU.

>>> from micrograd_rs import MLP, Value
>>> a, b = Value(2.0), Value(-3.0)
>>> c = a * b + a**2
>>> c.backward()
>>> c.data, a.grad, b.grad
(-2.0, 1.0, 2.0)
>>> MLP(3, [4, 1])([Value(1.0), Value(2.0), Value(3.0)]).device
Device.CPU

``Value``, ``Neuron``, ``Layer`` and ``MLP`` follow Andrej Karpathy's micrograd. ``ValueBatch`` and ``Tensor`` hold many
numbers in one object and are computed by the Phynexus engine.
"""

from __future__ import annotations

from neurenix._engine import __version__

from ._arrays import Tensor, ValueBatch, autocast
from ._native import MLP, Device, Layer, Neuron, Value

__all__ = ["Value", "Neuron", "Layer", "MLP", "Device", "ValueBatch", "Tensor", "autocast", "__version__"]
