"""Style transfer optimises an image by LBFGS until its Gram matrices are those of another."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from common import numbers, same_weights


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


def losses():
    cnn = same_weights(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=False), nn.Conv2d(6, 8, 3, padding=1)))
    cnn.eval().requires_grad_(False)
    content, style = numbers(1, 3, 8, 8).sigmoid(), numbers(1, 3, 8, 8, seed=1).sigmoid()
    content_target, style_target = cnn(content).detach(), gram_matrix(cnn(style)).detach()
    input_img = content.clone() * 0.5
    optimizer = optim.LBFGS([input_img.requires_grad_()], lr=0.1, max_iter=10)
    run, found = [0], []
    while run[0] < 45:

        def closure():
            with torch.no_grad():
                input_img.clamp_(0, 1)
            optimizer.zero_grad()
            features = cnn(input_img)
            loss = 1000 * F.mse_loss(gram_matrix(features), style_target) + F.mse_loss(features, content_target)
            loss.backward()
            run[0] += 1
            found.append(loss.item())
            return loss

        optimizer.step(closure)
    return found
