//! Renders a plan as text: its steps, what they read and write, and what they compute.

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
};

use super::{
    advice,
    plan::{Plan, PlannedStep},
};
use crate::kernel::step::Step;
pub use crate::kernel::step::StepSummary;
use crate::{
    DType,
    device::Device,
    kernel::fused::{FusedOp, Fusion},
    op::{
        Composite, Conv, ConvKind, Op, Pool,
        composite::{RecurrentGradient, RecurrentSteps},
    },
    shape::element_count,
    text::{counted, show_bytes, show_count, show_shape},
};

impl Plan {
    /// Returns the summaries of the steps, in order.
    pub fn summaries(&self) -> Vec<StepSummary> {
        self.steps.iter().map(|step| StepSummary::clone(&step.summary(self.device))).collect()
    }
}

impl PlannedStep {
    /// Returns the step's summary, which is computed once.
    pub(super) fn summary(&self, device: Device) -> Arc<StepSummary> {
        self.summary.get_or_init(|| Arc::new(self.summarize(device))).clone()
    }

    fn summarize(&self, device: Device) -> StepSummary {
        let step = self;
        let bytes =
            |written: bool| step.parameters.iter().filter(|p| p.written == written).map(|p| p.bytes).sum();
        let count = |written: bool| step.parameters.iter().filter(|p| p.written == written).count();
        let (detail, operations, listing) = match &step.step {
            Step::Fused(kernel) => (fused_detail(kernel), kernel.operations(), Some(kernel.to_string())),
            Step::Batch(kernels) => {
                let mut details: Vec<String> = kernels.iter().map(fused_detail).collect();
                details.dedup();
                let listings: Vec<String> = kernels.iter().map(Fusion::to_string).collect();
                let operations = kernels.iter().map(Fusion::operations).sum();
                (details.join("; "), operations, Some(listings.concat()))
            }
            Step::Library(library) => {
                let operands: Vec<String> =
                    library.operands.iter().map(|o| show_shape(&o.layout.shape)).collect();
                let mut detail = format!("{} -> {}", operands.join(" "), show_shape(&library.node.shape));
                if let Op::Custom(call) = &library.node.op {
                    let shapes: Vec<String> = call.outputs().iter().map(|shape| show_shape(shape)).collect();
                    let [x, y, z] = call.groups();
                    detail =
                        format!("{} -> {}, {x} x {y} x {z} groups", operands.join(" "), shapes.join(" "));
                }
                let epilogue = library.epilogue.as_ref();
                if let Some(epilogue) = epilogue {
                    detail.push_str(&format!(", then {}", fused_detail(epilogue)));
                }
                let listing = epilogue.map(Fusion::to_string);
                let operations = library_operations(step) + epilogue.map_or(0, Fusion::operations);
                (detail, operations, listing)
            }
        };
        StepSummary {
            name: step.step.name(),
            detail,
            device: step.placement.as_ref().map_or(device.name(), |p| &p.device).to_owned(),
            reason: step.placement.as_ref().map(|p| p.reason.clone()),
            inputs: count(false),
            outputs: count(true),
            bytes_read: bytes(false),
            bytes_written: bytes(true),
            operations,
            own_peak: match &step.step {
                Step::Library(library) if multiplies_matrices(&library.node.op) => {
                    library.operands.first().is_some_and(|operand| operand.dtype != DType::F32)
                }
                Step::Library(library) => library.node.op.exact() != &library.node.op,
                _ => false,
            },
            arguments: step.executable.arguments(),
            listing,
            notes: match (&step.step, &step.placement, device.backend().target()) {
                (Step::Library(library), None, Some(target)) => {
                    advice::notes(library, &target.limits.matrices)
                }
                _ => Vec::new(),
            },
        }
    }
}

/// Whether most of an operation is products of matrices.
fn multiplies_matrices(op: &Op) -> bool {
    matches!(
        op,
        Op::Dot
            | Op::Conv(_)
            | Op::Composite(
                Composite::Attention(_)
                    | Composite::AttentionGradient(_)
                    | Composite::RecurrentSteps(_)
                    | Composite::RecurrentGradient(_)
            )
    )
}

fn library_operations(step: &PlannedStep) -> u64 {
    let Step::Library(library) = &step.step else { return 0 };
    let shape = |i: usize| library.operands.get(i).map_or(&[][..], |o| &o.layout.shape[..]);
    let result = library.node.len() as u64;
    match library.node.op.exact() {
        Op::Dot => 2 * result * shape(0).last().copied().unwrap_or(0) as u64,
        // Every output element uses every element of its filter. The gradients compute the same products.
        Op::Conv(Conv(kind, geometry)) => {
            let (output, filter) = match kind {
                ConvKind::Forward => (result, shape(1)),
                ConvKind::InputGradient => (element_count(shape(0)) as u64, shape(1)),
                ConvKind::FilterGradient => (element_count(shape(1)) as u64, &library.node.shape[..]),
            };
            let window: usize = geometry.kernel.iter().product();
            2 * output * (filter.get(1).copied().unwrap_or(0) * window) as u64
        }
        Op::Composite(Composite::Attention(_)) => attention_operations(shape(0), shape(2), 1, 1),
        // Products of queries and keys, again of two, and of the output's gradient and values, of two.
        Op::Composite(Composite::AttentionGradient(_)) => attention_operations(shape(0), shape(2), 3, 2),
        // A product with the weights in each step, which come last or before the biases, and in the gradient first.
        Op::Composite(Composite::RecurrentSteps(RecurrentSteps(layer))) => {
            let sequence = shape(1 + usize::from(layer.cell.has_cell_state()));
            2 * element_count(sequence) as u64 * shape(0).last().copied().unwrap_or(0) as u64
        }
        Op::Composite(Composite::RecurrentGradient(RecurrentGradient(layer))) => {
            let sequence = shape(2 + usize::from(layer.cell.has_cell_state()));
            2 * element_count(sequence) as u64 * shape(0).first().copied().unwrap_or(0) as u64
        }
        Op::Pool(Pool(_, geometry)) => result * geometry.kernel.iter().product::<usize>() as u64,
        _ => result,
    }
}

