"""Writes golden/nn.json: PyTorch's numbers for layers, losses, optimisers and schedules.

Run it with an interpreter that has PyTorch: ``python tests/make_golden.py``. The tests do not need PyTorch.
"""

import json
import pathlib
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
torch.set_default_dtype(torch.float32)


def lists(value):
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype)[6:], "shape": list(value.shape), "data": value.detach().flatten().tolist()}
    if isinstance(value, (tuple, list)):
        return [lists(each) for each in value]
    return value


def flat(value):
    return [t for each in value for t in flat(each)] if isinstance(value, (tuple, list)) else [value]


def layer(name, args, kwargs, *inputs, train=True):
    module = getattr(nn, name)(*args, **kwargs)
    module.train(train)
    for parameter in module.parameters():
        if parameter.ndim == 1 and name != "PReLU":
            nn.init.uniform_(parameter, 0.2, 1.0)
    state = {key: lists(value.clone()) for key, value in module.state_dict().items()}
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = [out for out in flat(module(*inputs)) if out is not None]
    seeds = [torch.linspace(-1, 1, out.numel()).reshape(out.shape) for out in outputs]
    sum((out * seed).sum() for out, seed in zip(outputs, seeds)).backward()
    return {
        "name": name,
        "args": args,
        "kwargs": kwargs,
        "train": train,
        "state": state,
        "inputs": lists(inputs),
        "outputs": lists(outputs),
        "input_grads": [lists(x.grad) for x in inputs if x.is_floating_point()],
        "grads": {key: lists(p.grad) for key, p in module.named_parameters()},
        "after": {key: lists(value) for key, value in module.state_dict().items()},
    }


def loss_of(name, kwargs, inputs):
    first = inputs[0].clone().detach().requires_grad_()
    result = getattr(nn, name)(**kwargs)(first, *inputs[1:])
    result.sum().backward()
    given = {key: lists(value) for key, value in kwargs.items()}
    return {"name": name, "kwargs": given, "inputs": lists(inputs), "loss": lists(result), "grad": lists(first.grad)}


def method(name, x, args, kwargs):
    x = x.clone()
    if x.is_floating_point():
        x.requires_grad_()
    function = getattr(torch if name.endswith("_mean") or name == "cdist" else torch.Tensor, name)
    result = flat(function(x, *args, **kwargs))
    grad = None
    if result[0].requires_grad:
        (result[0] * torch.linspace(-1, 1, result[0].numel()).reshape(result[0].shape)).nansum().backward()
        grad = lists(x.grad)
    return {
        "name": name,
        "x": lists(x),
        "args": lists(args),
        "kwargs": lists(kwargs),
        "results": [lists(each) for each in result],
        "grad": grad,
    }


def r(*shape):
    return torch.randn(*shape)


