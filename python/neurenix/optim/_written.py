"""Optimisers whose step is written in Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from .._engine import Tensor
from ..nn._state import as_value


class Written:
    """The parameters of a user-written optimiser, and its state for them."""

    # Its step updates duplicates itself.
    surplus: tuple[Tensor, ...] = ()

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.counts = [len(group["params"]) for group in groups]
        self.parameters: list[Tensor] = [parameter for group in groups for parameter in group["params"]]
        self.values: dict[Tensor, dict[str, Any]] = defaultdict(dict)

    def add(self, group: Mapping[str, Any], options: dict[str, Any]) -> None:
        self.counts.append(len(group["params"]))
        self.parameters += group["params"]

    def set_options(self, options: list[dict[str, Any]]) -> None:
        """Does nothing: the settings are read from the groups."""

    def state(self) -> dict[int, dict[str, Any]]:
        return {number: self.values[p] for number, p in enumerate(self.parameters) if p in self.values}

    def put_state(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        for number, values in state.items():
            parameter = self.parameters[number]

            def placed(key: str, value: Any) -> Any:
                if isinstance(value, list):
                    return [placed(key, each) for each in value]
                if not hasattr(value, "shape"):
                    return value
                tensor = as_value(value)
                # Integers and the step count keep their dtype.
                dtype = parameter.dtype if tensor.is_floating_point() and key != "step" else None
                # Cloned, because another optimiser may hold the given tensor.
                return tensor.to(dtype=dtype, device=None if key == "step" else parameter.device).clone()

            self.values[parameter] = {key: placed(key, value) for key, value in values.items()}