/// Multiplications and additions of so many products of all queries' features, and of all values, with all keys.
fn attention_operations(q: &[usize], v: &[usize], of_features: usize, of_values: usize) -> u64 {
    let (&[batch, heads, queries, features], &[.., keys, values]) = (q, v) else { return 0 };
    2 * (batch * heads * queries * keys) as u64 * (of_features * features + of_values * values) as u64
}

/// Lists the functions of a kernel in order: `sub exp sum div`.
fn fused_detail(kernel: &Fusion) -> String {
    let name = |operation: &FusedOp| match operation {
        FusedOp::Unary(op, _) => Some(op.name().to_owned()),
        FusedOp::Binary(op, ..) => Some(op.name().to_owned()),
        FusedOp::Select(..) => Some("where".to_owned()),
        FusedOp::Cast(_) => Some("cast".to_owned()),
        FusedOp::Bitcast(_) => Some("bitcast".to_owned()),
        FusedOp::Reduce(combine, _) => Some(format!("[{}]", combine.name())),
        FusedOp::Call(composite, _) => Some(composite.name().to_owned()),
        FusedOp::Load { .. } | FusedOp::Constant(_) | FusedOp::Coordinate(_) => None,
    };
    let names: Vec<String> = kernel.instructions.iter().filter_map(|i| name(&i.operation)).collect();
    match names.len() {
        0 => "copy".to_owned(),
        1..=24 => names.join(" "),
        more => format!("{} ... ({more} functions)", names[..20].join(" ")),
    }
}

impl Display for Fusion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "rows {} columns {}", show_shape(&self.rows), show_shape(&self.columns))?;
        for (value, instruction) in self.instructions.iter().enumerate() {
            let level = if instruction.per_column { "column" } else { "row" };
            write!(f, "  %{value}: {} per {level} = ", instruction.dtype)?;
            match &instruction.operation {
                FusedOp::Load { parameter, index, mask, fill } => {
                    write!(f, "p{parameter}[{index}]")?;
                    if let Some(mask) = mask {
                        write!(f, " where {mask} else {fill}")?;
                    }
                }
                FusedOp::Constant(scalar) => write!(f, "{scalar}")?,
                FusedOp::Coordinate(index) => write!(f, "{index}")?,
                FusedOp::Unary(op, a) => write!(f, "{}(%{a})", op.name())?,
                FusedOp::Binary(op, a, b) => write!(f, "{}(%{a}, %{b})", op.name())?,
                FusedOp::Select(c, a, b) => write!(f, "where(%{c}, %{a}, %{b})")?,
                FusedOp::Cast(a) => write!(f, "cast(%{a})")?,
                FusedOp::Bitcast(a) => write!(f, "bitcast(%{a})")?,
                FusedOp::Reduce(combine, a) => write!(f, "{} over columns of %{a}", combine.name())?,
                FusedOp::Call(composite, a) => match composite.attributes() {
                    attributes if attributes.is_empty() => write!(f, "{}(%{a})", composite.name())?,
                    attributes => write!(f, "{}(%{a}, {attributes})", composite.name())?,
                },
            }
            writeln!(f)?;
        }
        for store in &self.stores {
            writeln!(f, "  p{}[{}] = %{}", store.parameter, store.index, store.value)?;
        }
        Ok(())
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let summaries = self.summaries();
        let total = |count: fn(&StepSummary) -> usize| summaries.iter().map(count).sum::<usize>();
        writeln!(
            f,
            "{} on {}; {} read, {} written, {} of intermediate results",
            counted(summaries.len(), "step"),
            self.device,
            show_bytes(total(|s| s.bytes_read)),
            show_bytes(total(|s| s.bytes_written)),
            show_bytes(self.arena_bytes)
        )?;
        for (number, step) in summaries.iter().enumerate() {
            let (read, written) = (show_bytes(step.bytes_read), show_bytes(step.bytes_written));
            writeln!(
                f,
                "{:>4}  {:<12} {:>2} in {read:>9}  {:>2} out {written:>9}  {:>9} operations  {}",
                number + 1,
                step.name,
                step.inputs,
                step.outputs,
                show_count(step.operations),
                step.detail
            )?;
            if step.arguments > 0 {
                writeln!(f, "      for other sizes too: {} as arguments", counted(step.arguments, "number"))?;
            }
            if let Some(reason) = &step.reason {
                writeln!(f, "      on {}: {reason}", step.device)?;
            }
            for note in &step.notes {
                writeln!(f, "      note: {note}")?;
            }
        }
        let slots = self.slots.count();
        if slots > 0 {
            writeln!(f, "{} may change from run to run", counted(slots, "number"))?;
        }
        let taken = self.owned.iter().filter(|o| o.donor.is_some()).count();
        if taken > 0 {
            writeln!(
                f,
                "{taken} of {} stored in place of leaves that are no longer needed",
                counted(self.owned.len(), "result")
            )?;
        }
        Ok(())
    }
}
