//! Products of `float32` matrices as products of `bfloat16` ones. A number is the sum of three numbers of 8 significant
//! bits each, exactly. Of the nine products of parts, six are summed, the small ones first, as one product with six
//! times as many terms; the others are at most 2^-21 of the whole (Henry, Tang and Heinecke 2019, arXiv 1904.06376).

use super::{
    Target,
    contraction::Contraction,
    draft::Draft,
    library::fused,
    panels,
    turned::{Rows, Turned},
};
use crate::{
    DType, Scalar,
    kernel::{
        Mask,
        fused::{FusedOp, InstructionId},
        loops::Panel,
        step::{Library, Operand},
        view::flat,
    },
    op::{
        Binary, Composite, Op, TensorType,
        composite::{InPrecision, MatmulPrecision},
    },
};

/// The parts of both factors whose products are summed, in their order.
const PASSES: [[usize; 2]; 6] = [[0, 2], [2, 0], [1, 1], [0, 1], [1, 0], [0, 0]];
/// The least number of terms: the bound of the error counts the terms of a sum.
const LEAST_TERMS: usize = 128;

/// Whether this operation is to be computed so.
pub(super) fn is_split(op: &Op) -> bool {
    let Op::Composite(Composite::InPrecision(InPrecision { precision, .. })) = op else { return false };
    *precision == MatmulPrecision::Split
}

/// Whether it pays off for these factors.
pub(super) fn pays(operands: &[TensorType], target: &Target) -> bool {
    let [left, right] = operands else { return false };
    let (&[.., rows, terms], &[.., columns]) = (left.shape(), right.shape()) else { return false };
    target.multiplies_panels() && rows >= Panel::ROWS && columns >= Panel::WIDTH && terms >= LEAST_TERMS
}

/// The product of the parts, and how they are made. `None` if panels could not multiply them.
pub(super) fn factors(library: &Library, target: &Target) -> Option<(Library, Vec<Turned>)> {
    if !is_split(&library.node.op) {
        return None;
    }
    let (mut narrow, mut copies) = (library.clone(), Vec::new());
    for (number, operand) in narrow.operands.iter_mut().enumerate() {
        copies.push(parts(number, operand));
    }
    let (fused, product) = fused(&narrow)?;
    let contraction = Contraction::of(&fused, product?)?;
    panels::shape(&contraction, target).map(|_| (narrow, copies))
}

/// Stores the parts of a factor, for each row or column those of all terms of a pass after the other. The operand
/// becomes what is stored.
fn parts(number: usize, operand: &mut Operand) -> Turned {
    let terms = operand.layout.shape.len() - 1 - number;
    let count = operand.layout.shape[terms];
    let pass = count.next_multiple_of(Panel::width(DType::BF16));
    let rows = Rows::new(&operand.layout, terms, pass, PASSES.len() * pass);
    let (mut draft, place, first) = rows.draft();
    let (from, to) = (draft.parameter(DType::F32, false), draft.parameter(DType::BF16, true));
    let exists = Mask::within(&place[terms], 0, count as i64, &draft.ranges());
    let whole = draft.load(from, flat(&place, &operand.layout.strides, 0), exists, Scalar::Float(0.0));
    let high = truncated(&mut draft, whole);
    let rest = draft.binary(Binary::Sub, whole, high);
    let middle = truncated(&mut draft, rest);
    let low = draft.binary(Binary::Sub, rest, middle);
    let narrow = [high, middle, low].map(|part| draft.cast(part, DType::BF16));
    for (turn, parts) in PASSES.iter().enumerate() {
        draft.store(to, narrow[parts[number]], first.shift((turn * pass) as i64));
    }
    operand.layout.shape[terms] = PASSES.len() * pass;
    operand.dtype = DType::BF16;
    rows.finish(number, operand, draft.fused)
}

/// A `float32` number with the bits that a `bfloat16` number does not have cleared; NaN stays NaN.
fn truncated(draft: &mut Draft, x: InstructionId) -> InstructionId {
    let bits = draft.emit(FusedOp::Bitcast(x), DType::U32);
    let kept = draft.constant(DType::U32, Scalar::UInt(0xffff_0000));
    let bits = draft.binary(Binary::And, bits, kept);
    let number = draft.emit(FusedOp::Bitcast(bits), DType::F32);
    let is_number = draft.binary(Binary::Eq, x, x);
    draft.select(is_number, number, x)
}
