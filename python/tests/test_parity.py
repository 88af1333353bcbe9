"""Every tensor function of Python exists in Rust: compares the names in the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "neurenix"
ENGINE = ROOT / "crates" / "phynexus" / "src"
MODULES = "_creation _elementwise _functions _manipulation _methods _reductions _special linalg random".split()

#: The Rust name of a function, then its other names in Python: aliases from NumPy and PyTorch, and special cases of it.
RENAMED = """
abs: absolute
acos: arccos
acosh: arccosh
add_hook: register_hook
addmm: addmv baddbmm
and: bitwise_and
asin: arcsin
asinh: arcsinh
atan: arctan
atan2: arctan2
atanh: arctanh
bitwise_not: bitwise_invert
broadcast_to: broadcast_arrays broadcast_tensors
cat: column_stack concat concatenate dstack hstack vstack
clamp: clamp_max clamp_min
clone: conj positive real
cumprod: cumulative_prod
cumsum: cumulative_sum
default_dtype: get_default_dtype
div: divide
eq: equal
expand: expand_as
flatten: ravel
flip: fliplr flipud
from_slice: as_tensor asarray new_tensor tensor
full: new_full
ge: greater_equal
gt: greater
index: select
inv: inverse
le: less_equal
len: nelement numel
lt: less
manual_seed: seed
matmul: bmm mm mv
max: amax
min: amin aminmax
move_axis: moveaxis movedim
mul: multiply
ne: not_equal
neg: negative
norm: vector_norm
ones: new_ones
or: bitwise_or
outer: ger
permute: permute_dims
pinv: pinverse
rand: rand_like uniform
randn: normal randn_like
randperm: permutation
rank: dim ndim
recurrent: recurrent_layer
reshape: reshape_as view view_as
searchsorted: bucketize
shape: size
shift_left: bitwise_left_shift
shift_right: bitwise_right_shift
split: unbind unstack
split_sizes: tensor_split
std: std_mean
sub: subtract
t: H T
take_along_dim: take_along_axis
to_bytes: tobytes
to_device: cpu cuda
to_dtype: astype bfloat16 bool byte char double float half int long short to type type_as
to_vec: tolist
transpose: mH mT matrix_transpose swapaxes swapdims
trapezoid: trapz
unique: unique_all unique_counts unique_inverse unique_values
unsqueeze: expand_dims
var: var_mean
vmap: batched
where_: where
xor: bitwise_xor
zeros: empty new_empty new_empty_strided new_zeros
zeros_like: empty_like
"""
NAMES = {name: row.split(":")[0] for row in RENAMED.split("\n") for name in row.partition(":")[2].split()}

#: Functions that Rust lacks, with the reason.
EXCEPTIONS = {
    "fork_rng": "a block of Python in which the state of random numbers is put back: save and restore it",
    "initial_seed": "the first number of the state, which PyTorch's programs ask for",
    **dict.fromkeys(
        "can_cast finfo iinfo is_floating_point isdtype result_type element_size itemsize nbytes".split(),
        "a question about dtypes, which Rust's DType answers",
    ),
    **dict.fromkeys(("from_dlpack", "from_numpy", "numpy"), "exchange with Python libraries"),
    **dict.fromkeys(
        "get_device is_nonzero is_pinned is_same_size is_signed ndimension pin_memory".split(), "about Python objects"
    ),
    **dict.fromkeys(("data", "is_contiguous", "is_cuda", "is_tensor", "stride"), "about Python objects"),
    "unfold": "in the crate neurenix: ViewStep::Windows",
    **dict.fromkeys(("digits", "linear", "load_safetensors", "with_features"), "in the crate neurenix: layers, data and files"),
    **dict.fromkeys(
        ("i0", "igamma", "igammac", "logit", "mvlgamma", "polygamma"),
        "formulas with derivatives of their own, in Python's _derivative.py",
    ),
    **dict.fromkeys(
        "angle cdouble cfloat complex_factors complex_function complex_reduction conj_physical fourier imag is_complex "
        "resolve_conj".split(),
        "complex numbers, which are neurenix::complex and neurenix::fft in Rust",
    ),
    **dict.fromkeys(
        ("allclose", "array_equal", "isclose"), "for tests: float64 on the CPU, float32 elsewhere; Rust's tests read the elements"
    ),
}


def python_names() -> set[str]:
    """The public functions that return tensors, and the tensor methods; in-place methods end with an underscore."""
    names: set[str] = set()
    for part in ast.parse((PACKAGE / "_engine.pyi").read_text()).body:
        if isinstance(part, ast.ClassDef) and part.name == "Tensor":
            names |= {each.name for each in part.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(part, ast.FunctionDef) and part.returns is not None and "Tensor" in ast.unparse(part.returns):
            names.add(part.name)
    for module in MODULES:
        for part in ast.parse((PACKAGE / f"{module}.py").read_text()).body:
            if isinstance(part, ast.FunctionDef):
                names.add(part.name)
            elif isinstance(part, ast.Assign):
                # Aliases of functions, and functions that are created from others.
                found = {each.id for target in part.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                names |= {each for each in found if each.islower()}
    return {name for name in names if not name.startswith("_") and not name.endswith("_")}


def rust_names() -> set[str]:
    """The public methods of the engine's tensors and generators, including those from macros and the function tables."""
    names: set[str] = set()
    folders = ("tensor", "graph", "gradient", "schedule")
    for file in (file for folder in folders for file in (ENGINE / folder).rglob("*.rs")):
        text = file.read_text()
        names |= set(re.findall(r"pub fn (\w+)", text))
        # Rows of macros: `add, add_scalar = Add;` and `1 conv1d conv_transpose1d`.
        names |= {name for row in re.findall(r"^ +(\w+, \w+) = \w+", text, re.MULTILINE) for name in row.split(", ")}
        names |= {name for row in re.findall(r"^    [123] ([\w ]+)$", text, re.MULTILINE) for name in row.split()}
    if "#[derive(Clone)]\npub struct Tensor" in (ENGINE / "graph" / "tensor.rs").read_text():
        names.add("clone")
    tables = "".join((ENGINE / "op" / f"{name}.rs").read_text() for name in ("unary", "binary"))
    rows = re.findall(r"^ +[A-Z]\w* (\w+)(?: (\w+))? \"\w+\" \w+\(", tables, re.MULTILINE)
    composites = (ENGINE / "op" / "composite" / "mod.rs").read_text()
    names |= set(re.findall(r"^ +(?:own|in_place|full) (\w+)\(", composites, re.MULTILINE))
    return names | {name for row in rows for name in row if name}


def test_rust_has_what_python_has() -> None:
    rust = rust_names()
    missing = {name for name in python_names() if NAMES.get(name, name) not in rust} - set(EXCEPTIONS)
    assert not missing, (
        f"Rust lacks {sorted(missing)}: add a method of Tensor in crates/phynexus/src/tensor, or a row of NAMES or EXCEPTIONS"
    )


def test_the_lists_name_only_what_is_there() -> None:
    python, rust = python_names(), rust_names()
    assert not set(NAMES) - python, "NAMES of functions that Python lacks"
    assert not set(NAMES.values()) - rust, "NAMES of functions that Rust lacks"
    assert not set(NAMES) & rust, "NAMES of functions that Rust has under the same name"
    assert not set(EXCEPTIONS) - python, "EXCEPTIONS that Python lacks"
    assert not set(EXCEPTIONS) & (rust | set(NAMES)), "EXCEPTIONS that Rust has"
