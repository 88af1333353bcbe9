//! Linear layers: nodes that multiply their input by a stored weight.

use neurenix_onnx::{
    edit::{Links, Network, integer_of},
    proto::{NodeProto, TensorProto},
};

use crate::Result;

/// Which elements of a weight belong to which channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// `[outputs, inputs / groups, window...]` of `Conv`; the number of the window's elements and of groups.
    Convolution { window: usize, groups: usize },
    /// `[inputs, outputs / groups, window...]` of `ConvTranspose`.
    Transposed { window: usize, groups: usize },
    /// `[inputs, outputs]` of `MatMul` and `Gemm`.
    Columns,
    /// `[outputs, inputs]` of `Gemm` with `transB`.
    Rows,
}

/// A node `Conv`, `ConvTranspose`, `Gemm` or `MatMul` whose weight is a matrix or a stack of kernels.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// Its position in the graph.
    pub(crate) node: usize,
    /// The name of the value that is its weight.
    pub(crate) weight: String,
    /// The shape of the weight.
    pub(crate) shape: Vec<usize>,
    pub(crate) arrangement: Arrangement,
    /// The number of input channels.
    pub(crate) inputs: usize,
    /// The number of output channels.
    pub(crate) outputs: usize,
}

impl Linear {
    /// The node as a layer, given the shape of its weight; `None` if it is none, or its operands have other axes than
    /// those that quantizers know.
    pub(crate) fn of_shape(node: &NodeProto, at: usize, shape: &[usize]) -> Option<Linear> {
        if !(node.domain.is_empty() || node.domain == "ai.onnx") {
            return None;
        }
        let groups = usize::try_from(integer_of(node, "group", 1)).ok().filter(|&groups| groups > 0)?;
        let window = || count(shape.get(2..)?);
        let (arrangement, inputs, outputs) = match (node.op_type.as_str(), shape) {
            ("Conv", [outputs, inputs, _, ..]) => (
                Arrangement::Convolution { window: window()?, groups },
                inputs.checked_mul(groups)?,
                *outputs,
            ),
            ("ConvTranspose", [inputs, outputs, _, ..]) => {
                (Arrangement::Transposed { window: window()?, groups }, *inputs, outputs.checked_mul(groups)?)
            }
            ("MatMul", [inputs, outputs]) => (Arrangement::Columns, *inputs, *outputs),
            ("Gemm", _) if integer_of(node, "transA", 0) != 0 => return None,
            ("Gemm", [outputs, inputs]) if integer_of(node, "transB", 0) != 0 => {
                (Arrangement::Rows, *inputs, *outputs)
            }
            ("Gemm", [inputs, outputs]) => (Arrangement::Columns, *inputs, *outputs),
            _ => return None,
        };
        let fits = !shape.contains(&0) && inputs % groups == 0 && outputs % groups == 0;
        let weight = node.input.get(1).filter(|name| !name.is_empty())?.clone();
        fits.then(|| Linear { node: at, weight, shape: shape.to_vec(), arrangement, inputs, outputs })
    }

    /// The node as a layer, if its weight is stored as `float32`.
    pub(crate) fn find(network: &Network, at: usize) -> Option<Linear> {
        let node = network.graph.node.get(at)?;
        let tensor = network.stored(node.input.get(1)?)?;
        if tensor.data_type != neurenix_onnx::Element::Float as i32 {
            return None;
        }
        Linear::of_shape(node, at, &extents(tensor)?)
    }

    /// All layers of a network, in the order of its nodes.
    pub(crate) fn all(network: &Network) -> Vec<Linear> {
        (0..network.graph.node.len()).filter_map(|at| Linear::find(network, at)).collect()
    }

    /// The input and the output channel of a weight's element.
    pub(crate) fn channels(&self, element: usize) -> (usize, usize) {
        let split = |window: usize, groups: usize, rows: usize, columns: usize| {
            let (row, column) = (element / (window * columns), element / window % columns);
            let group = row / (rows / groups);
            (row, group * columns + column)
        };
        match self.arrangement {
            Arrangement::Convolution { window, groups } => {
                let (output, input) = split(window, groups, self.outputs, self.inputs / groups);
                (input, output)
            }
            Arrangement::Transposed { window, groups } => {
                split(window, groups, self.inputs, self.outputs / groups)
            }
            Arrangement::Columns => (element / self.outputs, element % self.outputs),
            Arrangement::Rows => (element % self.inputs, element / self.inputs),
        }
    }

