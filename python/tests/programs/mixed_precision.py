"""A training loop with gradient scaling switched off by its option, accumulation, and checkpoints of state."""

import io

import torch
from torch import nn
from torch.cuda.amp import GradScaler

from common import STEPS, numbers, same_weights


def losses():
    use_amp = torch.cuda.is_available()
    model = same_weights(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, centered=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    scaler = GradScaler(enabled=use_amp)
    x, y = numbers(12, 8), numbers(12, 4, seed=1)
    for step in range(STEPS):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=use_amp):
            loss = nn.functional.huber_loss(model(x), y, delta=0.5) / 2
        scaler.scale(loss).backward()
        if (step + 1) % 2 == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        scheduler.step(loss.item())
        if step == 20:
            buffer = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, buffer)
            buffer.seek(0)
            state = torch.load(buffer, map_location="cpu", weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            assert state["step"] == 20
        yield loss.item()
