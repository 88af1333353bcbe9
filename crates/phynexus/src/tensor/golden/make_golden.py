"""Writes golden.txt: what NumPy, SciPy and PyTorch say to the cases of cases.rs.

Run it with a Python that has the three: `python make_golden.py`. One line a case: name, dtype, shape, values.
Floating-point results are computed in float64 from inputs that are exact in float16.
"""

import pathlib

import numpy as np
import scipy.special
import torch

LINES = []


def ramp(shape, dtype="f8", seed=0):
    """The inputs: multiples of 1/16 between -3.125 and 3.125, or whole numbers between -50 and 50."""
    count = int(np.prod(shape)) if shape else 1
    whole = (np.arange(count) * 37 + seed * 11) % 101 - 50
    values = whole / 16 if dtype.startswith("f") else np.abs(whole) if dtype.startswith("u") else whole
    return values.astype(dtype).reshape(shape)


def case(name, dtype, value):
    array = np.asarray(value)
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    shape = " ".join(str(d) for d in array.shape)
    values = " ".join(repr(v) for v in array.ravel().tolist())
    LINES.append(f"{name}|{dtype}|{shape}|{values}")


x, y = ramp((3, 4)), ramp((3, 4), seed=1)
row, column = ramp((4,), seed=2), ramp((3, 1), seed=3)
cube = ramp((2, 3, 4))
ints, small = ramp((3, 4), "i1"), ramp((3, 4), "u1", 1)
flags = x > 0.5
special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5])
positive = np.abs(x) + 0.25
inside = x / 4
np.seterr(all="ignore")

# Elementwise.
for name, function, argument in [
    ("neg", np.negative, x), ("abs", np.abs, x), ("sign", np.sign, x), ("reciprocal", np.reciprocal, x + 0.03125),
    ("sqrt", np.sqrt, positive), ("rsqrt", lambda v: 1 / np.sqrt(v), positive), ("exp", np.exp, x),
    ("exp2", np.exp2, x), ("expm1", np.expm1, x), ("log", np.log, positive), ("log2", np.log2, positive),
    ("log10", np.log10, positive), ("log1p", np.log1p, positive), ("sin", np.sin, x), ("cos", np.cos, x),
    ("tan", np.tan, inside), ("asin", np.arcsin, inside), ("acos", np.arccos, inside), ("atan", np.arctan, x),
    ("sinh", np.sinh, x), ("cosh", np.cosh, x), ("tanh", np.tanh, x), ("asinh", np.arcsinh, x),
    ("acosh", np.arccosh, positive + 1), ("atanh", np.arctanh, inside), ("erf", scipy.special.erf, x),
    ("floor", np.floor, x), ("ceil", np.ceil, x), ("trunc", np.trunc, x), ("round", np.round, x * 2),
    ("square", np.square, x), ("sigmoid", scipy.special.expit, x * 8), ("relu", lambda v: np.maximum(v, 0), x),
]:
    case(name, "float32", function(argument))