LAYERS = [
    layer("Linear", [5, 3], {}, r(4, 5)),
    layer("Bilinear", [3, 4, 2], {}, r(5, 3), r(5, 4)),
    layer("Conv1d", [4, 6, 3], {"stride": 2, "padding": 1, "groups": 2}, r(2, 4, 9)),
    layer("Conv2d", [2, 3, 4], {"padding": "same", "dilation": 1}, r(1, 2, 6, 5)),
    layer("Conv2d", [2, 3, [3, 2]], {"padding": [1, 0], "dilation": [1, 2], "bias": False}, r(2, 6, 6)),
    layer("Conv3d", [1, 2, 2], {"padding": "valid"}, r(1, 1, 3, 4, 3)),
    layer("ConvTranspose1d", [4, 6, 3], {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}, r(2, 4, 5)),
    layer("ConvTranspose2d", [2, 3, 3], {"stride": 2, "dilation": 2}, r(1, 2, 3, 3)),
    layer("ConvTranspose3d", [1, 2, 2], {}, r(1, 1, 2, 2, 2)),
    layer("BatchNorm1d", [3], {}, r(6, 3)),
    layer("BatchNorm1d", [3], {"momentum": None}, r(4, 3, 2)),
    layer("BatchNorm2d", [3], {"momentum": 0.3}, r(2, 3, 3, 2)),
    layer("BatchNorm3d", [2], {}, r(2, 2, 2, 2, 2), train=False),
    layer("InstanceNorm2d", [3], {"affine": True}, r(2, 3, 3, 4)),
    layer("LayerNorm", [[3, 4]], {}, r(2, 3, 4)),
    layer("RMSNorm", [4], {}, r(2, 3, 4)),
    layer("GroupNorm", [2, 4], {}, r(2, 4, 3)),
    layer("Embedding", [5, 3], {"padding_idx": 1}, torch.tensor([[0, 1, 4], [1, 2, 2]])),
    layer("MaxPool1d", [2], {}, r(1, 2, 6)),
    layer("MaxPool2d", [3], {"stride": 2, "padding": 1, "ceil_mode": True}, r(1, 2, 6, 6)),
    layer("MaxPool3d", [2], {}, r(1, 1, 4, 4, 4)),
    layer("AvgPool1d", [3], {"stride": 2, "padding": 1}, r(1, 2, 7)),
    layer("AvgPool2d", [2], {"padding": 1, "count_include_pad": False}, r(1, 2, 5, 5)),
    layer("AvgPool3d", [2], {}, r(1, 1, 4, 4, 4)),
    layer("AdaptiveAvgPool2d", [[2, None]], {}, r(1, 2, 5, 4)),
    layer("AdaptiveMaxPool2d", [3], {}, r(1, 2, 7, 5)),
    layer("AdaptiveAvgPool1d", [2], {}, r(1, 2, 5)),
    layer("RNN", [3, 4], {"num_layers": 2, "nonlinearity": "relu"}, r(5, 2, 3)),
    layer("LSTM", [3, 4], {"num_layers": 2, "bidirectional": True, "batch_first": True}, r(2, 5, 3)),
    layer("LSTM", [3, 4], {}, r(5, 3)),
    layer("GRU", [3, 4], {"bidirectional": True}, r(5, 2, 3), r(2, 2, 4)),
    layer("RNNCell", [3, 4], {}, r(2, 3)),
    layer("LSTMCell", [3, 4], {}, r(2, 3)),
    layer("GRUCell", [3, 4], {}, r(2, 3), r(2, 4)),
    layer("MultiheadAttention", [6, 2], {"batch_first": True}, r(2, 3, 6), r(2, 4, 6), r(2, 4, 6)),
    layer("MultiheadAttention", [6, 3], {"kdim": 4, "vdim": 5}, r(3, 2, 6), r(4, 2, 4), r(4, 2, 5)),
    layer("TransformerEncoderLayer", [4, 2, 8], {"dropout": 0.0, "norm_first": True}, r(3, 2, 4)),
    layer("TransformerEncoderLayer", [4, 2, 8], {"dropout": 0.0, "activation": "gelu", "batch_first": True}, r(2, 3, 4)),
    layer("TransformerDecoderLayer", [4, 2, 8], {"dropout": 0.0}, r(3, 2, 4), r(5, 2, 4)),
    layer(
        "TransformerDecoderLayer",
        [4, 2, 8],
        {"dropout": 0.0, "norm_first": True, "batch_first": True, "activation": "gelu"},
        r(2, 3, 4),
        r(2, 5, 4),
    ),
    layer("Transformer", [4, 2, 1, 2, 8], {"dropout": 0.0}, r(5, 2, 4), r(3, 2, 4)),
    layer("Upsample", [], {"scale_factor": 2, "mode": "bilinear"}, r(1, 2, 3, 3)),
    layer("PixelShuffle", [2], {}, r(1, 8, 2, 3)),
    layer("Unflatten", [1, [2, 3]], {}, r(2, 6)),
    layer("CosineSimilarity", [], {}, r(3, 4), r(3, 4)),
    layer("PReLU", [3], {}, r(2, 3, 4)),
    layer("Softmax", [1], {}, r(3, 4)),
    layer("LogSoftmax", [-1], {}, r(3, 4)),
    layer("Softmin", [0], {}, r(3, 4)),
    layer("GELU", [], {"approximate": "tanh"}, r(3, 4)),
    layer("Threshold", [0.1, 20.0], {}, r(3, 4)),
    layer("Softplus", [2.0], {}, r(3, 4)),
]
for name in (
    "ReLU ReLU6 Sigmoid Tanh LeakyReLU ELU CELU SELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Hardshrink "
    "Softshrink Tanhshrink Softsign LogSigmoid GLU"
).split():
    LAYERS.append(layer(name, [], {}, r(3, 4) * 3))

