//! Quantization-aware training.

use neurenix_onnx::{Element, edit::floats};
use neurenix_quantize::{Error, Format, Options, Result, finish_training, prepare_training, quantize};

use crate::support::{network, normal, plain, run, samples, weight};
use crate::{count, stored};

#[test]
fn training_keeps_float_weights_behind_pairs_and_finishing_stores_integers() -> Result<()> {
    let nodes = vec![
        plain("Conv", &["x", "w1", "b1"], "c1"),
        plain("Relu", &["c1"], "r1"),
        plain("Flatten", &["r1"], "f"),
        plain("Gemm", &["f", "w2", "b2"], "y"),
    ];
    let tensors = vec![
        weight("w1", &[4, 3, 3, 3], 1),
        weight("b1", &[4], 2),
        weight("w2", &[64, 5], 3),
        weight("b2", &[5], 4),
    ];
    let float = network(nodes, tensors, &[2, 3, 6, 6], &[2, 5]);
    let samples = samples(4, &[2, 3, 6, 6]);
    for weights in [Format::Int8, Format::Int4] {
        let options = Options { weights, ..Options::default() };
        let mut training = prepare_training(&float, &samples, &options)?;
        for name in ["w1", "w2"] {
            assert_eq!(float.floats(name)?, training.floats(name)?, "{name}");
            let links = training.links();
            let readers: Vec<_> =
                links.readers[name].iter().map(|&(at, _)| training.graph.node[at].clone()).collect();
            assert!(readers.len() == 1 && readers[0].op_type == "QuantizeLinear");
            let next = &links.readers[&readers[0].output[0]];
            assert_eq!(training.graph.node[next[0].0].op_type, "DequantizeLinear");
        }
        for (node, bias) in [("c1", "b1"), ("y", "b2")] {
            let own = training.graph.node.iter().find(|own| own.name == node).unwrap();
            assert_eq!((own.input[2].as_str(), float.floats(bias)?), (bias, training.floats(bias)?));
        }
        // Before training, finishing gives the integers of static quantization.
        let quantized = quantize(&float, &samples, &options)?.network;
        let untrained = finish_training(&training)?;
        for name in ["b1_quantized", "b2_quantized"] {
            assert_eq!(stored(&quantized, name), stored(&untrained, name));
        }
        for name in ["w1", "w2"] {
            let before = stored(&quantized, &format!("{name}_quantized"));
            assert_eq!(before, stored(&untrained, &format!("{name}_rounded")), "{name} in {weights}");
        }
        for sample in &samples {
            assert_eq!(run(&quantized, sample), run(&untrained, sample));
        }

        // Training changes weights and biases.
        for name in ["w1", "b1", "w2", "b2"] {
            let (shape, mut numbers) = training.floats(name)?.unwrap();
            numbers.iter_mut().zip(normal(&shape, 9)).for_each(|(x, change)| *x += 0.05 * change);
            training.store(floats(name, &shape, &numbers));
        }
        let finished = finish_training(&training)?;
        assert_eq!(stored(&finished, "w1_rounded").len(), 4 * 27);
        assert_eq!(finished.stored("w1_rounded").unwrap().data_type, weights.element() as i32);
        for name in ["w1", "b1", "w2", "b2"] {
            assert!(finished.stored(name).is_none(), "{name} is still there");
        }
        assert_eq!(finished.stored("b1_quantized").unwrap().data_type, Element::Int32 as i32);
        assert_eq!(count(&finished, "QuantizeLinear"), count(&quantized, "QuantizeLinear"));
        // It computes what the network in training computes, with biases that are rounded to the nearest integers.
        let mut rounded = training.clone();
        for name in ["b1", "b2"] {
            let scales = finished.floats(&format!("{name}_scale"))?.unwrap().1;
            let (shape, numbers) = training.floats(name)?.unwrap();
            let whole = stored(&finished, &format!("{name}_quantized"));
            let own: Vec<f32> = whole.iter().zip(&scales).map(|(&q, scale)| q as f32 * scale).collect();
            for ((x, q), scale) in numbers.iter().zip(&own).zip(&scales) {
                assert!((x - q).abs() <= 0.5001 * scale, "{name}: {q} for {x}, scale {scale}");
            }
            rounded.store(floats(name, &shape, &own));
        }
        for sample in &samples {
            assert_eq!(run(&rounded, sample), run(&finished, sample), "{weights}");
        }
    }
    // The biases of normalizations have scales of their own in both.
    let tensors = vec![weight("s", &[6], 5), weight("b", &[6], 6)];
    let float = network(vec![plain("LayerNormalization", &["x", "s", "b"], "y")], tensors, &[4, 6], &[4, 6]);
    let rows = crate::support::samples(2, &[4, 6]);
    let finished = finish_training(&prepare_training(&float, &rows, &Options::default())?)?;
    let quantized = quantize(&float, &rows, &Options::default())?.network;
    assert_eq!(stored(&quantized, "b_quantized"), stored(&finished, "b_quantized"));
    Ok(())
}

#[test]
fn trained_numbers_must_be_finite() -> Result<()> {
    let tensors = vec![weight("w2", &[6, 5], 3), weight("b2", &[5], 4)];
    let float = network(vec![plain("Gemm", &["x", "w2", "b2"], "y")], tensors, &[2, 6], &[2, 5]);
    let samples = samples(4, &[2, 6]);
    let mut broken = prepare_training(&float, &samples, &Options::default())?;
    broken.store(floats("b2", &[5], &[f32::NAN; 5]));
    assert!(matches!(finish_training(&broken), Err(Error::NotFinite { .. })));
    Ok(())
}
