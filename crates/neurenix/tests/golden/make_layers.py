"""Writes layers.npz: layers of PyTorch with their parameters, inputs, outputs and gradients, which tests/layers.rs reads.

Numbers are computed in float64 from parameters and inputs that float32 can hold, and stored as float32. The loss is the sum of every output
times cos(0), cos(1), ... in order. Names: `case/in/0`, `case/state/weight`, `case/out/0`, `case/grad_in/0`,
`case/grad/weight`, `case/after/running_mean` (buffers afterwards).

Needs: pip install torch numpy
"""

import pathlib
import zipfile

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
arrays = {}


def put(name, tensor):
    values = tensor.detach().numpy()
    arrays[name] = values.astype(np.float32) if values.dtype.kind == "f" else values.copy()


def case(name, module, inputs, forward=None):
    module.train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
        for buffer_name, buffer in module.named_buffers():
            if buffer_name.endswith("running_var"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
            elif buffer_name.endswith("running_mean"):
                buffer.copy_(torch.randn_like(buffer))
    for padding in [m for m in module.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None]:
        padding.weight.data[padding.padding_idx] = 0
    module.double()
    for key, value in module.state_dict().items():
        put(f"{name}/state/{key}", value)
    inputs = [x.double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    for i, x in enumerate(inputs):
        put(f"{name}/in/{i}", x)
    outputs = forward(module, *inputs) if forward else module(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((y * torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)).sum() for y in outputs)
    loss.backward()
    for i, y in enumerate(outputs):
        put(f"{name}/out/{i}", y)
    for i, x in enumerate(inputs):
        if x.is_floating_point() and x.grad is not None:
            put(f"{name}/grad_in/{i}", x.grad)
    for key, parameter in module.named_parameters():
        put(f"{name}/grad/{key}", parameter.grad)
    for key, buffer in module.named_buffers():
        put(f"{name}/after/{key}", buffer)


r = torch.randn
case("linear", nn.Linear(5, 3), [r(4, 5)])
case("linear_no_bias", nn.Linear(5, 3, bias=False), [r(2, 3, 5)])
case("conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), [r(2, 4, 11)])
case("conv2d", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), [r(2, 4, 7, 6)])
case("conv2d_plain", nn.Conv2d(3, 4, 3, padding=1, bias=False), [r(2, 3, 5, 5)])
case("conv3d", nn.Conv3d(2, 3, (2, 3, 1), stride=(1, 2, 1), padding=(1, 0, 1)), [r(1, 2, 3, 5, 2)])
case("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), [r(2, 4, 5)])
case(
    "conv_transpose2d",
    nn.ConvTranspose2d(3, 2, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(2, 1)),
    [r(2, 3, 3, 4)],
)
case("conv_transpose3d", nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False), [r(1, 2, 2, 3, 2)])
case("max_pool1d", nn.MaxPool1d(3, stride=2, padding=1), [r(2, 3, 9)])
case("max_pool2d", nn.MaxPool2d((3, 2), stride=(1, 2), dilation=(2, 1), ceil_mode=True), [r(2, 3, 7, 5)])
case("max_pool3d", nn.MaxPool3d(2), [r(1, 2, 4, 5, 4)])
case("avg_pool1d", nn.AvgPool1d(2), [r(2, 3, 7)])
case("avg_pool2d", nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), [r(2, 3, 6, 5)])
case("avg_pool3d", nn.AvgPool3d((2, 1, 2), stride=(1, 1, 2), padding=(1, 0, 0)), [r(1, 2, 3, 3, 4)])
case("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((3, 2)), [r(2, 3, 7, 5)])
case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((3, 2)), [r(2, 3, 7, 5)])


def normalise(module, first, second):
    """Two batches while training, then one more in inference."""
    outputs = [module(first), module(second)]
    module.eval()
    return (*outputs, module(first))


case("batch_norm1d", nn.BatchNorm1d(3), [r(6, 3), r(4, 3)], normalise)
case("batch_norm1d_sequence", nn.BatchNorm1d(3, momentum=0.3), [r(2, 3, 5), r(3, 3, 2)], normalise)
case("batch_norm2d", nn.BatchNorm2d(2, eps=1e-3), [r(2, 2, 3, 3), r(1, 2, 3, 4)], normalise)
case("batch_norm3d", nn.BatchNorm3d(2, affine=False), [r(2, 2, 2, 3, 2), r(1, 2, 2, 2, 2)], normalise)
case("layer_norm", nn.LayerNorm((3, 4)), [r(2, 5, 3, 4)])
case("layer_norm_plain", nn.LayerNorm(7, elementwise_affine=False, eps=1e-3), [r(4, 7)])
case("rms_norm", nn.RMSNorm(6, eps=1e-6), [r(3, 2, 6)])
case("group_norm", nn.GroupNorm(2, 6), [r(2, 6, 3, 2)])
case("embedding", nn.Embedding(7, 4), [torch.tensor([[1, 0, 6], [1, 1, 3]])])
case("embedding_padding", nn.Embedding(7, 4, padding_idx=2), [torch.tensor([[1, 2, 6], [2, 1, 3]])])


def recurrence(module, x, *states):
    output, last = module(x, states[0] if len(states) == 1 else states)
    return (output, *last) if isinstance(last, tuple) else (output, last)


for kind, states in ((nn.RNN, 1), (nn.GRU, 1), (nn.LSTM, 2)):
    name = kind.__name__.lower()
    deep = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    case(f"{name}_deep", deep, [r(2, 5, 3)] + [r(4, 2, 4) for _ in range(states)], recurrence)
    case(f"{name}_no_bias", kind(3, 4, bias=False), [r(5, 2, 3)], lambda m, x: m(x)[0])

case("attention", nn.MultiheadAttention(8, 2, batch_first=True), [r(2, 5, 8)], lambda m, x: m(x, x, x)[0])
mask = torch.zeros(3, 5, dtype=torch.float64)
mask[0, 3:] = -2.5
case(
    "attention_cross",
    nn.MultiheadAttention(8, 4, batch_first=True, bias=False),
    [r(2, 3, 8), r(2, 5, 8), r(2, 5, 8)],
    lambda m, q, k, v: m(q, k, v, attn_mask=mask)[0],
)
for norm_first in (False, True):
    for activation in ("relu", "gelu"):
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, activation, batch_first=True, norm_first=norm_first)
        case(f"encoder_{activation}_{'pre' if norm_first else 'post'}", layer, [r(2, 4, 8)])
