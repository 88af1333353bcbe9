//! Graphs of DirectML's operators.

use phynexus::{DType, shape::element_count};

use crate::operator::{Field, IDENTITY, Row};

/// How an operator sees a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tensor {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<u32>,
    /// `None` if the elements are packed in row-major order.
    pub(crate) strides: Option<Vec<u32>>,
}

/// The fewest and the most dimensions of a tensor: the first versions of DirectML take at least 4.
const RANKS: (usize, usize) = (4, 8);

impl Tensor {
    /// A tensor of this shape. It gets leading dimensions of one element if it has too few. `None` if DirectML has no
    /// such tensors: it has too many dimensions, a stride is negative, or it is empty or too large.
    pub(crate) fn new(dtype: DType, shape: &[usize], strides: Option<&[i64]>) -> Option<Tensor> {
        if element_count(shape) == 0 || shape.len() > RANKS.1 {
            return None;
        }
        let lacking = RANKS.0.saturating_sub(shape.len());
        let whole = |number: i64| u32::try_from(number).ok();
        let sizes = vec![Some(1); lacking].into_iter().chain(shape.iter().map(|&size| whole(size as i64)));
        let sizes = sizes.collect::<Option<Vec<u32>>>()?;
        let strides = match strides {
            Some(strides) => {
                let all = vec![Some(0); lacking].into_iter().chain(strides.iter().map(|&step| whole(step)));
                Some(all.collect::<Option<Vec<u32>>>()?).filter(|strides| !is_packed(&sizes, strides))
            }
            None => None,
        };
        Some(Tensor { dtype, sizes, strides }).filter(|tensor| tensor.bytes() <= u64::from(u32::MAX))
    }

    /// The bytes from the first element to the end of the last, in whole words.
    pub(crate) fn bytes(&self) -> u64 {
        let elements: u64 = match &self.strides {
            Some(strides) => {
                let last = self
                    .sizes
                    .iter()
                    .zip(strides)
                    .map(|(&size, &step)| u64::from(size - 1) * u64::from(step));
                last.sum::<u64>() + 1
            }
            None => self.sizes.iter().map(|&size| u64::from(size)).product(),
        };
        (elements * self.dtype.size() as u64).next_multiple_of(4)
    }
}

fn is_packed(sizes: &[u32], strides: &[u32]) -> bool {
    let mut step = 1;
    sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
        let packed = size == 1 || u64::from(stride) == step;
        step *= u64::from(size);
        packed
    })
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edge {
    /// This input of the graph.
    Input(usize),
    /// The output of this node.
    Node(usize),
}

/// A field that is not a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Number(u32),
    /// The bits of a float.
    Float(u32),
    List(Vec<u32>),
    Scalar(u64),
}

/// One operator with its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) row: &'static Row,
    pub(crate) inputs: Vec<Option<(Edge, Tensor)>>,
    pub(crate) output: Tensor,
    /// The other fields, in order.
    pub(crate) values: Vec<Value>,
}

/// Part of a binding of the step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) binding: usize,
    /// Bytes from the binding's address to the first element.
    pub(crate) offset: u64,
    pub(crate) tensor: Tensor,
}

/// Operators that DirectML compiles together. Equal graphs share what is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<Part>,
    pub(crate) nodes: Vec<Node>,
    /// The nodes whose output is stored, and where.
    pub(crate) outputs: Vec<(usize, Part)>,
}

impl Graph {
    /// An input, once for equal ones.
    pub(crate) fn input(&mut self, part: Part) -> Edge {
        let known = self.inputs.iter().position(|input| *input == part);
        Edge::Input(known.unwrap_or_else(|| {
            self.inputs.push(part);
            self.inputs.len() - 1
        }))
    }

    /// A node, once for equal ones.
    pub(crate) fn node(&mut self, node: Node) -> Edge {
        debug_assert_eq!(
            node.inputs.len(),
            node.row.fields.iter().filter(|field| matches!(field, Field::In | Field::OptionalIn)).count()
        );
        let known = self.nodes.iter().position(|other| *other == node);
        Edge::Node(known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        }))
    }

    /// Stores a value. DirectML's outputs come from nodes, and each node's from one.
    pub(crate) fn store(&mut self, edge: Edge, seen: Tensor, to: Part) {
        let node = match edge {
            Edge::Node(node) if self.outputs.iter().all(|(other, _)| *other != node) => node,
            edge => {
                let output = to.tensor.clone();
                self.nodes.push(Node {
                    row: &IDENTITY,
                    inputs: vec![Some((edge, seen))],
                    output,
                    values: vec![],
                });
                self.nodes.len() - 1
            }
        };
        self.outputs.push((node, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], strides: Option<&[i64]>) -> Option<Tensor> {
        Tensor::new(DType::F32, shape, strides)
    }

    #[test]
    fn shapes_are_filled_up_and_packed_strides_are_left_out() {
        let packed = tensor(&[3, 5], None).unwrap();
        assert_eq!((packed.sizes.as_slice(), packed.bytes()), (&[1, 1, 3, 5][..], 60));
        assert_eq!(tensor(&[3, 5], Some(&[5, 1])).unwrap(), packed);
        // The stride of a dimension of one element is irrelevant.
        assert_eq!(tensor(&[1, 5], Some(&[77, 1])).unwrap().strides, None);
        let transposed = tensor(&[3, 5], Some(&[1, 4])).unwrap();
        assert_eq!((transposed.strides.clone(), transposed.bytes()), (Some(vec![0, 0, 1, 4]), 76));
        assert_eq!(tensor(&[3, 5], Some(&[0, 1])).unwrap().bytes(), 20);
        assert_eq!(Tensor::new(DType::F16, &[3], None).unwrap().bytes(), 8);
    }

    #[test]
    fn tensors_that_directml_lacks_are_refused() {
        assert_eq!(tensor(&[3, 0], None), None);
        assert_eq!(tensor(&[3], Some(&[-1])), None);
        assert_eq!(tensor(&[1; 9], None), None);
        assert_eq!(tensor(&[1 << 31], None), None);
    }

    #[test]
    fn equal_inputs_and_nodes_are_one() {
        let mut graph = Graph::default();
        let x = tensor(&[4], None).unwrap();
        let part = |binding| Part { binding, offset: 0, tensor: x.clone() };
        let (a, b) = (graph.input(part(0)), graph.input(part(1)));
        assert_eq!(graph.input(part(0)), a);
        let node = |edge| Node {
            row: &IDENTITY,
            inputs: vec![Some((edge, x.clone()))],
            output: x.clone(),
            values: vec![],
        };
        let first = graph.node(node(a));
        assert_eq!((graph.node(node(a)), graph.node(node(b))), (first, Edge::Node(1)));
        // A value that is stored twice, and an input that is stored, are copied.
        graph.store(first, x.clone(), part(2));
        graph.store(first, x.clone(), part(3));
        graph.store(b, x.clone(), part(4));
        let stored: Vec<usize> = graph.outputs.iter().map(|(node, _)| *node).collect();
        assert_eq!((stored, graph.nodes.len()), (vec![0, 2, 3], 4));
        assert_eq!(graph.nodes[3].inputs, [Some((b, x.clone()))]);
    }
}
