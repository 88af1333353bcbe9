"""DirectML: graphics processors of every vendor on Windows."""

from __future__ import annotations

from ._backend import HardwareBackend


def is_directml_available() -> bool:
    """Whether there is a DirectML device. ``neurenix.hardware.report()`` gives the reason if not."""
    return bool(DirectMLBackend._found())


class DirectMLBackend(HardwareBackend):
    """Operations through DirectML. Without it they run on the CPU, with a warning.

    >>> import warnings
    >>> import neurenix as nx
    >>> directml = DirectMLBackend()
    >>> directml.initialize() == is_directml_available()
    True
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     directml.matmul(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]])).tolist()
    [[19, 22], [43, 50]]
    """

    kind = "directml"
    title = "DirectML"
    missing = "DirectML is not available"
