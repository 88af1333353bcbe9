//! Compiles a kernel to a program.

use phynexus::{
    Result,
    kernel::fused::{FusedOp, Fusion, InstructionId, Parameter},
};

use super::{
    access::{Access, Varies},
    allocate,
    axis::LANES,
    emit::Emitter,
    normal,
    plan::{self, Plan},
    program::{Extent, Program},
    values::Values,
};

/// Compiles a kernel that has rows.
pub(super) fn compile(fused: &Fusion) -> Result<Program> {
    let kernel = normal::normalise(fused, false);
    let values = Values::new(&kernel);
    program(fused, &values, &plan::plan(&kernel, &fused.columns, values.phases()))
}

/// Compiles a kernel without reductions that has rows and columns. Its outer axis is its rows and its lanes are its
/// columns, each indexed in row-major order.
pub(super) fn compile_blocks(fused: &Fusion) -> Result<Program> {
    let kernel = normal::normalise(fused, true);
    program(fused, &Values::new(&kernel), &plan::blocks(&kernel))
}

fn program(fused: &Fusion, values: &Values<'_>, plan: &Plan) -> Result<Program> {
    let parameters = required(fused);
    let kernel = values.kernel;
    let mut emitter = Emitter::new(values, plan, varies(values, plan));
    let schedule = if plan.chunked { emitter.chunked()? } else { emitter.whole()? };
    let Emitter { slots, loads, stores, coordinates, constants, .. } = emitter;
    let program = Program {
        cuts: [super::axis::Cut::whole(1); 2],
        segments: plan.segments,
        schedule,
        slots,
        loads,
        stores,
        coordinates,
        constants,
        direct: Vec::new(),
        register_bytes: 0,
        staging_bytes: 0,
        state_bytes: 0,
        partial_bytes: 0,
        parameters,
        nanoseconds: nanoseconds(kernel, values),
    };
    Ok(allocate::allocate(program, plan))
}

/// The extent that the unmasked indices require of each parameter.
fn required(kernel: &Fusion) -> Vec<Extent> {
    let ranges = normal::ranges(kernel);
    let empty = |p: &Parameter| Extent { dtype: p.dtype, before: 0, from_first: 0 };
    let mut parameters: Vec<Extent> = kernel.parameters.iter().map(empty).collect();
    if kernel.column_count() == 0 {
        return parameters;
    }
    let mut ask = |parameter: u16, index: &phynexus::kernel::Index| {
        let (least, greatest) = index.bounds(&ranges);
        if let Some(extent) = parameters.get_mut(usize::from(parameter)) {
            extent.before = extent.before.max(least.min(0).unsigned_abs() as usize);
            extent.from_first = extent.from_first.max(greatest.max(-1).wrapping_add(1) as usize);
        }
    };
    for instruction in &kernel.instructions {
        if let FusedOp::Load { parameter, index, mask: None, .. } = &instruction.operation {
            ask(*parameter, index);
        }
    }
    kernel.stores.iter().for_each(|s| ask(s.parameter, &s.index));
    parameters
}

/// A rough estimate of single-threaded time: a vector operation on 16 lanes takes about half a nanosecond, a function
/// several times as long, and memory transfers about ten bytes per nanosecond.
fn nanoseconds(kernel: &Fusion, values: &Values<'_>) -> f64 {
    let (rows, columns) = (kernel.row_count() as f64, kernel.column_count() as f64);
    let each = |(at, i): (usize, &phynexus::kernel::fused::Instruction)| {
        if !values.needed[at] {
            return 0.0;
        }
        let cost = match i.operation {
            FusedOp::Load { parameter, .. } => {
                0.1 * kernel.parameters.get(usize::from(parameter)).map_or(4, |p| p.dtype.size()) as f64
            }
            FusedOp::Constant(_) => 0.0,
            FusedOp::Unary(..) | FusedOp::Call(..) => 0.2,
            _ => 0.05,
        };
        cost * if i.per_column { rows * columns } else { rows }
    };
    kernel.instructions.iter().enumerate().map(each).sum()
}

/// The tile axes along which each value varies.
fn varies(values: &Values<'_>, plan: &Plan) -> Vec<Varies> {
    let mut all: Vec<Varies> = Vec::with_capacity(values.kernel.instructions.len());
    for (at, instruction) in values.kernel.instructions.iter().enumerate() {
        let operands = values.operands(at as InstructionId);
        let mut varies = operands.iter().fold(Varies::NOWHERE, |v, &a| v.or(all[a as usize]));
        match &instruction.operation {
            FusedOp::Load { index, mask, .. } => {
                varies = Access::new(index, mask.as_ref(), &plan.axes).varies;
            }
            FusedOp::Coordinate(index) => varies = Access::new(index, None, &plan.axes).varies,
            FusedOp::Reduce(..) => {
                if let Some(rows) = plan.rows {
                    varies.0[1 - rows] = false;
                    // Chunks keep one sum per row, side by side, even if all rows are equal.
                    varies.0[rows] |= plan.chunked && rows == LANES;
                }
            }
            _ => {}
        }
        all.push(varies);
    }
    all
}
