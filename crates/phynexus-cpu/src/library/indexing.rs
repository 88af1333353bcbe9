//! Rows by index, sorting, scans, joins and random words: the routines of `ops`.

use phynexus::{
    DType, DTypeKind, Error, Result,
    device::Support,
    kernel::step::Operand,
    op::{ArgReduce, ArgSort, Cat, Combine, Op, Scan, Scatter, ScatterMode, SearchSorted, ir::IrNode},
};

use super::{Routine, misfit};
use crate::ops::{self, Axis, Indices, Part};

/// Whether there is a routine for this operation on these dtypes.
pub(super) fn support(node: &IrNode, operands: &[DType]) -> Support {
    let not = |what: &str| {
        let names: Vec<&str> = operands.iter().map(|o| o.name()).collect();
        Support::Unsupported(format!("no {what} of {} to {}", names.join(" and "), node.dtype))
    };
    let arithmetic =
        |combine: Combine| node.dtype != DType::Bool || matches!(combine, Combine::Max | Combine::Min);
    let fits = match &node.op {
        Op::Gather(_) => operands.get(1).is_some_and(|i| i.is_integer()),
        Op::Scatter(Scatter(mode, _)) => {
            operands.get(1).is_some_and(|i| i.is_integer())
                && match mode {
                    ScatterMode::Set => true,
                    ScatterMode::Combine(combine) => arithmetic(*combine),
                }
        }
        Op::Scan(Scan { combine, .. }) => arithmetic(*combine) && operands == [node.dtype],
        Op::ArgReduce(_) | Op::ArgSort(_) | Op::SearchSorted(_) => {
            node.dtype.kind() == DTypeKind::Signed && node.dtype.size() == 8
        }
        Op::RandomBits => node.dtype == DType::U32 && operands == [DType::U32],
        Op::Cat(_) => operands.iter().all(|o| *o == node.dtype),
        _ => false,
    };
    if fits { Support::Routine } else { not(node.op.name()) }
}

/// One of these operations for fixed shapes.
pub(super) struct Indexing {
    task: Task,
    operands: Vec<Extent>,
    elements: usize,
}

/// The part of an operand's shape that the routines need.
struct Extent {
    dtype: DType,
    elements: usize,
}

enum Task {
    Gather { rows: usize, row_bytes: usize },
    Scatter { mode: ScatterMode, rows: usize, width: usize },
    Scan { combine: Combine, axis: Axis, reverse: bool },
    ArgReduce { least: bool, axis: Axis },
    ArgSort { descending: bool, rows: usize, n: usize },
    SearchSorted { right: bool },
    RandomBits,
    Cat { sizes: Vec<usize>, outer: usize, inner_bytes: usize },
}

fn along(shape: &[usize], axis: usize) -> Axis {
    Axis { outer: shape[..axis].iter().product(), n: shape[axis], inner: shape[axis + 1..].iter().product() }
}

impl Indexing {
    pub(super) fn new(node: &IrNode, operands: &[Operand]) -> Result<Indexing> {
        let name = node.op.name();
        let dtypes: Vec<DType> = operands.iter().map(|o| o.dtype).collect();
        let shape = |i: usize| {
            operands.get(i).map(|o| o.layout.shape.as_slice()).ok_or_else(|| misfit(name, operands))
        };
        let first = shape(0)?;
        if support(node, &dtypes) != Support::Routine {
            return Err(misfit(name, operands));
        }
        let size = node.dtype.size();
        let task = match &node.op {
            Op::Gather(_) | Op::Scatter(_) => {
                let &[rows, width] = first else { return Err(misfit(name, operands)) };
                match &node.op {
                    Op::Scatter(Scatter(mode, _)) => {
                        if shape(2)? != [shape(1)?.iter().product(), width] {
                            return Err(misfit(name, operands));
                        }
                        Task::Scatter { mode: *mode, rows, width }
                    }
                    _ => Task::Gather { rows, row_bytes: width * size },
                }
            }
            Op::Scan(Scan { combine, axis, reverse }) if *axis < first.len() => {
                Task::Scan { combine: *combine, axis: along(first, *axis), reverse: *reverse }
            }
            Op::ArgReduce(ArgReduce { combine, axis }) if *axis < first.len() => {
                Task::ArgReduce { least: *combine == Combine::Min, axis: along(first, *axis) }
            }
            Op::ArgSort(ArgSort { descending }) => {
                let (n, rows) = first.split_last().map_or((1, 1), |(n, lead)| (*n, lead.iter().product()));
                Task::ArgSort { descending: *descending, rows, n }
            }
            Op::SearchSorted(SearchSorted { right }) if operands.len() == 2 && dtypes[0] == dtypes[1] => {
                Task::SearchSorted { right: *right }
            }
            Op::RandomBits if first.iter().product::<usize>() == 4 => Task::RandomBits,
            Op::Cat(Cat { axis }) if *axis < first.len() => {
                let Axis { outer, inner, .. } = along(first, *axis);
                let sizes = operands.iter().map(|o| o.layout.shape[*axis]).collect();
                Task::Cat { sizes, outer, inner_bytes: inner * size }
            }
            _ => return Err(misfit(name, operands)),
        };
        let extents = operands.iter().map(|o| Extent { dtype: o.dtype, elements: o.layout.len() });
        Ok(Indexing { task, operands: extents.collect(), elements: node.len() })
    }
}

impl Routine for Indexing {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let internal = |what: &str| Error::internal("phynexus_cpu::library", what.to_owned());
        let first = *operands.first().ok_or_else(|| internal("an operand is missing"))?;
        let dtype = self.operands[0].dtype;
        // SAFETY: the caller guarantees that operands and result are contiguous and have the element counts computed in
        // `new`.
        unsafe {
            let indices = || {
                Indices::new(self.operands[1].dtype, operands[1], self.operands[1].elements)
                    .ok_or_else(|| internal("indices are not integers"))
            };
            match &self.task {
                Task::Gather { rows, row_bytes } => ops::gather(first, *rows, *row_bytes, indices()?, result)
                    .map_err(|index| Error::Index { op: "gather", index, size: *rows, axis: None })?,
                Task::Scatter { mode, rows, width } => {
                    ops::scatter(*mode, dtype, [*rows, *width], first, indices()?, operands[2], result)
                        .map_err(|index| Error::Index { op: "scatter", index, size: *rows, axis: None })?;
                }
                Task::Scan { combine, axis, reverse } => {
                    if !ops::scan(*combine, dtype, *axis, *reverse, first, result) {
                        return Err(internal("scan does not support this dtype"));
                    }
                }
                Task::ArgReduce { least, axis } => {
                    ops::arg_reduce(dtype, *least, *axis, first, result.cast())
                }
                Task::ArgSort { descending, rows, n } => {
                    ops::arg_sort(dtype, *descending, *rows, *n, first, result.cast());
                }
                Task::SearchSorted { right } => {
                    let (n, m) = (self.operands[0].elements, self.operands[1].elements);
                    ops::search_sorted(dtype, *right, first, n, operands[1], m, result.cast());
                }
                Task::RandomBits => {
                    ops::random_bits(first.cast::<[u32; 4]>().read_unaligned(), self.elements, result.cast());
                }
                Task::Cat { sizes, outer, inner_bytes } => {
                    let parts: Vec<Part> =
                        operands.iter().zip(sizes).map(|(&start, &n)| Part { start, n }).collect();
                    ops::cat(&parts, *outer, *inner_bytes, result);
                }
            }
        }
        Ok(())
    }
}
