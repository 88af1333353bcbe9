//! The loops of a kernel with columns: which reductions and stores each of them makes, and what they keep in registers.

use super::super::expression::Kept;
use crate::{
    hash::{FastMap, FastSet},
    kernel::{
        build::Builder,
        fused::{FusedOp, Fusion, InstructionId, Store},
    },
    op::{Binary, Combine},
};

/// Maximum number of 32-bit registers per invocation for kept values.
const KEPT: usize = 32;

/// The loops over the columns. The reductions of one depend only on those of earlier ones.
pub(super) struct Passes<'a> {
    pub(super) reducing: Vec<Pass<'a>>,
    /// Stores of values that need every reduction.
    pub(super) last: Pass<'a>,
}

/// A loop over the columns.
#[derive(Clone, Default)]
pub(super) struct Pass<'a> {
    pub(super) reductions: Vec<Reduction>,
    /// Stores of per-column values.
    pub(super) stores: Vec<&'a Store>,
}

#[derive(Clone, Copy)]
pub(super) struct Reduction {
    pub(super) result: InstructionId,
    pub(super) combine: Combine,
    pub(super) of: InstructionId,
}

impl Pass<'_> {
    /// What it computes for each column.
    pub(super) fn roots(&self, fused: &Fusion) -> impl Iterator<Item = InstructionId> {
        let stored = |store: &&Store| match fused.partial(store) {
            Some((condition, new)) => [condition, new],
            None => [store.value; 2],
        };
        self.reductions.iter().map(|reduction| reduction.of).chain(self.stores.iter().flat_map(stored))
    }

    /// Returns whether a root loads this parameter, other than for a reduction, which is known by then.
    fn reads(&self, fused: &Fusion, parameter: Option<u16>) -> bool {
        let Some(read) = parameter else { return false };
        let mut open: Vec<InstructionId> = self.roots(fused).collect();
        let mut seen = FastSet::default();
        while let Some(value) = open.pop() {
            let operation = &fused.instructions[value as usize].operation;
            if matches!(operation, FusedOp::Load { parameter, .. } if *parameter == read) {
                return true;
            }
            if seen.insert(value) && !matches!(operation, FusedOp::Reduce(..)) {
                open.extend(operation.operands());
            }
        }
        false
    }
}

impl Passes<'_> {
    /// A later loop may read what is stored, so no store comes before the last reduction's loop. Stores that are made in
    /// few places come after it, because stores in a loop keep compilers from loading ahead.
    pub(super) fn of(fused: &Fusion) -> Passes<'_> {
        let mut level = vec![0; fused.instructions.len()];
        let mut passes = Passes { reducing: Vec::new(), last: Pass::default() };
        for (at, instruction) in fused.instructions.iter().enumerate() {
            let operands = instruction.operation.operands();
            level[at] = operands.iter().map(|&v| level[v as usize]).max().unwrap_or(0);
            if let FusedOp::Reduce(combine, of) = instruction.operation {
                let count = passes.reducing.len().max(level[at] + 1);
                passes.reducing.resize(count, Pass::default());
                let reduction = Reduction { result: at as InstructionId, combine, of };
                passes.reducing[level[at]].reductions.push(reduction);
                level[at] += 1;
            }
        }
        let count = passes.reducing.len();
        let by_column = |store: &&Store| fused.instructions[store.value as usize].per_column;
        let is_early = |store: &&Store| level[store.value as usize] < count && fused.partial(store).is_none();
        let (mut early, late) = fused.stores.iter().filter(by_column).partition::<Vec<&Store>, _>(is_early);
        passes.last.stores = late;
        // What a later store needs is not overwritten.
        while let Some(at) = early.iter().position(|store| passes.last.reads(fused, store.replaces)) {
            passes.last.stores.push(early.remove(at));
        }
        if let Some(pass) = passes.reducing.last_mut() {
            pass.stores = early;
        }
        passes
    }
}

/// Registers for values that several loops need and that are worth keeping: loads, and functions that take longer than
/// a load if they fit as well.
pub(super) fn keep(b: &mut Builder, fused: &Fusion, passes: &Passes<'_>, each: usize) -> Kept {
    // Conditions of stores that are made in few places are computed again.
    let stored =
        passes.last.stores.iter().filter(|store| fused.partial(store).is_none()).map(|s| s.value).collect();
    let roots = passes.reducing.iter().map(|pass| pass.roots(fused).collect()).chain([stored]);
    let roots: Vec<Vec<InstructionId>> =
        roots.filter(|roots: &Vec<InstructionId>| !roots.is_empty()).collect();
    let words = |values: &[InstructionId]| -> usize {
        values.iter().map(|&v| fused.instructions[v as usize].dtype.size().div_ceil(4) * each).sum()
    };
    let wanted = [true, false].into_iter().map(|functions| needed_again(fused, &roots, functions));
    let chosen = wanted.into_iter().find(|values| words(values) <= KEPT).unwrap_or_default();
    let mut kept = Kept::default();
    for value in chosen {
        let dtype = fused.instructions[value as usize].dtype.compute();
        kept.registers.insert(value, b.registers(dtype, each));
    }
    kept
}

fn needed_again(fused: &Fusion, roots: &[Vec<InstructionId>], functions: bool) -> Vec<InstructionId> {
    let keepable = |operation: &FusedOp| match operation {
        FusedOp::Load { .. } => true,
        FusedOp::Unary(op, _) => functions && !op.is_exact(),
        FusedOp::Binary(op, ..) => functions && (*op == Binary::Div || op.row().slow),
        _ => false,
    };
    let mut first: FastMap<InstructionId, usize> = FastMap::default();
    let mut again = Vec::new();
    for (pass, roots) in roots.iter().enumerate() {
        let mut open = roots.clone();
        let mut seen = FastSet::default();
        while let Some(value) = open.pop() {
            let instruction = &fused.instructions[value as usize];
            if !instruction.per_column || !seen.insert(value) {
                continue;
            }
            if *first.entry(value).or_insert(pass) < pass && keepable(&instruction.operation) {
                again.push(value);
                continue;
            }
            open.extend(instruction.operation.operands());
        }
    }
    again.sort_unstable();
    again.dedup();
    again
}
