//! Definitions, in operators of older opsets, of what newer ones have.

use phynexus::{DType, Scalar, op::Combine};

use super::{
    emit::carrier,
    graph::count,
    symbols::varies,
    writer::{Request, Value, Writer, integer, integers},
};
/// The most elements of a table that scattered numbers are collected in.
const GREATEST_TABLE: i64 = 1 << 26;

/// Writes the node in another way; `None` if there is none.
pub(super) fn lower(writer: &mut Writer, node: &Request) -> Option<Vec<Value>> {
    let value = match (node.operator, &node.inputs[..]) {
        ("BitwiseNot", [Some(x)]) => complement(writer, x),
        ("DequantizeLinear", [Some(q), Some(scale), Some(zero)]) => {
            dequantized(writer, q, scale, zero, axis(node))
        }
        ("QuantizeLinear", [Some(x), Some(scale), Some(zero)]) => quantized(writer, node, x, scale, zero),
        ("IsInf" | "Where", _) => return Some(carried(writer, node, DType::F32)),
        ("Squeeze" | "Transpose" | "Unsqueeze", _) => return Some(carried(writer, node, DType::F16)),
        ("ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceProd", [Some(x), Some(axes)]) => {
            let axes = writer.numbers(axes)?;
            let attributes = node.attributes.iter().cloned().chain([integers("axes", axes)]).collect();
            return Some(writer.nodes(node.operator, &[Some(x)], attributes, node.outputs.clone()));
        }
        ("Reshape", [_, Some(shape)]) => empty(writer, node, shape)?,
        ("ScatterND", [Some(x), Some(index), Some(updates)]) => scattered(writer, node, x, index, updates)?,
        ("Shape", [Some(x)]) => part_of_shape(writer, node, x),
        _ => return None,
    };
    Some(vec![value])
}

/// The node's attribute of this name, an integer.
fn number(node: &Request, name: &str) -> Option<i64> {
    node.attributes.iter().find(|attribute| attribute.name == name)?.i
}

fn axis(node: &Request) -> Option<usize> {
    usize::try_from(number(node, "axis")?).ok()
}

/// The node with operands and results of its narrowest dtype in another, which holds all of their values.
fn carried(writer: &mut Writer, node: &Request, dtype: DType) -> Vec<Value> {
    let moved = |own: DType| if own.is_float() && own.size() < dtype.size() { dtype } else { own };
    let inputs: Vec<Option<Value>> =
        node.inputs.iter().map(|input| input.as_ref().map(|x| writer.cast(x, moved(x.dtype)))).collect();
    let inputs: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
    let outputs = node.outputs.iter().map(|(own, shape)| (moved(*own), shape.clone())).collect();
    let results = writer.nodes(node.operator, &inputs, node.attributes.clone(), outputs);
    results.iter().zip(&node.outputs).map(|(result, (own, _))| writer.cast(result, *own)).collect()
}

/// All bits inverted: `-1 - x`, or the greatest number less `x` if there are no negative ones.
fn complement(writer: &mut Writer, x: &Value) -> Value {
    // Sums of uint64 are right in int64, bit by bit.
    let dtype = if x.dtype == DType::U64 { DType::I64 } else { carrier(x.dtype) };
    let ones = match x.dtype {
        DType::U8 | DType::U16 | DType::U32 => Combine::Min.identity(x.dtype),
        _ => Scalar::Int(-1),
    };
    let (wide, ones) = (writer.cast(x, dtype), writer.scalar(dtype, ones));
    let inverse = writer.each("Sub", &[&ones, &wide]);
    writer.cast(&inverse, x.dtype)
}

/// A vector with axes of size 1 appended, so that it broadcasts along this axis of a tensor.
fn along(writer: &mut Writer, vector: &Value, axis: Option<usize>, rank: usize) -> Value {
    let axes: Vec<i64> = (1..rank as i64 - axis.map_or(rank as i64 - 1, |axis| axis as i64)).collect();
    if axes.is_empty() {
        return vector.clone();
    }
    let shape = [&vector.shape[..], &vec![[1, 1]; axes.len()]].concat();
    let axes = writer.vector(&axes);
    writer.node("Unsqueeze", &[vector, &axes], Vec::new(), vector.dtype, shape)
}

