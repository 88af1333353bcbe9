//! The trait that all layers and networks implement.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use phynexus::{DType, Tensor};

use super::Parameter;
use crate::{Error, Result};

/// Whether a module is in training mode. Dropout and batch normalisation depend on it.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Default for Mode {
    /// Training mode.
    fn default() -> Mode {
        Mode(AtomicBool::new(true))
    }
}

impl Mode {
    /// True in training mode.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trained by an optimiser.
    Weight,
    /// Saved state that is not trained.
    Buffer,
}

/// Visits the parts of a module, which passes them to it in [`Module::visit`].
pub struct Visitor<'a> {
    prefix: String,
    each: &'a mut dyn FnMut(&str, Role, &Parameter),
    mode: &'a mut dyn FnMut(&Mode),
}

impl Visitor<'_> {
    fn named(&mut self, name: &str, role: Role, parameter: &Parameter) {
        (self.each)(&format!("{}{name}", self.prefix), role, parameter);
    }

    /// Visits a weight.
    pub fn weight(&mut self, name: &str, parameter: &Parameter) {
        self.named(name, Role::Weight, parameter);
    }

    /// Visits an optional weight.
    pub fn optional(&mut self, name: &str, parameter: &Option<Parameter>) {
        if let Some(parameter) = parameter {
            self.weight(name, parameter);
        }
    }

    /// Visits a buffer.
    pub fn buffer(&mut self, name: &str, parameter: &Parameter) {
        self.named(name, Role::Buffer, parameter);
    }

    /// Visits a submodule; its parameters are named `name.parameter`.
    pub fn child(&mut self, name: &str, module: &dyn Module) {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        module.visit(self);
        self.prefix.truncate(length);
    }

    /// Visits the module's mode.
    pub fn mode(&mut self, mode: &Mode) {
        (self.mode)(mode);
    }
}

/// A layer or a network: a function of a tensor, with parameters.
///
/// Implement [`Module::forward`] and, for modules with parameters or submodules, [`Module::visit`].
pub trait Module: Send + Sync {
    /// Computes the module's output.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;

    /// Passes every parameter, buffer, mode and submodule to the visitor.
    fn visit(&self, visitor: &mut Visitor<'_>) {
        let _ = visitor;
    }

    /// A one-line description, such as `Linear(in_features=784, out_features=512, bias=true)`. The default is the
    /// type's name.
    fn describe(&self) -> String {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Every parameter and buffer with its name, in the order of the visit. A shared parameter appears under each of
    /// its names.
    fn named_state(&self) -> Vec<(String, Role, Parameter)> {
        let mut state = Vec::new();
        walk(self, &mut |name, role, p| state.push((name.to_owned(), role, p.clone())), &mut |_| {});
        state
    }

    /// The trainable parameters, without duplicates.
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for (_, role, parameter) in self.named_state() {
            if role == Role::Weight
                && parameter.is_trainable()
                && !parameters.iter().any(|p| p.is_same(&parameter))
            {
                parameters.push(parameter);
            }
        }
        parameters
    }

    /// The number of trainable values.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|p| p.tensor().len()).sum()
    }

    /// Sets training or inference mode for the module and all submodules.
    fn train(&self, training: bool) {
        walk(self, &mut |_, _, _| {}, &mut |mode| mode.0.store(training, Ordering::Relaxed));
    }

    /// True if the module and all submodules are in training mode.
    fn is_training(&self) -> bool {
        let mut all = true;
        walk(self, &mut |_, _, _| {}, &mut |mode| all &= mode.is_training());
        all
    }

    /// Sets inference mode for the module and all submodules.
    fn eval(&self) {
        self.train(false);
    }

    /// Freezes or unfreezes every weight.
    fn set_trainable(&self, trainable: bool) {
        for (_, role, parameter) in self.named_state() {
            if role == Role::Weight {
                parameter.set_trainable(trainable);
            }
        }
    }

    /// Converts every floating-point parameter and buffer, like PyTorch's `module.double()` and `module.bfloat16()`.
    /// Layers are created in `float32`. Convert before creating an optimiser, because optimiser state has the
    /// parameters' dtype.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.named_state().iter().try_for_each(|(_, _, parameter)| parameter.convert(dtype))
    }

    /// The tensors of all parameters and buffers, by name.
    fn state(&self) -> BTreeMap<String, Tensor> {
        self.named_state().into_iter().map(|(name, _, p)| (name, p.tensor())).collect()
    }

    /// Replaces every parameter and buffer. If any name or shape does not match, nothing changes.
    fn load_state(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        let own = self.named_state();
        let mut problems = Vec::new();
        for (name, _, parameter) in &own {
            let expected = parameter.tensor();
            match state.get(name) {
                None => problems.push(format!("{name} is missing")),
                Some(given) if given.shape() != expected.shape() => problems.push(format!(
                    "{name} has shape {:?}, but the model needs {:?}",
                    given.shape(),
                    expected.shape()
                )),
                Some(_) => {}
            }
        }
        let unknown = state.keys().filter(|name| !own.iter().any(|(n, _, _)| n == *name));
        problems.extend(unknown.map(|name| format!("{name} is not part of the model")));
        if !problems.is_empty() {
            return Err(Error::data("model state", problems.join("; ")));
        }
        let mut ready = Vec::with_capacity(own.len());
        for (name, role, parameter) in own {
            let current = parameter.tensor();
            let value = state[&name].to_device(current.device())?.to_dtype(current.dtype())?.detach()?;
            let value =
                if role == Role::Weight && parameter.is_trainable() { value.with_grad()? } else { value };
            ready.push((parameter, value));
        }
        ready.into_iter().try_for_each(|(parameter, value)| parameter.set(value))
    }
}

fn walk<M: Module + ?Sized>(
    module: &M,
    each: &mut dyn FnMut(&str, Role, &Parameter),
    mode: &mut dyn FnMut(&Mode),
) {
    module.visit(&mut Visitor { prefix: String::new(), each, mode });
}
