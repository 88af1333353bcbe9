//! Containers of modules, and functions as modules.

use phynexus::Tensor;

use super::{Module, Visitor};
use crate::{Error, Result};

/// Modules applied one after another. Each is named by its position or by a given name.
#[derive(Default)]
pub struct Sequential {
    parts: Vec<(String, Box<dyn Module>)>,
    /// The first invalid name and the reason; [`Module::forward`] reports it.
    misnamed: Option<String>,
}

impl Sequential {
    /// Creates an empty sequence, which is the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a module, named by its position.
    #[must_use]
    pub fn with(self, module: impl Module + 'static) -> Sequential {
        let name = self.parts.len().to_string();
        self.with_named(name, module)
    }

    /// Appends a module with a name.
    ///
    /// Names must be unique, not empty and without dots, because they key the state dictionary. After an invalid name,
    /// [`Module::forward`] returns an error that names it.
    #[must_use]
    pub fn with_named(mut self, name: impl Into<String>, module: impl Module + 'static) -> Sequential {
        let name = name.into();
        let wrong = if self.parts.iter().any(|(known, _)| *known == name) {
            Some("is used as the name of two modules")
        } else if name.is_empty() || name.contains('.') {
            Some("is not a valid module name: a name must not be empty or contain a dot")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.misnamed.get_or_insert_with(|| format!("{name:?} {wrong}"));
        }
        self.parts.push((name, Box::new(module)));
        self
    }

    /// The modules and their names.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &dyn Module)> {
        self.parts.iter().map(|(name, module)| (name.as_str(), module.as_ref()))
    }
}

impl Module for Sequential {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if let Some(misnamed) = &self.misnamed {
            return Err(Error::data("Sequential", misnamed.clone()));
        }
        self.parts.iter().try_fold(input.clone(), |x, (_, module)| module.forward(&x))
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, module) in &self.parts {
            visitor.child(name, module.as_ref());
        }
    }

    fn describe(&self) -> String {
        let mut text = String::from("Sequential(\n");
        for (name, module) in &self.parts {
            let part = module.describe().replace('\n', "\n  ");
            text.push_str(&format!("  ({name}): {part}\n"));
        }
        text.push(')');
        text
    }
}

type TensorFunction = dyn Fn(&Tensor) -> phynexus::Result<Tensor> + Send + Sync;

/// A function without parameters as a module, such as an activation.
pub struct Function {
    name: String,
    function: Box<TensorFunction>,
}

impl Function {
    /// Creates a module that applies `function`; [`Module::describe`] returns `name`.
    pub fn new(
        name: impl Into<String>,
        function: impl Fn(&Tensor) -> phynexus::Result<Tensor> + Send + Sync + 'static,
    ) -> Function {
        Function { name: name.into(), function: Box::new(function) }
    }
}

impl Module for Function {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok((self.function)(input)?)
    }
    fn describe(&self) -> String {
        self.name.clone()
    }
}
