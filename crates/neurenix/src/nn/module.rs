//! What every layer and network is.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use phynexus::{DType, Tensor};

use super::Parameter;
use crate::{Error, Result};

/// Whether a module is being trained. Dropout and batch normalisation behave differently then.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Default for Mode {
    /// Training.
    fn default() -> Mode {
        Mode(AtomicBool::new(true))
    }
}

impl Mode {
    /// True while training.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Learnt by an optimiser.
    Weight,
    /// State that is saved but not learnt.
    Buffer,
}

/// Walks a module's parts. A module's [`Module::visit`] shows it everything it consists of.
pub struct Visitor<'a> {
    prefix: String,
    each: &'a mut dyn FnMut(&str, Role, &Parameter),
    mode: &'a mut dyn FnMut(&Mode),
}

impl Visitor<'_> {
    fn named(&mut self, name: &str, role: Role, parameter: &Parameter) {
        (self.each)(&format!("{}{name}", self.prefix), role, parameter);
    }

    /// Shows a weight.
    pub fn weight(&mut self, name: &str, parameter: &Parameter) {
        self.named(name, Role::Weight, parameter);
    }

    /// Shows a weight that may be absent.
    pub fn optional(&mut self, name: &str, parameter: &Option<Parameter>) {
        if let Some(parameter) = parameter {
            self.weight(name, parameter);
        }
    }

    /// Shows a buffer.
    pub fn buffer(&mut self, name: &str, parameter: &Parameter) {
        self.named(name, Role::Buffer, parameter);
    }

    /// Shows a module inside this one; its parts are named `name.part`.
    pub fn child(&mut self, name: &str, module: &dyn Module) {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        module.visit(self);
        self.prefix.truncate(length);
    }

    /// Shows the module's mode.
    pub fn mode(&mut self, mode: &Mode) {
        (self.mode)(mode);
    }
}

/// A layer or a network: a function of a tensor with parameters.
///
/// Implement [`Module::forward`] and, for modules with parameters or parts, [`Module::visit`].
pub trait Module: Send + Sync {
    /// The function.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;

    /// Shows every parameter, buffer, mode and inner module to the visitor.
    fn visit(&self, visitor: &mut Visitor<'_>) {
        let _ = visitor;
    }

    /// The module in a line, as in `Linear(in_features=784, out_features=512, bias=true)`; the name of its type unless
    /// it says more.
    fn describe(&self) -> String {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Every parameter and buffer with its name, in the order of the visit. A shared one appears under each name.
    fn named_state(&self) -> Vec<(String, Role, Parameter)> {
        let mut state = Vec::new();
        walk(self, &mut |name, role, p| state.push((name.to_owned(), role, p.clone())), &mut |_| {});
        state
    }

    /// The trainable parameters, each once.
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

    /// The number of learnt values.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|p| p.tensor().len()).sum()
    }

    /// Switches the module and everything in it to training or to inference.
    fn train(&self, training: bool) {
        walk(self, &mut |_, _, _| {}, &mut |mode| mode.0.store(training, Ordering::Relaxed));
    }

    /// Switches the module and everything in it to inference.
    fn eval(&self) {
        self.train(false);
    }

    /// Freezes or thaws every weight.
    fn set_trainable(&self, trainable: bool) {
        for (_, role, parameter) in self.named_state() {
            if role == Role::Weight {
                parameter.set_trainable(trainable);
            }
        }
    }

    /// Converts every floating-point parameter and buffer, as PyTorch's `module.double()` and `module.bfloat16()`.
    /// Layers are made in `float32`. Optimisers keep state of the parameters' dtype: convert before one is made.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.named_state().iter().try_for_each(|(_, _, parameter)| parameter.convert(dtype))
    }

    /// The tensors of every parameter and buffer by name.
    fn state(&self) -> BTreeMap<String, Tensor> {
        self.named_state().into_iter().map(|(name, _, p)| (name, p.tensor())).collect()
    }

    /// Replaces every parameter and buffer. Nothing changes unless all names and shapes fit.
    fn load_state(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        let own = self.named_state();
        let mut problems = Vec::new();
        for (name, _, parameter) in &own {
            let expected = parameter.tensor();
            match state.get(name) {
                None => problems.push(format!("{name} is missing")),
                Some(given) if given.shape() != expected.shape() => problems.push(format!(
                    "{name} has shape {:?}, the model needs {:?}",
                    given.shape(),
                    expected.shape()
                )),
                Some(_) => {}
            }
        }
        let unknown = state.keys().filter(|name| !own.iter().any(|(n, _, _)| n == *name));
        problems.extend(unknown.map(|name| format!("{name} is not a part of the model")));
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
