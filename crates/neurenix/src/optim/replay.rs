//! Steps inside a recorded function. The recording takes their numbers (learning rates, decays, what depends on step
//! counts) as arguments. A replay computes these numbers again and counts the step.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use phynexus::{
    DType, Device, Scalar, Tensor, device::Storage, dtype::scalar_bytes, schedule::capture::is_recording,
    shape::Layout,
};

use super::{
    Member, Optimizer, Rule,
    number::Number,
    update::{Quantity, Rates},
};
use crate::{
    Result,
    nn::{Parameter, recording::adopt_number},
};

/// Identifies an optimiser in this process.
pub(super) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    /// The steps of the function that this thread records.
    static STEPS: RefCell<Option<Vec<RecordedStep>>> = const { RefCell::new(None) };
}

/// Runs a function that records, and returns the steps that it took.
pub(crate) fn noting_steps<T>(function: impl FnOnce() -> T) -> (T, Vec<RecordedStep>) {
    let before = STEPS.replace(Some(Vec::new()));
    let result = function();
    (result, STEPS.replace(before).unwrap_or_default())
}

/// Takes the conditions of the steps noted so far, in order. A replay gets their values as [`RecordedStep::is_read`].
pub(crate) fn take_conditions() -> Vec<Tensor> {
    let take = |steps: &mut Option<Vec<RecordedStep>>| {
        steps.iter_mut().flatten().filter_map(|step| step.condition.take()).collect()
    };
    STEPS.with_borrow_mut(take)
}

/// A step of an optimiser in a recorded function.
pub(crate) struct RecordedStep {
    /// The optimiser.
    id: u64,
    /// The learning rate divided by the initial one.
    share: f64,
    groups: Vec<RecordedGroup>,
    numbers: Vec<FedNumber>,
    /// Whether the step is taken only if a condition holds, which is read after it.
    is_read: bool,
    condition: Option<Tensor>,
}

/// What a recorded step needs of a group.
struct RecordedGroup {
    rule: Rule,
    has_decay: bool,
    /// The members that the step updates.
    updated: Vec<usize>,
    /// Their step counts, compared with that of the first.
    later: Vec<i64>,
    /// The variables of their state.
    state: Vec<Parameter>,
}

/// A number that a recorded step takes as an argument.
struct FedNumber {
    group: usize,
    /// The parameter on whose step count it depends.
    member: Option<usize>,
    quantity: Quantity,
    dtype: DType,
    device: Device,
}

/// Makes leaves of a step's numbers. In a recorded function they are arguments, and listed here.
#[derive(Default)]
pub(super) struct Fed(RefCell<Vec<FedNumber>>);

impl Fed {
    pub(super) fn leaf(
        &self,
        value: f64,
        (dtype, device): (DType, Device),
        (group, member): (usize, Option<usize>),
        quantity: Quantity,
    ) -> Result<Tensor> {
        let bytes = scalar_bytes(Scalar::Float(value).cast(dtype), dtype);
        let leaf = Tensor::from_bytes(&bytes, dtype, &[], device)?;
        if is_recording() {
            self.0.borrow_mut().push(FedNumber { group, member, quantity, dtype, device });
        }
        adopt_number(leaf)
    }
}

impl RecordedStep {
    /// The optimiser's [`Optimizer::id`].
    pub(crate) fn optimizer(&self) -> u64 {
        self.id
    }

    /// Whether a condition, which is read after the step, decides if the step is taken.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }
}

impl Optimizer {
    /// Identifies this optimiser in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether every parameter has its state, so that a step can be recorded.
    pub fn has_state(&self) -> bool {
        self.groups.iter().all(|group| {
            let complete = |states: usize| states == group.rule.state_names().len();
            group.members.iter().all(|member| member.step > 0 && complete(member.state.len()))
        })
    }

    /// Notes a step that was recorded and whose values do not exist yet.
    pub(super) fn note_recorded(&mut self, fed: Fed, condition: Option<Tensor>) {
        let (id, share) = (self.id, self.share());
        let groups = self.groups.iter_mut().map(|group| {
            let mut recorded = RecordedGroup {
                rule: group.rule.clone(),
                has_decay: group.weight_decay > 0.0,
                updated: Vec::new(),
                later: Vec::new(),
                state: Vec::new(),
            };
            let mut first = None;
            for (position, member) in group.members.iter_mut().enumerate() {
                if member.replaced.take().is_some() {
                    let first = *first.get_or_insert(member.step);
                    recorded.updated.push(position);
                    recorded.later.push(member.step as i64 - first as i64);
                    recorded.state.extend(member.variables().cloned());
                }
            }
            recorded
        });
        let (groups, numbers) = (groups.collect(), fed.0.into_inner());
        let step = RecordedStep { id, share, groups, numbers, is_read: condition.is_some(), condition };
        STEPS.with_borrow_mut(|steps| {
            if let Some(steps) = steps {
                steps.push(step);
            }
        });
    }

