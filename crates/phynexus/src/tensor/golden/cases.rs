//! The cases. Each computes what `make_golden.py` computes under the same name with NumPy, SciPy or PyTorch.

use super::{Combine, DType, Device, IndexSpec, Result, Tensor};

/// Checks the results of the lines of `golden.txt`. `values` computes a tensor's elements, or `None` if one has several
/// valid values.
pub(super) fn check<'a>(
    lines: impl Iterator<Item = &'a str>,
    device: Device,
    values: impl Fn(&Tensor) -> Result<Option<Vec<f64>>>,
) {
    let wrong = |line: &str| {
        let name = line.split('|').next().unwrap_or_default();
        match failure(line, device, &values) {
            Ok(None) => None,
            Ok(Some(text)) => Some(format!("{name}: {text}")),
            Err(error) => Some(format!("{name}: {error}")),
        }
    };
    let failures: Vec<String> = lines.filter_map(wrong).collect();
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

/// The difference between the result of a line and its expected value, if any.
fn failure(
    line: &str,
    device: Device,
    values: impl Fn(&Tensor) -> Result<Option<Vec<f64>>>,
) -> Result<Option<String>> {
    let fields: Vec<&str> = line.split('|').collect();
    let &[name, dtype, shape, expected] = fields.as_slice() else { return Ok(Some("unreadable".to_owned())) };
    let shape: Vec<usize> = shape.split_whitespace().map(|d| d.parse().unwrap()).collect();
    let expected: Vec<f64> = expected.split_whitespace().map(|v| v.parse().unwrap()).collect();
    let Some(tensor) = run(name, device)? else { return Ok(Some("no such case".to_owned())) };
    if (tensor.dtype(), tensor.shape()) != (DType::parse(dtype).unwrap(), &shape[..]) {
        return Ok(Some(format!("{tensor:?} instead of {dtype} {shape:?}")));
    }
    let Some(actual) = values(&tensor)? else {
        return Ok(Some("the result is not unique: choose other inputs".to_owned()));
    };
    let same = actual.len() == expected.len() && actual.iter().zip(&expected).all(|(&a, &e)| close(a, e));
    Ok((!same).then(|| format!("{actual:?} instead of {expected:?}")))
}

fn close(actual: f64, expected: f64) -> bool {
    let tolerance = 4e-6 * expected.abs().max(1.0);
    actual == expected || (actual.is_nan() && expected.is_nan()) || (actual - expected).abs() <= tolerance
}

/// Inputs as the script creates them: multiples of 1/16 between -3.125 and 3.125, or integers.
fn ramp(device: Device, shape: &[usize], dtype: DType, seed: usize) -> Result<Tensor> {
    let whole = (0..shape.iter().product()).map(|i: usize| ((i * 37 + seed * 11) % 101) as f32 - 50.0);
    let values: Vec<f32> = match dtype {
        _ if dtype.is_float() => whole.map(|w| w / 16.0).collect(),
        DType::U8 => whole.map(f32::abs).collect(),
        _ => whole.collect(),
    };
    Tensor::from_slice(&values, shape, device)?.to_dtype(dtype)
}

/// The tensors that most cases share.
struct Inputs {
    device: Device,
    x: Tensor,
    y: Tensor,
    row: Tensor,
    column: Tensor,
    cube: Tensor,
    ints: Tensor,
    small: Tensor,
    flags: Tensor,
    special: Tensor,
    positive: Tensor,
    inside: Tensor,
}

impl Inputs {
    fn new(device: Device) -> Result<Inputs> {
        let float = |shape: &[usize], seed| ramp(device, shape, DType::F32, seed);
        let x = float(&[3, 4], 0)?;
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.5];
        // A mask that is read immediately must be data, since the null device computes nothing.
        let above: Vec<bool> = (0..12).map(|i| (i * 37 % 101) as f32 - 50.0 > 8.0).collect();
        Ok(Inputs {
            device,
            y: float(&[3, 4], 1)?,
            row: float(&[4], 2)?,
            column: float(&[3, 1], 3)?,
            cube: float(&[2, 3, 4], 0)?,
            ints: ramp(device, &[3, 4], DType::I8, 0)?,
            small: ramp(device, &[3, 4], DType::U8, 1)?,
            flags: Tensor::from_slice(&above, &[3, 4], device)?,
            special: Tensor::from_slice(&special, &[8], device)?,
            positive: x.abs()?.add_scalar(0.25)?,
            inside: x.div_scalar(4)?,
            x,
        })
    }

    fn float(&self, shape: &[usize], seed: usize) -> Result<Tensor> {
        ramp(self.device, shape, DType::F32, seed)
    }

    fn indices(&self, values: &[i64], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(values, shape, self.device)
    }

    /// Integers with ties, then a NaN and a greater number.
    fn steps(&self) -> Result<Tensor> {
        let end = Tensor::from_slice(&[f32::NAN, 9.0], &[2], self.device)?;
        Tensor::cat(&[&self.x.div_scalar(2)?.floor()?.reshape(&[12])?, &end], 0)
    }

    /// A component of an index that selects these positions.
    fn at(&self, values: &[i64]) -> Result<IndexSpec> {
        Ok(IndexSpec::Tensor(self.indices(values, &[values.len()])?))
    }
}

