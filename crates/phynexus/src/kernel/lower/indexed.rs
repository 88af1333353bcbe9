//! Rows selected by index, and searching.

use super::{
    Lowered, Source, Target, Unsupported,
    access::{self, Buffer},
    operand::{Work, only},
};
use crate::{
    DType, DTypeKind, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{AxisKind, MemoryAccess, Row, ValueId},
        step::{Library, Operand},
    },
    op::{Binary, Combine, IndexRange, Unary},
};

/// Invocations per group.
pub(super) const BLOCK: usize = 256;

/// A launch with one invocation per item of `count`; the closure receives the item's number.
pub(super) fn each(work: &mut Work, target: &Target, count: usize, body: impl FnOnce(&mut Builder, &Index)) {
    let block = BLOCK.min(target.limits.block_size).min(count.next_power_of_two()).max(1);
    access::launch(&mut work.b, &target.limits, count.div_ceil(block), [1, block], |b, group, _, x| {
        let number = group.scale(block as i64).add(x);
        let inside = Mask::within(&number, 0, count as i64, b.ranges());
        b.when(inside, |b| body(b, &number));
    });
}

/// Converts an index that may be negative (from `-rows`) to one from 0, and returns whether it was out of range.
pub(super) fn wrapped(b: &mut Builder, index: ValueId, rows: usize) -> (ValueId, ValueId) {
    let dtype = b.type_of(index).dtype;
    let wide = match (dtype.size(), dtype.kind()) {
        (8, _) => dtype,
        (_, DTypeKind::Signed) => DType::I32,
        _ => DType::U32,
    };
    let index = b.cast(wide, index);
    let count = b.constant(wide, Scalar::UInt(rows as u64));
    if wide.kind() != DTypeKind::Signed {
        let outside = b.binary(Binary::Le, count, index);
        return (index, outside);
    }
    let zero = b.constant(wide, 0i32);
    let negative = b.binary(Binary::Lt, index, zero);
    let sum = b.binary(Binary::Add, index, count);
    let index = b.select(negative, sum, index);
    let (before, behind) = (b.binary(Binary::Lt, index, zero), b.binary(Binary::Le, count, index));
    let outside = b.binary(Binary::Or, before, behind);
    (index, outside)
}

/// The status word for indices out of range, if there may be any.
pub(super) fn status(work: &mut Work, range: IndexRange) -> Option<Buffer> {
    (range == IndexRange::Unknown).then(|| work.buffer(DType::U32, 1, Source::Status, true))
}

/// Sets the status where the condition holds.
pub(super) fn report(b: &mut Builder, status: Buffer, outside: ValueId) {
    let one = b.constant(DType::U32, 1u32);
    b.atomic(MemoryAccess::at(status.array, &only()), Combine::Max, one, outside);
}

/// The access to column `column` in the row that is selected by data.
pub(super) fn row_access(
    b: &mut Builder,
    buffer: Buffer,
    operand: &Operand,
    row: ValueId,
    column: &Index,
) -> MemoryAccess {
    let (stride, count) = (operand.layout.strides[0], operand.layout.shape[0]);
    let mut index = column.scale(operand.layout.strides[1] as i64).shift(-buffer.start);
    let mut value = row;
    if stride < 0 {
        // A negative stride: count from the last row, which comes first in memory.
        index = index.shift((count as i64 - 1) * stride as i64);
        let last = b.constant(b.type_of(row).dtype, Scalar::UInt(count as u64 - 1));
        value = b.binary(Binary::Sub, last, row);
    }
    let row = Row { value, count, stride: stride.unsigned_abs() };
    MemoryAccess { row: Some(row), ..MemoryAccess::at(buffer.array, &index) }
}

pub(super) fn no_rows() -> Unsupported {
    Unsupported("rows of a tensor that has none".to_owned())
}

