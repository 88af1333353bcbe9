//! Graphs of DirectML's operators.

use phynexus::{DType, kernel::step::Operand, shape::element_count};

use crate::operator::{self, Field, IDENTITY, Row};

/// The number of a type in `DML_TENSOR_DATA_TYPE`, if tensors may have it.
pub(crate) fn data_type(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F32 => Some(1),
        DType::F16 => Some(2),
        DType::U32 => Some(3),
        DType::U16 => Some(4),
        DType::U8 | DType::Bool => Some(5),
        DType::I32 => Some(6),
        DType::I16 => Some(7),
        DType::I8 => Some(8),
        DType::U64 => Some(10),
        DType::I64 => Some(11),
        _ => None,
    }
}

/// The strides of an operand.
pub(crate) fn strides(operand: &Operand) -> Vec<i64> {
    operand.layout.strides.iter().map(|&step| step as i64).collect()
}

/// How an operator sees a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tensor {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<u32>,
    /// `None` if the elements are packed in row-major order.
    pub(crate) strides: Option<Vec<u32>>,
}

/// Operators whose results of `float16` are exact.
static EXACT: [&Row; 9] = [
    &operator::ABS,
    &operator::CEIL,
    &operator::FLOOR,
    &operator::GATHER,
    &operator::IDENTITY,
    &operator::IF,
    &operator::PADDING,
    &operator::ROUND,
    &operator::SIGN,
];

/// Operators for which Direct3D asks for less than correct rounding.
static INEXACT: [&Row; 3] = [&operator::DIVIDE, &operator::RECIPROCAL, &operator::SQRT];

/// Operators that choose between elements, for which a subnormal number may be zero.
static CHOOSING: [&Row; 12] = [
    &operator::ABS,
    &operator::ARGMAX,
    &operator::ARGMIN,
    &operator::CAST,
    &operator::EQUAL,
    &operator::LESS,
    &operator::LESS_OR_EQUAL,
    &operator::MAX,
    &operator::MAX_POOLING,
    &operator::MIN,
    &operator::REDUCE,
    &operator::SIGN,
];

/// The fewest and the most dimensions of a tensor: the first versions of DirectML take at least 4.
const RANKS: (usize, usize) = (4, 8);