fn slice(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>, step: i64) -> IndexSpec {
    IndexSpec::Slice { start: start.into(), stop: stop.into(), step }
}

/// The result of the case with this name; `None` if there is no such case.
fn run(name: &str, device: Device) -> Result<Option<Tensor>> {
    let inputs = Inputs::new(device)?;
    for family in [elementwise, movement, reductions, products, indexing, order_and_structure] {
        if let Some(result) = family(name, &inputs)? {
            return Ok(Some(result));
        }
    }
    Ok(None)
}

fn elementwise(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    let Inputs { x, y, row, column, ints, small, flags, special, positive, inside, .. } = i;
    let wide = || ints.to_dtype(DType::I16);
    let divisor = || y.add_scalar(0.03125);
    Ok(Some(match name {
        "neg" => x.neg()?,
        "abs" => x.abs()?,
        "sign" => x.sign()?,
        "reciprocal" => x.add_scalar(0.03125)?.reciprocal()?,
        "sqrt" => positive.sqrt()?,
        "rsqrt" => positive.rsqrt()?,
        "exp" => x.exp()?,
        "exp2" => x.exp2()?,
        "expm1" => x.expm1()?,
        "log" => positive.log()?,
        "log2" => positive.log2()?,
        "log10" => positive.log10()?,
        "log1p" => positive.log1p()?,
        "sin" => x.sin()?,
        "cos" => x.cos()?,
        "tan" => inside.tan()?,
        "asin" => inside.asin()?,
        "acos" => inside.acos()?,
        "atan" => x.atan()?,
        "sinh" => x.sinh()?,
        "cosh" => x.cosh()?,
        "tanh" => x.tanh()?,
        "asinh" => x.asinh()?,
        "acosh" => positive.add_scalar(1)?.acosh()?,
        "atanh" => inside.atanh()?,
        "erf" => x.erf()?,
        "floor" => x.floor()?,
        "ceil" => x.ceil()?,
        "trunc" => x.trunc()?,
        "round" => x.mul_scalar(2)?.round()?,
        "square" => x.square()?,
        "sigmoid" => x.mul_scalar(8)?.sigmoid()?,
        "relu" => x.relu()?,
        "isnan" => special.isnan()?,
        "isinf" => special.isinf()?,
        "isfinite" => special.isfinite()?,
        "special_relu" => special.relu()?,
        "special_sign" => special.sign()?,
        "special_sigmoid" => special.sigmoid()?,
        "special_sqrt" => special.sqrt()?,
        "special_max" => special.unsqueeze(1)?.maximum(special)?,
        "special_min" => special.unsqueeze(1)?.minimum(special)?,
        "special_less" => special.unsqueeze(1)?.lt(special)?,
        "special_not_equal" => special.unsqueeze(1)?.ne(special)?,
        "bitwise_not" => ints.bitwise_not()?,
        "logical_not" => flags.logical_not()?,
        "add" => x.add(y)?,
        "add_broadcast" => row.add(column)?,
        "sub" => x.sub(y)?,
        "sub_broadcast" => row.sub(column)?,
        "mul" => x.mul(y)?,
        "mul_broadcast" => row.mul(column)?,
        "maximum" => x.maximum(y)?,
        "maximum_broadcast" => row.maximum(column)?,
        "minimum" => x.minimum(y)?,
        "minimum_broadcast" => row.minimum(column)?,
        "atan2" => x.atan2(y)?,
        "atan2_broadcast" => row.atan2(column)?,
        "div" => x.div(positive)?,
        "floor_divide" => x.floor_divide(&divisor()?)?,
        "remainder" => x.remainder(&divisor()?)?,
        "special_floor_divide" => special.unsqueeze(1)?.floor_divide(special)?,
        "special_remainder" => special.unsqueeze(1)?.remainder(special)?,
        "pow" => positive.pow(x)?,
        "lt" => ints.lt(small)?,
        "le" => ints.le(small)?,
        "gt" => ints.gt(small)?,
        "ge" => ints.ge(small)?,
        "eq" => ints.eq(small)?,
        "ne" => ints.ne(small)?,
        "int_div" => ints.div(&small.add_scalar(1)?)?,
        "int_add" => ints.add(small)?,
        "int_wrap" => ints.square()?,
        "int_floor_divide" => wide()?.floor_divide(&small.add_scalar(1)?)?,
        "int_remainder" => wide()?.remainder(&small.add_scalar(1)?)?,
        "int_remainder_scalar" => ints.remainder_scalar(-7)?,
        "int_pow" => ints.to_dtype(DType::I32)?.pow_scalar(3)?,
        "and" => ints.and_scalar(21)?,
        "or" => ints.or_scalar(21)?,
        "xor" => ints.xor_scalar(21)?,
        "shift_left" => ints.shift_left_scalar(2)?,
        "shift_right" => ints.shift_right_scalar(2)?,
        "shift_right_all" => ints.shift_right_scalar(8)?,
        "logical_and" => ints.logical_and(small)?,
        "logical_xor" => ints.logical_xor(small)?,
        "scalar_left" => (2 - x)?,
        "scalar_chain" => (((x * 2)? + 1)? / 3)?,
        "where" => flags.where_(x, row)?,
        "clip" => x.clip(Some(column), Some(&Tensor::full(&[4], 1.5, DType::F32, i.device)?))?,
        "clamp" => ints.clamp(Some((-9).into()), Some(12.into()))?,
        "cast_truncates" => x.mul_scalar(8)?.to_dtype(DType::I32)?,
        "cast_to_bool" => x.to_dtype(DType::Bool)?,
        "bitcast" => x.bitcast(DType::I32)?,
        _ => return Ok(None),
    }))
}

