//! Rows by index, and searching.

use super::{
    Lowered, Source, Target, Unsupported,
    access::{self, Buffer},
    operand::{Work, only},
    reduce::accumulator,
    sort,
};
use crate::{
    DType, Kind, Scalar,
    graph::op::{Binary, Combine, ScatterMode, Unary},
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{AxisKind, Place, Row, Value},
        view::flat,
    },
    schedule::step::{Library, Operand},
};

/// Invocations of a group.
pub(super) const BLOCK: usize = 256;

/// A launch with one invocation for each of `count` things; the closure is given the number of one.
pub(super) fn each(work: &mut Work, target: &Target, count: usize, body: impl FnOnce(&mut Builder, &Index)) {
    let block = BLOCK.min(target.limits.block_size).min(count.next_power_of_two()).max(1);
    access::launch(&mut work.b, &target.limits, count.div_ceil(block), [1, block], |b, group, _, x| {
        let number = group.scale(block as i64).add(x);
        let inside = Mask::within(&number, 0, count as i64, b.ranges());
        b.when(inside, |b| body(b, &number));
    });
}

/// An index from `-rows` on as one from 0 on, and whether it was out of range.
fn wrapped(b: &mut Builder, index: Value, rows: usize) -> (Value, Value) {
    let dtype = b.type_of(index).dtype;
    let wide = match (dtype.size(), dtype.kind()) {
        (8, _) => dtype,
        (_, Kind::Signed) => DType::I32,
        _ => DType::U32,
    };
    let index = b.cast(wide, index);
    let count = b.constant(wide, Scalar::UInt(rows as u64));
    if wide.kind() != Kind::Signed {
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

/// Raises the status where the condition holds.
fn report(b: &mut Builder, status: Buffer, outside: Value) {
    let one = b.constant(DType::U32, 1u32);
    b.atomic(Place::at(status.memory, &only()), Combine::Max, one, outside);
}

/// The place of column `column` in the row that data say.
fn row_place(b: &mut Builder, buffer: Buffer, operand: &Operand, row: Value, column: &Index) -> Place {
    let (stride, count) = (operand.layout.strides[0], operand.layout.shape[0]);
    let mut index = column.scale(operand.layout.strides[1] as i64).shift(-buffer.start);
    let mut value = row;
    if stride < 0 {
        // Counted from the last row, which comes first in memory.
        index = index.shift((count as i64 - 1) * stride as i64);
        let last = b.constant(b.type_of(row).dtype, Scalar::UInt(count as u64 - 1));
        value = b.binary(Binary::Sub, last, row);
    }
    let row = Row { value, count, stride: stride.unsigned_abs() };
    Place { row: Some(row), ..Place::at(buffer.memory, &index) }
}

fn no_rows() -> Unsupported {
    Unsupported("rows of a tensor that has none".to_owned())
}

/// Rows of a matrix.
pub(super) fn gather(
    library: &Library,
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
    let status = work.buffer(DType::U32, 1, Source::Status, true);
    each(&mut work, target, count / lanes, |b, number| {
        let per_row = (width / lanes) as i64;
        let row = number.quotient(per_row, b.ranges());
        let column = number.remainder(per_row, b.ranges());
        let at = row.scale(index.layout.strides[0] as i64).shift(-indices.start);
        let value = b.load(indices.memory, &at);
        let (value, outside) = wrapped(b, value, rows);
        let first = Mask::within(&column, 0, 1, b.ranges());
        b.when(first, |b| report(b, status, outside));
        let place = row_place(b, table, x, value, &column.scale(lanes as i64));
        let elements = b.load_place(place, Scalar::Int(0), lanes as u8);
        b.store(output.memory, &number.scale(lanes as i64), elements);
    });
    work.finish(lowered);
    Ok(())
}

/// How many of the first elements the closure holds for, where it holds for none behind the first for which it does not:
/// `element` loads one. The count is an `int32`, or an `int64` where that does not hold it.
fn partition(b: &mut Builder, count: usize, mut before: impl FnMut(&mut Builder, Value) -> Value) -> Value {
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

/// Where values would be inserted into a sorted vector.
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
        let value = b.load(wanted.memory, &at);
        let value = b.cast(dtype.compute(), value);
        let place = |b: &mut Builder, at: Value| {
            let stride = sorted.layout.strides[0];
            let column = Operand {
                dtype,
                layout: crate::shape::Layout {
                    shape: [length.max(1), 1].into_iter().collect(),
                    strides: [stride, 1].into_iter().collect(),
                    offset: 0,
                },
            };
            row_place(b, table, &column, at, &Index::default())
        };
        let found = partition(b, length, |b, at| {
            let place = place(b, at);
            let element = b.load_place(place, Scalar::Int(0), 1);
            let element = b.cast(dtype.compute(), element);
            if right {
                let behind = precedes(b, value, element, false);
                b.unary(Unary::Not, behind)
            } else {
                precedes(b, element, value, false)
            }
        });
        let found = b.cast(DType::I64, found);
        b.store(output.memory, number, found);
    });
    work.finish(lowered);
}

