//! Copies of a product's operands in which panels can read them.

use super::{Target, contraction::Contraction, draft::Draft, library::fused, load, panels};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        fused::Fusion,
        loops::AsyncCopy,
        step::{Library, Operand},
        view::{Coordinates, flat},
    },
    op::Op,
    shape::{Layout, contiguous_strides},
};

/// A copy of an operand: its number, the specification, and the elements that it needs.
pub(super) struct Turned {
    pub(super) operand: usize,
    pub(super) copy: Fusion,
    pub(super) elements: usize,
}

/// Rows in which an operand is stored again. What is broadcast is stored once.
pub(super) struct Rows {
    /// The operand's dimensions, that of the rows last.
    order: Vec<usize>,
    /// What is copied of each, and the elements between neighbours in the copy.
    shape: Vec<usize>,
    strides: Vec<isize>,
    broadcast: Vec<bool>,
    elements: usize,
}

impl Rows {
    /// Rows of `length` elements along dimension `last`, which begin `pitch` elements after each other.
    pub(super) fn new(layout: &Layout, last: usize, length: usize, pitch: usize) -> Rows {
        let mut order: Vec<usize> = (0..layout.shape.len()).filter(|&d| d != last).collect();
        order.push(last);
        let broadcast: Vec<bool> = order.iter().map(|&d| d != last && layout.strides[d] == 0).collect();
        let extents = order.iter().zip(&broadcast);
        let mut shape: Vec<usize> =
            extents.map(|(&d, &broadcast)| if broadcast { 1 } else { layout.shape[d] }).collect();
        let mut stored = shape.clone();
        if let (Some(copied), Some(whole)) = (shape.last_mut(), stored.last_mut()) {
            (*copied, *whole) = (length, pitch);
        }
        let strides = contiguous_strides(&stored).to_vec();
        Rows { order, shape, strides, broadcast, elements: stored.iter().product() }
    }

    /// The specification of the copy, the coordinates of an element of the operand, and its place in the copy.
    pub(super) fn draft(&self) -> (Draft, Coordinates, Index) {
        let draft = Draft::new(&self.shape, &[]);
        let at = draft.ranges().coordinates();
        let mut place = Coordinates::from_elem(Index::default(), at.len());
        for (coordinate, &d) in at.iter().zip(&self.order) {
            place[d] = coordinate.clone();
        }
        let to = flat(&at, &self.strides, 0);
        (draft, place, to)
    }

    /// Lets the operand be read from the copy.
    pub(super) fn finish(self, number: usize, operand: &mut Operand, copy: Fusion) -> Turned {
        for ((d, stride), broadcast) in self.order.into_iter().zip(self.strides).zip(self.broadcast) {
            operand.layout.strides[d] = if broadcast { 0 } else { stride };
        }
        Turned { operand: number, copy, elements: self.elements }
    }
}

/// How often a copy is read at least by rows or columns of the other factor, if it is made only because the rows of the
/// operand do not begin at multiples of what is copied at a time.
const LEAST_USES: usize = 512;

/// A product that panels can multiply only if the terms of a row or column are neighbours, or if rows begin at
/// multiples of 16 bytes, with copies of the operands in which that is so. `None` if nothing has to be copied, if it
/// would not pay off, or if panels could not be used then.
pub(super) fn with_turned_operands(library: &Library, target: &Target) -> Option<(Library, Vec<Turned>)> {
    let rank = library.node.shape.len();
    let size = library.operands.first()?.dtype.size();
    let piece = AsyncCopy::BYTES / size;
    if !matches!(library.node.op.exact(), Op::Dot) || !target.limits.has_panels() {
        return None;
    }
    let (mut turned, mut copies) = (library.clone(), Vec::new());
    for (number, operand) in turned.operands.iter_mut().enumerate() {
        let (terms, outer) = (rank - 1 - number, rank - 2 + number);
        let Layout { shape, strides, .. } = &operand.layout;
        // Numbers of 16 bits need not be neighbours along the terms.
        let last = if size == 2 && strides[outer] == 1 { outer } else { terms };
        let begins = |d: usize| d == last || shape[d] == 1 || strides[d] % piece as isize == 0;
        let is_aligned = (0..rank).all(begins);
        let has_neighbours = strides[last] == 1;
        if has_neighbours && is_aligned {
            continue;
        }
        let uses = library.node.shape[rank - 1 - number];
        if uses < LEAST_USES && (has_neighbours || size == 2) {
            return None;
        }
        let rows = Rows::new(&operand.layout, last, shape[last], shape[last].next_multiple_of(piece));
        let (mut draft, place, to) = rows.draft();
        // Copies of bytes need no conversions.
        let dtype = if size == 1 { DType::U8 } else { operand.dtype };
        let parameters = [false, true].map(|written| draft.parameter(dtype, written));
        let from = flat(&place, &operand.layout.strides, 0);
        let value = draft.load(parameters[0], from, Mask::default(), Scalar::Int(0));
        draft.store(parameters[1], value, to);
        copies.push(rows.finish(number, operand, draft.fused));
    }
    let (fused, product) = fused(&turned).filter(|_| !copies.is_empty())?;
    let contraction = Contraction::of(&fused, product?)?;
    let shape = panels::shape(&contraction, target)?;
    load::is_bulk(&contraction, shape, target).then_some((turned, copies))
}