classes, scores = torch.tensor([1, 0, 3]), r(3, 4)
zero_one = torch.rand(3, 4)
signs = torch.tensor([1.0, -1.0, 1.0])
LOSSES = []
for name, kwargs, inputs in [
    ("MSELoss", {}, [r(3, 4), r(3, 4)]),
    ("L1Loss", {"reduction": "sum"}, [r(3, 4), r(3, 4)]),
    ("SmoothL1Loss", {"beta": 0.5}, [r(3, 4), r(3, 4)]),
    ("HuberLoss", {"delta": 0.7, "reduction": "none"}, [r(3, 4), r(3, 4)]),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, [scores, classes]),
    ("CrossEntropyLoss", {"ignore_index": 0, "reduction": "sum"}, [scores, classes]),
    ("CrossEntropyLoss", {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}, [scores, classes]),
    ("CrossEntropyLoss", {}, [scores, scores.softmax(1)]),
    ("NLLLoss", {}, [scores.log_softmax(1), classes]),
    ("BCELoss", {}, [zero_one, (zero_one > 0.5).float()]),
    ("BCEWithLogitsLoss", {"pos_weight": torch.tensor([1.0, 2.0, 3.0, 4.0])}, [scores, (zero_one > 0.5).float()]),
    ("KLDivLoss", {"reduction": "batchmean"}, [scores.log_softmax(1), zero_one.softmax(1)]),
    ("HingeEmbeddingLoss", {"margin": 0.8}, [r(3), signs]),
    ("CosineEmbeddingLoss", {"margin": 0.2}, [r(3, 4), r(3, 4), signs]),
]:
    LOSSES.append(loss_of(name, kwargs, inputs))

CTC = []
for kwargs, shape, targets, input_lengths, target_lengths in [
    ({}, (12, 3, 5), [[1, 2, 2, 3], [4, 4, 1, 0], [2, 0, 0, 0]], [12, 10, 7], [4, 3, 1]),
    ({"reduction": "none", "blank": 4}, (9, 2, 5), [[1, 0, 0], [2, 3, 0]], [9, 5], [3, 0]),
    ({"reduction": "sum"}, (8, 2, 4), [1, 2, 3, 3, 1], [8, 8], [2, 3]),
    ({"reduction": "none", "zero_infinity": True}, (4, 2, 4), [[1, 1, 1], [1, 2, 3]], [4, 4], [3, 3]),
    ({}, (6, 4), [1, 3], [6], [2]),
]:
    scores, target = r(*shape).requires_grad_(), torch.tensor(targets)
    loss = nn.CTCLoss(**kwargs)(
        scores.log_softmax(-1), target, torch.tensor(input_lengths), torch.tensor(target_lengths)
    )
    loss.sum().backward()
    CTC.append(
        {
            "kwargs": kwargs,
            "inputs": lists([scores.detach(), target]),
            "lengths": [input_lengths, target_lengths],
            "loss": lists(loss),
            "grad": lists(scores.grad),
        }
    )

OPTIMIZERS = []
for name, kwargs in [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {"lr": 0.05}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {}),
    ("RAdam", {"lr": 0.05}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
]:
    start = torch.tensor([1.0, -2.0, 0.5])
    w = nn.Parameter(start.clone())
    optimizer = getattr(torch.optim, name)([w], **kwargs)
    path, state, groups = [], None, None
    for step in range(8):
        optimizer.zero_grad()
        ((w**4).sum() + (w * torch.tensor([1.0, 2.0, 3.0]) * (step - 3)).sum()).backward()
        optimizer.step()
        path.append(w.tolist())
        if step == 3:
            saved = optimizer.state_dict()
            state = {str(k): {n: lists(v) for n, v in values.items()} for k, values in saved["state"].items()}
            groups = saved["param_groups"]
            groups = json.loads(json.dumps(groups))
    OPTIMIZERS.append(
        {"name": name, "kwargs": kwargs, "start": start.tolist(), "path": path, "state": state, "groups": groups}
    )

schedules = torch.optim.lr_scheduler
SCHEDULES = []
for name, kwargs in [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.8}),
    ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.05}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 4}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 20}),
    ("OneCycleLR", {"max_lr": 1.0, "epochs": 4, "steps_per_epoch": 5, "three_phase": True, "anneal_strategy": "linear"}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4, momentum=0.9)
    schedule = getattr(schedules, name)(optimizer, **kwargs)
    rates, momenta = [], []
    for _ in range(19):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        schedule.step()
    SCHEDULES.append({"name": name, "kwargs": kwargs, "rates": rates, "momenta": momenta})
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
parts = [schedules.LinearLR(optimizer, 0.1, total_iters=3), schedules.ExponentialLR(optimizer, 0.9)]
schedule, rates = schedules.SequentialLR(optimizer, parts, [4]), []
for _ in range(10):
    rates.append(optimizer.param_groups[0]["lr"])
    optimizer.step()
    schedule.step()
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
schedule, plateau = schedules.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5), []
results = [3.0, 2.0, 2.0, 2.5, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]
for result in results:
    schedule.step(result)
    plateau.append(optimizer.param_groups[0]["lr"])

