//! Weights in and out.

use std::sync::Arc;

use ndarray::Array2;
use neurenix::{
    nn::{Module, Parameter, Role},
    phynexus::{DType, Tensor, tensor::Generator},
};

use super::{Network, Plan, builder};
use crate::{
    LayerBuilder, NetworkError, RegularizationConfig, Result, TrainingHistory, convert, device,
    layer::{Kind, Site, build_all},
};

impl Network {
    /// All weights and buffers by name: `0.weight` is that of the first layer.
    pub(crate) fn named_state(&self) -> Vec<(String, Role, Parameter)> {
        let layers = self.layers.iter().enumerate();
        layers
            .flat_map(|(i, layer)| {
                layer.named_state().into_iter().map(move |(name, role, p)| (format!("{i}.{name}"), role, p))
            })
            .collect()
    }

    /// The weights by name.
    pub(crate) fn weights(&self) -> Vec<(String, Parameter)> {
        let state = self.named_state().into_iter();
        state.filter(|(_, role, _)| *role == Role::Weight).map(|(name, _, p)| (name, p)).collect()
    }

    /// The buffers: running statistics.
    pub(crate) fn buffers(&self) -> Vec<Parameter> {
        let state = self.named_state().into_iter();
        state.filter(|(_, role, _)| *role == Role::Buffer).map(|(_, _, p)| p).collect()
    }

    /// Whether all weights are finite.
    pub(crate) fn is_finite(&self) -> Result<bool> {
        let weights: Vec<Tensor> = self.weights().iter().map(|(_, weight)| weight.tensor()).collect();
        all_finite(&weights)
    }

    /// Computes tensors together with what a forward pass left pending in buffers.
    pub(crate) fn settle(&self, tensors: &[&Tensor]) -> Result<()> {
        let buffers: Vec<Tensor> = self.buffers().iter().map(Parameter::tensor).collect();
        let all: Vec<&Tensor> = tensors.iter().copied().chain(&buffers).collect();
        Ok(Tensor::evaluate_all(&all)?)
    }