/// `(q - zero) * scale`, in the scale's dtype.
pub(super) fn dequantized(
    writer: &mut Writer,
    q: &Value,
    scale: &Value,
    zero: &Value,
    axis: Option<usize>,
) -> Value {
    let [number, zero] = [q, zero].map(|value| writer.cast(value, scale.dtype));
    let [zero, scale] = [&zero, scale].map(|value| along(writer, value, axis, q.shape.len()));
    let difference = writer.each("Sub", &[&number, &zero]);
    writer.each("Mul", &[&difference, &scale])
}

/// `x / scale + zero`, rounded and saturated, in the dtype of `zero`.
fn quantized(writer: &mut Writer, node: &Request, x: &Value, scale: &Value, zero: &Value) -> Value {
    let [low, high] = [Combine::Max, Combine::Min].map(|combine| match combine.identity(zero.dtype) {
        Scalar::Int(limit) => writer.scalar(x.dtype, limit as f64),
        limit => writer.scalar(x.dtype, limit.as_f64()),
    });
    let dtype = zero.dtype;
    let zero = writer.cast(zero, x.dtype);
    let [zero, scale] = [&zero, scale].map(|value| along(writer, value, axis(node), x.shape.len()));
    let quotient = writer.each("Div", &[x, &scale]);
    let rounded = writer.each("Round", &[&quotient]);
    let sum = writer.each("Add", &[&rounded, &zero]);
    let above = writer.each("Max", &[&sum, &low]);
    let inside = writer.each("Min", &[&above, &high]);
    writer.cast(&inside, dtype)
}

/// A tensor of this shape without elements, if the node's result is always one.
fn empty(writer: &mut Writer, node: &Request, shape: &Value) -> Option<Value> {
    let (dtype, extents) = node.outputs.first().filter(|(_, extents)| extents.contains(&[0, 0]))?;
    let made = writer.node("ConstantOfShape", &[shape], Vec::new(), DType::F32, extents.clone());
    Some(writer.cast(&made, *dtype))
}

fn part_of_shape(writer: &mut Writer, node: &Request, x: &Value) -> Value {
    let rank = x.shape.len() as i64;
    let bounds = [number(node, "start").unwrap_or(0), number(node, "end").unwrap_or(rank)];
    let shape = writer.node("Shape", &[x], Vec::new(), DType::I64, vec![[rank; 2]]);
    let [start, end, axes] = [bounds[0], bounds[1], 0].map(|number| writer.vector(&[number]));
    let part = vec![[bounds[1] - bounds[0]; 2]];
    writer.node("Slice", &[&shape, &start, &end, &axes], Vec::new(), DType::I64, part)
}

