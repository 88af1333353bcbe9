"""The older profiler of PyTorch: see ``neurenix.profiler`` for what it records."""

from __future__ import annotations

from typing import Any

from ..profiler import Recorded, Row, record_function

__all__ = ["profile", "record_function"]


class profile(Recorded):
    """A context manager that records what runs on every device, if ``enabled``. Other arguments than this are hints
    without effect.

    >>> import neurenix as nx
    >>> with nx.autograd.profiler.profile() as p:
    ...     nx.evaluate([nx.ones(4).exp()])
    >>> p.self_cpu_time_total + sum(row.device_time_total for row in p.key_averages()) > 0
    True
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        use_cuda: bool = False,
    ) -> None:
        super().__init__()
        self.enabled = enabled

    def __enter__(self) -> profile:
        if self.enabled:
            self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def total_average(self) -> Row:
        """One row with the sums of all."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all steps on the CPU, in microseconds."""
        return self.key_averages().self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The rows as a text: see ``key_averages().table``."""
        return self.key_averages().table(*args, **kwargs)