/// Selects rows of a matrix.
pub(super) fn gather(
    library: &Library,
    range: IndexRange,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let [x, index] = library.operands.as_slice() else { return Err(no_rows()) };
    let (rows, width) = (x.layout.shape[0], x.layout.shape[1]);
    if rows == 0 {
        return Err(no_rows());
    }
    let vector = |lanes: usize| {
        let aligned = |stride: isize| stride % lanes as isize == 0;
        x.layout.strides[1] == 1
            && aligned(x.layout.strides[0])
            && width.is_multiple_of(lanes)
            && lanes * x.dtype.size() <= target.vector_bytes
    };
    let lanes = [4, 2].into_iter().find(|&lanes| vector(lanes)).unwrap_or(1);
    let count = library.node.len();
    let mut work = Work::new("gather");
    let table = work.operand(x, Source::Binding(0));
    let indices = work.operand(index, Source::Binding(1));
    let output = work.buffer(x.dtype, count, result, true);
    let status = status(&mut work, range);
    each(&mut work, target, count / lanes, |b, number| {
        let per_row = (width / lanes) as i64;
        let row = number.quotient(per_row, b.ranges());
        let column = number.remainder(per_row, b.ranges());
        let at = row.scale(index.layout.strides[0] as i64).shift(-indices.start);
        let value = b.load(indices.array, &at);
        let (value, outside) = wrapped(b, value, rows);
        if let Some(status) = status {
            let first = Mask::within(&column, 0, 1, b.ranges());
            b.when(first, |b| report(b, status, outside));
        }
        let access = row_access(b, table, x, value, &column.scale(lanes as i64));
        let elements = b.load_access(access, Scalar::Int(0), lanes as u8);
        b.store(output.array, &number.scale(lanes as i64), elements);
    });
    work.finish(lowered);
    Ok(())
}

/// Binary search: the number of leading elements for which the closure holds, which must not hold for any later
/// element. The closure receives the position of an element. The count is an `int32`, or an `int64` if it does not fit.
pub(super) fn partition(
    b: &mut Builder,
    count: usize,
    mut before: impl FnMut(&mut Builder, ValueId) -> ValueId,
) -> ValueId {
    let dtype = if i32::try_from(count).is_ok() { DType::I32 } else { DType::I64 };
    let (low, high) = (b.registers(dtype, 1), b.registers(dtype, 1));
    let zero = b.constant(dtype, 0i32);
    let end = b.constant(dtype, Scalar::Int(count as i64));
    b.store(low, &only(), zero);
    b.store(high, &only(), end);
    let steps = (usize::BITS - count.leading_zeros()).max(1);
    b.over(steps as usize, AxisKind::Serial, |b, _| {
        let (least, most) = (b.load(low, &only()), b.load(high, &only()));
        let done = b.binary(Binary::Le, most, least);
        b.leave(done);
        let (one, width) = (b.constant(dtype, 1i32), b.binary(Binary::Sub, most, least));
        let half = b.binary(Binary::Shr, width, one);
        let middle = b.binary(Binary::Add, least, half);
        let right = before(b, middle);
        let next = b.binary(Binary::Add, middle, one);
        let (least, most) = (b.select(right, next, least), b.select(right, most, middle));
        b.store(low, &only(), least);
        b.store(high, &only(), most);
    });
    b.load(low, &only())
}

/// The positions at which values would be inserted into a sorted vector.
pub(super) fn search_sorted(
    library: &Library,
    right: bool,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) {
    let [sorted, values] = library.operands.as_slice() else { return };
    let (length, dtype) = (sorted.layout.shape[0], sorted.dtype);
    let mut work = Work::new("search_sorted");
    let table = work.operand(sorted, Source::Binding(0));
    let wanted = work.operand(values, Source::Binding(1));
    let output = work.buffer(DType::I64, library.node.len(), result, true);
    each(&mut work, target, library.node.len(), |b, number| {
        let at = number.scale(values.layout.strides[0] as i64).shift(-wanted.start);
        let value = b.load(wanted.array, &at);
        let value = b.cast(dtype.compute(), value);
        let access = |b: &mut Builder, at: ValueId| {
            let stride = sorted.layout.strides[0];
            let column = Operand {
                dtype,
                layout: crate::shape::Layout {
                    shape: [length.max(1), 1].into_iter().collect(),
                    strides: [stride, 1].into_iter().collect(),
                    offset: 0,
                },
            };
            row_access(b, table, &column, at, &Index::default())
        };
        let found = partition(b, length, |b, at| {
            let access = access(b, at);
            let element = b.load_access(access, Scalar::Int(0), 1);
            let element = b.cast(dtype.compute(), element);
            if right {
                let behind = precedes(b, value, element, false);
                b.unary(Unary::Not, behind)
            } else {
                precedes(b, element, value, false)
            }
        });
        let found = b.cast(DType::I64, found);
        b.store(output.array, number, found);
    });
    work.finish(lowered);
}

/// Whether a number comes strictly before another. NaN counts as the greatest.
pub(super) fn precedes(b: &mut Builder, x: ValueId, y: ValueId, descending: bool) -> ValueId {
    let (x, y) = if descending { (y, x) } else { (x, y) };
    let less = b.binary(Binary::Lt, x, y);
    if !b.type_of(x).dtype.is_float() {
        return less;
    }
    let (x_nan, y_nan) = (b.unary(Unary::IsNan, x), b.unary(Unary::IsNan, y));
    let number = b.unary(Unary::Not, x_nan);
    let last = b.binary(Binary::And, number, y_nan);
    b.binary(Binary::Or, less, last)
}
