//! Files of every opset that can be written.

use neurenix_onnx::proto::NodeProto;
use phynexus::{op::Combine, tensor::AttentionOptions};

use super::*;

const OPSETS: std::ops::RangeInclusive<i64> = 13..=28;

/// Writes a network for an opset, once what it computes is checked.
fn written(inputs: &[Tensor], network: Network, opset: i64) -> Result<ModelProto, Error> {
    let given = pending(inputs);
    let outputs = network(&given)?;
    let export = Export { inputs: named("x", &given), outputs: named("y", &outputs), ..Export::default() };
    let model = export_as(&export, &export, opset)?;
    assert_eq!(model.opset_import[0].version, opset);
    compare(&format!("opset {opset}"), &model, inputs, &network(inputs)?, 1e-4);
    Ok(model)
}

fn nodes<'m>(model: &'m ModelProto, operator: &str) -> Vec<&'m NodeProto> {
    model.graph.iter().flat_map(|graph| &graph.node).filter(|node| node.op_type == operator).collect()
}

/// Composites are one node where the opset has it, and their definition elsewhere.
#[test]
fn composites() {
    let inputs = [numbers(&[2, 8, 3, 4], 1), numbers(&[4], 2)];
    let network = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let (x, weight) = (&x[0], &x[1]);
        let causal = AttentionOptions { is_causal: true, ..Default::default() };
        Ok(vec![
            x.gelu(GeluApproximation::None)?.mish()?,
            x.gelu(GeluApproximation::Tanh)?,
            x.layer_norm(&[4], Some(weight), None, 1e-5)?,
            x.to_dtype(DType::F16)?.layer_norm(&[3, 4], None, None, 1e-5)?.to_dtype(DType::F32)?,
            x.rms_norm(&[4], Some(weight), Some(1e-5))?,
            x.group_norm(2, None, None, 1e-5)?,
            x.scaled_dot_product_attention(&x.neg()?, x, None, causal)?,
            x.cumprod(2)?,
        ])
    };
    let since = [
        ("Gelu", 20),
        ("Mish", 18),
        ("LayerNormalization", 17),
        ("RMSNormalization", 23),
        ("GroupNormalization", 21),
        ("Attention", 23),
        ("CumProd", 26),
    ];
    for opset in OPSETS {
        let model = written(&inputs, &network, opset).unwrap();
        for (operator, first) in since {
            assert_eq!(!nodes(&model, operator).is_empty(), opset >= first, "{operator} in opset {opset}");
        }
    }
}

/// Operators that have another form in older opsets.
#[test]
fn forms() {
    let inputs = [numbers(&[6, 4, 3], 1), integers(&[5], 12, 2), integers(&[7], 200, 3)];
    let network = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let (x, index, whole) = (&x[0], x[1].sub_scalar(6)?, &x[2]);
        let rows = x.narrow(0, 0, 5)?;
        let wide = index.reshape(&[5, 1, 1])?.expand(&[5, 4, 3])?;
        let scattered = |combine| x.scatter_reduce(0, &wide, &rows, combine, true);
        Ok(vec![
            x.max(&[1], true)?,
            x.min(&[2], false)?,
            x.prod(&[0], true)?,
            x.mean(&[0, 2], false)?,
            x.to_dtype(DType::F16)?.isinf()?,
            x.index_add(0, &index, &rows)?,
            x.index_add(1, &index.remainder_scalar(4)?.narrow(0, 0, 3)?, &x.narrow(1, 0, 3)?)?,
            scattered(Combine::Prod)?,
            scattered(Combine::Max)?,
            scattered(Combine::Min)?,
            x.narrow(1, 0, 0)?.reshape(&[3, 0, 2])?,
            whole.sub_scalar(100)?.shift_right_scalar(2)?,
            whole.to_dtype(DType::I8)?.shift_right_scalar(1)?,
            x.to_dtype(DType::BF16)?.clamp(Some(Scalar::Float(0.5)), None)?.to_dtype(DType::F32)?,
        ])
    };
    for opset in OPSETS {
        let model = written(&inputs, &network, opset).unwrap();
        let reduction =
            nodes(&model, "ReduceMin").into_iter().find(|node| node.op_type == "ReduceMin").unwrap();
        assert_eq!(reduction.input.len(), if opset < 18 { 1 } else { 2 });
        let reduces = |choice: &[u8]| {
            nodes(&model, "ScatterND").iter().any(|n| n.attribute.iter().any(|a| a.s == choice))
        };
        assert_eq!((reduces(b"add"), reduces(b"max")), (opset >= 16, opset >= 18), "opset {opset}");
        assert_eq!(nodes(&model, "BitwiseNot").is_empty(), opset < 18);
        assert_eq!(nodes(&model, "ConstantOfShape").is_empty(), opset >= 14);
    }
}

