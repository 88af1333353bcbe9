"""What Python's tensors have, Rust's have: the names of both, read from the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "neurenix"
ENGINE = ROOT / "crates" / "phynexus" / "src"
MODULES = ("_creation", "_elementwise", "_functions", "_manipulation", "_methods", "_reductions", "_special", "linalg", "random")

#: Python's name, and the Rust name of the same function.
NAMES = {
    # NumPy's and PyTorch's other names.
    **{f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    **{"absolute": "abs", "astype": "to_dtype", "concat": "cat", "concatenate": "cat", "conj": "clone", "divide": "div"},
    **{"expand_as": "expand", "expand_dims": "unsqueeze", "ger": "outer", "inverse": "inv", "matrix_transpose": "transpose"},
    **{"moveaxis": "move_axis", "movedim": "move_axis", "multiply": "mul", "negative": "neg", "permute_dims": "permute"},
    **{"pinverse": "pinv", "positive": "clone", "real": "clone", "reshape_as": "reshape", "subtract": "sub", "swapaxes": "transpose"},
    **{"swapdims": "transpose", "take_along_axis": "take_along_dim", "trapz": "trapezoid", "view": "reshape", "view_as": "reshape"},
    **{"cumulative_prod": "cumprod", "cumulative_sum": "cumsum", "mH": "transpose", "mT": "transpose", "H": "t", "T": "t"},
    # Rust's own conventions.
    **{"bitwise_and": "and", "bitwise_invert": "bitwise_not", "bitwise_left_shift": "shift_left", "bitwise_or": "or"},
    **{"bitwise_right_shift": "shift_right", "bitwise_xor": "xor", "dim": "rank", "ndim": "rank", "nelement": "len", "numel": "len"},
    **{"equal": "eq", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "where": "where_"},
    **{"amax": "max", "amin": "min", "size": "shape", "tensor": "from_slice", "to": "to_dtype", "tolist": "to_vec"},
    **{"tobytes": "to_bytes", "type": "to_dtype", "type_as": "to_dtype", "asarray": "from_slice", "as_tensor": "from_slice"},
    **dict.fromkeys("bfloat16 bool double float half int long".split(), "to_dtype"),
    **dict.fromkeys(("cpu", "cuda"), "to_device"),
    **{"empty": "zeros", "empty_like": "zeros_like", "new_empty": "zeros", "new_full": "full", "new_ones": "ones"},
    **{"new_tensor": "from_slice", "new_zeros": "zeros", "uniform": "rand", "normal": "randn", "register_hook": "on_gradient"},
    **{"unique_all": "unique", "unique_counts": "unique", "unique_inverse": "unique", "unique_values": "unique"},
    **{"broadcast_arrays": "broadcast_to", "broadcast_tensors": "broadcast_to", "rand_like": "rand", "randn_like": "randn"},
    # One call with arguments.
    **dict.fromkeys(("column_stack", "dstack", "hstack", "vstack"), "cat"),
    **dict.fromkeys(("addmv", "baddbmm"), "addmm"),
    **dict.fromkeys(("bmm", "mm", "mv"), "matmul"),
    **dict.fromkeys(("clamp_max", "clamp_min"), "clamp"),
    **dict.fromkeys(("fliplr", "flipud"), "flip"),
    **{"aminmax": "min", "bucketize": "searchsorted", "ravel": "flatten", "select": "index", "std_mean": "std", "var_mean": "var"},
    **{"unbind": "split", "unstack": "split", "tensor_split": "split_sizes", "vector_norm": "norm", "permutation": "randperm"},
}

_DATA = "a question about dtypes, which Rust's DType answers"
#: Functions that Rust lacks, and why.
EXCEPTIONS = {
    **dict.fromkeys("can_cast finfo iinfo is_floating_point isdtype promote_types result_type element_size itemsize nbytes".split(), _DATA),
    **dict.fromkeys(("get_default_dtype", "set_default_dtype"), "Rust has no default dtype: every call names one"),
    **dict.fromkeys(("from_dlpack", "from_numpy", "numpy"), "exchange with Python libraries"),
    **dict.fromkeys(("is_contiguous", "is_cuda", "is_tensor", "data"), "questions about a Python object"),
}
