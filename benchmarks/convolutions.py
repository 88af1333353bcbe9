"""Convolutions of bfloat16 images and their gradients, ours and PyTorch's (cuDNN) in alternating turns of one run.

Shapes are images x channels x height (= width), then outputs, filter and stride; the padding is half of the filter.
Both sides hold their tensors channels last. TFLOP/s are medians of three turns, each the fastest of five samples of
some 20 ms, by the host's clock. The error is the root of the mean square against PyTorch's result in float32, relative
to that.

Usage: python benchmarks/convolutions.py [DEVICE]
"""

import torch
from timing import device_argument, turns

import neurenix as nx

SHAPES = [
    (64, 64, 56, 64, 3, 1),
    (64, 256, 14, 256, 3, 1),
    (64, 512, 7, 512, 3, 1),
    (256, 128, 28, 128, 3, 1),
    (64, 256, 56, 64, 1, 1),
    (64, 64, 56, 256, 1, 1),
    (64, 128, 56, 128, 3, 2),
    (64, 3, 224, 64, 7, 2),
]


def measure(device, images, channels, size, outputs, kernel, stride):
    last = {"device": "cuda", "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    shapes = [(images, channels, size, size), (outputs, channels, kernel, kernel), (images, outputs, out, out)]
    x, w, g = (torch.randn(shape, device="cuda").to(**last) for shape in shapes)
    mine = [nx.from_dlpack(each.permute(0, 2, 3, 1)).to(device).permute(0, 3, 1, 2) for each in (x, w, g)]
    settings = [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1

    def theirs(*mask):
        return torch.ops.aten.convolution_backward(g, x, w, None, *settings, mask)

    image, filter, gradient = mine

    def convolve():
        return nx.nn.functional.conv2d(image, filter, stride=stride, padding=kernel // 2)

    def gradient_of(leaf):
        leaf.grad = None
        convolve().backward(gradient)
        return leaf.grad

    def detached():
        with nx.no_grad():
            return convolve().evaluate()

    passes = [
        ("forward", lambda: torch.conv2d(x, w, None, stride, kernel // 2), detached),
        (
            "input gradient",
            lambda: theirs(True, False, False)[0],
            lambda: gradient_of(image).evaluate(),
        ),
        ("filter gradient", lambda: theirs(False, True, False)[1], lambda: gradient_of(filter).evaluate()),
    ]
    operations = 2 * images * outputs * out * out * channels * kernel * kernel
    for name, run, own in passes:
        if channels == 3 and name == "input gradient":
            continue
        image.requires_grad_(name == "input gradient")
        filter.requires_grad_(name == "filter gradient")
        expected, actual = run().float(), torch.from_dlpack(own()).float()
        error = ((actual - expected).norm() / expected.norm()).item()
        times = turns((run, torch.cuda.synchronize), (own, nx.synchronize))
        rates = [operations / each / 1e12 for each in times]
        row = f"| {images} x {channels} x {size}, {outputs}, {kernel}, {stride} | {name} | {rates[0]:.0f} "
        print(f"{row}| {rates[1]:.0f} | {rates[1] / rates[0]:.2f} | {error:.1e} |", flush=True)


def main():
    device = device_argument()
    torch.backends.cudnn.benchmark = True
    print(f"PyTorch {torch.__version__}, {device}\n")
    print("| convolution | pass | PyTorch, TFLOP/s | ours | ours / PyTorch | difference |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    for shape in SHAPES:
        measure(device, *shape)


if __name__ == "__main__":
    main()
