"""What to say about names of PyTorch that are missing here."""

from __future__ import annotations

_INSTEAD = {
    "torch.export": "torch.onnx.export writes a model",
    "torch.fx": "graphs of functions are recorded by torch.compile, and x.explain() shows the steps of a computation",
    "torch.hub": "download weights as a safetensors file, and torch.load it",
    "torch.ao": "neurenix.quantize quantises models",
    "torch.quantization": "neurenix.quantize quantises models",
    "torch.nn.quantized": "neurenix.quantize quantises models",
    "torch.nn.CrossMapLRN2d": "nn.LocalResponseNorm is similar",
    "torch.nn.functional.conv_tbc": "nn.functional.conv1d takes the dimensions in another order: x.permute(1, 2, 0)",
    "torch.sparse": "sparse tensors do not exist; nn.SparseLinear stores 2:4 sparse weights",
    "torch.nested": "pad the sequences, or pack them with nn.utils.rnn.pack_padded_sequence",
    "torch.mps": "Apple's GPUs are the devices \"metal:0\": torch.accelerator chooses the best device",
    "torch.xpu": "Intel's GPUs are devices such as \"vulkan:0\": torch.accelerator chooses the best device",
}


def message(name: str) -> str:
    """The text of the error about a missing name, such as ``torch.fx``."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        instead = _INSTEAD.get(".".join(parts[:count]))
        if instead is not None:
            return f"Neurenix has no {name}: {instead} (docs/compatibility.md)"
    return f"Neurenix has no {name} (docs/compatibility.md lists what exists)"
