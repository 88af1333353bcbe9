"""The one name of PyTorch's own parts that programs use."""

from neurenix.linalg import LinAlgError as _LinAlgError  # Also imported as ``torch._C``, hence absolute.

__all__ = ["_LinAlgError"]