nan, inf = float("nan"), float("inf")
odd = torch.tensor([[3.0, nan, 1.0, 2.0], [4.0, 4.0, -1.0, 0.5], [nan, nan, nan, nan]])
METHODS = []
for name, x, args, kwargs in [
    ("median", r(4, 5), [], {}),
    ("median", r(6), [], {}),
    ("median", r(3, 4), [1], {"keepdim": True}),
    ("median", odd, [1], {}),
    ("nanmedian", odd[:2], [1], {}),
    ("nanmedian", odd, [], {}),
    ("kthvalue", r(3, 5), [2], {"dim": 1}),
    ("quantile", r(3, 6), [0.3], {"dim": 1}),
    ("quantile", r(7), [torch.tensor([0.0, 0.25, 0.9, 1.0])], {}),
    ("quantile", r(4, 2), [0.4], {"dim": 0, "keepdim": True, "interpolation": "nearest"}),
    ("quantile", odd, [0.5], {"dim": 1}),
    ("aminmax", r(3, 4), [], {"dim": 0}),
    ("bincount", torch.tensor([1, 3, 1, 0]), [], {"minlength": 6}),
    ("bincount", torch.tensor([1, 3, 1]), [torch.tensor([0.5, 2.0, 0.25])], {}),
    ("histc", r(50), [], {"bins": 7, "min": -1, "max": 1.5}),
    ("histc", r(9), [], {"bins": 4}),
    ("scatter_add", r(3, 4), [1, torch.tensor([[0, 0], [3, 1], [2, 2]]), r(3, 2)], {}),
    ("index_copy", r(3, 4), [1, torch.tensor([2, 0]), r(3, 2)], {}),
    ("index_fill", r(3, 4), [0, torch.tensor([2, 0]), 7.0], {}),
    ("index_put", r(3, 4), [[torch.tensor([0, 2, 0]), torch.tensor([1, 3, 1])], r(3)], {"accumulate": True}),
    ("index_put", r(3, 4, 2), [[torch.tensor([[0], [-1]]), torch.tensor([1, 3])], r(2, 2, 2)], {}),
    ("masked_scatter", r(3, 4), [torch.tensor([True, False, True, True]), r(9)], {}),
    ("addmm", r(2, 4), [r(2, 3), r(3, 4)], {"beta": 0.5, "alpha": 2.0}),
    ("addmv", r(2), [r(2, 3), r(3)], {}),
    ("baddbmm", r(2, 2, 4), [r(2, 2, 3), r(2, 3, 4)], {"alpha": 3.0}),
    ("addcmul", r(2, 3), [r(2, 3), r(3)], {"value": 0.5}),
    ("addcdiv", r(2, 3), [r(2, 3), r(3)], {"value": 0.5}),
    ("lerp", r(2, 3), [r(2, 3), 0.25], {}),
    ("mv", r(2, 3), [r(3)], {}),
    ("inner", r(2, 3), [r(4, 3)], {}),
    ("inner", r(3), [r(3)], {}),
    ("ger", r(2), [r(3)], {}),
    ("dist", r(2, 3), [r(2, 3)], {}),
    ("fmod", r(7) * 5, [1.5], {}),
    ("frac", r(7) * 5, [], {}),
    ("exp2", r(7), [], {}),
    ("clamp_min", r(7), [0.3], {}),
    ("clamp_max", r(7), [0.3], {}),
    ("nan_to_num", torch.tensor([1.0, nan, inf, -inf]), [], {}),
    ("nan_to_num", torch.tensor([1.0, nan, inf, -inf]), [1.0, 2.0, 3.0], {}),
    ("diagonal", r(3, 5), [1], {}),
    ("diagonal", r(2, 4, 3), [-1, 1, 2], {}),
    ("diag_embed", r(2, 3), [], {}),
    ("diag_embed", r(2, 3), [-1, 0, 2], {}),
    ("fliplr", r(2, 3), [], {}),
    ("flipud", r(2, 3), [], {}),
    ("std_mean", r(3, 4), [1], {}),
    ("var_mean", r(3, 4), [], {"correction": 0}),
    ("cdist", r(3, 4), [r(2, 4)], {}),
    ("cdist", r(2, 3, 4), [r(2, 2, 4), 1.0], {}),
    ("cdist", torch.ones(2, 3), [torch.ones(2, 3) * torch.tensor([[1.0], [2.0]]), 3.0], {}),
]:
    METHODS.append(method(name, x, args, kwargs))

