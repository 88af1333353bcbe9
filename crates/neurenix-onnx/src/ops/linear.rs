//! Products of matrices and convolutions.

pub(super) mod convolution;
mod deform;
pub(super) mod window;

use phynexus::{DType, Tensor};

use super::Rows;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("CausalConvWithState", convolution::causal_conv_with_state),
    ("Conv", convolution::conv),
    ("ConvTranspose", convolution::conv_transpose),
    ("DeformConv", deform::deform_conv),
    ("Det", det),
    ("Einsum", einsum),
    ("Gemm", gemm),
    ("MatMul", matmul),
];

fn matmul(call: &Call<'_>) -> Result<Vec<Value>> {
    one(call.tensor(0)?.matmul(&call.tensor(1)?)?)
}

fn gemm(call: &Call<'_>) -> Result<Vec<Value>> {
    let matrix = |input: usize, attribute: &str| -> Result<Tensor> {
        let x = call.tensor(input)?;
        if x.rank() != 2 {
            return Err(Error::invalid(format!(
                "input {input} must be a matrix, it has shape {:?}",
                x.shape()
            )));
        }
        Ok(if call.int_or(attribute, 0)? != 0 { x.t()? } else { x })
    };
    let product = matrix(0, "transA")?.matmul(&matrix(1, "transB")?)?;
    let dtype = product.dtype();
    // Fractions of integers are rounded at the end.
    let scaled = |x: Tensor, factor: f64| match factor {
        1.0 => Ok(x),
        _ if dtype.is_float() => x.mul_scalar(factor),
        _ => x.to_dtype(DType::F64)?.mul_scalar(factor),
    };
    let product = scaled(product, call.float_or("alpha", 1.0)?)?;
    let Some(addend) = call.optional(2)? else { return one(product.to_dtype(dtype)?) };
    let addend = scaled(addend, call.float_or("beta", 1.0)?)?.expand(product.shape())?;
    one(product.add(&addend)?.to_dtype(dtype)?)
}

fn einsum(call: &Call<'_>) -> Result<Vec<Value>> {
    let operands = call.tensors()?;
    one(Tensor::einsum(call.string_or("equation", "")?, &operands.iter().collect::<Vec<_>>())?)
}

fn det(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    one(x.to_dtype(x.dtype().compute())?.det()?.to_dtype(x.dtype())?)
}
