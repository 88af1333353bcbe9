//! Views: variables whose values are parts or other arrangements of another variable's value, their base.
//!
//! The engine's tensors are values. A view therefore remembers the steps from its base's value to its own. It repeats
//! them if the base has changed, and reverses them to change the base. These are operations of the engine, so gradients
//! follow.
//!
//! A view does not keep its base: a handle to the base's value would make the engine store that value, although the
//! view may be its only use. When the last handle to the base goes, a single view becomes a variable of its own. Several
//! views keep the base's value among themselves, because a change of one may change another.

mod step;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use phynexus::{
    Error as EngineError, Tensor,
    gradient::{is_enabled, record_gradients},
    shape::contiguous_strides,
    tensor::IndexSpec,
};

pub use self::step::ViewStep;
pub(super) use self::step::with_gradient_of;
use self::step::{same_index, strides_of_reshape};
use super::{
    Parameter,
    parameter::{Links, Shared},
    recording,
};
use crate::Result;

/// What the views of one variable share.
#[derive(Debug)]
pub(super) struct Family(Mutex<Members>);

#[derive(Debug)]
struct Members {
    base: Weak<Shared>,
    /// The base's value after its last handle has gone, as long as views need it.
    kept: Option<Parameter>,
    /// The number of views, and of those through which gradients flow to the base.
    count: usize,
    attached: usize,
    /// The base's version when it had no views.
    version: u64,
}

impl Family {
    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Separates the views from their base. `value` is the base's.
    pub(super) fn leave(&self, value: &Tensor, is_trainable: bool, version: u64) {
        let mut members = self.lock();
        if members.count < 2 && version == members.version {
            members.base = Weak::new();
            return;
        }
        let detached = if members.attached == 0 { value.detach().ok() } else { None };
        let is_trainable = is_trainable && detached.is_none();
        let kept = Parameter::holding(detached.unwrap_or_else(|| value.clone()), is_trainable);
        kept.0.version.store(version, Ordering::Relaxed);
        members.base = Arc::downgrade(&kept.0);
        members.kept = Some(kept);
    }
}

/// How a variable depends on another.
#[derive(Debug)]
pub(super) enum Link {
    View(View),
    /// The gradient of a variable, unless that has another gradient now.
    Gradient(Weak<Shared>, AtomicBool),
}

#[derive(Debug)]
pub(super) struct View {
    family: Arc<Family>,
    steps: Vec<ViewStep>,
    /// Whether gradients flow to the base.
    is_attached: bool,
    /// Whether gradients were recorded when the view was made.
    records: bool,
    /// Whether several elements are one of the base.
    repeats: bool,
    /// Whether the variable was given another value of its own.
    is_left: AtomicBool,
}

impl View {
    fn base(&self) -> Option<Parameter> {
        if self.is_left.load(Ordering::Relaxed) {
            return None;
        }
        self.family.lock().base.upgrade().map(Parameter)
    }

    fn replay(&self, base: &Parameter) -> Result<Tensor> {
        let _mode = (self.records != is_enabled()).then(|| record_gradients(self.records));
        let mut value = base.current()?;
        for step in &self.steps {
            value = step.apply(&value)?;
        }
        Ok(value)
    }

    /// The base's value with this value of the view.
    fn reverse(&self, base: &Parameter, value: &Tensor) -> Result<Tensor> {
        let mut values = vec![base.current()?];
        for step in &self.steps[..self.steps.len() - 1] {
            values.push(step.apply(&values[values.len() - 1])?);
        }
        let mut changed = value.clone();
        for (step, before) in self.steps.iter().zip(&values).rev() {
            changed = step.put(before, &changed)?;
        }
        Ok(changed)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut members = self.family.lock();
        members.count -= 1;
        members.attached -= usize::from(self.is_attached);
        // Dropped after the lock, because this may drop a graph.
        let unneeded = match &members.kept {
            Some(kept) if members.count < 2 && kept.version() == members.version => members.kept.take(),
            _ => None,
        };
        let kept = members.kept.clone().filter(|kept| members.attached == 0 && kept.0.link.is_none());
        drop(members);
        drop(unneeded);
        // A graph to which no gradients can flow is not kept.
        if let Some(kept) = kept.filter(|kept| kept.stored().requires_grad())
            && let Ok(value) = kept.stored().detach()
        {
            kept.set_trainable(false);
            drop(kept.exchange(value, false));
        }
    }
}

impl Parameter {
    /// A view of this variable: `value` is what `step` makes of its value. A view of a view has the same base.
    pub fn view(&self, step: ViewStep, value: Tensor) -> Parameter {
        let is_attached = !matches!(step, ViewStep::Detach);
        let repeats = self.has_repeated_elements() || step.repeats(self.stored().shape(), value.shape());
        let (family, steps, is_attached, version) = match self.link() {
            Some(Link::View(view)) if view.base().is_some() => {
                let steps = view.steps.iter().cloned().chain([step]).collect();
                (view.family.clone(), steps, is_attached && view.is_attached, self.version())
            }
            _ => (self.family(), vec![step], is_attached, self.version()),
        };
        {
            let mut members = family.lock();
            members.count += 1;
            members.attached += usize::from(is_attached);
        }
        let view = View {
            family,
            steps,
            is_attached,
            records: is_enabled(),
            repeats,
            is_left: AtomicBool::new(false),
        };
        Parameter::linked(value, Link::View(view), version)
    }