fn movement(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    let Inputs { x, y, column, cube, ints, .. } = i;
    Ok(Some(match name {
        "permute" => cube.permute(&[2, 0, 1])?,
        "transpose" => cube.transpose(0, -1)?,
        "move_axis" => cube.move_axis(0, 2)?,
        "permute_reshape" => cube.permute(&[2, 0, 1])?.reshape_infer(&[6, -1])?,
        "expand" => column.expand(&[2, 3, 4])?,
        "pad" => x.pad(&[(1, 0), (2, 3)], 7)?,
        "narrow" => cube.narrow(2, 1, 2)?,
        "slice" => cube.slice(1, None, None, -1)?.slice(2, Some(3), Some(0), -2)?,
        "flip" => cube.flip(&[0, 2])?,
        "flip_all" => cube.flip(&[])?,
        "cat" => Tensor::cat(&[x, y, &x.narrow(1, 0, 1)?], 1)?,
        "cat_promotes" => Tensor::cat(&[ints, x], 0)?,
        "stack" => Tensor::stack(&[x, y], 1)?,
        "split_last" => x.split(3, 1)?[1].clone(),
        "roll" => cube.roll(&[1, -5], &[0, 2])?,
        "roll_flat" => cube.roll(&[-3], &[])?,
        "tile" => x.tile(&[2, 1, 3])?,
        "tile_short" => cube.tile(&[2])?,
        "repeat" => x.repeat(&[2, 2])?,
        "repeat_interleave" => x.repeat_interleave(3, 1)?,
        _ => return Ok(None),
    }))
}