/// Updates of rows, reduced in a table of all rows by all updates. `None` if the table would be too large.
fn scattered(
    writer: &mut Writer,
    node: &Request,
    x: &Value,
    index: &Value,
    updates: &Value,
) -> Option<Value> {
    let reduction = node.attributes.iter().find(|attribute| attribute.name == "reduction");
    let (reduce, each, combine) = match reduction.map(|attribute| &attribute.s[..]) {
        Some(b"add") => ("ReduceSum", "Add", Combine::Sum),
        Some(b"mul") => ("ReduceProd", "Mul", Combine::Prod),
        Some(b"max") => ("ReduceMax", "Max", Combine::Max),
        Some(b"min") => ("ReduceMin", "Min", Combine::Min),
        _ => return None,
    };
    if updates.shape.contains(&[0, 0]) {
        return Some(x.clone());
    }
    let (rows, number) = (x.shape[0], updates.shape[0]);
    let table = [&[number, rows][..], &updates.shape[1..]].concat();
    if count(&table).iter().any(|&size| size > GREATEST_TABLE) || varies(number) && number.contains(&0) {
        return None;
    }
    // Indices may count from the end. One that is out of range must hit no row.
    let (size, places) = (writer.size(rows, &[x]).ok()?, writer.places(rows).ok()?);
    let zero = writer.scalar(DType::I64, 0);
    let is_negative = writer.each("Less", &[index, &zero]);
    let from_end = writer.each("Add", &[index, &size]);
    let index = writer.each("Where", &[&is_negative, &from_end, index]);
    let mut hit = writer.each("Equal", &[&places, &index]);
    let inner: Vec<i64> = (2..table.len() as i64).collect();
    if !inner.is_empty() {
        let shape = [&[number, rows][..], &vec![[1, 1]; inner.len()]].concat();
        let axes = writer.vector(&inner);
        hit = writer.node("Unsqueeze", &[&hit, &axes], Vec::new(), DType::Bool, shape);
    }
    let axes = writer.vector(&[1]);
    let column = [&[number, [1, 1]][..], &updates.shape[1..]].concat();
    let column = writer.node("Unsqueeze", &[updates, &axes], Vec::new(), updates.dtype, column);
    let nothing = writer.scalar(updates.dtype, combine.identity(updates.dtype));
    let table = writer.each("Where", &[&hit, &column, &nothing]);
    let axes = writer.vector(&[0]);
    let attributes = vec![integer("keepdims", 0)];
    let sums = writer.node(reduce, &[&table, &axes], attributes, updates.dtype, x.shape.clone());
    Some(writer.each(each, &[x, &sums]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use phynexus::{Tensor, tensor::Generator};

    use super::{
        super::{graph::Extent, opset::file_version, symbols::Symbols},
        *,
    };
    use crate::{
        Model,
        proto::{ModelProto, OperatorSetIdProto},
    };

    /// The operators of a file that quantizes `x` to 16 bits and back, and its results.
    fn quantized_as(dtype: DType, x: &Tensor, opset: i64) -> (Vec<String>, Vec<Vec<f64>>) {
        let scale = Tensor::from_slice(&[1.0f32, 0.25, 2.0, 1e-3], &[4], x.device()).unwrap();
        let zero = Tensor::from_slice(&[0i64, 3, 700, 32_000], &[4], x.device()).unwrap();
        let zero = zero.to_dtype(dtype).unwrap();
        let mut writer = Writer::new(Symbols::default(), opset);
        let shape: Vec<Extent> = x.shape().iter().map(|&size| [size as i64; 2]).collect();
        let value = writer.input("x", DType::F32, shape.clone());
        let (scale, zero) = (writer.tensor(None, &scale), writer.tensor(None, &zero));
        let axis = vec![integer("axis", 1)];
        let q = writer.node("QuantizeLinear", &[&value, &scale, &zero], axis.clone(), dtype, shape.clone());
        let back = writer.node("DequantizeLinear", &[&q, &scale, &zero], axis, DType::F32, shape);
        let graph = writer.finish("test", &[("q".to_owned(), q), ("back".to_owned(), back)]).unwrap();
        let operators = graph.node.iter().map(|node| node.op_type.clone()).collect();
        let file = ModelProto {
            ir_version: file_version(opset),
            graph: Some(graph),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
            ..Default::default()
        };
        let model = Model::of(&file, None, x.device()).unwrap();
        let given = HashMap::from([("x".to_owned(), crate::Value::Tensor(x.clone()))]);
        let results = model.run(given, &Generator::new(0)).unwrap();
        let numbers = |value: &crate::Value| {
            value.tensor().unwrap().to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
        };
        (operators, results.iter().map(numbers).collect())
    }

    #[test]
    fn what_has_no_definition_is_refused() {
        let pooled = |opset: i64| {
            let mut writer = Writer::new(Symbols::default(), opset);
            let x = writer.input("x", DType::F32, vec![[1, 1], [2, 2], [6, 6]]);
            let attributes = vec![integers("kernel_shape", vec![2]), integers("dilations", vec![2])];
            let y = writer.node("AveragePool", &[&x], attributes, DType::F32, vec![[1, 1], [2, 2], [4, 4]]);
            writer.finish("test", &[("y".to_owned(), y)])
        };
        let error = pooled(18).unwrap_err().to_string();
        assert!(error.contains("AveragePool with dilations, which ONNX has since opset 19"), "{error}");
        pooled(19).unwrap();
    }

    #[test]
    fn integers_of_16_bits_are_quantized_by_older_operators() {
        let device = phynexus_cpu::register();
        // Halves, which are rounded to even numbers, and numbers that are too large.
        let numbers: Vec<f32> =
            (-12..12).map(|n| if n % 3 == 0 { 9e4 * n as f32 } else { 0.5 * n as f32 }).collect();
        let x = Tensor::from_slice(&numbers, &[3, 4, 2], device).unwrap();
        for dtype in [DType::I16, DType::U16] {
            let (operators, expected) = quantized_as(dtype, &x, 21);
            assert_eq!(operators, ["QuantizeLinear", "DequantizeLinear"]);
            for opset in [13, 20] {
                let (operators, found) = quantized_as(dtype, &x, opset);
                assert!(!operators.iter().any(|operator| operator.ends_with("Linear")), "{operators:?}");
                assert_eq!(found, expected, "{dtype} in opset {opset}");
            }
        }
    }
}
