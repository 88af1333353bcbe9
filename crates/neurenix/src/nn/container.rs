//! Modules made of modules, and modules that are only a function.

use phynexus::Tensor;

use super::{Module, Visitor};
use crate::{Error, Result};

/// Modules one after another. Parts are named by position, or by the name given.
#[derive(Default)]
pub struct Sequential {
    parts: Vec<(String, Box<dyn Module>)>,
    /// The first name that cannot be used, and why: said by [`Module::forward`].
    misnamed: Option<String>,
}

impl Sequential {
    /// An empty sequence: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// The sequence with one more module at the end, named by its position.
    #[must_use]
    pub fn with(self, module: impl Module + 'static) -> Sequential {
        let name = self.parts.len().to_string();
        self.with_named(name, module)
    }

    /// The sequence with one more module at the end.
    ///
    /// Names must differ, or a state would hold one part for both, and have neither dots nor nothing in them. A sequence
    /// where that is not so answers [`Module::forward`] with an error that says which name it is.
    #[must_use]
    pub fn with_named(mut self, name: impl Into<String>, module: impl Module + 'static) -> Sequential {
        let name = name.into();
        let wrong = if self.parts.iter().any(|(known, _)| *known == name) {
            Some("is the name of two parts")
        } else if name.is_empty() || name.contains('.') {
            Some("cannot name a part: a name has no dot and is not empty")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.misnamed.get_or_insert_with(|| format!("{name:?} {wrong}"));
        }
        self.parts.push((name, Box::new(module)));
        self
    }

    /// The modules with their names.
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

/// A function without parameters as a module: activations, flattening.
pub struct Function {
    name: String,
    function: Box<TensorFunction>,
}

impl Function {
    /// A module that applies `function`; `name` is how it describes itself.
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