fn reductions(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    let Inputs { x, cube, ints, small, flags, special, device, .. } = i;
    let infinite = [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, 1.0];
    Ok(Some(match name {
        "sum" => cube.sum(&[0, 2], false)?,
        "sum_keepdim" => cube.sum(&[1], true)?,
        "sum_all" => cube.sum(&[], false)?,
        "sum_empty" => Tensor::from_slice::<f32>(&[], &[3, 0], *device)?.sum(&[1], false)?,
        "sum_bool" => flags.sum(&[0], false)?,
        "sum_unsigned" => small.sum(&[1], false)?,
        "prod" => x.prod(&[0], false)?,
        "prod_int" => ints.prod(&[1], false)?,
        "mean" => cube.mean(&[1, 2], false)?,
        "mean_int" => ints.mean(&[1], false)?,
        "var" => cube.var(&[0, 1], 1.0, false)?,
        "var_population" => cube.var(&[], 0.0, false)?,
        "std" => x.std(&[1], 1.0, true)?,
        "max" => cube.max(&[2], false)?,
        "min" => ints.min(&[0], false)?,
        "max_nan" => special.max(&[], false)?,
        "argmax" => cube.argmax(Some(1), false)?,
        "argmin_all" => cube.argmin(None, false)?,
        "argmax_ties" => x.div_scalar(2)?.floor()?.argmax(Some(1), false)?,
        "all" => flags.all(&[1], false)?,
        "any" => flags.any(&[0], false)?,
        "logsumexp" => cube.mul_scalar(64)?.logsumexp(&[0, 2], false)?,
        "logsumexp_infinite" => Tensor::from_slice(&infinite, &[2, 2], *device)?.logsumexp(&[1], false)?,
        "cumsum" => x.cumsum(0)?,
        "cumsum_int" => ints.cumsum(1)?,
        "cumprod" => x.cumprod(1)?,
        "cummax" => i.steps()?.cummax(0)?.0,
        "cummax_indices" => i.steps()?.cummax(0)?.1,
        "cummin" => i.steps()?.cummin(0)?.0,
        "cummin_indices" => i.steps()?.cummin(0)?.1,
        "logcumsumexp" => cube.mul_scalar(64)?.logcumsumexp(2)?,
        "logcumsumexp_infinite" => Tensor::from_slice(&infinite, &[4], *device)?.logcumsumexp(0)?,
        "norm_1" => x.norm(1.0, &[1], false)?,
        "norm_2" => x.norm(2.0, &[1], false)?,
        "norm_3" => x.norm(3.0, &[1], false)?,
        "norm_0" => x.norm(0.0, &[1], false)?,
        "norm_inf" => x.norm(f64::INFINITY, &[1], false)?,
        "norm_ninf" => x.norm(f64::NEG_INFINITY, &[1], false)?,
        "frobenius" => cube.frobenius_norm(false)?,
        _ => return Ok(None),
    }))
}

fn products(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    let Inputs { x, y, row, column, cube, ints, .. } = i;
    let column_vector = column.squeeze(1)?;
    let square = i.float(&[3, 3], 0)?;
    let wide = || ints.to_dtype(DType::I32);
    let sum = |equation: &str, operands: &[&Tensor]| Tensor::einsum(equation, operands);
    Ok(Some(match name {
        "matmul" => x.matmul(&y.t()?)?,
        "matmul_vector" => x.matmul(row)?,
        "matmul_row" => row.matmul(&y.t()?)?,
        "matmul_vectors" => row.dot(row)?,
        "matmul_folded" => cube.matmul(&y.t()?)?,
        "matmul_batches" => i.float(&[2, 1, 3, 4], 0)?.matmul(&i.float(&[5, 4, 2], 4)?)?,
        "matmul_left_matrix" => x.matmul(&i.float(&[2, 4, 5], 4)?)?,
        "matmul_int" => wide()?.matmul(&wide()?.t()?)?,
        "dot_i32" => ints.matmul_as(&ints.t()?, DType::I32)?,
        "einsum_matmul" => sum("ij,kj->ik", &[x, y])?,
        "einsum_trace" => sum("ii", &[&square])?,
        "einsum_diagonal" => sum("ii->i", &[&square])?,
        "einsum_transpose" => sum("ba", &[x])?,
        "einsum_sum" => sum("ij->", &[x])?,
        "einsum_outer" => sum("i,j", &[row, &column_vector])?,
        "einsum_batch" => sum("bij,bjk->bik", &[cube, &i.float(&[2, 4, 5], 4)?])?,
        "einsum_hadamard" => sum("ij,ij->ij", &[x, y])?,
        "einsum_ellipsis" => {
            sum("...ij,...jk->...ik", &[&i.float(&[2, 1, 3, 4], 0)?, &i.float(&[5, 4, 2], 4)?])?
        }
        "einsum_ellipsis_implicit" => sum("i...j,j", &[cube, row])?,
        "einsum_ellipsis_first" => sum("k...->...k", &[cube])?,
        "einsum_three" => sum("ij,bjk,bkl->il", &[x, &i.float(&[2, 4, 3], 0)?, &i.float(&[2, 3, 5], 5)?])?,
        "einsum_bilinear" => sum("bi,ijk,bk->bj", &[x, &i.float(&[4, 2, 3], 6)?, &square])?,
        "einsum_repeated" => sum("iij,jk->k", &[&i.float(&[3, 3, 4], 0)?, &i.float(&[4, 2], 0)?])?,
        "einsum_broadcast_one" => sum("ij,ij->i", &[x, column])?,
        "einsum_sum_one_side" => sum("ij,k->k", &[x, row])?,
        "outer" => row.outer(&column_vector)?,
        "kron" => x.kron(&y.narrow(0, 0, 2)?.narrow(1, 0, 1)?)?,
        "cross" => i.float(&[4, 3], 0)?.cross(&i.float(&[4, 3], 1)?, -1)?,
        _ => return Ok(None),
    }))
}