impl Tensor {
    /// A tensor of this shape. It gets leading dimensions of one element if it has too few. `None` if DirectML has no
    /// such tensors: of this type, with too many dimensions, a negative stride, no elements or too many.
    pub(crate) fn new(dtype: DType, shape: &[usize], strides: Option<&[i64]>) -> Option<Tensor> {
        if data_type(dtype).is_none() || element_count(shape) == 0 || shape.len() > RANKS.1 {
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

    /// A packed tensor of the same extents.
    pub(crate) fn like(&self, dtype: DType) -> Tensor {
        Tensor { dtype, sizes: self.sizes.clone(), strides: None }
    }

    /// The same elements, each seen several times along dimensions of one element.
    pub(crate) fn broadcast(&self, sizes: &[u32]) -> Tensor {
        if self.sizes == sizes {
            return self.clone();
        }
        let mut strides = self.steps();
        for (stride, size) in strides.iter_mut().zip(&self.sizes) {
            if *size == 1 {
                *stride = 0;
            }
        }
        Tensor { dtype: self.dtype, sizes: sizes.to_vec(), strides: Some(strides) }
    }

    /// The strides, also of a packed tensor.
    fn steps(&self) -> Vec<u32> {
        self.strides.clone().unwrap_or_else(|| {
            let mut steps = Vec::with_capacity(self.sizes.len());
            let mut step = 1;
            for size in self.sizes.iter().rev() {
                steps.push(step);
                step *= size;
            }
            steps.reverse();
            steps
        })
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
    /// An output of a node.
    Node(usize, usize),
}

/// A value, and how an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) edge: Edge,
    pub(crate) tensor: Tensor,
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
    pub(crate) inputs: Vec<Option<Seen>>,
    /// `None` for an optional output that nothing needs.
    pub(crate) outputs: Vec<Option<Tensor>>,
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
    /// The outputs of nodes that are stored, and where.
    pub(crate) outputs: Vec<((usize, usize), Part)>,
}

impl Graph {
    /// Whether an operator rounds to `float16`.
    pub(crate) fn rounds_to_half(&self) -> bool {
        let half = |tensor: &Tensor| tensor.dtype == DType::F16;
        let rounds = |node: &Node| node.outputs.iter().flatten().any(half) && !EXACT.contains(&node.row);
        self.nodes.iter().any(rounds)
    }

    /// Whether results depend on how exactly the device divides.
    pub(crate) fn divides(&self) -> bool {
        self.nodes.iter().any(|node| INEXACT.contains(&node.row))
    }

    /// Whether it only chooses between floats or compares them. With a product or a convolution, results may be rounded
    /// anyway.
    pub(crate) fn chooses(&self) -> bool {
        let float = |seen: &Seen| seen.tensor.dtype.is_float();
        let chooses = |node: &Node| CHOOSING.contains(&node.row) && node.inputs.iter().flatten().any(float);
        let rounds = |node: &Node| [&operator::GEMM, &operator::CONVOLUTION].contains(&node.row);
        self.nodes.iter().any(chooses) && !self.nodes.iter().any(rounds)
    }

    /// An input, once for equal ones.
    pub(crate) fn input(&mut self, part: Part) -> Seen {
        let tensor = part.tensor.clone();
        let known = self.inputs.iter().position(|input| *input == part);
        let edge = Edge::Input(known.unwrap_or_else(|| {
            self.inputs.push(part);
            self.inputs.len() - 1
        }));
        Seen { edge, tensor }
    }

    /// A node, once for equal ones. Returns its number.
    pub(crate) fn node(&mut self, node: Node) -> usize {
        let tensors = |wanted: &dyn Fn(&Field) -> bool| node.row.fields.iter().filter(|f| wanted(f)).count();
        debug_assert_eq!(node.inputs.len(), tensors(&|f| matches!(f, Field::In | Field::OptionalIn)));
        debug_assert_eq!(node.outputs.len(), tensors(&|f| matches!(f, Field::Out)));
        let known = self.nodes.iter().position(|other| *other == node);
        known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// The result of an operator with one output.
    pub(crate) fn apply<const N: usize>(
        &mut self,
        row: &'static Row,
        inputs: [Seen; N],
        output: Tensor,
        values: Vec<Value>,
    ) -> Seen {
        self.result(row, inputs.into_iter().map(Some).collect(), output, values)
    }

    /// The same, with inputs that may be absent.
    pub(crate) fn result(
        &mut self,
        row: &'static Row,
        inputs: Vec<Option<Seen>>,
        output: Tensor,
        values: Vec<Value>,
    ) -> Seen {
        let node = self.node(Node { row, inputs, outputs: vec![Some(output.clone())], values });
        Seen { edge: Edge::Node(node, 0), tensor: output }
    }

    /// An operand of the step as a tensor of this shape.
    pub(crate) fn operand(
        &mut self,
        binding: usize,
        dtype: DType,
        shape: &[usize],
        strides: &[i64],
    ) -> Option<Seen> {
        let tensor = Tensor::new(dtype, shape, Some(strides))?;
        Some(self.input(Part { binding, offset: 0, tensor }))
    }

    /// Stores a value. DirectML's outputs come from nodes, each of another output and with all of its elements.
    pub(crate) fn store(&mut self, value: Seen, to: Part) {
        let whole = |node: usize, output: usize| {
            let made = self.nodes[node].outputs[output].as_ref();
            value.tensor.strides.is_none() && made.is_some_and(|made| made.bytes() == value.tensor.bytes())
        };
        let free = |edge: &(usize, usize)| self.outputs.iter().all(|(other, _)| other != edge);
        let from = match value.edge {
            Edge::Node(node, output) if free(&(node, output)) && whole(node, output) => (node, output),
            _ => {
                let output = to.tensor.clone();
                let inputs = vec![Some(value)];
                self.nodes.push(Node { row: &IDENTITY, inputs, outputs: vec![Some(output)], values: vec![] });
                (self.nodes.len() - 1, 0)
            }
        };
        self.outputs.push((from, to));
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
    fn graphs_that_need_exact_arithmetic_are_known() {
        let graph = |row: &'static Row, dtype, inputs| {
            let mut graph = Graph::default();
            let x = Tensor::new(dtype, &[4], None).unwrap();
            let part = |binding| Part { binding, offset: 0, tensor: x.clone() };
            let inputs = (0..inputs).map(|binding| Some(graph.input(part(binding)))).collect();
            graph.node(Node { row, inputs, outputs: vec![Some(x.clone())], values: vec![] });
            [graph.rounds_to_half(), graph.divides(), graph.chooses()]
        };
        assert_eq!(graph(&operator::ADD, DType::F16, 2), [true, false, false]);
        assert_eq!(graph(&operator::ADD, DType::F32, 2), [false; 3]);
        assert_eq!(graph(&operator::IDENTITY, DType::F16, 1), [false; 3]);
        assert_eq!(graph(&operator::DIVIDE, DType::F32, 2), [false, true, false]);
        assert_eq!(graph(&operator::LESS, DType::F32, 2), [false, false, true]);
        assert_eq!(graph(&operator::LESS, DType::I32, 2), [false; 3]);
    }

    #[test]
    fn a_value_is_seen_again_along_dimensions_of_one_element() {
        let rows = tensor(&[3, 1], None).unwrap().broadcast(&[1, 1, 3, 5]);
        assert_eq!((rows.sizes.as_slice(), &rows.strides), (&[1, 1, 3, 5][..], &Some(vec![0, 0, 1, 0])));
        let whole = tensor(&[3, 5], None).unwrap();
        assert_eq!(whole.broadcast(&whole.sizes), whole);
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
        let first = graph.apply(&IDENTITY, [a.clone()], x.clone(), vec![]);
        assert_eq!(graph.apply(&IDENTITY, [a], x.clone(), vec![]), first);
        assert_eq!(graph.apply(&IDENTITY, [b.clone()], x.clone(), vec![]).edge, Edge::Node(1, 0));
        // A value that is stored twice, and an input that is stored, are copied.
        graph.store(first.clone(), part(2));
        graph.store(first, part(3));
        graph.store(b.clone(), part(4));
        let stored: Vec<usize> = graph.outputs.iter().map(|((node, _), _)| *node).collect();
        assert_eq!((stored, graph.nodes.len()), (vec![0, 2, 3], 4));
        assert_eq!(graph.nodes[3].inputs, [Some(b)]);
        // So is a value that is seen several times.
        let mut graph = Graph::default();
        let one = graph.input(Part { binding: 0, offset: 0, tensor: tensor(&[], None).unwrap() });
        let one = graph.apply(&IDENTITY, [one], tensor(&[], None).unwrap(), vec![]);
        graph.store(Seen { tensor: one.tensor.broadcast(&x.sizes), edge: one.edge }, part(1));
        assert_eq!((graph.nodes.len(), graph.outputs[0].0), (2, (1, 0)));
    }
}
