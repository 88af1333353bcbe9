//! Descriptors of operators in memory.

use crate::{
    graph::{Node, Value},
    operator::Field,
};

/// The descriptor of a node's operator, laid out as its structure in C. `inputs` are the addresses of the descriptors
/// of its inputs, `outputs` those of its outputs, 0 for what is absent. It points to these and into `node`.
pub(crate) fn encode(node: &Node, inputs: &[u64], outputs: &[u64]) -> Box<[u64]> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut put = |value: &[u8]| {
        bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
        bytes.extend(value);
    };
    let (mut inputs, mut outputs, mut values) = (inputs.iter(), outputs.iter(), node.values.iter());
    for field in node.row.fields {
        match field {
            Field::In | Field::OptionalIn => put(&inputs.next().copied().unwrap_or(0).to_ne_bytes()),
            Field::Out => put(&outputs.next().copied().unwrap_or(0).to_ne_bytes()),
            Field::Null => put(&0u64.to_ne_bytes()),
            Field::Number | Field::Float | Field::List | Field::Scalar => match values.next() {
                Some(Value::Number(number) | Value::Float(number)) => put(&number.to_ne_bytes()),
                Some(Value::List(list)) => put(&(list.as_ptr().expose_provenance() as u64).to_ne_bytes()),
                Some(Value::Scalar(bits)) => put(&bits.to_ne_bytes()),
                None => debug_assert!(false, "a field of operator {} without a value", node.row.number),
            },
        }
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let word = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap_or_default());
    bytes.chunks_exact(8).map(word).collect()
}

#[cfg(test)]
mod tests {
    use phynexus::DType;

    use super::*;
    use crate::{graph::Tensor, operator};

    fn encoded(node: &Node, inputs: &[u64], outputs: &[u64]) -> Vec<u8> {
        encode(node, inputs, outputs).iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn node(row: &'static operator::Row, values: Vec<Value>) -> Node {
        let output = Tensor::new(DType::F32, &[2], None).unwrap();
        Node { row, inputs: Vec::new(), outputs: vec![Some(output)], values }
    }

    fn pointer(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn number(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// The offsets are those of `DML_GEMM_OPERATOR_DESC` with 64-bit pointers.
    #[test]
    fn a_product_has_its_structure() {
        let (one, two) = (1.0f32.to_bits(), 2.0f32.to_bits());
        let values = vec![Value::Number(1), Value::Number(0), Value::Float(one), Value::Float(two)];
        let bytes = encoded(&node(&operator::GEMM, values), &[10, 20, 0], &[40]);
        assert_eq!(bytes.len(), 56);
        assert_eq!([0, 8, 16, 24, 48].map(|at| pointer(&bytes, at)), [10, 20, 0, 40, 0]);
        assert_eq!([32, 36, 40, 44].map(|at| number(&bytes, at)), [1, 0, one, two]);
    }

    /// The offsets are those of `DML_CONVOLUTION_OPERATOR_DESC`.
    #[test]
    fn a_convolution_points_to_its_lists() {
        let lists = (0..5).map(|at| Value::List(vec![at, at + 10]));
        let numbers = [1, 0, 2].map(Value::Number);
        let values = numbers.into_iter().chain(lists).chain([Value::Number(3)]).collect();
        let node = node(&operator::CONVOLUTION, values);
        let bytes = encoded(&node, &[10, 20, 0], &[40]);
        assert_eq!(bytes.len(), 104);
        assert_eq!([32, 36, 40, 88].map(|at| number(&bytes, at)), [1, 0, 2, 3]);
        for (list, at) in node.values[3..8].iter().zip([48, 56, 64, 72, 80]) {
            let Value::List(list) = list else { panic!("{list:?}") };
            assert_eq!(pointer(&bytes, at), list.as_ptr().addr() as u64);
        }
        assert_eq!(pointer(&bytes, 96), 0);
    }

    /// The offsets are those of `DML_FILL_VALUE_CONSTANT_OPERATOR_DESC`, whose union has the alignment of 64 bits.
    #[test]
    fn a_constant_is_aligned() {
        let bytes = encoded(&node(&operator::FILL, vec![Value::Number(1), Value::Scalar(7)]), &[], &[40]);
        assert_eq!((bytes.len(), pointer(&bytes, 0), number(&bytes, 8), pointer(&bytes, 16)), (24, 40, 1, 7));
    }
}
