//! Optimiser steps: record the updates of all parameters, on one device or several, and compute them together.

use phynexus::{
    DType, Device, Error, Tensor, gradient::Gradients, interrupt::Shield, no_grad,
    schedule::capture::is_recording,
};

use super::{
    Optimizer, Rule,
    number::Number,
    replay::Fed,
    update::{Quantity, Settings},
};
use crate::{
    Result,
    nn::{Parameter, follow::take_following, recording::unrecorded},
};

/// Whether a step is taken.
#[derive(Clone, Copy)]
pub(super) enum Condition<'a> {
    /// The step is taken.
    Always,
    /// The step is taken if this `bool` scalar is true. The scalar is read after the step.
    Read(&'a Tensor),
    /// The step is taken if this `bool` scalar is true. The scalar stays on the device.
    Kept(&'a Tensor),
}

impl<'a> Condition<'a> {
    fn tensor(self) -> Option<&'a Tensor> {
        match self {
            Condition::Always => None,
            Condition::Read(tensor) | Condition::Kept(tensor) => Some(tensor),
        }
    }
}

/// What the current step replaces of a parameter.
pub(super) struct Replaced {
    /// The count of skipped steps after this step.
    skipped: Option<Tensor>,
}

impl Optimizer {
    /// Updates every parameter that has a gradient, and computes `also` (the loss, metrics) in the same plan. There is
    /// one plan per device.
    ///
    /// # Errors
    /// If the computation fails. Parameters, state and the step count are then unchanged.
    pub fn step(&mut self, gradients: Gradients, also: &[&Tensor]) -> Result<()> {
        self.guarded_step(gradients, Condition::Always, also).map(drop)
    }

    /// Like [`Optimizer::step`], but changes parameters, state and the step count only if `condition` is true: a `bool`
    /// scalar, computed in the same plan. Use it to skip updates whose loss is NaN or infinite.
    ///
    /// Returns the condition; in a recorded function true, because the condition is read when the recording has run.
    ///
    /// # Errors
    /// As for [`Optimizer::step`], or if the condition is not a `bool` scalar.
    pub fn step_if(&mut self, condition: &Tensor, gradients: Gradients, also: &[&Tensor]) -> Result<bool> {
        check_condition("step_if", condition)?;
        self.guarded_step(gradients, Condition::Read(condition), also)
    }

    /// Like [`Optimizer::step_if`], but reads nothing: the condition stays on the device, and so do the step counts
    /// that depend on it. See [`Optimizer::settle`].
    ///
    /// # Errors
    /// As for [`Optimizer::step_if`].
    pub fn step_where(&mut self, condition: &Tensor, gradients: Gradients, also: &[&Tensor]) -> Result<()> {
        check_condition("step_where", condition)?;
        self.guarded_step(gradients, Condition::Kept(condition), also).map(drop)
    }

    fn guarded_step(
        &mut self,
        gradients: Gradients,
        condition: Condition<'_>,
        also: &[&Tensor],
    ) -> Result<bool> {
        let _guard = no_grad();
        let mut replaced = Vec::new();
        let fed = Fed::default();
        if let Condition::Kept(_) = condition {
            // Not by the function that this thread may record: the counts outlive it.
            unrecorded(|| self.count_skips_from_zero(Option::is_none))?;
        }
        let recorded = self.record(gradients, condition, &mut replaced, &fed);
        if is_recording() && recorded.is_ok() {
            let (_, skipped) = recorded?;
            self.put_skipped(skipped)?;
            let read = match condition {
                Condition::Read(condition) => Some(condition.clone()),
                Condition::Always | Condition::Kept(_) => None,
            };
            self.note_recorded(fed, read);
            return Ok(true);
        }
        let result = recorded.and_then(|(updated, skipped)| {
            let devices: Vec<Device> = updated.iter().map(Tensor::device).collect();
            let following = take_following(&devices);
            let mut evaluate = |following: &[Tensor]| {
                let roots = updated.iter().chain(following).chain(also.iter().copied());
                let roots = roots.chain(condition.tensor()).chain(&skipped);
                Tensor::evaluate_replacing(&roots.collect::<Vec<_>>(), &mut replaced)
            };
            match evaluate(&following) {
                // They may be another network's. Their failures are not this step's.
                Err(error) if !following.is_empty() && !matches!(error, Error::Interrupted) => evaluate(&[])?,
                done => done?,
            }
            Ok(skipped)
        });
        match result {
            Ok(skipped) => {
                // The new values are in place; an interruption now would leave the counts behind.
                let _shield = Shield::new();
                self.parameters().try_for_each(|p| p.leaf().map(drop))?;
                let taken = match condition {
                    Condition::Read(condition) => condition.item::<bool>()?,
                    Condition::Always | Condition::Kept(_) => true,
                };
                self.put_skipped(skipped)?;
                self.steps += u64::from(taken);
                for member in self.members_mut() {
                    if member.replaced.take().is_some() {
                        member.step += u64::from(taken);
                    }
                }
                Ok(taken)
            }
            Err(error) => {
                let mut old = replaced.into_iter();
                for member in self.members_mut() {
                    if member.replaced.take().is_none() {
                        continue;
                    }
                    let changed = std::iter::once(&member.parameter).chain(&member.state);
                    changed.zip(old.by_ref()).try_for_each(|(changed, old)| changed.set(old))?;
                }
                Err(error)
            }
        }
    }

