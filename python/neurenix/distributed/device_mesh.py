"""Groups along the axes of a grid of processes, such as data x tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .._engine import ProcessGroup
from ._groups import get_rank, group_or_world, new_group


class DeviceMesh:
    """The ranks of the job as an array. Each axis has a group: the ranks that differ in their place along it only.

    >>> import neurenix.distributed as dist
    >>> _ = dist.init_process_group()
    >>> mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
    >>> mesh.get_group("data").size(), mesh.get_coordinate()
    (1, [0, 0])
    >>> dist.destroy_process_group()
    """

    def __init__(self, device_type: str, mesh: Sequence[object], *, mesh_dim_names: Sequence[str] | None = None) -> None:
        self.device_type = device_type
        self.mesh = np.asarray(mesh, dtype=np.int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise ValueError(f"DeviceMesh: {self.mesh.ndim} axes need as many names, not {len(self.mesh_dim_names)}")
        world = group_or_world(None, "DeviceMesh").size()
        ranks = self.mesh.ravel()
        if len(set(ranks.tolist())) != ranks.size or ranks.size == 0 or ranks.min() < 0 or ranks.max() >= world:
            raise ValueError(f"DeviceMesh: each rank may appear once, and must be one of the job's {world} ranks")
        self._groups: list[ProcessGroup] = []
        # Every rank makes every group, in the same order.
        for axis in range(self.mesh.ndim):
            lines = np.moveaxis(self.mesh, axis, -1).reshape(-1, self.mesh.shape[axis])
            made = [new_group(line.tolist(), sort_ranks=False) for line in lines]
            self._groups += [group for group in made if isinstance(group, ProcessGroup)]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.mesh.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each axis."""
        return tuple(int(size) for size in self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks along an axis, or of all."""
        return int(self.mesh.size) if mesh_dim is None else self.shape[mesh_dim]

    def _axis(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise ValueError("DeviceMesh: it has several axes: name one")
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"DeviceMesh: no axis is named {mesh_dim!r}: {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return range(self.ndim)[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """This rank's group along an axis."""
        if not self._groups:
            raise RuntimeError(f"DeviceMesh: rank {get_rank()} is not in it")
        return self._groups[self._axis(mesh_dim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along an axis."""
        return self.get_group(mesh_dim).rank()

    def get_coordinate(self) -> list[int] | None:
        """This rank's place along each axis; None if it is not in the mesh."""
        found = np.argwhere(self.mesh == get_rank())
        return [int(place) for place in found[0]] if len(found) else None

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of the ranks that differ from this one along some axes only, in the order of the names."""
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise KeyError(f"DeviceMesh: pass different names of axes, not {mesh_dim_names!r}")
        axes = [self._axis(name) for name in names]
        part: DeviceMesh = object.__new__(DeviceMesh)
        part._groups = [self.get_group(axis) for axis in axes]
        place = self.get_coordinate()
        assert place is not None
        lines = self.mesh[tuple(slice(None) if axis in axes else place[axis] for axis in range(self.ndim))]
        # The axes that are left are in ascending order.
        part.mesh = lines.transpose([sorted(axes).index(axis) for axis in axes])
        part.device_type, part.mesh_dim_names = self.device_type, names
        return part

    def __repr__(self) -> str:
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}, mesh_dim_names={self.mesh_dim_names})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """The ranks of the job in order, as an array of this shape."""
    size = math.prod(mesh_shape)
    world = group_or_world(None, "init_device_mesh").size()
    if size != world:
        raise ValueError(f"init_device_mesh: a mesh of {size} ranks does not fit a job of {world}")
    mesh = np.arange(size).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)  # type: ignore[arg-type]
