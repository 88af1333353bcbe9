"""Writes losses.npz: PyTorch's losses of random inputs in float64, which tests/losses.rs reads.

Names: `case/in/0`, `case/target`, `case/weight`, `case/pos_weight`, `case/out/none`, `case/out/mean`, `case/out/sum`,
and `case/grad/0`, the gradient of the mean.

Needs: pip install torch numpy
"""

import pathlib
import zipfile

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
arrays = {}


def case(name, loss, inputs, target, **arguments):
    inputs = [x.requires_grad_() for x in inputs]
    arrays[f"{name}/target"] = target.numpy()
    for i, x in enumerate(inputs):
        arrays[f"{name}/in/{i}"] = x.detach().numpy()
    for key in ("weight", "pos_weight"):
        if key in arguments:
            arrays[f"{name}/{key}"] = arguments[key].numpy()
    for reduction in ("none", "mean", "sum"):
        out = loss(reduction=reduction, **arguments)(*inputs, target)
        arrays[f"{name}/out/{reduction}"] = out.detach().numpy()
        if reduction == "mean":
            for i, gradient in enumerate(torch.autograd.grad(out, inputs)):
                arrays[f"{name}/grad/{i}"] = gradient.numpy()


r, p = torch.randn, torch.rand
case("mse", nn.MSELoss, [r(3, 4)], r(3, 4))
case("l1", nn.L1Loss, [r(3, 4)], r(3, 4))
case("smooth_l1", nn.SmoothL1Loss, [r(3, 4)], r(3, 4), beta=0.5)
case("huber", nn.HuberLoss, [r(3, 4)], r(3, 4), delta=0.7)
case("cross_entropy", nn.CrossEntropyLoss, [r(5, 4) * 3], torch.tensor([0, 3, -100, 1, 1]))
case("cross_entropy_options", nn.CrossEntropyLoss, [r(2, 3, 4)], torch.randint(0, 3, (2, 4)), weight=p(3) + 0.5,
     ignore_index=2, label_smoothing=0.1)
case("cross_entropy_probabilities", nn.CrossEntropyLoss, [r(5, 4)], torch.softmax(r(5, 4), 1), label_smoothing=0.2)
case("nll", nn.NLLLoss, [torch.log_softmax(r(5, 4), 1)], torch.tensor([0, 3, 2, 1, 1]), weight=p(4) + 0.5, ignore_index=1)
case("bce", nn.BCELoss, [torch.tensor([[2**-10, 1 - 2**-6, 0.3125], [0.5, 0.90625, 2**-8]])], torch.tensor([[0.0, 1.0, 0.2], [1.0, 0.0, 0.7]]),
     weight=p(3) + 0.5)
case("bce_with_logits", nn.BCEWithLogitsLoss, [torch.tensor([[-800.0, 800.0, 0.3], [-0.5, 30.0, 0.0]])], p(2, 3).round(),
     weight=p(2, 1) + 0.5, pos_weight=p(3) + 0.5)
case("kl_div", nn.KLDivLoss, [torch.log_softmax(r(3, 4), 1)], torch.tensor([[0.5, 0.5, 0.0, 0.0]]).repeat(3, 1))
case("kl_div_log", nn.KLDivLoss, [torch.log_softmax(r(3, 4), 1)], torch.log_softmax(r(3, 4), 1), log_target=True)
case("hinge_embedding", nn.HingeEmbeddingLoss, [r(3, 4)], p(3, 4).round() * 2 - 1, margin=0.5)
case("cosine_embedding", nn.CosineEmbeddingLoss, [r(6, 3), r(6, 3)], torch.tensor([1.0, -1, -1, 1, -1, -1]), margin=0.2)

path = pathlib.Path(__file__).parent / "losses.npz"
with zipfile.ZipFile(path, "w") as archive:
    for name, values in sorted(arrays.items()):
        member = zipfile.ZipInfo(name + ".npy")
        member.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(member, "w") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(values) if values.ndim else values)
