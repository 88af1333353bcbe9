//! Accuracy-controlled quantization.

use neurenix_onnx::{
    Element,
    edit::{Network, floats, info},
};
use neurenix_quantize::{Accuracy, Error, Format, Options, Result, quantize, quantize_within};

use crate::support::{network, normal, plain, run, samples, weight};

/// Three products in a row, of which `bad` has a weight that 8 bits with one scale cannot hold: a column that is 3000
/// times as large as those that matter. The output `z`, of which the accuracy knows nothing, is all noise when
/// `noisy` is quantized: weights that cancel are rounded up to 1 and down to 0.
fn delicate() -> Network {
    let nodes = vec![
        plain("MatMul", &["x", "ones"], "equal"),
        plain("MatMul", &["equal", "cancelling"], "noisy"),
        plain("MatMul", &["noisy", "select"], "z"),
        plain("MatMul", &["x", "w1"], "first"),
        plain("Relu", &["first"], "r1"),
        plain("MatMul", &["r1", "w2"], "bad"),
        plain("MatMul", &["bad", "select"], "picked"),
        plain("MatMul", &["picked", "w3"], "y"),
    ];
    let mut second = normal(&[16, 17], 2);
    second.iter_mut().skip(16).step_by(17).for_each(|w| *w *= 3000.0);
    // The large column is read by nothing that matters.
    let mut select = vec![0f32; 17 * 16];
    (0..16).for_each(|at| select[at * 16 + at] = 1.0);
    let cancelling = |at: usize| match at {
        _ if at % 17 == 16 => 127.0,
        _ if (at / 17).is_multiple_of(2) => 0.51,
        _ => -0.49,
    };
    let cancelling: Vec<f32> = (0..16 * 17).map(cancelling).collect();
    let tensors = vec![
        floats("ones", &[12, 16], &[1.0; 12 * 16]),
        floats("cancelling", &[16, 17], &cancelling),
        weight("w1", &[12, 16], 1),
        floats("w2", &[16, 17], &second),
        floats("select", &[17, 16], &select),
        weight("w3", &[16, 5], 3),
    ];
    let mut network = network(nodes, tensors, &[6, 12], &[6, 5]);
    network.graph.output.push(info("z", Element::Float, &[6, 16]));
    network
}

#[test]
fn accuracy_control_keeps_the_layer_that_needs_it() -> Result<()> {
    let float = delicate();
    let samples = samples(6, &[6, 12]);
    // The accuracy: the share of rows whose greatest result is at the same place.
    let best = |numbers: &[f32]| -> Vec<usize> {
        let row = |row: &[f32]| (0..5).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        numbers.chunks(5).map(row).collect()
    };
    let right: Vec<Vec<usize>> = samples.iter().map(|sample| best(&run(&float, sample))).collect();
    let calls = std::cell::Cell::new(0);
    let mut measure = |network: &Network| {
        calls.set(calls.get() + 1);
        let own = samples.iter().zip(&right).map(|(sample, right)| {
            best(&run(network, sample)).iter().zip(right).filter(|(a, b)| a == b).count()
        });
        Ok(own.sum::<usize>() as f64 / 36.0)
    };
    // 16 bits of activations: only the weights matter.
    let options = Options { per_channel: false, activations: Format::Uint16, ..Options::default() };
    let all = quantize(&float, &samples, &options)?;
    assert!(measure(&all.network)? < 0.8);
    let accuracy = Accuracy { max_drop: 0.03, ..Accuracy::default() };
    let within = quantize_within(&float, &samples, &options, &accuracy, &mut measure)?;
    let kept: Vec<&str> = within.report.kept_in_float.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(kept, ["bad"]);
    println!("accuracy control: {} calls, {:?}", calls.get(), within.report.kept_in_float);
    assert!(within.report.kept_in_float[0].1.contains("accuracy"));
    let (before, after) = within.report.accuracy.unwrap();
    assert!(before == 1.0 && after >= 0.97);
    assert_eq!(measure(&within.network)?, after);
    assert!(within.network.stored("w2").is_some() && within.network.stored("w1").is_none());

    // The ranking has `noisy` first; it is quantized again because the accuracy does not need it.
    assert_eq!(within.report.layers.iter().filter(|layer| layer.node == "noisy").count(), 1);
    // With two measurements of quantized networks, only that of no quantized node remains.
    let few = Accuracy { measurements: 3, ..accuracy };
    let few = quantize_within(&float, &samples, &options, &few, &mut measure)?;
    assert!(few.report.layers.is_empty());
    assert_eq!(few.report.accuracy, Some((1.0, 1.0)));

    // Nothing stays float where the drop is allowed, and a drop that even floats have is an error.
    let lax = Accuracy { max_drop: 1.0, ..accuracy };
    let loose = quantize_within(&float, &samples, &options, &lax, &mut measure)?;
    assert!(loose.report.kept_in_float.is_empty());
    let mut falling = 1.0;
    let mut worse = |_: &Network| {
        falling -= 0.1;
        Ok(falling)
    };
    let never = quantize_within(&float, &samples, &options, &accuracy, &mut worse);
    assert!(matches!(never, Err(Error::Accuracy { .. })));
    let wrong = Accuracy { max_drop: f64::NAN, ..accuracy };
    let wrong = quantize_within(&float, &samples, &options, &wrong, &mut measure);
    assert!(matches!(wrong, Err(Error::Option { option: "max_drop", .. })));
    Ok(())
}
