"""Networks that several processes train together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _engine
from ..distributed._groups import group_unless_alone
from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """A network whose parameters have names that begin with ``module.``, for programs that use it on one device. It
    computes the whole batch where the network is: it does not divide the batch among devices, which
    :class:`DistributedDataParallel` does among processes.

    >>> import neurenix as nx
    >>> model = nx.nn.DataParallel(nx.nn.Linear(3, 2))
    >>> list(model.state_dict()), model(nx.ones(4, 3)).shape
    (['module.weight', 'module.bias'], torch.Size([4, 2]))
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
    are rank 0's again before each forward pass in training, unless ``broadcast_buffers`` is False; not within
    :meth:`no_sync`, where ranks may make different numbers of passes.

    Every loss must depend on every parameter; otherwise pass ``find_unused_parameters=True``. Freeze parameters before
    the network is wrapped. ``compression`` (not in
    PyTorch, which has communication hooks) is the dtype in which gradients travel, such as ``nx.bfloat16``.

    ``device_ids``, ``output_device``, ``check_reduction``, ``gradient_as_bucket_view`` and ``static_graph`` are
    accepted, and change nothing: the network stays where it is. A process that no launcher started needs no
    ``init_process_group()``.

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
        self.process_group = group_unless_alone(process_group, "DistributedDataParallel")
        if dim != 0:
            raise ValueError("DistributedDataParallel: rows are along dimension 0")
        named = list(module.named_parameters())
        if not any(parameter.requires_grad for _, parameter in named):
            raise RuntimeError("DistributedDataParallel: no parameter of the network requires gradients")
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self._is_paused = False
        # Which parameters the reducer averages was decided now.
        self._trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self._frozen = [(name, parameter) for name, parameter in named if not parameter.requires_grad]
        self._reducer: _engine.DataParallel | None = None
        if self.process_group is not None:
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
        if buffers and self.process_group is not None and self.process_group.size() > 1:
            _engine.broadcast_variables(buffers, self.process_group)

    def _check_frozen(self) -> None:
        """Refuses parameters that were frozen or unfrozen afterwards. Freezing all of them is harmless."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise RuntimeError(
                    f"DistributedDataParallel: {name} was frozen when the network was wrapped, so its gradient is not "
                    "averaged: unfreeze parameters before, and wrap the network again"
                )
        if self.find_unused_parameters:
            return
        frozen = [name for name, parameter in self._trained if not parameter.requires_grad]
        if 0 < len(frozen) < len(self._trained):
            raise RuntimeError(
                f"DistributedDataParallel: {frozen[0]} was frozen after the network was wrapped: freeze parameters "
                "before, or pass find_unused_parameters=True"
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network."""
        if _engine.is_grad_enabled():
            self._check_frozen()
            if self.broadcast_buffers and self.training and not self._is_paused:
                self._share_buffers()
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """While it lasts, gradients accumulate in each process, and buffers are each process's. The next backward pass
        averages all gradients at once.
        """
        before = self._is_paused
        self._pause(True)
        try:
            yield
        finally:
            self._pause(before)

    def _pause(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        if self._reducer is not None:
            self._reducer.set_paused(is_paused)
