"""Settings of products on NVIDIA GPUs."""

from __future__ import annotations

from ._settings import Precision as _Precision
from ._settings import has as _has

matmul = _Precision()


def is_built() -> bool:
    """Whether there is an NVIDIA GPU."""
    return _has("cuda")


def flash_sdp_enabled() -> bool:
    """True: attention does not store its matrix of weights where a kernel for that exists."""
    return True


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted: the engine chooses the kernel."""


enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp
mem_efficient_sdp_enabled = math_sdp_enabled = flash_sdp_enabled