    /// The numbers for a replay of a step, in the order in which it adopted them. `None` if the step is another one
    /// now: a setting that decides its formula has changed, or its parameters' step counts have moved apart.
    ///
    /// # Errors
    /// If a device has no memory for them.
    pub(crate) fn numbers_for(&self, step: &RecordedStep) -> Result<Option<Vec<Tensor>>> {
        // With skipped steps, the device computes with settings that are part of the recording.
        let is_conditional = step.numbers.iter().any(|number| number.quantity == Quantity::Steps);
        let fits = step.groups.len() == self.groups.len()
            && step.groups.iter().zip(&self.groups).all(|(recorded, group)| {
                let counts = recorded.updated.iter().map(|&member| group.members.get(member).map(|m| m.step));
                let counts: Option<Vec<u64>> = counts.collect();
                let members = recorded.updated.iter().filter_map(|&member| group.members.get(member));
                let state = members.flat_map(Member::variables);
                let reads_share = matches!(group.rule, Rule::AdaBound { .. });
                let is_same_rule =
                    group.rule == recorded.rule && (!reads_share || self.share() == step.share);
                (is_same_rule || !is_conditional && group.rule.is_alike(&recorded.rule))
                    && (group.weight_decay > 0.0) == recorded.has_decay
                    && is_same(state, &recorded.state)
                    && counts.is_some_and(|counts| {
                        let later = |&count: &u64| count as i64 - counts[0] as i64;
                        counts.iter().map(later).eq(recorded.later.iter().copied())
                    })
            });
        if !fits {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(step.numbers.len());
        let mut known: Option<((usize, u64), Vec<Number>)> = None;
        for number in &step.numbers {
            let (group, rates) = (&self.groups[number.group], self.rates(number.group));
            let count = number.member.map_or(0, |member| group.members[member].step + 1);
            values.push(match number.quantity {
                Quantity::Steps => count as f64,
                Quantity::Number(position) => {
                    let (key, rate) = ((number.group, count), Number::Host(rates.learning_rate));
                    if known.as_ref().is_none_or(|(known, _)| *known != key) {
                        known =
                            Some((key, group.rule.numbers(&Number::Host(count as f64), &rate, rates.share)?));
                    }
                    match known.as_ref().and_then(|(_, numbers)| numbers.get(position)) {
                        Some(Number::Host(value)) => *value,
                        _ => return Ok(None),
                    }
                }
                quantity => rates.value(&group.rule, quantity),
            });
        }
        uploaded(&step.numbers, &values).map(Some)
    }

    /// Counts a step that was replayed.
    pub(crate) fn count_replayed(&mut self, step: &RecordedStep) {
        self.steps += 1;
        for (recorded, group) in step.groups.iter().zip(&mut self.groups) {
            recorded.updated.iter().for_each(|&member| group.members[member].step += 1);
        }
    }

    /// The learning rate divided by the initial one.
    fn share(&self) -> f64 {
        if self.initial_rate > 0.0 { self.learning_rate / self.initial_rate } else { 1.0 }
    }

    /// The numbers of a group outside its rule.
    pub(super) fn rates(&self, group: usize) -> Rates {
        let share = if self.initial_rate > 0.0 { self.learning_rate / self.initial_rate } else { 1.0 };
        let group = &self.groups[group];
        Rates { learning_rate: self.learning_rate * group.factor, share, weight_decay: group.weight_decay }
    }
}

fn is_same<'a>(mut variables: impl Iterator<Item = &'a Parameter>, recorded: &[Parameter]) -> bool {
    recorded.iter().all(|known| variables.next().is_some_and(|variable| variable.is_same(known)))
        && variables.next().is_none()
}

/// Uploads numbers: one leaf for each dtype and device, and views of its elements.
fn uploaded(numbers: &[FedNumber], values: &[f64]) -> Result<Vec<Tensor>> {
    let mut leaves: Vec<(DType, Device, Vec<u8>)> = Vec::new();
    let mut places = Vec::with_capacity(numbers.len());
    for (number, &value) in numbers.iter().zip(values) {
        let known = leaves.iter().position(|(d, at, _)| (*d, *at) == (number.dtype, number.device));
        let leaf = known.unwrap_or_else(|| {
            leaves.push((number.dtype, number.device, Vec::new()));
            leaves.len() - 1
        });
        let bytes = &mut leaves[leaf].2;
        places.push((leaf, bytes.len() / number.dtype.size()));
        bytes.extend_from_slice(&scalar_bytes(Scalar::Float(value).cast(number.dtype), number.dtype));
    }
    let upload = |(dtype, device, bytes): &(DType, Device, Vec<u8>)| {
        Tensor::from_bytes(bytes, *dtype, &[bytes.len() / dtype.size()], *device)
    };
    let leaves = leaves.iter().map(upload).collect::<phynexus::Result<Vec<Tensor>>>()?;
    let element = |(leaf, offset): (usize, usize)| {
        let leaf = &leaves[leaf];
        let layout = Layout { offset, ..Layout::contiguous(&[]) };
        let element = Storage { layout, ..leaf.storage()? };
        Ok(Tensor::from_storage(leaf.device(), leaf.dtype(), element))
    };
    Ok(places.into_iter().map(element).collect::<phynexus::Result<Vec<Tensor>>>()?)
}
