"""The generator of CycleGAN: reflection padding and instance normalisation, with a buffer of images."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import STEPS, numbers, same_weights


class ResnetBlock(nn.Module):
    def __init__(self, dim, norm_layer, use_bias):
        super(ResnetBlock, self).__init__()
        conv_block = []
        for last in (False, True):
            conv_block += [nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, kernel_size=3, padding=0, bias=use_bias), norm_layer(dim)]
            conv_block += [] if last else [nn.ReLU(True)]
        self.conv_block = nn.Sequential(*conv_block)

    def forward(self, x):
        return x + self.conv_block(x)


def generator(ngf=4):
    norm_layer = nn.InstanceNorm2d
    model = [nn.ReflectionPad2d(3), nn.Conv2d(2, ngf, kernel_size=7, padding=0, bias=True), norm_layer(ngf), nn.ReLU(True)]
    model += [nn.Conv2d(ngf, ngf * 2, kernel_size=3, stride=2, padding=1, bias=True), norm_layer(ngf * 2), nn.ReLU(True)]
    model += [ResnetBlock(ngf * 2, norm_layer, True)]
    model += [nn.ConvTranspose2d(ngf * 2, ngf, kernel_size=3, stride=2, padding=1, output_padding=1, bias=True), norm_layer(ngf), nn.ReLU(True)]
    model += [nn.ReflectionPad2d(3), nn.Conv2d(ngf, 2, kernel_size=7, padding=0), nn.Tanh()]
    return nn.Sequential(*model)


def losses():
    netG_A, netG_B = same_weights(generator(), 1), same_weights(generator(), 2)
    netD = same_weights(nn.Sequential(nn.Conv2d(2, 4, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(4, 1, 4, 1, 1)), 3)
    optimizer_G = torch.optim.Adam(itertools.chain(netG_A.parameters(), netG_B.parameters()), lr=5e-5, betas=(0.5, 0.999), eps=1e-4)
    optimizer_D = torch.optim.Adam(netD.parameters(), lr=5e-5, betas=(0.5, 0.999), eps=1e-4)
    real_A, real_B = numbers(1, 2, 8, 8).tanh(), numbers(1, 2, 8, 8, seed=1).tanh()
    criterionGAN, criterionCycle = nn.MSELoss(), nn.L1Loss()
    for _ in range(STEPS):
        fake_B = netG_A(real_A)
        for param in netD.parameters():
            param.requires_grad = False
        optimizer_G.zero_grad()
        prediction = netD(fake_B)
        loss_G = criterionGAN(prediction, torch.tensor(1.0).expand_as(prediction)) + 10 * criterionCycle(netG_B(fake_B), real_A)
        loss_G.backward()
        optimizer_G.step()
        for param in netD.parameters():
            param.requires_grad = True
        optimizer_D.zero_grad()
        pred_real, pred_fake = netD(real_B), netD(fake_B.detach())
        loss_D = (criterionGAN(pred_real, torch.ones_like(pred_real)) + criterionGAN(pred_fake, torch.zeros_like(pred_fake))) * 0.5
        loss_D.backward()
        optimizer_D.step()
        yield loss_G.item() + loss_D.item()
