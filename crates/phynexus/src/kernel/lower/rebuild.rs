//! A specification over other ranges: parts of its columns, or some of its rows.

use super::{Lowered, Source, Target, Unsupported, draft::Draft, lower_fused};
use crate::{
    DType, Scalar,
    hash::FastMap,
    kernel::{
        Index, Mask,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Parameter, Store},
        view::{Coordinates, flat},
    },
    shape::contiguous_strides,
};

/// A part of a specification over other ranges, reduced to what its stores need.
pub(super) struct Rebuild<'a> {
    fused: &'a Fusion,
    pub(super) draft: Draft,
    /// The old ranges in terms of the new ones.
    pub(super) at: Coordinates,
    /// The condition of all loads that differ between columns.
    pub(super) guard: Mask,
    /// New instructions by their old numbers.
    pub(super) values: FastMap<InstructionId, InstructionId>,
    /// New parameters by their old numbers.
    parameters: FastMap<u16, u16>,
    old_sources: &'a [Source],
    pub(super) sources: Vec<Source>,
}

impl<'a> Rebuild<'a> {
    /// Starts with new ranges. The first ones stand for the old ranges, unless `at` is changed.
    pub(super) fn new(
        fused: &'a Fusion,
        old_sources: &'a [Source],
        rows: &[usize],
        columns: &[usize],
    ) -> Rebuild<'a> {
        let draft = Draft::new(rows, columns);
        let at = draft.ranges().coordinates();
        let (values, parameters, sources) = (FastMap::default(), FastMap::default(), Vec::new());
        Rebuild { fused, draft, at, guard: Mask::default(), values, parameters, old_sources, sources }
    }

    /// The number of the old row.
    pub(super) fn row(&self) -> Index {
        let rows = self.fused.rows.len();
        flat(&self.at[..rows], &contiguous_strides(&self.fused.rows), 0)
    }

    pub(super) fn input(&mut self, dtype: DType, source: Source, index: Index) -> InstructionId {
        let parameter = self.draft.parameter(dtype, false);
        self.sources.push(source);
        self.draft.load(parameter, index, Mask::default(), Scalar::Int(0))
    }

    pub(super) fn output(&mut self, dtype: DType, source: Source, value: InstructionId, index: Index) {
        let parameter = self.draft.parameter(dtype, true);
        self.sources.push(source);
        self.draft.store(parameter, value, index);
    }

    fn parameter(&mut self, old: u16) -> u16 {
        if let Some(&new) = self.parameters.get(&old) {
            return new;
        }
        let Parameter { dtype, written } = self.fused.parameters[usize::from(old)];
        let new = self.draft.parameter(dtype, written);
        self.sources.push(self.old_sources[usize::from(old)]);
        self.parameters.insert(old, new);
        new
    }

    pub(super) fn value(&mut self, old: InstructionId) -> InstructionId {
        if let Some(&new) = self.values.get(&old) {
            return new;
        }
        let Instruction { operation, dtype, per_column } = &self.fused.instructions[old as usize];
        let ranges = self.draft.ranges();
        let operation = match operation {
            FusedOp::Load { parameter, index, mask, fill } => {
                let mask = mask.as_ref().map(|m| m.substitute(&self.at, &ranges)).unwrap_or_default();
                // What is the same in all columns is loaded once.
                let mask = if *per_column { mask.and(&self.guard) } else { mask };
                FusedOp::Load {
                    parameter: self.parameter(*parameter),
                    index: index.substitute(&self.at, &ranges),
                    mask: (!mask.is_always()).then_some(mask),
                    fill: *fill,
                }
            }
            FusedOp::Coordinate(index) => FusedOp::Coordinate(index.substitute(&self.at, &ranges)),
            other => other.mapped(|v| self.value(v)),
        };
        let new = self.draft.emit(operation, *dtype);
        self.values.insert(old, new);
        new
    }

    /// Adds the stores of these values.
    pub(super) fn add_stores(&mut self, wanted: impl Fn(InstructionId) -> bool) {
        for store in self.fused.stores.iter().filter(|s| wanted(s.value)) {
            let value = self.value(store.value);
            let index = store.index.substitute(&self.at, &self.draft.ranges());
            let parameter = self.parameter(store.parameter);
            let replaces = store.replaces.map(|replaced| self.parameter(replaced));
            self.draft.fused.stores.push(Store { parameter, value, index, replaces });
        }
    }

    /// Adds the stores of these values, and lowers the specification if it has any stores.
    pub(super) fn finish(
        mut self,
        wanted: impl Fn(InstructionId) -> bool,
        target: &Target,
        lowered: &mut Lowered,
    ) -> Result<(), Unsupported> {
        self.add_stores(wanted);
        if self.draft.fused.stores.is_empty() {
            return Ok(());
        }
        lower_fused(&self.draft.fused, &self.sources, target, lowered)
    }
}
