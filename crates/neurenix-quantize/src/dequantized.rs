//! Stored tensors that a `DequantizeLinear` node turns into floats.

use neurenix_onnx::{
    Value,
    edit::{Links, Network, integer_of},
};
use phynexus::DType;

use crate::{Format, Result};

/// What a `DequantizeLinear` node reads.
#[derive(Clone, Debug)]
pub(crate) struct Dequantized {
    /// The node's position.
    pub(crate) node: usize,
    /// The names of the quantized values, of the stored scales, and of the zero points if there are some.
    pub(crate) values: String,
    pub(crate) scale: String,
    pub(crate) zero_point: Option<String>,
    axis: i64,
    block: usize,
}

impl Dequantized {
    /// The node that makes this value, if it dequantizes with a stored scale.
    pub(crate) fn find(network: &Network, links: &Links, value: &str) -> Option<Dequantized> {
        let &node = links.maker.get(value)?;
        let maker = network.graph.node.get(node).filter(|maker| maker.op_type == "DequantizeLinear")?;
        let [values, scale, rest @ ..] = &maker.input[..] else { return None };
        network.stored(scale)?;
        Some(Dequantized {
            node,
            values: values.clone(),
            scale: scale.clone(),
            zero_point: rest.first().filter(|name| !name.is_empty()).cloned(),
            axis: integer_of(maker, "axis", 1),
            block: usize::try_from(integer_of(maker, "block_size", 0)).ok()?,
        })
    }

    /// The format of the stored values.
    pub(crate) fn format(&self, network: &Network) -> Option<Format> {
        let number = i64::from(network.stored(&self.values)?.data_type);
        Format::of_element(neurenix_onnx::Element::of_number(number)?)
    }

    /// The scales.
    pub(crate) fn scales(&self, network: &Network) -> Result<Option<Vec<f32>>> {
        Ok(network.floats(&self.scale)?.map(|(_, scales)| scales))
    }

    /// The scale and the zero point of each element of values of this shape; `None` if they do not fit.
    pub(crate) fn parameters(
        &self,
        network: &Network,
        shape: &[usize],
    ) -> Result<Option<(Vec<f32>, Vec<i64>)>> {
        let Some(scales) = self.scales(network)? else { return Ok(None) };
        let zeros = match &self.zero_point {
            None => vec![0; scales.len()],
            Some(name) => match whole(network, name)? {
                Some(zeros) => zeros,
                None => return Ok(None),
            },
        };
        let count: usize = shape.iter().product();
        let places: Option<Vec<usize>> = (0..count).map(|at| self.place(at, shape, scales.len())).collect();
        let Some(places) = places else { return Ok(None) };
        let own_scales = places.iter().map(|&at| scales.get(at).copied()).collect::<Option<_>>();
        let own_zeros = places.iter().map(|&at| zeros.get(at).copied()).collect::<Option<_>>();
        Ok(own_scales.zip(own_zeros))
    }

    /// The position of an element's scale among all scales.
    fn place(&self, element: usize, shape: &[usize], scales: usize) -> Option<usize> {
        if scales == 1 {
            return Some(0);
        }
        let rank = shape.len();
        let axis = match (rank, self.axis) {
            (1, _) => 0,
            (_, axis) if axis < 0 => usize::try_from(axis + rank as i64).ok()?,
            (_, axis) => usize::try_from(axis).ok()?,
        };
        let &extent = shape.get(axis)?;
        let inner: usize = shape.get(axis + 1..)?.iter().product();
        let (outer, along, within) = (element / (inner * extent), element / inner % extent, element % inner);
        Some(match self.block {
            0 => along,
            block => (outer * extent.div_ceil(block) + along / block) * inner + within,
        })
    }
}

/// The numbers of a stored tensor of integers.
pub(crate) fn whole(network: &Network, name: &str) -> Result<Option<Vec<i64>>> {
    let Some(value) = network.value(name)? else { return Ok(None) };
    let (Value::Tensor(tensor) | Value::Narrow(tensor, _)) = value else { return Ok(None) };
    if tensor.dtype().is_float() {
        return Ok(None);
    }
    Ok(Some(tensor.to_dtype(DType::I64)?.to_vec::<i64>()?))
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::{
        Element,
        edit::{floats, integers},
    };

    use super::*;
    use crate::support::{network, normal, plain, whole, with};

    #[test]
    fn parameters_are_those_that_the_operator_uses() -> Result<()> {
        let shape = [2, 5, 3];
        let numbers: Vec<i64> = (0..30).map(|at| at % 7 - 3).collect();
        for (axis, block, parameters) in
            [(1, 2, vec![2, 3, 3]), (-1, 0, vec![3]), (0, 0, vec![2]), (2, 2, vec![2, 5, 2])]
        {
            let count: usize = parameters.iter().product();
            let zeros: Vec<i64> = (0..count as i64).map(|at| at % 3 - 1).collect();
            let mut node = with(plain("DequantizeLinear", &["q", "s", "z"], "y"), whole("axis", axis));
            node.attribute.push(whole("block_size", block));
            let tensors = vec![
                integers("q", Element::Int8, &shape, &numbers),
                floats("s", &parameters, &normal(&parameters, 1)),
                integers("z", Element::Int8, &parameters, &zeros),
            ];
            let network = network(vec![node], tensors, &[1], &shape);
            let known = Dequantized::find(&network, &network.links(), "y").unwrap();
            assert_eq!(known.format(&network), Some(Format::Int8));
            let (scales, zeros) = known.parameters(&network, &shape)?.unwrap();
            let expected = crate::support::run(&network, &crate::support::input(&[1], &[0.0]));
            for (at, expected) in expected.into_iter().enumerate() {
                assert_eq!(
                    (numbers[at] - zeros[at]) as f32 * scales[at],
                    expected,
                    "axis {axis}, block {block}"
                );
            }
        }
        Ok(())
    }
}