    fn link(&self) -> Option<&Link> {
        self.0.link.as_deref()
    }

    fn family(&self) -> Arc<Family> {
        let mut links = self.links();
        if let Some(family) = links.family.upgrade() {
            return family;
        }
        // Nothing else holds the variable of a gradient, and it costs no memory.
        let is_gradient = matches!(self.link(), Some(Link::Gradient(..)));
        let family = Arc::new(Family(Mutex::new(Members {
            base: Arc::downgrade(&self.0),
            kept: is_gradient.then(|| self.clone()),
            count: 0,
            attached: 0,
            version: if is_gradient { u64::MAX } else { self.version() },
        })));
        links.family = Arc::downgrade(&family);
        family
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variable's gradient as a variable: changes of one are changes of the other.
    ///
    /// # Errors
    /// If the value of the variable cannot be computed.
    pub fn gradient(&self) -> Result<Option<Parameter>> {
        let Some(gradient) = self.gradient_holder()?.grad() else {
            self.forget_gradient();
            return Ok(None);
        };
        let mut links = self.links();
        if let Some(known) = links.gradient.upgrade() {
            return Ok(Some(Parameter(known)));
        }
        let link = Link::Gradient(Arc::downgrade(&self.0), AtomicBool::new(false));
        let made = Parameter::linked(gradient, link, 0);
        links.gradient = Arc::downgrade(&made.0);
        Ok(Some(made))
    }

    /// Separates the variable from what [`Parameter::gradient`] returned, before it gets another gradient.
    pub fn forget_gradient(&self) {
        let known = std::mem::take(&mut self.links().gradient).upgrade().map(Parameter);
        if let Some(known) = known
            && let Some(Link::Gradient(_, is_left)) = known.link()
        {
            // The last value stays. Without it, the one before does.
            let _ = known.refresh();
            is_left.store(true, Ordering::Relaxed);
        }
    }

    fn gradient_holder(&self) -> Result<Tensor> {
        if self.is_trainable() { self.collector() } else { Ok(self.tensor()) }
    }

    /// The variable that changes with this one, if it is a view.
    fn base(&self) -> Option<Parameter> {
        match self.link()? {
            Link::View(view) => view.base(),
            Link::Gradient(of, is_left) => {
                if is_left.load(Ordering::Relaxed) {
                    None
                } else {
                    of.upgrade().map(Parameter)
                }
            }
        }
    }

    /// True if it is a view or a gradient of a variable that is still in use.
    pub fn has_base(&self) -> bool {
        self.base().is_some()
    }

    /// True if it is a view of a variable that is still in use.
    pub fn is_view(&self) -> bool {
        matches!(self.link(), Some(Link::View(_))) && self.base().is_some()
    }

    /// True if gradients flow through this view to a leaf, whose value cannot be changed while they are recorded.
    pub fn is_view_of_leaf(&self) -> bool {
        match self.link() {
            Some(Link::View(view)) if view.is_attached => view.base().is_some_and(|base| base.is_trainable()),
            _ => false,
        }
    }

    /// True if it was made as a view with several elements for one of its base.
    pub fn has_repeated_elements(&self) -> bool {
        matches!(self.link(), Some(Link::View(view)) if view.repeats)
    }

    /// True if this is a view with the elements of `whole` at this index.
    pub fn is_part(&self, whole: &Parameter, specs: &[IndexSpec]) -> bool {
        let Some(steps) = self.steps_from(whole) else { return false };
        matches!(&steps[..], [ViewStep::Index(own)] if same_index(own, specs))
    }

    /// True if both are the same variable, or views of the same elements.
    pub fn has_elements_of(&self, other: &Parameter) -> bool {
        self.is_same(other) || self.steps_from(other).is_some_and(|steps| steps.is_empty())
    }

    /// The steps from `whole` to this view, if it is one. Whether gradients flow makes no difference.
    fn steps_from(&self, whole: &Parameter) -> Option<Vec<&ViewStep>> {
        let (base, steps) = self.moves()?;
        let (start, before) = whole.moves().unwrap_or_else(|| (whole.clone(), Vec::new()));
        let is_behind = before.len() <= steps.len() && before.iter().zip(&steps).all(|(a, b)| a.is_same(b));
        (base.is_same(&start) && is_behind).then(|| steps[before.len()..].to_vec())
    }

    /// A view's base, and the steps that move elements.
    fn moves(&self) -> Option<(Parameter, Vec<&ViewStep>)> {
        let Some(Link::View(view)) = self.link() else { return None };
        Some((view.base()?, view.steps.iter().filter(|step| !matches!(step, ViewStep::Detach)).collect()))
    }

    /// The distances of a view's neighbours in its base, along each axis, if that is in row-major order. `None` if they
    /// are not the same everywhere. Of a variable that is no view, its own.
    pub fn strides(&self) -> Option<Vec<isize>> {
        let own = self.stored();
        let (view, base) = match self.link() {
            Some(Link::View(view)) => (view, view.base()),
            _ => return Some(contiguous_strides(own.shape()).to_vec()),
        };
        let Some(base) = base else { return Some(contiguous_strides(own.shape()).to_vec()) };
        let mut value = base.stored();
        let mut strides = contiguous_strides(value.shape()).to_vec();
        for step in &view.steps {
            let next = step.apply(&value).ok()?;
            strides = step.strides((value.shape().into(), strides), next.shape())?;
            value = next;
        }
        Some(strides)
    }

    /// Whether PyTorch gives the elements another shape without a copy, provided that the base is in row-major order.
    pub fn reshapes_in_place(&self, shape: &[usize]) -> bool {
        let is_root = !matches!(self.link(), Some(Link::View(_)));
        is_root
            || self
                .strides()
                .is_some_and(|strides| strides_of_reshape(self.stored().shape(), &strides, shape).is_some())
    }

    /// How often the value was changed. Views count with their base.
    pub fn version(&self) -> u64 {
        match self.link() {
            Some(Link::View(_)) => {
                self.base().unwrap_or_else(|| self.clone()).0.version.load(Ordering::Relaxed)
            }
            _ => self.0.version.load(Ordering::Relaxed),
        }
    }

    /// The value for further operations: a leaf, if the variable is trainable.
    fn current(&self) -> Result<Tensor> {
        if self.is_trainable() { self.leaf() } else { self.fresh() }
    }

    /// Brings a dependent variable up to date. In a recorded function, variables from outside keep their values: then
    /// it returns the value.
    pub(super) fn refresh(&self) -> Result<Option<Tensor>> {
        let (Some(link), Some(base)) = (self.link(), self.base()) else { return Ok(None) };
        let is_outside = recording::is_outside(self);
        if is_outside && self.is_trainable() {
            // It is an argument of the recording.
            recording::unrecorded(|| self.refresh())?;
            return Ok(None);
        }
        match link {
            Link::Gradient(..) => match base.gradient_holder()?.grad() {
                Some(gradient) if is_outside => return Ok(Some(gradient)),
                Some(gradient) if !gradient.is_same(&self.stored()) => {
                    self.0.version.fetch_add(1, Ordering::Relaxed);
                    drop(self.exchange(gradient, false));
                }
                _ => {}
            },
            Link::View(view) => {
                base.refresh()?;
                let version = base.version();
                if is_outside {
                    return Ok(Some(view.replay(&base)?));
                }
                if self.0.version.load(Ordering::Relaxed) != version {
                    self.keep(view.replay(&base)?)?;
                    self.0.version.store(version, Ordering::Relaxed);
                }
            }
        }
        Ok(None)
    }

    /// Takes over a value without its being a change. A leaf keeps its gradient.
    ///
    /// # Errors
    /// If a leaf cannot be made of the value.
    pub fn keep(&self, value: Tensor) -> Result<()> {
        if !self.is_trainable() {
            drop(self.exchange(value, true));
            return Ok(());
        }
        let gradient = self.stored().grad();
        let leaf = value.detach()?.with_grad()?;
        leaf.set_grad(gradient);
        drop(self.exchange(leaf, true));
        Ok(())
    }

    /// Stores the value of a dependent variable in its base. Returns the value if there is no base.
    pub(super) fn write_through(&self, value: Tensor, own: bool) -> Result<Option<Tensor>> {
        let (Some(link), Some(base)) = (self.link(), self.base()) else { return Ok(Some(value)) };
        let is_outside = recording::is_outside(self);
        if is_outside && self.is_trainable() {
            let message =
                "the compiled function changes a leaf that is a view of another tensor: change that tensor";
            return Err(EngineError::argument("compile", message).into());
        }
        match link {
            Link::Gradient(..) => {
                self.0.version.fetch_add(1, Ordering::Relaxed);
                let holder = base.gradient_holder()?;
                if holder.grad().is_some() {
                    holder.set_grad(Some(value.clone()));
                }
            }
            Link::View(view) => {
                base.store(view.reverse(&base, &value)?)?;
                if view.is_attached && base.is_trainable() {
                    // The next read takes the view's value from the leaf, so that gradients flow there.
                    return Ok(None);
                }
                self.0.version.store(base.version(), Ordering::Relaxed);
            }
        }
        if !is_outside {
            drop(self.exchange(value, own));
        }
        Ok(None)
    }

    /// Separates the variable from its base and from its views, before it gets a value that is no change of its own.
    pub(super) fn leave(&self) {
        if let Some(Link::View(view)) = self.link() {
            let version = self.version();
            view.is_left.store(true, Ordering::Relaxed);
            self.0.version.store(version, Ordering::Relaxed);
        }
        let family = std::mem::take(&mut self.links().family).upgrade();
        if let Some(family) = family {
            family.leave(&self.stored(), self.is_trainable(), self.version());
        }
    }
}