causal = nn.Transformer.generate_square_subsequent_mask(4).double()
layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
case("encoder_causal", layer, [r(2, 4, 8)], lambda m, x: m(x, src_mask=causal, is_causal=True))

case("prelu", nn.PReLU(), [r(3, 4)])
case("prelu_channels", nn.PReLU(4), [r(2, 4, 3)])
for activation in (nn.CELU(0.7), nn.Hardtanh(-0.5, 0.8), nn.Hardshrink(0.4), nn.Softshrink(0.3), nn.Threshold(0.1, -2.0)):
    case(type(activation).__name__.lower(), activation, [r(4, 5)])
case("rnn_relu", nn.RNN(3, 4, nonlinearity="relu"), [r(5, 2, 3), r(1, 2, 4)], recurrence)
case("batch_norm1d_cumulative", nn.BatchNorm1d(3, momentum=None), [r(6, 3), r(4, 3)], normalise)
case("batch_norm1d_untracked", nn.BatchNorm1d(3, track_running_stats=False), [r(6, 3), r(4, 3)], normalise)

# True means NOT attended to. Every position may attend to some other.
hidden = torch.zeros(4, 4, dtype=torch.bool)
hidden[0, 1] = hidden[2, 3] = hidden[3, 0] = True
padding = torch.zeros(2, 4, dtype=torch.bool)
padding[0, 3] = padding[1, 2:] = True
added = torch.arange(64, dtype=torch.float64).sin().reshape(4, 4, 4)
added_padding = torch.zeros(2, 4, dtype=torch.float64).masked_fill(padding, -torch.inf)
for name, masks in {
    "hidden": dict(attn_mask=hidden),
    "padded": dict(attn_mask=hidden, key_padding_mask=padding),
    "added": dict(attn_mask=added, key_padding_mask=added_padding),
    "mixed": dict(attn_mask=added, key_padding_mask=padding),
}.items():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    case(f"attention_{name}", layer, [r(2, 4, 8)], lambda m, x: m(x, x, x, **masks)[0])
layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
case("encoder_masked", layer, [r(2, 4, 8)], lambda m, x: m(x, src_mask=hidden, src_key_padding_mask=padding))

path = pathlib.Path(__file__).parent / "layers.npz"
with zipfile.ZipFile(path, "w") as archive:
    for name, values in sorted(arrays.items()):
        member = zipfile.ZipInfo(name + ".npy")
        member.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(member, "w") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(values) if values.ndim else values)
