//! Matrix products: `c = a * b`, for any strides and every dtype.
//!
//! Three methods, chosen only by the shape and the strides, so that results depend neither on the number of threads nor
//! on timing: tiles of C in registers over packed or unpacked operands (`blocked`), dot products if both operands are
//! contiguous along k and packing would not pay off, and streaming of a matrix against a few vectors (`skinny`).
//! Integers have separate code (`integer`).

pub(crate) mod blocked;
mod byte_columns;
mod byte_dots;
mod bytes;
mod integer;
pub(crate) mod pack;
pub(crate) mod panels;
pub(crate) mod scratch;
mod skinny;

#[cfg(test)]
mod tests;

use std::ops::Range;

use phynexus::{DType, Error, Result};

pub use crate::kernels::InstructionSet;
use pack::Accumulator;

use crate::pool;

/// A matrix to read. Strides are in elements and may be negative; a stride of 0 repeats.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// The element at row 0, column 0.
    pub data: *const u8,
    /// The element type.
    pub dtype: DType,
    /// The row stride.
    pub row_stride: isize,
    /// The column stride.
    pub column_stride: isize,
}

/// A matrix to write. Strides are in elements; no two elements may share a place.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The element at row 0, column 0.
    pub data: *mut u8,
    /// The element type.
    pub dtype: DType,
    /// The row stride.
    pub row_stride: isize,
    /// The column stride.
    pub column_stride: isize,
}

/// The starts of the matrices of one product of a batch, in elements from the operands' `data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchItem {
    /// The start in a.
    pub a: isize,
    /// The start in b.
    pub b: isize,
    /// The start in c.
    pub c: isize,
}

/// Called with `(index in the batch, rows, columns)` for every block of C once its values are final, from any thread.
pub type Epilogue<'a> = &'a (dyn Fn(usize, Range<usize>, Range<usize>) + Sync);

/// Products with fewer multiplications than this are not worth a second thread.
const SERIAL: usize = 1 << 20;
/// Unless their operands have this many bytes: one core reads them at a tenth of the bandwidth of all.
const SERIAL_BYTES: usize = 1 << 19;

/// One product of floats.
#[derive(Clone, Copy)]
struct Problem<'a> {
    m: usize,
    n: usize,
    k: usize,
    a: Operand,
    b: Operand,
    c: Output,
    index: usize,
    /// Whether rows and columns were exchanged; the epilogue gets them in the original order.
    exchanged: bool,
    epilogue: Option<Epilogue<'a>>,
    set: InstructionSet,
}

/// Computes `c = a * b` for every item of `batch`: a is `m` by `k`, b is `k` by `n`, c is `m` by `n`. Sums over an
/// empty k are 0.
///
/// - c `f64`: operands of any float type, sums in `f64`.
/// - c `f32`, `f16` or `bf16`: operands `f32`, `f16` or `bf16`, products and sums in `f32`, rounded once when stored.
/// - c of an integer type: operands of any integer type or `bool`, exact modulo two to the width of c.
///
/// The epilogue is called exactly once for every element of every c, in blocks. Each call comes after the block's
/// values are stored and while they are likely in cache. Results do not depend on the number of threads.
///
/// # Errors
/// [`Error::DType`] for any other combination of types.
///
/// # Safety
/// Every element described by the shapes, strides and batch items must be valid to read (a, b) or to write (c) and
/// aligned for its type, and c must overlap neither an operand nor itself.
pub unsafe fn gemm(
    m: usize,
    n: usize,
    k: usize,
    batch: &[BatchItem],
    a: &Operand,
    b: &Operand,
    c: &Output,
    epilogue: Option<Epilogue<'_>>,
) -> Result<()> {
    // SAFETY: guaranteed by the caller; this machine supports the best set.
    unsafe { gemm_with(InstructionSet::best(), m, n, k, batch, a, b, c, epilogue) }
}

/// True if products of these operands can be summed to `result`: the combinations listed for [`gemm`].
pub(crate) fn has_product(result: DType, operands: &[DType]) -> bool {
    operands.iter().all(|operand| match result {
        DType::F64 => operand.is_float(),
        DType::F32 | DType::F16 | DType::BF16 => operand.is_float() && *operand != DType::F64,
        DType::Bool => false,
        _ => !operand.is_float(),
    })
}

