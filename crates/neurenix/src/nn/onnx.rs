//! Networks of ONNX files as modules.

use std::{collections::HashMap, path::Path, sync::Arc};

use neurenix_onnx::{Model, Value};
use phynexus::{Device, Tensor, tensor::Generator};

use super::{Module, Parameter, Role, Visitor};
use crate::{Error, Result};

/// A network from an ONNX file as a layer: it trains, converts and saves like others.
///
/// Its state are the file's tensors of floats, under their names in the file: weights, except for scalars, tensors of
/// `Constant` nodes, and the statistics of batch normalisations, which are buffers.
#[derive(Debug)]
pub struct Onnx {
    model: Model,
    state: Vec<(String, Role, Parameter)>,
    generator: Option<Arc<Generator>>,
}

impl Onnx {
    /// The network of a file. Random numbers are those of the default generator.
    ///
    /// # Errors
    /// If a copy of a tensor fails.
    pub fn new(model: Model) -> Result<Onnx> {
        let state = model.parameters().map(|(name, tensor, is_trained)| {
            let (role, parameter) = match is_trained {
                true => (Role::Weight, Parameter::new(tensor)?),
                false => (Role::Buffer, Parameter::buffer(tensor.clone())),
            };
            Ok((name.to_owned(), role, parameter))
        });
        let state = state.collect::<Result<_>>()?;
        Ok(Onnx { model, state, generator: None })
    }

    /// Reads a file, with the tensors that it keeps in other files of its folder.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn load(path: &Path, device: Device) -> Result<Onnx> {
        Onnx::new(Model::load(path, device)?)
    }

    /// Replaces the random generator.
    #[must_use]
    pub fn with_generator(mut self, generator: Arc<Generator>) -> Onnx {
        self.generator = Some(generator);
        self
    }

    /// The network as it was read, for the names and types of its inputs and outputs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Computes the outputs, in order, from the inputs by name.
    ///
    /// # Errors
    /// As for [`Model::run`].
    pub fn run(&self, mut inputs: HashMap<String, Value>) -> Result<Vec<Value>> {
        for (name, _, parameter) in &self.state {
            if !inputs.contains_key(name) {
                inputs.insert(name.clone(), parameter.leaf()?.into());
            }
        }
        let generator = self.generator.as_deref().unwrap_or_else(|| Generator::default_generator());
        Ok(self.model.run(inputs, generator)?)
    }
}

impl Module for Onnx {
    /// Computes the only output from the only input. Use [`Onnx::run`] for networks with others.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let ([port], [_]) = (self.model.inputs(), self.model.outputs()) else {
            let (inputs, outputs) = (self.model.inputs().len(), self.model.outputs().len());
            let message =
                format!("the network has {inputs} inputs and {outputs} outputs: call run instead of forward");
            return Err(Error::data("Onnx", message));
        };
        let mut results = self.run(HashMap::from([(port.name.clone(), input.clone().into())]))?;
        match results.pop() {
            Some(result) => Ok(result.tensor()?.clone()),
            None => Err(Error::data("Onnx", "the network has no output")),
        }
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, role, parameter) in &self.state {
            match role {
                Role::Weight => visitor.weight(name, parameter),
                Role::Buffer => visitor.buffer(name, parameter),
            }
        }
    }

    fn describe(&self) -> String {
        let count: usize = self.state.iter().map(|(_, _, parameter)| parameter.tensor().len()).sum();
        format!(
            "Onnx(inputs={}, outputs={}, parameters={count})",
            self.model.inputs().len(),
            self.model.outputs().len()
        )
    }
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::{Element, Export, edit::Network, export};

    use super::*;

    fn network() -> Model {
        crate::register_cpu();
        let device = Device::find("cpu").unwrap();
        let tensor = |numbers: &[f32], shape: &[usize]| Tensor::from_slice(numbers, shape, device).unwrap();
        let x = tensor(&[1.0, 2.0], &[1, 2]).neg().unwrap();
        let (weight, bias) = (tensor(&[1.0, -2.0, 0.5, 3.0], &[2, 2]), tensor(&[0.25, -1.0], &[2]));
        let y = x.matmul(&weight).unwrap().add(&bias).unwrap().tanh().unwrap();
        let file = export(&Export {
            inputs: vec![("x".to_owned(), &x)],
            outputs: vec![("y".to_owned(), &y)],
            names: vec![("layer.weight".to_owned(), &weight), ("layer.bias".to_owned(), &bias)],
            symbols: Vec::new(),
        });
        Network::new(file.unwrap()).unwrap().model(device).unwrap()
    }

    #[test]
    fn a_network_is_a_module_that_trains() {
        let module = Onnx::new(network()).unwrap();
        assert_eq!(module.model().inputs()[0].element, Some(Element::Float));
        let names: Vec<String> = module.named_state().into_iter().map(|(name, _, _)| name).collect();
        assert_eq!(names, ["layer.weight", "layer.bias"]);
        assert_eq!(module.parameter_count(), 6);
        let x = Tensor::from_slice(&[1f32, -1.0], &[1, 2], Device::find("cpu").unwrap()).unwrap();
        let expected = [0.75f32.tanh(), (-6f32).tanh()];
        let numbers = module.forward(&x).unwrap().to_vec::<f32>().unwrap();
        assert!(numbers.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{numbers:?}");
        let loss = || {
            module.forward(&x).unwrap().sub_scalar(0.25).unwrap().square().unwrap().sum(&[], false).unwrap()
        };
        let before = loss().item::<f32>().unwrap();
        loss().backward().unwrap();
        for parameter in module.parameters() {
            let leaf = parameter.leaf().unwrap();
            let gradient = leaf.grad().unwrap();
            let moved = leaf.detach().unwrap().sub(&gradient.mul_scalar(0.1).unwrap()).unwrap();
            parameter.set(moved.evaluated().unwrap().with_grad().unwrap()).unwrap();
        }
        let after = loss().item::<f32>().unwrap();
        assert!(after < before, "{after} {before}");
        let state = module.state();
        let copy = Onnx::new(network()).unwrap();
        copy.load_state(&state).unwrap();
        assert_eq!(
            copy.forward(&x).unwrap().to_vec::<f32>().unwrap(),
            module.forward(&x).unwrap().to_vec::<f32>().unwrap()
        );
        assert_eq!(module.describe(), "Onnx(inputs=1, outputs=1, parameters=6)");
    }
}