    /// Stores the counts of skipped steps after this step.
    fn put_skipped(&mut self, skipped: Option<Tensor>) -> Result<()> {
        let own = self.skipped.iter().zip(skipped);
        let members = self.groups.iter_mut().flat_map(|group| &mut group.members);
        let counts = members.flat_map(|member| {
            let after = member.replaced.as_mut().and_then(|replaced| replaced.skipped.take());
            member.skipped.iter().zip(after)
        });
        own.chain(counts).try_for_each(|(count, after)| count.set(after))
    }

    /// Records the updates and stores them in the parameters and the state. The previous value and state of each member
    /// go to `replaced`, so that evaluation may overwrite them. Returns the updated tensors and the optimiser's count
    /// of skipped steps.
    fn record(
        &mut self,
        mut gradients: Gradients,
        condition: Condition<'_>,
        replaced: &mut Vec<Tensor>,
        fed: &Fed,
    ) -> Result<(Vec<Tensor>, Option<Tensor>)> {
        let mut updated = Vec::new();
        let mut skips = Skips { condition, known: Vec::new() };
        // Taken before any parameter changes, because a change of one replaces the leaves of others that are views of the
        // same variable.
        let mut taken = Vec::new();
        for member in self.groups.iter().flat_map(|group| &group.members) {
            taken.push(gradients.take(&member.parameter.collector()?));
        }
        let mut taken = taken.into_iter();
        for number in 0..self.groups.len() {
            let rates = self.rates(number);
            let group = &mut self.groups[number];
            let mut devices: Vec<OnDevice<'_>> = Vec::new();
            for (position, member) in group.members.iter_mut().enumerate() {
                let old = member.parameter.tensor();
                member.replaced = None;
                let Some(gradient) = taken.next().flatten() else { continue };
                let known = devices.iter().position(|known| known.settings.device == old.device());
                let place = match known {
                    Some(known) => &mut devices[known],
                    None => {
                        let device = old.device();
                        let condition = condition.tensor().map(|c| c.to_device(device)).transpose()?;
                        let settings = Settings::new(rates, &group.rule, device, number, fed);
                        devices.push_mut(OnDevice { settings, condition, numbers: Vec::new() })
                    }
                };
                if member.state.is_empty() {
                    member.state = group.rule.initial_state(&old)?;
                }
                // 16-bit parameters are updated in `float32`: bfloat16 would round a decay of 0.999 to 1.
                let wide = |tensor: &Tensor| tensor.to_dtype(tensor.dtype().compute());
                let [parameter, gradient] = [wide(&old)?, wide(&gradient)?];
                let before: Vec<Tensor> = member.state.iter().map(Parameter::tensor).collect();
                let wide_state: Vec<Tensor> = before.iter().map(wide).collect::<phynexus::Result<_>>()?;
                let skipped = member.skipped.as_ref().map(Parameter::tensor);
                let numbers =
                    place.numbers(&group.rule, (position, member.step + 1), skipped.as_ref(), &parameter)?;
                let (new, state) =
                    group.rule.update(&parameter, &gradient, &wide_state, &numbers, &place.settings)?;
                let choose = |new: Tensor, old: &Tensor| {
                    let new = new.to_dtype(old.dtype())?;
                    match &place.condition {
                        Some(condition) => condition.where_(&new, old),
                        None => Ok(new),
                    }
                };
                let new = choose(new, &old)?;
                let state: Vec<Tensor> = state
                    .into_iter()
                    .zip(&before)
                    .map(|(new, old)| choose(new, old))
                    .collect::<phynexus::Result<_>>()?;
                let skipped = skips.after(skipped.as_ref(), old.device())?;
                updated.push(new.clone());
                updated.extend(state.iter().chain(&skipped).cloned());
                member.replaced = Some(Replaced { skipped });
                replaced.push(old);
                replaced.extend(before);
                let changed = std::iter::once(&member.parameter).chain(&member.state);
                changed
                    .zip(std::iter::once(new).chain(state))
                    .try_for_each(|(changed, new)| changed.set(new))?;
            }
        }
        let before = self.skipped.as_ref().map(Parameter::tensor);
        let device = before.as_ref().or(condition.tensor()).map(Tensor::device);
        let skipped = device.map_or(Ok(None), |device| skips.after(before.as_ref(), device))?;
        Ok((updated, skipped))
    }
}