/// [`gemm`] with the kernels of a given instruction set.
///
/// # Safety
/// Same as [`gemm`], and the machine must support the instruction set.
unsafe fn gemm_with(
    set: InstructionSet,
    m: usize,
    n: usize,
    k: usize,
    batch: &[BatchItem],
    a: &Operand,
    b: &Operand,
    c: &Output,
    epilogue: Option<Epilogue<'_>>,
) -> Result<()> {
    if !has_product(c.dtype, &[a.dtype, b.dtype]) {
        return Err(Error::dtype(
            "matmul",
            &[a.dtype, b.dtype, c.dtype],
            "operands and result must all be floats, the result no narrower than float64 operands, or all be integers",
        ));
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    if let Some((rows, first)) = merged(m, batch, a, c) {
        let split = |_: usize, rows: Range<usize>, columns: Range<usize>| {
            for item in rows.start / m..rows.end.div_ceil(m) {
                let (start, end) = (rows.start.max(item * m), rows.end.min((item + 1) * m));
                if let Some(epilogue) = epilogue {
                    epilogue(item, start - item * m..end - item * m, columns.clone());
                }
            }
        };
        let problem = Problem {
            m: rows,
            n,
            k,
            a: a.at(first.a),
            b: b.at(first.b),
            c: c.at(first.c),
            index: 0,
            exchanged: false,
            epilogue: epilogue.is_some().then_some(&split as Epilogue<'_>),
            set,
        };
        // SAFETY: guaranteed by the caller; the merged rows are those of the items.
        unsafe { one(problem) };
        return Ok(());
    }
    let item = |index: usize| {
        let at = batch[index];
        let (a, b, c) = (a.at(at.a), b.at(at.b), c.at(at.c));
        // SAFETY: guaranteed by the caller.
        unsafe { one(Problem { m, n, k, a, b, c, index, exchanged: false, epilogue, set }) }
    };
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = pool::threads();
    if batch.len() > 1
        && (work < SERIAL || batch.len() >= 4 * threads)
        && work.saturating_mul(batch.len()) >= SERIAL
    {
        // Several small items form one task.
        let group = (SERIAL / 4).div_ceil(work.max(1)).clamp(1, batch.len().div_ceil(threads));
        pool::parallel_for(batch.len().div_ceil(group), &|task| {
            (task * group..((task + 1) * group).min(batch.len())).for_each(item);
        });
    } else {
        (0..batch.len()).for_each(item);
    }
    Ok(())
}

/// A batch that shares b and has consecutive rows of a and c is one tall product: returns its rows and first item.
fn merged(m: usize, batch: &[BatchItem], a: &Operand, c: &Output) -> Option<(usize, BatchItem)> {
    let first = *batch.first()?;
    let rows = m as isize;
    let follows = |(i, item): (usize, &BatchItem)| {
        let i = i as isize;
        item.b == first.b
            && item.a == first.a + i * rows * a.row_stride
            && item.c == first.c + i * rows * c.row_stride
    };
    let whole = batch.len() > 1 && batch.iter().enumerate().all(follows);
    whole.then_some((m.checked_mul(batch.len())?, first))
}

/// One product.
///
/// # Safety
/// Same as [`gemm`] for this item; the machine must support `set`.
unsafe fn one(problem: Problem<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match problem.c.dtype {
            DType::F64 => floats::<f64>(problem),
            DType::F32 | DType::F16 | DType::BF16 => floats::<f32>(problem),
            _ => integer::product(&problem),
        }
    }
}

/// One product of floats, summed in `T`.
///
/// # Safety
/// Same as [`one`].
unsafe fn floats<T: Accumulator>(mut problem: Problem<'_>) {
    // The stride along an axis of one element is arbitrary; kernels prefer 1.
    if problem.n == 1 {
        problem.b.column_stride = 1;
        problem.c.column_stride = 1;
    }
    if problem.m == 1 {
        problem.a.row_stride = 1;
        problem.c.row_stride = 1;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if problem.k == 0 {
            blocked::zeros::<T>(&problem);
            return;
        }
        if skinny::product::<T>(&problem) {
            return;
        }
        // Kernels write rows of C: a C with contiguous columns is computed as its transpose.
        if problem.c.column_stride != 1 && problem.c.row_stride == 1 {
            problem = problem.exchanged();
        }
        blocked::product::<T>(&problem);
    }
}

impl Operand {
    /// The same matrix, starting at another element.
    fn at(&self, elements: isize) -> Operand {
        Operand { data: self.data.wrapping_offset(elements * self.dtype.size() as isize), ..*self }
    }
    /// The submatrix from this row and column on.
    fn corner(&self, row: usize, column: usize) -> Operand {
        self.at(row as isize * self.row_stride + column as isize * self.column_stride)
    }
    pub(crate) fn transposed(&self) -> Operand {
        Operand { row_stride: self.column_stride, column_stride: self.row_stride, ..*self }
    }
}

impl Output {
    /// The same matrix, starting at another element.
    fn at(&self, elements: isize) -> Output {
        Output { data: self.data.wrapping_offset(elements * self.dtype.size() as isize), ..*self }
    }
    /// The submatrix from this row and column on.
    fn corner(&self, row: usize, column: usize) -> Output {
        self.at(row as isize * self.row_stride + column as isize * self.column_stride)
    }
}

impl Problem<'_> {
    /// The transposed product; its result uses the same memory.
    fn exchanged(self) -> Self {
        Problem {
            m: self.n,
            n: self.m,
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: Output { row_stride: self.c.column_stride, column_stride: self.c.row_stride, ..self.c },
            exchanged: !self.exchanged,
            ..self
        }
    }

    /// The number of multiplications.
    fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// Whether it is not worth a second thread.
    fn is_small(&self) -> bool {
        let bytes = |operand: &Operand, rows: usize| rows.saturating_mul(self.k) * operand.dtype.size();
        self.work() < SERIAL && bytes(&self.a, self.m).saturating_add(bytes(&self.b, self.n)) < SERIAL_BYTES
    }

    /// Reports that a block of C is final.
    fn finish(&self, rows: Range<usize>, columns: Range<usize>) {
        if let Some(epilogue) = self.epilogue {
            if self.exchanged {
                epilogue(self.index, columns, rows);
            } else {
                epilogue(self.index, rows, columns);
            }
        }
    }

    /// Runs tasks on the pool, or inline if the whole product is small.
    fn tasks(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        if self.is_small() {
            (0..count).for_each(body);
        } else {
            pool::parallel_for(count, body);
        }
    }
}

// SAFETY: it only describes a matrix; reading it is unsafe.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}
// SAFETY: it only describes a matrix; writing it is unsafe.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Part `i` of `0..total`, divided into `parts` of nearly equal length.
pub(crate) fn part(total: usize, parts: usize, i: usize) -> Range<usize> {
    let (each, more) = (total / parts, total % parts);
    let start = i * each + i.min(more);
    start..start + each + usize::from(i < more)
}
