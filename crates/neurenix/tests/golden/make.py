"""Writes the files of this folder, which tests/files.rs reads: what NumPy, ml_dtypes and safetensors themselves write.

Needs: pip install numpy ml_dtypes safetensors
"""

import pathlib

import ml_dtypes
import numpy as np
import safetensors.numpy

folder = pathlib.Path(__file__).parent
dtypes = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()
arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in dtypes}
arrays["bfloat16"] = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
safetensors.numpy.save_file(arrays, folder / "numpy.safetensors", metadata={"format": "np"})
np.savez(folder / "stored.npz", **arrays)
foreign = {name + "_big": array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items() if name in dtypes}
foreign["fortran"] = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
foreign["scalar"] = np.float32(2.5)
foreign["empty"] = np.zeros((0, 3))
np.savez_compressed(folder / "compressed.npz", **foreign)
