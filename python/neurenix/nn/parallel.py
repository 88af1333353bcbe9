"""Networks that several processes train together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _engine
from ..distributed._groups import group_or_world
from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """A network whose parameters have names that begin with ``module.``, for programs that use it on one device. It
    computes the whole batch where the network is: it does not divide the batch among devices, which
    :class:`DistributedDataParallel` does among processes.

    >>> import neurenix as nx
    >>> model = nx.nn.DataParallel(nx.nn.Linear(3, 2))
    >>> list(model.state_dict()), model(nx.ones(4, 3)).shape
    (['module.weight', 'module.bias'], (4, 2))
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                "DataParallel: several devices of one process are not supported: leave device_ids out, or use "
                "DistributedDataParallel, with a process for each device"
            )
        self.dim, self.module = dim, module

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """Trains a network on the rows of several processes: each computes the gradients of its rows, and ``backward()``
    gives all of them the mean.

    Gradients are averaged in buckets of ``bucket_cap_mb`` MiB, the last layers first; those of a bucket travel as soon as
    they are computed. The network's parameters and buffers become those of rank 0. Buffers, such as running statistics,
    are rank 0's again before each forward pass in training, unless ``broadcast_buffers`` is False.

    Every loss must depend on every parameter; otherwise pass ``find_unused_parameters=True``. ``compression`` (not in
    PyTorch, which has communication hooks) is the dtype in which gradients travel, such as ``nx.bfloat16``.

    ``device_ids``, ``output_device``, ``gradient_as_bucket_view`` and ``static_graph`` are accepted, and change nothing: the
    network stays where it is.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> _ = dist.init_process_group()
    >>> model = nx.nn.parallel.DistributedDataParallel(nx.nn.Linear(3, 2))
    >>> model(nx.ones(4, 3)).sum().backward()
    >>> model.module.weight.grad.tolist()
    [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float = 25.0,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        compression: Any = None,
    ) -> None:
        super().__init__()
        self.process_group = group_or_world(process_group, "DistributedDataParallel")
        if dim != 0:
            raise ValueError("DistributedDataParallel: rows are along dimension 0")
        named = list(module.named_parameters())
        if not any(parameter.requires_grad for _, parameter in named):
            raise RuntimeError("DistributedDataParallel: no parameter of the network requires gradients")
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self._reducer = _engine.DataParallel(
            [name for name, _ in named],
            [parameter for _, parameter in named],
            self.process_group,
            int(bucket_cap_mb * 2**20),
            compression,
            find_unused_parameters,
        )
        self._share_buffers()

    def _share_buffers(self) -> None:
        buffers = list(self.module.buffers())
        if buffers and self.process_group.size() > 1:
            _engine.broadcast_variables(buffers, self.process_group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network."""
        if self.broadcast_buffers and self.training and _engine.is_grad_enabled():
            self._share_buffers()
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """While it lasts, gradients accumulate in each process. The next backward pass averages all of them at once."""
        self._reducer.set_paused(True)
        try:
            yield
        finally:
            self._reducer.set_paused(False)