/// Whether one number comes strictly before another; NaN is the greatest.
pub(super) fn precedes(b: &mut Builder, x: Value, y: Value, descending: bool) -> Value {
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

/// A matrix with rows updated, in the order of the updates: their indices are sorted, and each element of the result
/// takes those of its row.
pub(super) fn scatter(
    library: &Library,
    mode: ScatterMode,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let [x, index, updates] = library.operands.as_slice() else { return Err(no_rows()) };
    let (rows, width, count) = (x.layout.shape[0], x.layout.shape[1], index.layout.shape[0]);
    let (Ok(_), Ok(_)) = (i32::try_from(count), i32::try_from(rows)) else {
        return Err(Unsupported("a scatter of more rows than an int32 counts".to_owned()));
    };
    let sorted = if count > 0 {
        let keys = lowered.temporary(count, DType::I32);
        wrap_indices(index, rows, keys, target, lowered);
        let order = lowered.temporary(count, DType::I32);
        let sorted = lowered.temporary(count, DType::I32);
        let rows = sort::Rows { dtype: DType::I32, count: 1, width: count, descending: false };
        sort::sort(rows, None, keys, (order, DType::I32), Some(sorted), target, lowered)?;
        Some((order, sorted))
    } else {
        None
    };
    let dtype = x.dtype;
    let held = accumulator(dtype);
    let mut work = Work::new("scatter");
    let before = work.operand(x, Source::Binding(0));
    let changes = work.operand(updates, Source::Binding(2));
    let output = work.buffer(dtype, rows * width, result, true);
    let order = sorted.map(|(order, keys)| {
        (work.buffer(DType::I32, count, order, false), work.buffer(DType::I32, count, keys, false))
    });
    each(&mut work, target, rows * width, |b, number| {
        let (row, column) =
            (number.quotient(width as i64, b.ranges()), number.remainder(width as i64, b.ranges()));
        let at = flat(&[row.clone(), column.clone()], &x.layout.strides, 0).shift(-before.start);
        let old = b.load(before.memory, &at);
        let Some((order, keys)) = order else { return b.store(output.memory, number, old) };
        let sum = b.registers(held, 1);
        let old = b.cast(held, old);
        b.store(sum, &only(), old);
        let this = b.bind(
            crate::kernel::loops::Type::scalar(DType::I32),
            crate::kernel::loops::Operation::Index(row.clone()),
        );
        let place = |buffer: Buffer, value: Value| Place {
            row: Some(Row { value, count, stride: 1 }),
            ..Place::at(buffer.memory, &only())
        };
        let key = |b: &mut Builder, at: Value| b.load_place(place(keys, at), Scalar::Int(0), 1);
        let update = |b: &mut Builder, at: Value| {
            let number = b.load_place(place(order, at), Scalar::Int(0), 1);
            let place = row_place(b, changes, updates, number, &column);
            let value = b.load_place(place, Scalar::Int(0), 1);
            b.cast(held, value)
        };
        match mode {
            ScatterMode::Set => {
                let end = partition(b, count, |b, at| {
                    let key = key(b, at);
                    b.binary(Binary::Le, key, this)
                });
                let one = b.constant(DType::I32, 1i32);
                let last = b.binary(Binary::Sub, end, one);
                let key = key(b, last);
                let (same, new) = (b.binary(Binary::Eq, key, this), update(b, last));
                let value = b.select(same, new, old);
                b.store(sum, &only(), value);
            }
            ScatterMode::Combine(combine) => {
                let begin = partition(b, count, |b, at| {
                    let key = key(b, at);
                    b.binary(Binary::Lt, key, this)
                });
                b.over(count, AxisKind::Serial, |b, i| {
                    let i = b.number(i);
                    let at = b.binary(Binary::Add, begin, i);
                    let end = b.constant(DType::I32, Scalar::Int(count as i64));
                    let key = key(b, at);
                    let (behind, other) = (b.binary(Binary::Le, end, at), b.binary(Binary::Ne, key, this));
                    let done = b.binary(Binary::Or, behind, other);
                    b.leave(done);
                    let value = update(b, at);
                    b.accumulate(sum, &only(), combine.binary(), value);
                });
            }
        }
        let sum = b.load(sum, &only());
        let sum = b.cast(dtype, sum);
        b.store(output.memory, number, sum);
    });
    work.finish(lowered);
    Ok(())
}

/// Indices as row numbers of 32 bits.
fn wrap_indices(index: &Operand, rows: usize, keys: Source, target: &Target, lowered: &mut Lowered) {
    let count = index.layout.shape[0];
    let mut work = Work::new("wrap_indices");
    let input = work.operand(index, Source::Binding(1));
    let output = work.buffer(DType::I32, count, keys, true);
    let status = work.buffer(DType::U32, 1, Source::Status, true);
    each(&mut work, target, count, |b, number| {
        let at = number.scale(index.layout.strides[0] as i64).shift(-input.start);
        let value = b.load(input.memory, &at);
        let (value, outside) = wrapped(b, value, rows);
        report(b, status, outside);
        let value = b.cast(DType::I32, value);
        b.store(output.memory, number, value);
    });
    work.finish(lowered);
}
