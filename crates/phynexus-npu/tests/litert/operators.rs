//! Small networks, one for each operator that is written for LiteRT.

use neurenix_onnx::{
    Element,
    edit::{self, Network},
    proto::{AttributeProto, attribute_type},
};

use crate::common::*;

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        s: value.as_bytes().to_vec(),
        r#type: attribute_type::STRING,
        ..Default::default()
    }
}

fn ints(network: &mut Network, name: &str, numbers: &[i64]) {
    network.store(edit::integers(name, Element::Int64, &[numbers.len()], numbers));
}

/// A network from an image `[1, 4, 6, 8]` in which `build` appends nodes from `a` to `y`.
fn around(output: &[usize], build: impl Fn(&mut Network)) -> Network {
    let mut net = network(&[1, 4, 6, 8], ("y", output));
    add(&mut net, "Relu", &["x"], "r", vec![]);
    layer(&mut net, "Conv", "r", "a", &[4, 4, 1, 1], vec![]);
    build(&mut net);
    net
}

/// Operators in networks of floats, each after and most before a convolution, so that layouts change.
pub fn operators() -> Vec<(&'static str, Network)> {
    let list = integers_attribute;
    let pool =
        |pads: [i64; 4]| vec![list("kernel_shape", &[3, 3]), list("strides", &[2, 2]), list("pads", &pads)];
    let simple = |operator: &'static str| {
        (operator, around(&[1, 4, 6, 8], |net| add(net, operator, &["a"], "y", vec![])))
    };
    let mut cases: Vec<(&'static str, Network)> =
        ["Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Abs", "Exp", "Elu"].into_iter().map(simple).collect();
    let arithmetic = ["Add", "Sub", "Mul", "Div", "Max", "Min"].into_iter().map(|operator| {
        let net = around(&[1, 4, 6, 8], |net| {
            let constant: Vec<f32> = (0..4).map(|c| 0.5 + c as f32).collect();
            net.store(edit::floats("c", &[4, 1, 1], &constant));
            add(net, operator, &["a", "c"], "b", vec![]);
            layer(net, "Conv", "b", "d", &[4, 4, 3, 3], vec![list("pads", &[1, 1, 1, 1])]);
            add(net, "Add", &["d", "a"], "y", vec![]);
        });
        (operator, net)
    });
    cases.extend(arithmetic);
    cases.push((
        "Sqrt",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Abs", &["a"], "b", vec![]);
            add(net, "Sqrt", &["b"], "y", vec![]);
        }),
    ));
    cases.push((
        "Gelu",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Gelu", &["a"], "y", vec![text("approximate", "tanh")]);
        }),
    ));
    cases.push((
        "Clip",
        around(&[1, 4, 6, 8], |net| {
            net.store(edit::floats("low", &[], &[-0.25]));
            net.store(edit::floats("high", &[], &[0.5]));
            add(net, "Clip", &["a", "low", "high"], "y", vec![]);
        }),
    ));
    cases.push((
        "MaxPool with pads",
        around(&[1, 4, 3, 4], |net| {
            add(net, "MaxPool", &["a"], "y", pool([1, 1, 1, 1]));
        }),
    ));
    cases.push((
        "AveragePool",
        around(&[1, 4, 2, 3], |net| {
            add(net, "AveragePool", &["a"], "y", pool([0, 0, 0, 0]));
        }),
    ));
    cases.push((
        "AveragePool that counts pads",
        around(&[1, 4, 6, 8], |net| {
            let mut attributes = vec![list("kernel_shape", &[3, 3]), list("pads", &[1, 1, 1, 1])];
            attributes.push(edit::integer_attribute("count_include_pad", 1));
            add(net, "AveragePool", &["a"], "y", attributes);
        }),
    ));
    cases.push((
        "AveragePool that does not count pads",
        around(&[1, 4, 6, 8], |net| {
            let attributes = vec![list("kernel_shape", &[3, 3]), list("pads", &[1, 1, 1, 1])];
            add(net, "AveragePool", &["a"], "y", attributes);
        }),
    ));
    cases.push((
        "Conv with uneven pads",
        around(&[1, 4, 3, 4], |net| {
            let attributes = vec![list("pads", &[1, 1, 1, 1]), list("strides", &[2, 2])];
            layer(net, "Conv", "a", "y", &[4, 4, 3, 3], attributes);
        }),
    ));
    cases.push((
        "Conv in groups, dilated",
        around(&[1, 8, 6, 8], |net| {
            let attributes = vec![
                list("pads", &[2, 2, 2, 2]),
                list("dilations", &[2, 2]),
                edit::integer_attribute("group", 4),
            ];
            layer(net, "Conv", "a", "y", &[8, 1, 3, 3], attributes);
        }),
    ));
    cases.push((
        "ConvTranspose",
        around(&[1, 4, 12, 16], |net| {
            let attributes = vec![list("strides", &[2, 2]), list("pads", &[1, 1, 1, 1])];
            layer(net, "ConvTranspose", "a", "y", &[4, 4, 4, 4], attributes);
        }),
    ));
    cases.push((
        "Flatten and Gemm",
        around(&[1, 5], |net| {
            add(net, "Flatten", &["a"], "f", vec![]);
            layer(net, "Gemm", "f", "y", &[192, 5], vec![]);
        }),
    ));
    cases.push((
        "Reshape",
        around(&[1, 48, 4], |net| {
            ints(net, "shape", &[1, 48, 4]);
            add(net, "Reshape", &["a", "shape"], "y", vec![]);
        }),
    ));
    cases.push((
        "Transpose and MatMul",
        around(&[1, 6, 8, 3], |net| {
            add(net, "Transpose", &["a"], "t", vec![list("perm", &[0, 2, 3, 1])]);
            net.store(edit::floats("m", &[4, 3], &numbers(5, 12, 0.5)));
            net.store(edit::floats("mb", &[3], &numbers(6, 3, 0.5)));
            add(net, "MatMul", &["t", "m"], "p", vec![]);
            add(net, "Add", &["p", "mb"], "y", vec![]);
        }),
    ));
    cases.push((
        "MatMul of two values",
        around(&[1, 4, 6, 6], |net| {
            add(net, "Transpose", &["a"], "t", vec![list("perm", &[0, 1, 3, 2])]);
            add(net, "MatMul", &["a", "t"], "y", vec![]);
        }),
    ));
    cases.push((
        "Softmax over channels",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Softmax", &["a"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    cases.push((
        "LayerNormalization",
        around(&[1, 4, 6, 8], |net| {
            net.store(edit::floats("gain", &[8], &numbers(7, 8, 1.0)));
            net.store(edit::floats("shift", &[8], &numbers(8, 8, 1.0)));
            add(net, "LayerNormalization", &["a", "gain", "shift"], "y", vec![]);
        }),
    ));
    cases.push((
        "Concat",
        around(&[1, 8, 6, 8], |net| {
            layer(net, "Conv", "a", "b", &[4, 4, 1, 1], vec![]);
            add(net, "Concat", &["a", "b"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    cases.push((
        "Pad",
        around(&[1, 4, 8, 8], |net| {
            ints(net, "pads", &[0, 0, 2, 0, 0, 0, 0, 0]);
            add(net, "Pad", &["a", "pads"], "y", vec![]);
        }),
    ));
    cases.push((
        "Slice",
        around(&[1, 2, 6, 4], |net| {
            ints(net, "starts", &[1, 0]);
            ints(net, "ends", &[3, 8]);
            ints(net, "axes", &[1, 3]);
            ints(net, "steps", &[1, 2]);
            add(net, "Slice", &["a", "starts", "ends", "axes", "steps"], "y", vec![]);
        }),
    ));
    cases.push((
        "Gather",
        around(&[1, 2, 6, 8], |net| {
            ints(net, "indices", &[3, 1]);
            add(net, "Gather", &["a", "indices"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    for (mode, name) in [("nearest", "Resize to the nearest"), ("linear", "Resize, linear")] {
        cases.push((
            name,
            around(&[1, 4, 12, 16], |net| {
                net.store(edit::floats("scales", &[4], &[1.0, 1.0, 2.0, 2.0]));
                let attributes = vec![text("mode", mode)];
                add(net, "Resize", &["a", "", "scales"], "y", attributes);
            }),
        ));
    }
    cases.push((
        "ReduceMean",
        around(&[1, 4, 1, 8], |net| {
            ints(net, "axes", &[2]);
            add(net, "ReduceMean", &["a", "axes"], "y", vec![]);
        }),
    ));
    let mut line = network(&[1, 4, 20], ("y", &[1, 6, 10]));
    layer(&mut line, "Conv", "x", "a", &[6, 4, 3], vec![list("pads", &[1, 1])]);
    add(&mut line, "MaxPool", &["a"], "y", vec![list("kernel_shape", &[2]), list("strides", &[2])]);
    cases.push(("one dimension", line));
    cases
}
