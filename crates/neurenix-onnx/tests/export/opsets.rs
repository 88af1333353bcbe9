//! Files of older opsets.

use neurenix_onnx::export_as;

use super::*;

/// What an opset lacks is written in other ways, or refused.
#[test]
fn older_opsets() {
    let x = numbers(&[2, 8, 3], 1);
    let network = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let x = &x[0];
        Ok(vec![
            x.gelu(GeluApproximation::None)?.mish()?,
            x.layer_norm(&[3], None, None, 1e-5)?.max(&[1], true)?,
            x.group_norm(2, None, None, 1e-5)?.mean(&[0, 2], false)?,
            x.to_dtype(DType::F16)?.isinf()?.to_dtype(DType::F32)?.add(&x.prod(&[0], true)?)?,
            x.min(&[2], false)?,
        ])
    };
    let given = pending(std::slice::from_ref(&x));
    let outputs = network(&given).unwrap();
    let expected: Vec<Tensor> = network(std::slice::from_ref(&x)).unwrap();
    let export = Export {
        inputs: named("x", &given),
        outputs: named("y", &outputs),
        names: Vec::new(),
        symbols: Vec::new(),
    };
    for opset in 17..=21 {
        let model = export_as(&export, &export, opset).unwrap();
        assert_eq!(model.opset_import[0].version, opset);
        let graph = model.graph.as_ref().unwrap();
        let has = |operator: &str| graph.node.iter().any(|node| node.op_type == operator);
        assert_eq!(
            (has("Gelu"), has("Mish"), has("GroupNormalization")),
            (opset >= 20, opset >= 18, opset >= 21)
        );
        let reduction = graph.node.iter().find(|node| node.op_type == "ReduceMin").unwrap();
        assert_eq!(reduction.input.len(), if opset < 18 { 1 } else { 2 });
        compare(&format!("opset_{opset}"), &model, std::slice::from_ref(&x), &expected, 1e-4);
    }
    let whole = pending(&[integers(&[4], 9, 1)]);
    let both = whole[0].and(&whole[0].add_scalar(1).unwrap()).unwrap().xor(&whole[0]).unwrap();
    let export =
        Export { inputs: named("x", &whole), outputs: vec![("y".to_owned(), &both)], ..Export::default() };
    let error = export_as(&export, &export, 17).unwrap_err();
    let Error::Unsupported(what) = &error else { panic!("{error}") };
    assert!(what.len() == 2 && error.to_string().contains("BitwiseXor in opset 17"), "{error}");
    assert!(export_as(&export, &export, 18).is_ok());
    for opset in [16, 22] {
        assert!(matches!(export_as(&export, &export, opset), Err(Error::Unsupported(_))));
    }
}