for name, function in [("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)]:
    case(name, "bool", function(special))
for name, function in [("special_relu", lambda v: np.maximum(v, 0)), ("special_sign", np.sign),
                       ("special_sigmoid", scipy.special.expit), ("special_sqrt", np.sqrt)]:
    case(name, "float32", function(special))
case("special_max", "float32", np.maximum(special[:, None], special))
case("special_min", "float32", np.minimum(special[:, None], special))
case("special_less", "bool", special[:, None] < special)
case("special_not_equal", "bool", special[:, None] != special)
case("bitwise_not", "int8", ~ints)
case("logical_not", "bool", ~flags)
for name, function in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("maximum", np.maximum),
                       ("minimum", np.minimum), ("atan2", np.arctan2)]:
    case(name, "float32", function(x, y))
    case(f"{name}_broadcast", "float32", function(row, column))
case("div", "float32", x / positive)
case("floor_divide", "float32", np.floor_divide(x, y + 0.03125))
case("remainder", "float32", np.remainder(x, y + 0.03125))
# NumPy and Python differ from the array API standard where an operand is infinite.
quotients = special[:, None] / special
infinite = np.isinf(special[:, None]) | np.isinf(special)
case("special_floor_divide", "float32", np.where(infinite, quotients, np.floor_divide(special[:, None], special)))
case("special_remainder", "float32", np.remainder(special[:, None], special))
case("pow", "float32", positive**x)
for name, function in [("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal),
                       ("eq", np.equal), ("ne", np.not_equal)]:
    case(name, "bool", function(ints, small))
case("int_div", "float32", ints / (small + 1.0))
case("int_add", "int16", ints.astype("i2") + small)
case("int_wrap", "int8", ints * ints)
case("int_floor_divide", "int16", np.floor_divide(ints.astype("i2"), small + 1))
case("int_remainder", "int16", np.remainder(ints.astype("i2"), small + 1))
case("int_remainder_scalar", "int8", np.remainder(ints, -7))
case("int_pow", "int32", ints.astype("i4") ** 3)
case("and", "int8", ints & 21)
case("or", "int8", ints | 21)
case("xor", "int8", ints ^ 21)
case("shift_left", "int8", np.left_shift(ints, 2))
case("shift_right", "int8", np.right_shift(ints, 2))
case("shift_right_all", "int8", np.where(ints < 0, -1, 0))
case("logical_and", "bool", np.logical_and(ints, small))
case("logical_xor", "bool", np.logical_xor(ints, small))
case("scalar_left", "float32", 2 - x)
case("scalar_chain", "float32", (x * 2 + 1) / 3)
case("where", "float32", np.where(flags, x, row))
case("clip", "float32", np.clip(x, column, 1.5 + np.zeros(4)))
case("clamp", "int8", np.clip(ints, -9, 12))
case("cast_truncates", "int32", (x * 8).astype("i4"))
case("cast_to_bool", "bool", x != 0)
case("bitcast", "int32", x.astype("f4").view("i4"))

# Movement.
case("permute", "float32", cube.transpose(2, 0, 1))
case("transpose", "float32", cube.swapaxes(0, -1))
case("move_axis", "float32", np.moveaxis(cube, 0, 2))
case("permute_reshape", "float32", cube.transpose(2, 0, 1).reshape(6, 4))
case("expand", "float32", np.broadcast_to(column, (2, 3, 4)))
case("pad", "float32", np.pad(x, ((1, 0), (2, 3)), constant_values=7))
case("narrow", "float32", cube[:, :, 1:3])
case("slice", "float32", cube[:, ::-1, 3:0:-2])
case("flip", "float32", np.flip(cube, (0, 2)))
case("flip_all", "float32", np.flip(cube))
case("cat", "float32", np.concatenate([x, y, x[:, :1]], 1))
case("cat_promotes", "float32", np.concatenate([ints, x], 0))
case("stack", "float32", np.stack([x, y], 1))
case("split_last", "float32", x[:, 3:])
case("roll", "float32", np.roll(cube, (1, -5), (0, 2)))
case("roll_flat", "float32", np.roll(cube, -3))
case("tile", "float32", np.tile(x, (2, 1, 3)))
case("tile_short", "float32", np.tile(cube, (2,)))
case("repeat", "float32", torch.tensor(x).repeat(2, 2).numpy())
case("repeat_interleave", "float32", np.repeat(x, 3, 1))

# Reductions.
case("sum", "float32", cube.sum((0, 2)))
case("sum_keepdim", "float32", cube.sum(1, keepdims=True))
case("sum_all", "float32", cube.sum())
case("sum_empty", "float32", np.zeros((3, 0)).sum(1))
case("sum_bool", "int64", flags.sum(0))
case("sum_unsigned", "uint64", small.sum(1, dtype="u8"))
case("prod", "float32", x.prod(0))
case("prod_int", "int64", ints.astype("i8").prod(1))
case("mean", "float32", cube.mean((1, 2)))
case("mean_int", "float32", ints.mean(1))
case("var", "float32", cube.var((0, 1), ddof=1))
case("var_population", "float32", cube.var())
case("std", "float32", x.std(1, ddof=1, keepdims=True))
case("max", "float32", cube.max(2))
case("min", "int8", ints.min(0))
case("max_nan", "float32", np.max(special))
case("argmax", "int64", cube.argmax(1))
case("argmin_all", "int64", cube.argmin())
case("argmax_ties", "int64", np.argmax(np.floor(x / 2), 1))
case("all", "bool", flags.all(1))
case("any", "bool", flags.any(0))
case("logsumexp", "float32", scipy.special.logsumexp(cube * 64, axis=(0, 2)))
case("logsumexp_infinite", "float32", scipy.special.logsumexp([[-np.inf, -np.inf], [np.inf, 1.0]], axis=1))
case("cumsum", "float32", x.cumsum(0))
case("cumsum_int", "int64", ints.cumsum(1, dtype="i8"))
case("cumprod", "float32", x.cumprod(1))
steps = torch.tensor(np.append(np.floor(x / 2).reshape(-1), [np.nan, 9.0]))
for name, function in [("cummax", torch.cummax), ("cummin", torch.cummin)]:
    case(name, "float32", function(steps, 0).values.numpy())
    case(f"{name}_indices", "int64", function(steps, 0).indices.numpy())
case("logcumsumexp", "float32", torch.logcumsumexp(torch.tensor(cube * 64), 2).numpy())
case("logcumsumexp_infinite", "float32", torch.logcumsumexp(torch.tensor([-np.inf, -np.inf, np.inf, 1.0]), 0).numpy())
for name, p in [("norm_1", 1), ("norm_2", 2), ("norm_3", 3), ("norm_0", 0), ("norm_inf", np.inf), ("norm_ninf", -np.inf)]:
    case(name, "float32", torch.linalg.vector_norm(torch.tensor(x), p, dim=1).numpy())
case("frobenius", "float32", np.linalg.norm(cube, axis=(1, 2)))

# Products.
case("matmul", "float32", x @ y.T)
case("matmul_vector", "float32", x @ row)
case("matmul_row", "float32", row @ y.T)
case("matmul_vectors", "float32", row @ row)
case("matmul_folded", "float32", cube @ y.T)
case("matmul_batches", "float32", ramp((2, 1, 3, 4)) @ ramp((5, 4, 2), seed=4))
case("matmul_left_matrix", "float32", x @ ramp((2, 4, 5), seed=4))
case("matmul_int", "int32", ints.astype("i4") @ ints.astype("i4").T)
case("dot_i32", "int32", ints.astype("i4") @ ints.astype("i4").T)
square, wide = ramp((3, 3)), ramp((2, 3, 5), seed=5)
for name, equation, operands in [
    ("einsum_matmul", "ij,kj->ik", (x, y)), ("einsum_trace", "ii", (square,)), ("einsum_diagonal", "ii->i", (square,)),
    ("einsum_transpose", "ba", (x,)), ("einsum_sum", "ij->", (x,)), ("einsum_outer", "i,j", (row, column[:, 0])),
    ("einsum_batch", "bij,bjk->bik", (cube, ramp((2, 4, 5), seed=4))), ("einsum_hadamard", "ij,ij->ij", (x, y)),
    ("einsum_ellipsis", "...ij,...jk->...ik", (ramp((2, 1, 3, 4)), ramp((5, 4, 2), seed=4))),
    ("einsum_ellipsis_implicit", "i...j,j", (cube, row)), ("einsum_ellipsis_first", "k...->...k", (cube,)),
    ("einsum_three", "ij,bjk,bkl->il", (x, ramp((2, 4, 3)), wide)), ("einsum_bilinear", "bi,ijk,bk->bj", (
        x, ramp((4, 2, 3), seed=6), square)), ("einsum_repeated", "iij,jk->k", (ramp((3, 3, 4)), ramp((4, 2)))),
    ("einsum_broadcast_one", "ij,ij->i", (x, column)), ("einsum_sum_one_side", "ij,k->k", (x, row)),
]:
    case(name, "float32", np.einsum(equation, *operands))
case("outer", "float32", np.outer(row, column[:, 0]))
case("kron", "float32", np.kron(x, y[:2, :1]))
case("cross", "float32", np.cross(ramp((4, 3)), ramp((4, 3), seed=1)))

# Indexing.
chosen, other = np.array([2, 0, -1, 2]), np.array([[1], [3]])
case("index_basic", "float32", cube[1, ::-2, None, ..., 1])
case("index_ellipsis", "float32", cube[..., -1, 1:])
case("index_tensor", "float32", cube[:, chosen])
case("index_tensors", "float32", cube[:, chosen, other])
case("index_apart", "float32", cube[np.array([0, 1, 1]), :, np.array([3, 0, -4])])
case("index_number_apart", "float32", cube[1, :, np.array([3, 0])])
case("index_number_beside", "float32", cube[:, 1, np.array([3, 0])])
case("index_zero_ellipsis", "float32", cube[np.array([0, 1]), ..., np.array([2, 0]), np.array([3, 1])])
case("index_mask", "float32", x[flags])
case("index_mask_rows", "float32", x[np.array([True, False, True])])
case("index_mask_partial", "float32", cube[1:, ramp((3, 4)) > 0])
case("index_slice_and_tensor", "float32", cube[::-1, chosen, 1:3])


def put(array, index, value):
    result = array.copy()
    result[index] = value
    return result


case("put_slice", "float32", put(cube, np.s_[:, ::2, 1:3], 9.0))
case("put_negative_step", "float32", put(cube, np.s_[1, ::-1, 3:0:-2], ramp((3, 2), seed=7)))
case("put_row", "float32", put(x, 1, row))
case("put_whole", "float32", put(x, np.s_[...], column))
case("put_tensor", "float32", put(cube, np.s_[:, [2, 0], 1:], ramp((2, 3), seed=8)))
case("put_apart", "float32", put(cube, np.s_[[0, 1], :, [3, 0]], ramp((2, 3), seed=8)))
case("put_mask", "float32", put(x, flags, 0.0))
case("put_mask_values", "float32", put(x, flags, np.arange(flags.sum()) / 2))
case("put_reversed_tensor", "float32", put(cube, np.s_[:, ::-1, [0, -1]], ramp((3, 2), seed=8)))
added = x.copy()
np.add.at(added, np.array([0, 2, 0]), row)
case("put_add", "float32", added)
case("take", "float32", np.take(cube, np.array([[1], [2]]), axis=1))
case("take_flat", "float32", np.take(cube, chosen))
index = np.array([[0, 2, 1, 0], [2, 2, 0, 1]])
case("gather", "float32", np.take_along_axis(x, index, 0))
case("gather_smaller", "float32", torch.gather(torch.tensor(x), 1, torch.tensor([[3, 0], [1, 1]])).numpy())
case("take_along_dim", "float32", np.take_along_axis(cube, np.array([[[-1, 0]]]), 2))
case("scatter", "float32", torch.tensor(x).scatter(0, torch.tensor(index), torch.tensor(ramp((2, 4), seed=9))).numpy())
case("scatter_add", "float32",
     torch.tensor(x).scatter_add(0, torch.tensor(index), torch.tensor(ramp((2, 4), seed=9))).numpy())
for reduce in ("prod", "amax", "amin"):
    for include_self in (True, False):
        combined = torch.tensor(x).scatter_reduce(
            0, torch.tensor(index), torch.tensor(ramp((2, 4), seed=9)), reduce, include_self=include_self)
        case(f"scatter_{reduce}" + "_alone" * (not include_self), "float32", combined.numpy())
case("index_add", "float32", torch.tensor(cube).index_add(1, torch.tensor([2, 0, 2, 2]), torch.tensor(
    ramp((2, 4, 4), seed=9))).numpy())
case("masked_fill", "float32", np.where(row > 0, -1.0, x))
case("masked_select", "float32", x[flags])
case("nonzero", "int64", np.argwhere(flags))

# Order.
case("argsort", "int64", np.argsort(np.floor(x), 1, kind="stable"))
case("sort_first_axis", "float32", np.sort(x, 0))
case("sort_descending", "float32", -np.sort(-cube, 1))
case("sort_nan", "float32", np.sort(special))
case("argsort_nan_descending", "int64", torch.sort(torch.tensor(special), descending=True, stable=True).indices.numpy())
case("topk_nan", "float32", torch.topk(torch.tensor(special), 3).values.numpy())
case("topk", "float32", torch.topk(torch.tensor(x), 2, dim=1).values.numpy())
case("topk_indices", "int64", torch.topk(torch.tensor(x), 2, dim=0, largest=False).indices.numpy())
edges = np.array([-2.0, -0.5, 0.0, 0.0, 1.0])
case("searchsorted", "int64", np.searchsorted(edges, np.array([[0.0, -3.0], [1.0, 9.0]])))
case("searchsorted_right", "int64", np.searchsorted(edges, np.array([[0.0, -3.0], [1.0, 9.0]]), side="right"))
values, inverse, counts = np.unique(np.floor(x), return_inverse=True, return_counts=True)
case("unique_values", "float32", values)
case("unique_inverse", "int64", inverse.reshape(x.shape))
case("unique_counts", "int64", counts)

# Structure and creation.
for k in (-4, -1, 0, 2, 9):
    case(f"tril_{k}", "float32", np.tril(cube, k))
    case(f"triu_{k}", "float32", np.triu(cube, k))
for k in (-2, 0, 1):
    case(f"diag_{k}", "float32", np.diag(x, k))
    case(f"diag_matrix_{k}", "float32", np.diag(row, k))
case("one_hot", "int64", np.eye(4, dtype="i8")[np.array([[1, 3], [0, 1]])])
case("meshgrid", "float32", np.meshgrid(row, column[:, 0], indexing="ij")[1])
case("trace", "float32", np.trace(x))
case("arange", "float32", np.arange(-1, 2, 0.375))
case("arange_down", "int32", np.arange(7, -6, -3))
case("arange_unsigned", "uint8", np.arange(9, 2, -2))
case("linspace", "float32", np.linspace(-1, 2, 7))
case("eye", "float32", np.eye(3, 4))

path = pathlib.Path(__file__).with_name("golden.txt")
path.write_text("".join(line + "\n" for line in LINES))
print(f"{len(LINES)} cases in {path}")
