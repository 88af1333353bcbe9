"""A denoising diffusion model: a schedule of noise, embeddings of time, an average of weights."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 2 * dim))
        self.init_conv, self.norm = nn.Conv2d(1, dim, 3, padding=1), nn.GroupNorm(4, dim)
        self.final_conv = nn.Conv2d(dim, 1, 3, padding=1)

    def forward(self, x, time):
        scale, shift = self.time_mlp(time).unsqueeze(-1).unsqueeze(-1).chunk(2, dim=1)
        x = self.norm(self.init_conv(x))
        return self.final_conv(F.silu(x * (scale + 1) + shift))


class EMA:
    def __init__(self, beta):
        self.beta = beta

    def update_model_average(self, ma_model, current_model):
        for current_params, ma_params in zip(current_model.parameters(), ma_model.parameters()):
            old_weight, up_weight = ma_params.data, current_params.data
            ma_params.data = old_weight * self.beta + (1 - self.beta) * up_weight


def losses():
    timesteps = 20
    betas = torch.linspace(0.0001, 0.02, timesteps, dtype=torch.float64)
    alphas_cumprod = torch.cumprod(1.0 - betas, axis=0)
    alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
    assert alphas_cumprod_prev[0] == 1.0
    sqrt_alphas_cumprod = torch.sqrt(alphas_cumprod).to(torch.float32)
    sqrt_one_minus_alphas_cumprod = torch.sqrt(1.0 - alphas_cumprod).to(torch.float32)
    model = same_weights(Denoiser())
    ema_model, ema = copy.deepcopy(model), EMA(0.9)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    x_start = numbers(4, 1, 8, 8).tanh()
    for step in range(STEPS):
        t, noise = numbers(4, seed=step, low=timesteps).long(), numbers(4, 1, 8, 8, seed=step + 100)
        x = (
            extract(sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )
        loss = F.l1_loss(noise, model(x, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update_model_average(ema_model, model)
        with torch.no_grad():
            yield loss.item() + F.mse_loss(ema_model(x, t), noise).item()
