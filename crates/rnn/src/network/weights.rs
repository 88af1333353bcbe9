//! Weights, and copies of networks.

use ndarray::Array2;
use neurenix::{
    nn::{Module, Parameter, Role},
    phynexus::{DType, Tensor},
};

use super::{Network, Plan, builder};
use crate::{LayerBuilder, NetworkError, Result, convert, device};

impl Network {
    /// All weights and buffers by name, such as `0.weight` for the first layer.
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

    /// Computes tensors together with the updates of buffers that a forward pass has recorded.
    pub(crate) fn settle(&self, tensors: &[&Tensor]) -> Result<()> {
        let buffers: Vec<Tensor> = self.buffers().iter().map(Parameter::tensor).collect();
        let all: Vec<&Tensor> = tensors.iter().copied().chain(&buffers).collect();
        Ok(Tensor::evaluate_all(&all)?)
    }

    /// The weights, layer by layer, as matrices. Dimensions after the first are merged, and a bias is one row. The
    /// weight of a dense layer is `(outputs, inputs)`.
    pub fn get_weights(&self) -> Result<Vec<Array2<f64>>> {
        self.weights().iter().map(|(_, parameter)| convert::array(&parameter.tensor())).collect()
    }

    /// Sets the weights, in the order and shapes of [`Network::get_weights`].
    ///
    /// # Errors
    /// If their number or a shape differs, or an element is not finite in the network's precision. Nothing changes
    /// then.
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

    /// A network with the same description and newly drawn weights.
    pub fn clone_architecture(&self) -> Result<Network> {
        self.rebuilt(self.plan.clone(), self.device.name(), self.dtype)
    }

    /// An independent copy of the network.
    pub fn try_clone(&self) -> Result<Network> {
        self.copy_on(self.device.name(), self.dtype)
    }

    /// A copy of the network on another device.
    ///
    /// # Errors
    /// If there is no such device, or not enough memory on it.
    pub fn to_device(&self, name: &str) -> Result<Network> {
        self.copy_on(name, self.dtype)
    }

    /// A copy on a device, with another dtype.
    pub(crate) fn copy_on(&self, device: &str, dtype: DType) -> Result<Network> {
        let mut copy = self.rebuilt(self.plan.clone(), device, dtype)?;
        copy.take_state(self)?;
        copy.history = self.history.clone();
        Ok(copy)
    }

    /// A copy whose weights have another dtype. Running statistics keep theirs.
    pub(crate) fn twin(&self, dtype: DType) -> Result<Network> {
        let copy = self.rebuilt(self.plan.clone(), self.device.name(), dtype)?;
        copy.buffers().iter().try_for_each(|buffer| buffer.convert(self.dtype))?;
        copy.take_state(self)?;
        Ok(copy)
    }

    /// A copy on a device for one of several workers. Its dropout differs from that of other workers, even with a seed.
    pub(crate) fn worker_on(&self, device: &str, number: u64) -> Result<Network> {
        let mut plan = self.plan.clone();
        plan.layers.iter_mut().for_each(|layer| layer.reseed(number));
        let copy = self.rebuilt(plan, device, self.dtype)?;
        copy.take_state(self)?;
        Ok(copy)
    }

    /// Copies the weights and buffers of a network with the same description.
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
        Network::assemble(plan, device::find(Some(device))?, dtype, builder::time())
    }

    /// Draws all weights again and clears the history.
    pub fn reset_weights(&mut self) -> Result<()> {
        *self = self.clone_architecture()?;
        Ok(())
    }

    /// A network with other layers. `origins` has the place of each layer in this network, whose weights are copied, or
    /// `None`.
    pub(crate) fn with_layers(
        &self,
        layers: Vec<LayerBuilder>,
        origins: &[Option<usize>],
    ) -> Result<Network> {
        let new = self.rebuilt(Plan { layers, ..self.plan.clone() }, self.device.name(), self.dtype)?;
        let mut values = Vec::new();
        for (layer, origin) in new.layers.iter().zip(origins) {
            let old = origin.map(|place| self.layers[place].named_state()).unwrap_or_default();
            for ((_, _, own), (_, _, old)) in layer.named_state().into_iter().zip(old) {
                values.push((own, old.tensor().detach()?));
            }
        }
        put(values)?;
        Ok(new)
    }
}

/// Whether all elements of tensors are finite.
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

/// Computes values and sets parameters to them.
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