fn indexing(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    use IndexSpec::{At, Ellipsis, NewAxis};
    const ALL: IndexSpec = IndexSpec::ALL;
    let Inputs { x, row, cube, flags, device, .. } = i;
    let chosen = || i.at(&[2, 0, -1, 2]);
    let nested = || Ok(IndexSpec::Tensor(i.indices(&[1, 3], &[2, 1])?));
    let mask = || IndexSpec::from(flags);
    let along = i.indices(&[0, 2, 1, 0, 2, 2, 0, 1], &[2, 4])?;
    let nine = || i.float(&[2, 4], 9);
    let number = |value: f32| Tensor::scalar(value, *device);
    Ok(Some(match name {
        "index_basic" => cube.index(&[At(1), slice(None, None, -2), NewAxis, Ellipsis, At(1)])?,
        "index_ellipsis" => cube.index(&[Ellipsis, At(-1), (1..).into()])?,
        "index_tensor" => cube.index(&[ALL, chosen()?])?,
        "index_tensors" => cube.index(&[ALL, chosen()?, nested()?])?,
        "index_apart" => cube.index(&[i.at(&[0, 1, 1])?, ALL, i.at(&[3, 0, -4])?])?,
        "index_number_apart" => cube.index(&[At(1), ALL, i.at(&[3, 0])?])?,
        "index_number_beside" => cube.index(&[ALL, At(1), i.at(&[3, 0])?])?,
        "index_zero_ellipsis" => cube.index(&[i.at(&[0, 1])?, Ellipsis, i.at(&[2, 0])?, i.at(&[3, 1])?])?,
        "index_mask" => x.index(&[mask()])?,
        "index_mask_rows" => {
            x.index(&[(&Tensor::from_slice(&[true, false, true], &[3], *device)?).into()])?
        }
        "index_mask_partial" => {
            let above: Vec<bool> = (0..12).map(|n| n * 37 % 101 > 50).collect();
            cube.index(&[(1..).into(), (&Tensor::from_slice(&above, &[3, 4], *device)?).into()])?
        }
        "index_slice_and_tensor" => cube.index(&[slice(None, None, -1), chosen()?, (1..3).into()])?,
        "put_slice" => cube.index_put(&[ALL, slice(None, None, 2), (1..3).into()], &number(9.0)?)?,
        "put_negative_step" => {
            let specs = [At(1), slice(None, None, -1), slice(3, 0, -2)];
            cube.index_put(&specs, &i.float(&[3, 2], 7)?)?
        }
        "put_row" => x.index_put(&[At(1)], row)?,
        "put_whole" => x.index_put(&[Ellipsis], &i.column)?,
        "put_tensor" => cube.index_put(&[ALL, i.at(&[2, 0])?, (1..).into()], &i.float(&[2, 3], 8)?)?,
        "put_apart" => cube.index_put(&[i.at(&[0, 1])?, ALL, i.at(&[3, 0])?], &i.float(&[2, 3], 8)?)?,
        "put_mask" => x.index_put(&[mask()], &number(0.0)?)?,
        "put_mask_values" => {
            let count = x.index(&[mask()])?.len();
            x.index_put(&[mask()], &Tensor::arange(0, count as i64, 1, DType::F32, *device)?.div_scalar(2)?)?
        }
        "put_reversed_tensor" => {
            cube.index_put(&[ALL, slice(None, None, -1), i.at(&[0, -1])?], &i.float(&[3, 2], 8)?)?
        }
        "put_add" => x.index_put_add(&[i.at(&[0, 2, 0])?], row)?,
        "take" => cube.take(&i.indices(&[1, 2], &[2, 1])?, Some(1))?,
        "take_flat" => cube.take(&i.indices(&[2, 0, -1, 2], &[4])?, None)?,
        "gather" => x.gather(0, &along)?,
        "gather_smaller" => x.gather(1, &i.indices(&[3, 0, 1, 1], &[2, 2])?)?,
        "take_along_dim" => cube.take_along_dim(&i.indices(&[-1, 0], &[1, 1, 2])?, 2)?,
        "scatter" => x.scatter(0, &along, &nine()?)?,
        "scatter_add" => x.scatter_add(0, &along, &nine()?)?,
        "scatter_prod" => x.scatter_reduce(0, &along, &nine()?, Combine::Prod, true)?,
        "scatter_prod_alone" => x.scatter_reduce(0, &along, &nine()?, Combine::Prod, false)?,
        "scatter_amax" => x.scatter_reduce(0, &along, &nine()?, Combine::Max, true)?,
        "scatter_amax_alone" => x.scatter_reduce(0, &along, &nine()?, Combine::Max, false)?,
        "scatter_amin" => x.scatter_reduce(0, &along, &nine()?, Combine::Min, true)?,
        "scatter_amin_alone" => x.scatter_reduce(0, &along, &nine()?, Combine::Min, false)?,
        "index_add" => cube.index_add(1, &i.indices(&[2, 0, 2, 2], &[4])?, &i.float(&[2, 4, 4], 9)?)?,
        "masked_fill" => x.masked_fill(&row.gt_scalar(0)?, -1)?,
        "masked_select" => x.masked_select(flags)?,
        "nonzero" => flags.nonzero()?,
        _ => return Ok(None),
    }))
}

