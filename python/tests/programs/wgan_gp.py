"""A Wasserstein GAN whose critic is penalised for the norm of its gradient."""

import torch
import torch.autograd as autograd
import torch.nn as nn
from torch.autograd import Variable

from common import STEPS, numbers, same_weights


def compute_gradient_penalty(D, real_samples, fake_samples, alpha):
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(torch.FloatTensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates, inputs=interpolates, grad_outputs=fake, create_graph=True, retain_graph=True, only_inputs=True
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def losses():
    generator = same_weights(nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16, 0.8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 6), nn.Tanh()), 1)
    discriminator = same_weights(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1)), 2)
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))
    optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.9))
    real_imgs = Variable(numbers(8, 6).tanh())
    for i in range(STEPS):
        optimizer_D.zero_grad()
        fake_imgs = generator(Variable(numbers(8, 4, seed=i)))
        penalty = compute_gradient_penalty(discriminator, real_imgs.data, fake_imgs.data, numbers(8, 1, seed=i + 9).sigmoid())
        d_loss = -torch.mean(discriminator(real_imgs)) + torch.mean(discriminator(fake_imgs)) + 10 * penalty
        d_loss.backward()
        optimizer_D.step()
        optimizer_G.zero_grad()
        g_loss = -torch.mean(discriminator(generator(numbers(8, 4, seed=i))))
        g_loss.backward()
        optimizer_G.step()
        yield d_loss.item() + g_loss.item()
