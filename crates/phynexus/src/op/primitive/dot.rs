//! Matrix products.

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample,
    SampleOperand, need,
};
use crate::{
    DType, Error, Result,
    op::{Combine, composite::MatmulPrecision, reference::Accumulator},
    shape::element_count,
};

/// What a sum of products of 8-bit floats may lose. Hopper's matrix units add 32 of them to a sum at a time, aligned to
/// the greatest of these 33 numbers, and keep 14 bits of each (DeepSeek-AI 2024, arXiv 2412.19437, 3.3.2), of which two
/// may be whole. Sums of 128 products are added as `float32`.
fn lost(products: impl Iterator<Item = f64>) -> f64 {
    let products: Vec<f64> = products.collect();
    let of_sum = |products: &[f64]| {
        let mut sum = 0.0f64;
        let mut add = |together: &[f64]| {
            let greatest = together.iter().fold(sum.abs(), |greatest, x| greatest.max(x.abs()));
            sum += together.iter().sum::<f64>();
            (together.len() + 1) as f64 * greatest / f64::from(1 << 12)
        };
        products.chunks(32).map(&mut add).sum::<f64>()
    };
    products.chunks(128).map(of_sum).sum()
}

/// Matrix product `[.., M, K]` times `[.., K, N]` with equal leading dimensions. Sums are accumulated in `f32` for
/// 8-bit and 16-bit floats (those of 8 bits with the error that `lost` describes) and in the node's dtype otherwise
/// (so `int8` operands with an `int32` node give exact products; one of them may also be `uint8`).
#[derive(Debug)]
pub struct Dot;

impl Operation for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn operands(&self) -> Option<usize> {
        Some(2)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let (a, b, rank) = (inputs[0], inputs[1], node.shape.len());
        need(rank >= 2 && a.shape.len() == rank && b.shape.len() == rank, "operands of another rank")?;
        let batch = rank - 2;
        let leading = a.shape[..batch] == node.shape[..batch] && b.shape[..batch] == node.shape[..batch];
        let inner = a.shape[rank - 1] == b.shape[batch];
        let outer = a.shape[batch] == node.shape[batch] && b.shape[rank - 1] == node.shape[rank - 1];
        need(leading && inner && outer, "shapes do not fit")?;
        factors(node, a, b)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|position| operand_gradient(call, position, MatmulPrecision::Highest))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::CROSSWISE
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (a, b, rank) = (inputs[0], inputs[1], node.shape.len());
        let (m, n, k) = (node.shape[rank - 2], node.shape[rank - 1], a.shape[rank - 1]);
        let mut out = Vec::with_capacity(node.len());
        for batch in 0..element_count(&node.shape[..rank - 2]) {
            for row in 0..m {
                for column in 0..n {
                    let mut sum = Accumulator::new(Combine::Sum, node.dtype);
                    let factors = |i: usize| {
                        (a.elements[(batch * m + row) * k + i], b.elements[(batch * k + i) * n + column])
                    };
                    (0..k).map(factors).for_each(|(a, b)| sum.push_product(a, b));
                    let product = |i: usize| match factors(i) {
                        (Number::Float(a), Number::Float(b)) => a.value * b.value,
                        _ => 0.0,
                    };
                    out.push(match a.dtype.float8() {
                        Some(_) => sum.result_within(lost((0..k).map(product))),
                        None => sum.result(),
                    });
                }
            }
        }
        Ok(out)
    }

    fn samples() -> Vec<Sample> {
        // Batch, rows, inner dimension, columns.
        let sizes = [
            (None, 1, 1, 1),
            (None, 3, 5, 7),
            (None, 33, 65, 17),
            (None, 2, 0, 3),
            (None, 0, 4, 3),
            (Some(3), 4, 5, 6),
            (Some(2), 1, 40, 1),
            (Some(0), 2, 2, 2),
            (None, 1, 70, 19),
            (None, 19, 70, 1),
        ];
        let sample = |(batch, m, k, n): (Option<usize>, usize, usize, usize)| {
            let with = |a: usize, b: usize| -> Vec<usize> { batch.into_iter().chain([a, b]).collect() };
            let operands = [SampleOperand::new(&with(m, k)), SampleOperand::new(&with(k, n))];
            let product = Sample::primitive(Op::Dot, &with(m, n), operands);
            let float8 = [DType::F8E4M3, DType::F8E5M2];
            let mixed = |[left, right]: [DType; 2], result: DType| {
                let [a, b] = [(left, with(m, k)), (right, with(k, n))]
                    .map(|(dtype, shape)| SampleOperand::new(&shape).fixed(dtype));
                Sample::primitive(Op::Dot, &with(m, n), [a, b]).giving(result)
            };
            [
                product.clone(),
                product.clone().giving(DType::I32).only(&[DType::I8, DType::U8]),
                product.clone().giving(DType::F32).only(&float8),
                product.giving(DType::BF16).only(&float8),
                mixed(float8, DType::F32),
                mixed([float8[1], float8[0]], DType::F32),
                mixed([DType::U8, DType::I8], DType::I32),
                mixed([DType::I8, DType::U8], DType::I32),
            ]
        };
        sizes.into_iter().flat_map(sample).collect()
    }
}

/// Both factors of a sum of products have one dtype, are 8-bit floats, or are `uint8` and `int8` with an `int32` sum.
/// They are floats if the sum is; bool has no products, and no sum is an 8-bit float.
pub(super) fn factors(node: &IrNode, a: &IrNode, b: &IrNode) -> Check {
    let float8 = [node, a, b].map(|node| node.dtype.float8().is_some());
    let one_kind = a.dtype.is_float() == node.dtype.is_float() && node.dtype != DType::Bool;
    let are_bytes = [a, b].iter().all(|factor| factor.dtype.is_integer() && factor.dtype.size() == 1);
    let mixed = float8 == [false, true, true] || are_bytes && node.dtype == DType::I32;
    let fits = (a.dtype == b.dtype || mixed) && !float8[0];
    need(fits && one_kind && a.dtype != DType::Bool, "wrong dtypes")
}

/// The gradient of a factor, in the product's precision.
pub(in crate::op) fn operand_gradient(call: &Call, position: usize, precision: MatmulPrecision) -> Formula {
    // The product may be wider than its factors (16-bit factors, a float32 product).
    let dtype = call.output.dtype();
    let own = call.inputs[position].dtype();
    if own.float8().is_some() {
        let hint = "a gradient in 8 bits needs a scale of its own: detach() the factors first".to_owned();
        return Formula::from(Err(Error::NoGradient { op: "dot", hint }));
    }
    let other = call.input(1 - position).cast(dtype).transpose();
    let (left, right) = if position == 0 { (call.gradient(), other) } else { (other, call.gradient()) };
    let product = left.product(&right, precision);
    product.cast(own)
}