fn order_and_structure(name: &str, i: &Inputs) -> Result<Option<Tensor>> {
    let Inputs { x, row, column, cube, special, device, .. } = i;
    let edges = Tensor::from_slice(&[-2f32, -0.5, 0.0, 0.0, 1.0], &[5], *device)?;
    let wanted = Tensor::from_slice(&[0f32, -3.0, 1.0, 9.0], &[2, 2], *device)?;
    if let Some((family, diagonal)) = name.rsplit_once('_')
        && let Ok(diagonal) = diagonal.parse::<i64>()
    {
        return Ok(match family {
            "tril" => Some(cube.tril(diagonal)?),
            "triu" => Some(cube.triu(diagonal)?),
            "diag" => Some(x.diag(diagonal)?),
            "diag_matrix" => Some(row.diag(diagonal)?),
            _ => None,
        });
    }
    Ok(Some(match name {
        "argsort" => x.floor()?.argsort(1, false)?,
        "sort_first_axis" => x.sort(0, false)?.0,
        "sort_descending" => cube.sort(1, true)?.0,
        "sort_nan" => special.sort(0, false)?.0,
        "argsort_nan_descending" => special.argsort(0, true)?,
        "topk_nan" => special.topk(3, 0, true)?.0,
        "topk" => x.topk(2, 1, true)?.0,
        "topk_indices" => x.topk(2, 0, false)?.1,
        "searchsorted" => edges.searchsorted(&wanted, false)?,
        "searchsorted_right" => edges.searchsorted(&wanted, true)?,
        "unique_values" => x.floor()?.unique()?.values,
        "unique_inverse" => x.floor()?.unique()?.inverse,
        "unique_counts" => x.floor()?.unique()?.counts,
        "one_hot" => i.indices(&[1, 3, 0, 1], &[2, 2])?.one_hot(4, DType::I64)?,
        "meshgrid" => Tensor::meshgrid(&[row, &column.squeeze(1)?])?[1].clone(),
        "trace" => x.trace()?,
        "arange" => Tensor::arange(-1, 2, 0.375, DType::F32, *device)?,
        "arange_down" => Tensor::arange(7, -6, -3, DType::I32, *device)?,
        "arange_unsigned" => Tensor::arange(9, 2, -2, DType::U8, *device)?,
        "linspace" => Tensor::linspace(-1.0, 2.0, 7, DType::F32, *device)?,
        "eye" => Tensor::eye(3, 4, DType::F32, *device)?,
        _ => return Ok(None),
    }))
}