/// What the parameters of a group that are on one device share in a step.
struct OnDevice<'a> {
    settings: Settings<'a>,
    condition: Option<Tensor>,
    /// The rule's numbers by step count, count of skipped steps, and dtype.
    numbers: Vec<(u64, Option<Tensor>, DType, Vec<Tensor>)>,
}

impl OnDevice<'_> {
    /// The rule's numbers for a step of the group's parameter `member`. Steps are counted from 1 and without skipped
    /// ones.
    fn numbers(
        &mut self,
        rule: &Rule,
        (member, step): (usize, u64),
        skipped: Option<&Tensor>,
        like: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let known = self.numbers.iter().find(|(known, without, dtype, _)| {
            *known == step && is_same(without.as_ref(), skipped) && *dtype == like.dtype()
        });
        if let Some((_, _, _, numbers)) = known {
            return Ok(numbers.clone());
        }
        let rates = self.settings.rates;
        let mut rate = Number::Host(rates.learning_rate);
        let count = match skipped {
            None => Number::Host(step as f64),
            Some(skipped) => {
                let wide = if like.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
                let skipped = skipped.to_dtype(wide)?;
                let steps = self.settings.of_member(member, Quantity::Steps, step as f64, &skipped)?;
                if is_recording() {
                    rate = Number::Device(self.settings.shared(Quantity::Rate, &skipped)?);
                }
                Number::Device(steps.sub(&skipped)?)
            }
        };
        let tensor = |(position, number): (usize, &Number)| match number {
            Number::Host(value) => self.settings.of_member(member, Quantity::Number(position), *value, like),
            Number::Device(tensor) => Ok(tensor.to_dtype(like.dtype())?),
        };
        let numbers = rule.numbers(&count, &rate, rates.share)?;
        let numbers = numbers.iter().enumerate().map(tensor).collect::<Result<Vec<Tensor>>>()?;
        self.numbers.push((step, skipped.cloned(), like.dtype(), numbers.clone()));
        Ok(numbers)
    }
}

/// The counts of skipped steps after the current step; each is recorded once.
struct Skips<'a> {
    condition: Condition<'a>,
    known: Vec<(Option<Tensor>, Device, Tensor)>,
}

impl Skips<'_> {
    fn after(&mut self, before: Option<&Tensor>, device: Device) -> Result<Option<Tensor>> {
        let Condition::Kept(condition) = self.condition else { return Ok(before.cloned()) };
        let same = |(known, at, _): &&(Option<Tensor>, Device, Tensor)| {
            *at == device && is_same(known.as_ref(), before)
        };
        if let Some((_, _, after)) = self.known.iter().find(same) {
            return Ok(Some(after.clone()));
        }
        let skip = (!condition.to_device(device)?)?.to_dtype(DType::F32)?;
        let after = match before {
            Some(before) => before.add(&skip)?,
            None => skip,
        };
        self.known.push((before.cloned(), device, after.clone()));
        Ok(Some(after))
    }
}

fn is_same(a: Option<&Tensor>, b: Option<&Tensor>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is_same(b),
        (None, None) => true,
        _ => false,
    }
}

fn check_condition(op: &'static str, condition: &Tensor) -> Result<()> {
    if condition.dtype() != DType::Bool || condition.rank() != 0 {
        let hint = "the condition of a step must be a bool scalar";
        return Err(phynexus::Error::dtype(op, &[condition.dtype()], hint).into());
    }
    Ok(())
}