# Later cases restart from this seed, so that adding cases does not change the numbers above.
torch.manual_seed(1)
bags, starts = torch.tensor([0, 1, 4, 3, 2, 2, 1]), torch.tensor([0, 3, 3, 5])
rows = torch.tensor([[0, 1, 4], [1, 2, 3]])
LAYERS += [
    layer("ReflectionPad1d", [[2, 1]], {}, r(2, 2, 4)),
    layer("ReflectionPad2d", [[1, 2, 0, 1]], {}, r(1, 2, 3, 4)),
    layer("ReflectionPad3d", [1], {}, r(1, 1, 3, 2, 3)),
    layer("ReplicationPad1d", [[0, 5]], {}, r(2, 2, 4)),
    layer("ReplicationPad2d", [2], {}, r(1, 2, 3, 1)),
    layer("ReplicationPad3d", [[1, 0, 2, 1, 0, 3]], {}, r(1, 1, 2, 2, 3)),
    layer("CircularPad1d", [[4, 1]], {}, r(2, 2, 4)),
    layer("CircularPad2d", [[1, 2, 0, 3]], {}, r(1, 2, 3, 4)),
    layer("CircularPad3d", [1], {}, r(1, 1, 2, 2, 3)),
    layer("ConstantPad1d", [2, 0.5], {}, r(2, 2, 4)),
    layer("ConstantPad2d", [[1, 0, 2, 0], 3.5], {}, r(2, 2, 3)),
    layer("ConstantPad3d", [1, -1.0], {}, r(1, 1, 2, 2, 1)),
    layer("ZeroPad1d", [[0, 2]], {}, r(2, 3)),
    layer("ZeroPad2d", [1], {}, r(1, 2, 2, 2)),
    layer("ZeroPad3d", [[1, 0, 0, 1, 2, 0]], {}, r(1, 1, 2, 2, 2)),
    layer("Conv1d", [2, 3, 3], {"padding": 2, "padding_mode": "circular"}, r(2, 2, 5)),
    layer("Conv2d", [2, 3, [4, 3]], {"padding": "same", "padding_mode": "reflect"}, r(1, 2, 5, 6)),
    layer("Conv3d", [1, 2, 3], {"padding": [1, 0, 2], "padding_mode": "replicate"}, r(1, 1, 3, 3, 3)),
    layer("Unfold", [[2, 3]], {"dilation": [2, 1], "padding": [0, 1], "stride": [1, 2]}, r(2, 2, 5, 6)),
    layer("Unfold", [2], {"stride": 2}, r(3, 4, 4)),
    layer("Fold", [[5, 6], [2, 3]], {"dilation": [2, 1], "padding": [0, 1], "stride": [1, 2]}, r(2, 12, 9)),
    layer("Fold", [4, 2], {}, r(8, 9)),
    layer("EmbeddingBag", [5, 3], {"mode": "sum"}, rows),
    layer("EmbeddingBag", [5, 3], {"padding_idx": 1}, rows),
    layer("EmbeddingBag", [5, 3], {"mode": "max"}, rows),
    layer("EmbeddingBag", [5, 3], {"mode": "sum", "padding_idx": -3}, bags, starts),
    layer("EmbeddingBag", [5, 3], {}, bags, starts),
    layer("EmbeddingBag", [5, 3], {"mode": "max"}, bags, starts),
    layer("EmbeddingBag", [5, 3], {"include_last_offset": True}, bags, torch.tensor([0, 2, 7])),
    layer("PairwiseDistance", [], {}, r(3, 4), r(3, 4)),
    layer("PairwiseDistance", [1.0], {"keepdim": True}, r(3, 4), r(3, 4)),
]
several = torch.tensor([[2, 0, -1, 1], [3, -1, 0, 2], [-1, 1, 2, 3]])
counts = torch.tensor([[0.0, 1.0, 4.0], [2.0, 0.0, 7.0]])
LOSSES += [
    loss_of(*case)
    for case in [
        ("MarginRankingLoss", {"margin": 0.3}, [r(3), r(3), signs]),
        ("MultiMarginLoss", {}, [r(3, 4), classes]),
        ("MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": torch.rand(4), "reduction": "none"}, [r(3, 4), classes]),
        ("MultiMarginLoss", {"reduction": "sum"}, [r(4), torch.tensor(2)]),
        ("MultiLabelMarginLoss", {}, [r(3, 4), several]),
        ("MultiLabelMarginLoss", {"reduction": "none"}, [r(4), several[0]]),
        ("SoftMarginLoss", {}, [r(3) * 5, signs]),
        ("MultiLabelSoftMarginLoss", {}, [r(3, 4), (zero_one > 0.5).float()]),
        ("MultiLabelSoftMarginLoss", {"weight": torch.rand(4), "reduction": "none"}, [r(3, 4), zero_one]),
        ("TripletMarginLoss", {}, [r(3, 4), r(3, 4), r(3, 4)]),
        ("TripletMarginLoss", {"p": 1.0, "swap": True, "margin": 2.0, "reduction": "sum"}, [r(3, 4), r(3, 4), r(3, 4)]),
        ("TripletMarginWithDistanceLoss", {"margin": 0.5, "swap": True}, [r(3, 4), r(3, 4), r(3, 4)]),
        ("PoissonNLLLoss", {"full": True}, [r(2, 3), counts]),
        ("PoissonNLLLoss", {"log_input": False, "reduction": "sum"}, [torch.rand(2, 3) + 0.5, counts]),
        ("GaussianNLLLoss", {"full": True}, [r(3, 4), r(3, 4), torch.rand(3, 4) + 0.2]),
        ("GaussianNLLLoss", {"eps": 0.5, "reduction": "none"}, [r(3, 4), r(3, 4), torch.rand(3, 1)]),
    ]
]
often = torch.tensor([[1.0, 2.0, 2.0, 3.0, 1.0], [5.0, 5.0, 4.0, 4.0, 4.0]])
along = torch.tensor([[0, 0, 2], [3, 1, 3]])
METHODS += [
    method(*case)
    for case in [
        ("cummax", r(3, 6), [1], {}),
        ("cummax", odd, [1], {}),
        ("cummax", torch.tensor([3, 1, 3, 7, 7]), [-1], {}),
        ("cummin", r(3, 4), [0], {}),
        ("cummin", odd, [1], {}),
        ("logcumsumexp", r(3, 6) * 10, [1], {}),
        ("logcumsumexp", torch.tensor([-1000.0, 0.0, 80.0, -inf, 200.0]), [0], {}),
        ("mode", often, [], {}),
        ("mode", often, [0], {"keepdim": True}),
        ("mode", torch.tensor([4, 2, 4, 2, 9]), [], {}),
        ("scatter_reduce", r(3, 4), [1, along, r(2, 3), "sum"], {}),
        ("scatter_reduce", r(3, 4), [1, along, r(2, 3), "prod"], {"include_self": False}),
        ("scatter_reduce", r(3, 4), [1, along, r(2, 3), "mean"], {}),
        ("scatter_reduce", r(3, 4), [1, along, r(2, 3), "mean"], {"include_self": False}),
        ("scatter_reduce", r(4, 3), [0, along, r(2, 3), "amax"], {}),
        ("scatter_reduce", r(4, 3), [0, along, r(2, 3), "amin"], {"include_self": False}),
        ("scatter_reduce", torch.tensor([7, -8, 9]), [0, torch.tensor([0, 1, 1]), torch.tensor([2, 3, 1]), "mean"], {}),
        ("topk", odd[:1], [2, 1], {}),
        ("topk", odd[:1], [4, 1, False], {}),
        ("sort", odd[:1], [], {"dim": 1, "descending": True}),
    ]
]

target = pathlib.Path(__file__).parent / "golden" / "nn.json"
target.parent.mkdir(exist_ok=True)


def short(value):
    """Rounds numbers to the precision of float32."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return [short(each) for each in value] if isinstance(value, (list, tuple)) else value


content = {
    "torch": torch.__version__,
    "layers": LAYERS,
    "losses": LOSSES,
    "ctc": CTC,
    "methods": METHODS,
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
    "sequential": rates,
    "plateau": {"results": results, "rates": plateau},
}
target.write_text(json.dumps(short(content)) + "\n")
