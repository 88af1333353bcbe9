"""A user's program: mypy and pyright check it, and a test runs it."""

from __future__ import annotations

from typing import Any

import micrograd_rs as micro
import neurenix as nx
from neurenix import nn, optim


class Scale(nn.Module):
    """A user-defined module."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(nx.ones(features))
        self.inner = nn.Linear(features, features)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return self.inner(x) * self.factor


def main() -> float:
    """Trains for two steps."""
    model = nn.Sequential(Scale(3), nn.ReLU(), nn.Linear(3, 1)).to(nx.float32)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    inputs: nx.Tensor = nx.randn(8, 3)
    loss: nx.Tensor = nx.zeros(())
    for _ in range(2):
        with nx.amp.autocast(dtype=nx.bfloat16):
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state: dict[str, Any] = model.state_dict()
    shape: tuple[int, ...] = state["0.factor"].shape
    part: nx.Tensor = inputs[:, 0] + 2.0 * inputs[0, 1] - nx.sin(inputs).mean()
    value = micro.Value(2.0) * 3.0
    value.backward()
    return float(loss.item()) + len(shape) + part.ndim + value.data


if __name__ == "__main__":
    print(main())