/// An index beyond the rows changes none of them; the remainder of it would be that of another row.
#[test]
fn indices_out_of_range() {
    let index = |of: [i64; 3]| Tensor::from_slice(&of, &[3], cpu()).unwrap();
    let (x, rows) = (numbers(&[4, 2], 1), numbers(&[3, 2], 2));
    let network = |x: &[Tensor]| Ok(vec![x[0].index_add(0, &x[1], &x[2])?]);
    for opset in [13, 15] {
        let model = written(&[x.clone(), index([3, 0, 3]), rows.clone()], &network, opset).unwrap();
        let expected =
            x.index_add(0, &index([3, 0, 0]).narrow(0, 0, 1).unwrap(), &rows.narrow(0, 0, 1).unwrap());
        let given = [x.clone(), index([-1, 5, -6]), rows.clone()];
        compare(&format!("opset {opset}"), &model, &given, &[expected.unwrap()], 1e-5);
    }
}

/// A size that varies is read from a shape, of which older opsets have no parts.
#[test]
fn sizes() {
    let inputs = |n: usize| vec![numbers(&[3 + 2 * n, 4], n), numbers(&[2, 3 + 2 * n], n)];
    let network = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let rows = x[0].shape()[0];
        let index =
            Tensor::arange(Scalar::Int(0), Scalar::Int(rows as i64), Scalar::Int(1), DType::I64, cpu())?;
        let table = Tensor::full(&[rows, 4], 2.0, DType::F32, cpu())?;
        Ok(vec![
            x[1].matmul(&x[0])?.mean(&[], false)?,
            table.index_add(0, &index, &x[0])?,
            x[0].reshape(&[rows * 4])?,
        ])
    };
    let (first, second) = (pending(&inputs(0)), pending(&inputs(1)));
    let outputs = [network(&first).unwrap(), network(&second).unwrap()];
    let symbols = vec![(0, 0, "n".to_owned()), (1, 1, "n".to_owned())];
    let one =
        Export { inputs: named("x", &first), outputs: named("y", &outputs[0]), symbols, names: Vec::new() };
    let other = Export { inputs: named("x", &second), outputs: named("y", &outputs[1]), ..Export::default() };
    for opset in OPSETS {
        let model = export_as(&one, &other, opset).unwrap();
        let parts = nodes(&model, "Shape").iter().any(|node| !node.attribute.is_empty());
        assert_eq!(parts, opset >= 15, "opset {opset}");
        for n in 1..4 {
            let given = inputs(n);
            compare(&format!("opset {opset}"), &model, &given, &network(&given).unwrap(), 1e-4);
        }
    }
}

/// 8-bit floats are there since opset 19, and for operators that move elements since 21.
#[test]
fn small_floats() {
    let network = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![x[0].to_dtype(DType::F8E4M3)?.t()?.unsqueeze(0)?.to_dtype(DType::F32)?])
    };
    let inputs = [numbers(&[3, 4], 1)];
    for opset in OPSETS {
        match written(&inputs, &network, opset) {
            Ok(_) => assert!(opset >= 19),
            Err(error) => {
                let said = error.to_string();
                assert!(
                    opset < 19 && said.contains("since opset 19") && said.contains("float8_e4m3"),
                    "{said}"
                );
            }
        }
    }
}

/// The error names each operator, the first opset with it and the remedy.
#[test]
fn what_an_opset_lacks() {
    let inputs = [integers(&[4], 9, 1)];
    let network =
        |x: &[Tensor]| -> Result<Vec<Tensor>> { Ok(vec![x[0].and(&x[0].add_scalar(1)?)?.xor(&x[0])?]) };
    for opset in 13..=17 {
        let error = written(&inputs, &network, opset).unwrap_err();
        let Error::Unsupported(what) = &error else { panic!("{error}") };
        let expected = |operator: &str| {
            format!(
                "{operator}, which ONNX has since opset 18: export for opset 18 or newer instead of {opset}"
            )
        };
        assert_eq!(*what, [expected("BitwiseAnd"), expected("BitwiseXor")]);
    }
    written(&inputs, &network, 18).unwrap();
    for opset in [12, 29] {
        let error = written(&inputs, &network, opset).unwrap_err();
        assert!(error.to_string().contains("choose one from 13 to 28"), "{error}");
    }
}
