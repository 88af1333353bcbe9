//! Gradients through rounding, and what serves inference.

use std::{cell::Cell, collections::HashMap};

use neurenix_onnx::{
    Element, Model, Value,
    edit::{floats, integers},
    proto::TensorProto,
};
use phynexus::{DType, Tensor, no_grad, schedule::capture::Captured, tensor::Generator};

use super::network::{Outcome, Parts, cpu, numbers, products, random_floats, range, run};

/// A network that rounds its input: the gradients of its sum, weighted with `weights`, by the input and the scale.
fn gradients(element: Element, zero: i64, x: &[f32], scale: f32, weights: &[f32]) -> [Vec<f32>; 3] {
    let mut parts = Parts::default();
    parts.scale("s", &[scale]);
    parts.zero("z", element, &[zero]);
    parts.add("QuantizeLinear", &["x", "s", "z"], "q", vec![]);
    parts.stored.push(integers("shape", Element::Int64, &[2], &[1, -1]));
    parts.add("Reshape", &["q", "shape"], "r", vec![]);
    parts.add("DequantizeLinear", &["r", "s", "z"], "d", vec![]);
    parts.stored.push(floats("w", &[x.len(), 1], weights));
    parts.add("MatMul", &["d", "w"], "y", vec![]);
    let model = parts.network((Element::Float, &[x.len()]), Element::Float).model(cpu()).expect("a network");
    let leaf = |numbers: &[f32], shape: &[usize]| {
        Tensor::from_slice(numbers, shape, cpu()).and_then(|tensor| tensor.with_grad()).expect("a leaf")
    };
    let (x, scale) = (leaf(x, &[x.len()]), leaf(&[scale], &[]));
    let given = [("x", x.clone()), ("s", scale.clone())]
        .map(|(name, tensor)| (name.to_owned(), Value::Tensor(tensor)));
    let results = model.run(HashMap::from(given), &Generator::new(0)).expect("results");
    let sum = results[0].tensor().expect("a tensor").sum(&[], false).expect("a sum");
    sum.backward().expect("gradients");
    let read = |tensor: Option<Tensor>| tensor.expect("a gradient").to_vec::<f32>().expect("numbers");
    [read(x.grad()), read(scale.grad()), read(Some(sum))]
}

/// Rounding has the gradient 1 within the range of the integers, which is flat outside: gradients are those of the
/// clamped numbers, plus the rounding errors as constants.
#[test]
fn gradients_pass_through_rounding() -> Outcome {
    let x = [-9.0f32, -1.03, -0.26, 0.0, 0.07, 0.31, 0.88, 9.0];
    let weights = [1.0f32, -2.0, 0.5, 3.0, -1.0, 0.25, 2.0, -0.75];
    for (element, zero, scale) in
        [(Element::Uint8, 100, 0.021f32), (Element::Int8, -5, 0.03), (Element::Int4, 1, 0.25)]
    {
        let [least, greatest] = range(element);
        let [least, greatest] = [least, greatest].map(|bound| (bound - zero) as f64);
        let limited = |x: f64, scale: f64| (x / scale).clamp(least, greatest);
        let errors: Vec<f64> = x
            .iter()
            .map(|&x| limited(x.into(), scale.into()))
            .map(|steps| steps.round_ties_even() - steps)
            .collect();
        let straight = |x: &[f64], scale: f64| -> f64 {
            let term = |at: usize| f64::from(weights[at]) * scale * (limited(x[at], scale) + errors[at]);
            (0..x.len()).map(term).sum()
        };
        let [by_x, by_scale, value] = gradients(element, zero, &x, scale, &weights);
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let expected = straight(&wide, scale.into());
        assert!((f64::from(value[0]) - expected).abs() < 1e-4, "{element:?}: {value:?} {expected}");
        let step = 1e-6;
        for at in 0..x.len() {
            let moved = |by: f64| {
                let mut x = wide.clone();
                x[at] += by;
                straight(&x, scale.into())
            };
            let slope = (moved(step) - moved(-step)) / (2.0 * step);
            assert!((f64::from(by_x[at]) - slope).abs() < 1e-4, "{element:?} {at}: {by_x:?} {slope}");
        }
        assert!(by_x[0] == 0.0 && by_x[x.len() - 1] == 0.0 && by_x[4] != 0.0, "{by_x:?}");
        let moved = |by: f64| straight(&wide, f64::from(scale) + by);
        let slope = (moved(step) - moved(-step)) / (2.0 * step);
        let tolerance = 1e-4 * slope.abs().max(1.0);
        assert!((f64::from(by_scale[0]) - slope).abs() < tolerance, "{element:?}: {by_scale:?} {slope}");
    }
    Ok(())
}