    /// The axis of the weight on which its output channels are, within their group.
    pub(crate) fn output_axis(&self) -> usize {
        match self.arrangement {
            Arrangement::Convolution { .. } | Arrangement::Rows => 0,
            Arrangement::Transposed { .. } | Arrangement::Columns => 1,
        }
    }

    /// Whether its channels are on axis 1 of its operands, as those of images are; otherwise they are on the last.
    pub(crate) fn has_images(&self) -> bool {
        matches!(self.arrangement, Arrangement::Convolution { .. } | Arrangement::Transposed { .. })
    }

    /// The weight's numbers, if they are stored as `float32`.
    pub(crate) fn numbers(&self, network: &Network) -> Result<Option<Vec<f32>>> {
        Ok(network.floats(&self.weight)?.map(|(_, numbers)| numbers))
    }

    /// Whether nothing but this node reads the weight.
    pub(crate) fn owns_weight(&self, links: &Links) -> bool {
        links.only_reader(&self.weight) == Some(self.node)
    }

    /// The greatest absolute weight of each channel: of inputs or outputs.
    pub(crate) fn greatest(&self, numbers: &[f32], of_inputs: bool) -> Vec<f32> {
        let mut greatest = vec![0f32; if of_inputs { self.inputs } else { self.outputs }];
        for (element, number) in numbers.iter().enumerate() {
            let (input, output) = self.channels(element);
            if let Some(known) = greatest.get_mut(if of_inputs { input } else { output }) {
                *known = known.max(number.abs());
            }
        }
        greatest
    }
}

/// The extents of a stored tensor; `None` if one is negative.
pub(crate) fn extents(tensor: &TensorProto) -> Option<Vec<usize>> {
    tensor.dims.iter().map(|&size| usize::try_from(size).ok()).collect()
}

/// The number of elements of a shape; `None` if it is beyond `usize`. A file's shapes are not checked before its
/// tensors are read.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))
}

/// A float attribute of a node, or its default.
pub(crate) fn float_of(node: &NodeProto, name: &str, default: f32) -> f32 {
    node.attribute.iter().find(|attribute| attribute.name == name).map_or(default, |attribute| attribute.f())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{plain, whole, with};

    fn layer(operator: &str, groups: i64, shape: &[usize]) -> Option<Linear> {
        let node = with(plain(operator, &["x", "w"], "y"), whole("group", groups));
        Linear::of_shape(&node, 0, shape)
    }

    #[test]
    fn channels_are_those_of_the_definitions() {
        // Output channels of a group read the input channels of the same group (ONNX, operator Conv).
        let convolution = layer("Conv", 3, &[6, 2, 2]).unwrap();
        assert_eq!((convolution.inputs, convolution.outputs), (6, 6));
        for output in 0..6 {
            for (input, place) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let expected = (output / 2 * 2 + input, output);
                assert_eq!(convolution.channels((output * 2 + input) * 2 + place), expected);
            }
        }
        let transposed = layer("ConvTranspose", 2, &[4, 3, 1]).unwrap();
        assert_eq!((transposed.inputs, transposed.outputs), (4, 6));
        for input in 0..4 {
            for output in 0..3 {
                assert_eq!(transposed.channels(input * 3 + output), (input, input / 2 * 3 + output));
            }
        }
        assert_eq!(layer("MatMul", 1, &[4, 3]).unwrap().channels(7), (2, 1));
        assert_eq!(layer("MatMul", 1, &[2, 4, 3]).map(|layer| layer.inputs), None);
        assert_eq!(layer("Conv", 4, &[6, 2, 2]).map(|layer| layer.inputs), None);
        assert_eq!(layer("Conv", 0, &[6, 2, 2]).map(|layer| layer.inputs), None);
        // Extents and groups of a broken file.
        assert_eq!(layer("Conv", 1 << 62, &[8, 8, 1]).map(|layer| layer.inputs), None);
        assert_eq!(layer("ConvTranspose", 1 << 62, &[8, 8, 1]).map(|layer| layer.inputs), None);
        assert_eq!(layer("Conv", 1, &[8, 8, 1 << 62, 8]).map(|layer| layer.inputs), None);
    }
}
