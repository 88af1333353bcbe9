//! Products of matrices and convolutions.

pub(super) mod convolution;
mod deform;
pub(super) mod window;

use phynexus::{DType, Tensor};

use super::{Rows, quantized::product::dequantized_matmul};
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
    if let Some(product) = dequantized_matmul(call, [false, false], 1.0)? {
        return one(product);
    }
    one(call.tensor(0)?.matmul(&call.tensor(1)?)?)
}

fn gemm(call: &Call<'_>) -> Result<Vec<Value>> {
    let transposes = [call.int_or("transA", 0)? != 0, call.int_or("transB", 0)? != 0];
    let matrix = |input: usize| -> Result<Tensor> {
        let x = call.tensor(input)?;
        if x.rank() != 2 {
            return Err(Error::invalid(format!(
                "input {input} must be a matrix, it has shape {:?}",
                x.shape()
            )));
        }
        Ok(if transposes[input] { x.t()? } else { x })
    };
    let (a, b, alpha) = (matrix(0)?, matrix(1)?, call.float_or("alpha", 1.0)?);
    let (product, alpha) = match dequantized_matmul(call, transposes, alpha)? {
        Some(product) => (product, 1.0),
        None => (a.matmul(&b)?, alpha),
    };
    let dtype = product.dtype();
    // Fractions of integers are rounded at the end.
    let scaled = |x: Tensor, factor: f64| match factor {
        1.0 => Ok(x),
        _ if dtype.is_float() => x.mul_scalar(factor),
        _ => x.to_dtype(DType::F64)?.mul_scalar(factor),
    };
    let product = scaled(product, alpha)?;
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