/// Floats of 8 bits are trained through, too.
#[test]
fn gradients_pass_through_small_floats() {
    let x = [-900.0f32, 0.3, 17.3, 900.0];
    let mut parts = Parts::default();
    parts.scale("s", &[1.0]);
    parts.stored.push(TensorProto {
        name: "z".to_owned(),
        data_type: Element::Float8E4M3FN as i32,
        raw_data: vec![0],
        ..TensorProto::default()
    });
    parts.add("QuantizeLinear", &["x", "s", "z"], "q", vec![]);
    parts.add("DequantizeLinear", &["q", "s", "z"], "y", vec![]);
    let model = parts.network((Element::Float, &[4]), Element::Float).model(cpu()).expect("a network");
    let leaf = Tensor::from_slice(&x, &[4], cpu()).and_then(|x| x.with_grad()).expect("a leaf");
    let result = run(&model, &leaf).expect("a result");
    let result = result.tensor().expect("a tensor");
    assert_eq!(result.to_vec::<f32>().expect("numbers"), [-448.0, 0.3125, 18.0, 448.0]);
    result.sum(&[], false).and_then(|sum| sum.backward()).expect("gradients");
    assert_eq!(leaf.grad().expect("a gradient").to_vec::<f32>().expect("numbers"), [0.0, 1.0, 1.0, 0.0]);
}

fn product_network(element: Element, weight: Element, zeros: [i64; 2]) -> Model {
    let mut parts = Parts::default();
    parts.quantized_input(element, zeros[0]);
    parts.weight("w", weight, &[20, 6], Some(1), &zeros[1..]);
    parts.add("MatMul", &["q_f", "w_f"], "y", vec![]);
    parts.network((Element::Float, &[3, 20]), Element::Float).model(cpu()).expect("a valid network")
}

/// Gradients need floats; without them, the same network sums integers.
#[test]
fn inference_sums_integers() -> Outcome {
    let model = product_network(Element::Uint8, Element::Int8, [77, 0]);
    let x = random_floats(&[3, 20], 21).with_grad()?;
    let trained = run(&model, &x)?;
    assert_eq!(products(trained.tensor()?), [DType::F32]);
    let inferred = {
        let _guard = no_grad();
        run(&model, &x)?
    };
    assert!(products(inferred.tensor()?).iter().all(|&dtype| dtype == DType::I32));
    let (trained, inferred) = (numbers(&trained), numbers(&inferred));
    assert!(trained.iter().zip(&inferred).all(|(a, b)| (a - b).abs() < 1e-5), "{trained:?} {inferred:?}");
    Ok(())
}

/// A recording has the sums of its weights, which it computes once, and the numbers of the network.
#[test]
fn recordings_have_the_same_numbers() -> Outcome {
    // Zero points of the weight need the sums of the data, which are a product more.
    for (element, weight, zeros, count) in [
        (Element::Uint8, Element::Int8, [77, 0], 1),
        (Element::Int8, Element::Uint8, [5, 120], 2),
        (Element::Uint8, Element::Uint8, [0, 99], 2),
    ] {
        let model = product_network(element, weight, zeros);
        let runs = Cell::new(0);
        let recorded = Captured::new(|_: &[Tensor], x: &[Tensor]| {
            runs.set(runs.get() + 1);
            let result = run(&model, &x[0])?.tensor()?.clone();
            assert_eq!(products(&result).len(), count, "{element:?} {weight:?}");
            Ok::<_, neurenix_onnx::Error>(vec![result])
        });
        for seed in [22, 23] {
            let x = random_floats(&[3, 20], seed);
            let replayed = recorded.call(&mut Vec::new(), std::slice::from_ref(&x))?;
            assert_eq!(replayed[0].to_vec::<f32>()?, run(&model, &x)?.tensor()?.to_vec::<f32>()?);
        }
        assert_eq!(runs.get(), 1, "the second call replays the recording of the first");
    }
    Ok(())
}
