//! A run's part in data parallelism: which rows of a batch this rank computes, and what all ranks' rows give.

use std::{ops::Range, sync::Arc};

use phynexus::{
    DType, Tensor,
    distributed::Group,
    op::{CollectiveKind, Combine, Loss},
};

use crate::{
    Result,
    distributed::{DataParallel, DataParallelOptions, broadcast},
    nn::{Module, Parameter, Role},
};

/// The ranks that train a model together, each with a copy.
pub(super) struct Parallel {
    group: Arc<Group>,
    gradients: Arc<DataParallel>,
}

const SUM: CollectiveKind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);

impl Parallel {
    /// Gives every rank rank 0's model, and averages gradients from now on.
    pub(super) fn new(model: &dyn Module, group: &Arc<Group>) -> Result<Parallel> {
        let state = model.named_state();
        broadcast(
            state.iter().filter(|(_, role, _)| *role == Role::Buffer).map(|(.., buffer)| buffer),
            group,
        )?;
        let weights = state.into_iter().filter(|(_, role, _)| *role == Role::Weight);
        let named: Vec<(String, Parameter)> = weights.map(|(name, _, weight)| (name, weight)).collect();
        let gradients = DataParallel::new(&named, group, DataParallelOptions::default())?;
        Ok(Parallel { group: group.clone(), gradients })
    }

    /// Whether every rank computes equally many rows of a batch.
    pub(super) fn is_even(&self, rows: usize) -> bool {
        rows.is_multiple_of(self.group.size())
    }

    /// The rows that this rank computes. There is always one, so that all ranks take the same steps.
    pub(super) fn rows(&self, rows: usize) -> Range<usize> {
        let own = self.own(rows);
        if own.is_empty() { 0..1 } else { own }
    }

    fn own(&self, rows: usize) -> Range<usize> {
        let start = |rank: usize| rank * rows / self.group.size();
        start(self.group.rank())..start(self.group.rank() + 1)
    }

    /// What this rank's mean loss counts, so that the ranks' mean is that of all rows.
    pub(super) fn weight(&self, rows: usize) -> f64 {
        (self.own(rows).len() * self.group.size()) as f64 / rows as f64
    }

    /// The mean over all ranks of a weighted loss.
    pub(super) fn mean(&self, weighted: &Tensor) -> Result<Tensor> {
        Ok(weighted.detach()?.collective(SUM, &self.group)?.mul_scalar(1.0 / self.group.size() as f64)?)
    }

    /// The sum over all ranks of a count of this rank's rows.
    pub(super) fn sum(&self, count: &Tensor, rows: usize) -> Result<Tensor> {
        let own = if self.own(rows).is_empty() { count.zeros_like()? } else { count.clone() };
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
