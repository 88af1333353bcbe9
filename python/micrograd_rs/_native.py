"""The classes of the native module; their types are in ``_native.pyi``."""

from neurenix._engine import micrograd

Device = micrograd.Device
Value = micrograd.Value
Neuron = micrograd.Neuron
Layer = micrograd.Layer
MLP = micrograd.MLP
