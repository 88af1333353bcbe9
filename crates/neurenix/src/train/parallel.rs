//! A run's part in data parallelism: which rows of a batch this rank computes, and what all ranks' rows give.

use std::sync::Arc;

use phynexus::{
    DType, Tensor,
    distributed::Group,
    no_grad,
    op::{CollectiveKind, Combine, Loss},
    tensor::Generator,
};

use super::step;
use crate::{
    Result,
    distributed::{DataParallel, DataParallelOptions, Division, broadcast},
    nn::{Module, Parameter, Role},
};

/// The ranks that train a model together, each with a copy.
pub(super) struct Parallel {
    group: Arc<Group>,
    division: Division,
    gradients: Arc<DataParallel>,
}

/// The number of rows that a pass in training needs: 2 if the model refuses one row, as batch normalisation of single
/// values does. Records a pass over the row without computing it.
///
/// # Errors
/// If the model's buffers cannot be put back.
pub(super) fn least_rows(model: &dyn Module, row: &Tensor, generators: [&Generator; 2]) -> Result<usize> {
    let _guard = no_grad();
    model.train(true);
    let buffers: Vec<(Parameter, Tensor)> =
        step::buffers(model).into_iter().map(|buffer| (buffer.clone(), buffer.tensor())).collect();
    let states = generators.map(Generator::state);
    let accepts_one = model.forward(row).is_ok();
    generators.iter().zip(states).for_each(|(generator, state)| generator.set_state(state));
    buffers.into_iter().try_for_each(|(buffer, value)| buffer.set(value))?;
    Ok(if accepts_one { 1 } else { 2 })
}

const SUM: CollectiveKind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);

impl Parallel {
    /// Gives every rank rank 0's model, and averages gradients from now on. A rank computes at least `least` rows.
    pub(super) fn new(model: &dyn Module, group: &Arc<Group>, least: usize) -> Result<Parallel> {
        let state = model.named_state();
        broadcast(
            state.iter().filter(|(_, role, _)| *role == Role::Buffer).map(|(.., buffer)| buffer),
            group,
        )?;
        let weights = state.into_iter().filter(|(_, role, _)| *role == Role::Weight);
        let named: Vec<(String, Parameter)> = weights.map(|(name, _, weight)| (name, weight)).collect();
        let gradients = DataParallel::new(&named, group, DataParallelOptions::default())?;
        let division = Division { rank: group.rank(), size: group.size(), least };
        Ok(Parallel { group: group.clone(), division, gradients })
    }

    /// How the rows of a batch are divided.
    pub(super) fn division(&self) -> Division {
        self.division
    }

    /// What this rank's mean loss counts, so that the ranks' mean is that of all rows.
    pub(super) fn weight(&self, rows: usize) -> f64 {
        (self.division.own(rows).len() * self.group.size()) as f64 / rows as f64
    }

    /// The mean over all ranks of a weighted loss.
    pub(super) fn mean(&self, weighted: &Tensor) -> Result<Tensor> {
        Ok(weighted.detach()?.collective(SUM, &self.group)?.mul_scalar(1.0 / self.group.size() as f64)?)
    }

    /// The sum over all ranks of a count of this rank's rows.
    pub(super) fn sum(&self, count: &Tensor, rows: usize) -> Result<Tensor> {
        let own = if self.division.own(rows).is_empty() { count.zeros_like()? } else { count.clone() };
        Ok(own.collective(SUM, &self.group)?)
    }

    /// Leaves gradients as they are, to accumulate them.
    pub(super) fn set_paused(&self, paused: bool) {
        self.gradients.set_paused(paused);
    }

    /// Gives every rank rank 0's running statistics.
    pub(super) fn share(&self, buffers: &[Parameter]) -> Result<()> {
        broadcast(buffers.iter(), &self.group)
    }

    /// Whether this rank writes files.
    pub(super) fn writes(&self) -> bool {
        self.group.rank() == 0
    }

    /// Whether this holds on any rank.
    pub(super) fn any(&self, holds: bool) -> Result<bool> {
        let mut any = [u8::from(holds)];
        self.group.transport().all_reduce(&mut any, DType::U8, Combine::Max)?;
        Ok(any == [1])
    }

    /// Rank 0's numbers, for all ranks.
    pub(super) fn numbers_of_rank_0<const N: usize>(&self, own: [u64; N]) -> Result<[u64; N]> {
        let mut bytes = own.map(u64::to_le_bytes);
        self.group.transport().broadcast(bytes.as_flattened_mut(), 0)?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// Waits for all ranks.
    pub(super) fn barrier(&self) -> Result<()> {
        Ok(self.group.transport().barrier()?)
    }
}