    /// The weights, layer by layer, each as a matrix: dimensions after the first are one, a bias is a row.
    ///
    /// A dense layer's is `(outputs, inputs)`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn get_weights(&self) -> Result<Vec<Array2<f64>>> {
        self.weights().iter().map(|(_, parameter)| convert::array(&parameter.tensor())).collect()
    }

    /// Puts weights in, in the order and shapes of [`Network::get_weights`].
    ///
    /// # Errors
    /// If they are more or fewer, of other shapes, or not finite in the network's precision; then nothing changes.
    pub fn set_weights(&mut self, weights: &[Array2<f64>]) -> Result<()> {
        let own = self.weights();
        if own.len() != weights.len() {
            let (expected, actual) = (own.len().to_string(), weights.len().to_string());
            return Err(NetworkError::dimension_mismatch("weights", expected, actual));
        }
        let mut values = Vec::with_capacity(own.len());
        for ((name, parameter), weight) in own.iter().zip(weights) {
            let shape = parameter.tensor().shape().to_vec();
            let rows = if shape.len() < 2 { 1 } else { shape[0] };
            let columns = parameter.tensor().len().checked_div(rows).unwrap_or(0);
            if weight.dim() != (rows, columns) {
                let (expected, actual) = (format!("{:?}", (rows, columns)), format!("{:?}", weight.dim()));
                return Err(NetworkError::dimension_mismatch(format!("weight {name}"), expected, actual));
            }
            convert::check_fits(&format!("weight {name}"), weight, self.dtype)?;
            values.push(convert::tensor(&convert::elements(weight), &shape, self.dtype, self.device)?);
        }
        put(own.into_iter().map(|(_, parameter)| parameter).zip(values))
    }

    /// The number of weights.
    pub fn parameter_count(&self) -> usize {
        self.layers.iter().map(crate::Layer::parameter_count).sum()
    }

    /// A network of the same description with weights of its own, newly drawn.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn clone_architecture(&self) -> Result<Network> {
        self.rebuilt(self.plan.clone(), self.device.name(), self.dtype)
    }

    /// A network of the same description and weights, which changes apart from this one.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn try_clone(&self) -> Result<Network> {
        self.copy_on(self.device.name(), self.dtype)
    }

    /// The same network on another device.
    ///
    /// # Errors
    /// If there is no such device, or no memory on it.
    pub fn to_device(&self, name: &str) -> Result<Network> {
        self.copy_on(name, self.dtype)
    }

    /// A copy on a device, computing in a type.
    pub(crate) fn copy_on(&self, device: &str, dtype: DType) -> Result<Network> {
        let mut copy = self.rebuilt(self.plan.clone(), device, dtype)?;
        copy.take_state(self)?;
        copy.history = self.history.clone();
        Ok(copy)
    }

    /// A copy whose weights are of another type; running statistics stay as exact as they are.
    pub(crate) fn twin(&self, dtype: DType) -> Result<Network> {
        let copy = self.rebuilt(self.plan.clone(), self.device.name(), dtype)?;
        copy.buffers().iter().try_for_each(|buffer| buffer.convert(self.dtype))?;
        copy.take_state(self)?;
        Ok(copy)
    }

    /// A copy on a device for one of several workers, whose dropouts drop others than the other workers', seeds or not.
    pub(crate) fn worker_on(&self, device: &str, number: u64) -> Result<Network> {
        let mut plan = self.plan.clone();
        plan.layers.iter_mut().for_each(|layer| layer.reseed(number));
        let copy = self.rebuilt(plan, device, self.dtype)?;
        copy.take_state(self)?;
        Ok(copy)
    }

    /// Takes the weights and buffers of a network of the same description.
    pub(crate) fn take_state(&self, other: &Network) -> Result<()> {
        let mut values = Vec::new();
        for ((_, _, own), (_, _, theirs)) in self.named_state().into_iter().zip(other.named_state()) {
            let (mine, value) = (own.tensor(), theirs.tensor().detach()?);
            let value =
                if value.device() == mine.device() { value } else { value.to_device(mine.device())? };
            values.push((own, value.to_dtype(mine.dtype())?));
        }
        put(values)
    }

    fn rebuilt(&self, plan: Plan, device: &str, dtype: DType) -> Result<Network> {
        let device = device::find(Some(device))?;
        let seed = builder::time();
        let (weights, dropouts) = (Generator::new(seed), Arc::new(Generator::new(seed ^ 1)));
        let site = Site { device, dtype, weights: &weights, dropouts: &dropouts };
        let layers = build_all(&plan.layers, &plan.input_shape, &site)?;
        Ok(Network { plan, layers, device, dtype, dropouts, history: TrainingHistory::default() })
    }

    /// Draws all weights anew and forgets the history.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn reset_weights(&mut self) -> Result<()> {
        *self = self.clone_architecture()?;
        Ok(())
    }

    /// Whether a configuration asks for normalisations that the network does not have.
    pub(crate) fn lacks_norms(&self, wanted: &RegularizationConfig) -> bool {
        self.with_norms(wanted).0.len() > self.plan.layers.len()
    }

    /// The layers with a normalisation behind every hidden layer with weights, where a configuration asks for them and there
    /// is none; for each, its place in the network as it is.
    fn with_norms(&self, wanted: &RegularizationConfig) -> (Vec<LayerBuilder>, Vec<Option<usize>>) {
        let norms: Vec<LayerBuilder> = [
            wanted.batch_norm.then(LayerBuilder::batch_norm),
            wanted.layer_norm.then(LayerBuilder::layer_norm),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (mut layers, mut origin) = (Vec::new(), Vec::new());
        let count = self.plan.layers.len();
        for (place, layer) in self.plan.layers.iter().enumerate() {
            layers.push(layer.clone());
            origin.push(Some(place));
            let has_weights = matches!(layer.kind, Kind::Dense { .. } | Kind::Convolution(_));
            // What lies between is still behind this layer.
            let passes =
                |next: &&LayerBuilder| next.kind.refines() || matches!(next.kind, Kind::Dropout { .. });
            let following = self.plan.layers[place + 1..].iter().take_while(passes);
            let following: Vec<_> = following.map(|next| next.kind.layer_type()).collect();
            for norm in &norms {
                let there = following.contains(&norm.kind.layer_type());
                if has_weights && place + 1 < count && !there {
                    layers.push(norm.clone());
                    origin.push(None);
                }
            }
        }
        (layers, origin)
    }

    /// A network with those normalisations besides, and the same weights in places of its own.
    pub(crate) fn normalised_as(&self, wanted: &RegularizationConfig) -> Result<Network> {
        let (layers, origin) = self.with_norms(wanted);
        let new = self.rebuilt(Plan { layers, ..self.plan.clone() }, self.device.name(), self.dtype)?;
        for (layer, origin) in new.layers.iter().zip(origin) {
            let Some(origin) = origin else { continue };
            let old = self.layers[origin].named_state();
            let pairs = layer.named_state().into_iter().zip(old);
            put(pairs
                .map(|((_, _, own), (_, _, old))| Ok((own, old.tensor().detach()?)))
                .collect::<Result<Vec<_>>>()?)?;
        }
        Ok(new)
    }
}

/// Whether all numbers of tensors are finite.
pub(crate) fn all_finite<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<bool> {
    let check = |tensor: &Tensor| -> Result<Tensor> { Ok(tensor.detach()?.isfinite()?.all(&[], false)?) };
    let checks: Vec<Tensor> = tensors.into_iter().map(check).collect::<Result<_>>()?;
    Tensor::evaluate_all(&checks.iter().collect::<Vec<_>>())?;
    for check in &checks {
        if !check.item::<bool>()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts values into their places, computed.
pub(crate) fn put(pairs: impl IntoIterator<Item = (Parameter, Tensor)>) -> Result<()> {
    let pairs: Vec<(Parameter, Tensor)> = pairs.into_iter().collect();
    Tensor::evaluate_all(&pairs.iter().map(|(_, value)| value).collect::<Vec<_>>())?;
    for (parameter, value) in pairs {
        parameter.set(value)?;
        if parameter.tensor().dtype().is_float() {
            parameter.leaf()?;
        }
    }
    Ok(())
}
