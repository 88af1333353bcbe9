//! Prints the speed of convolutions: `cargo run --release -p phynexus-cpu --example conv_speed [part of a label]..`.

use std::time::{Duration, Instant};

use phynexus::DType;
use phynexus::op::{ConvKind, Geometry};
use phynexus_cpu::conv::{ConvShape, convolution};

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    for (batch, inputs, outputs, groups, size, stride) in [
        (64, 3, 16, 1, 32, 1),
        (64, 16, 32, 1, 32, 2),
        (64, 32, 64, 1, 16, 2),
        (1, 64, 64, 1, 56, 1),
        (8, 64, 64, 1, 56, 1),
        (8, 256, 256, 1, 14, 1),
        (8, 128, 128, 128, 28, 1),
    ] {
        let geometry = Geometry {
            kernel: [3, 3].as_slice().into(),
            stride: [stride, stride].as_slice().into(),
            dilation: [1, 1].as_slice().into(),
            padding: [(1, 1), (1, 1)].as_slice().into(),
            groups,
        };
        for (name, kind) in [
            ("forward", ConvKind::Forward),
            ("input gradient", ConvKind::InputGradient),
            ("filter gradient", ConvKind::FilterGradient),
        ] {
            let label = format!("{batch}x{inputs}->{outputs} {size}x{size}/{stride} groups {groups} {name}");
            if only.is_empty() || only.iter().any(|part| label.contains(part.as_str())) {
                let output = geometry.output_size(0, size).unwrap_or(0);
                let shape = ConvShape {
                    batch,
                    input_channels: inputs,
                    output_channels: outputs,
                    input: &[size, size],
                    output: &[output, output],
                    geometry: &geometry,
                };
                let (median, best) = measure(kind, &shape);
                let flops = 2.0 * (batch * outputs * output * output * inputs / groups * 9) as f64;
                let (micros, best) = (median.as_secs_f64() * 1e6, best.as_secs_f64() * 1e6);
                println!(
                    "{label}: {micros:9.1} us median {:7.1} G/s, best {best:9.1} us",
                    flops / micros / 1e3
                );
            }
        }
    }
}

/// The median and the best time of a call.
fn measure(kind: ConvKind, shape: &ConvShape<'_>) -> (Duration, Duration) {
    let spatial = |v: &[usize]| v.iter().product::<usize>();
    let x = vec![0.5f32; shape.batch * shape.input_channels * spatial(shape.input)];
    let w = vec![0.25f32; shape.output_channels * shape.input_channels / shape.geometry.groups * 9];
    let y = vec![0.125f32; shape.batch * shape.output_channels * spatial(shape.output)];
    let (left, right, size) = match kind {
        ConvKind::Forward => (&x, &w, y.len()),
        ConvKind::InputGradient => (&y, &w, x.len()),
        ConvKind::FilterGradient => (&x, &y, w.len()),
    };
    let mut out = vec![0f32; size];
    let mut call = || {
        let (left, right) = (left.as_ptr().cast(), right.as_ptr().cast());
        // SAFETY: the vectors hold the tensors.
        let result = unsafe {
            convolution(kind, DType::F32, DType::F32, shape, left, right, out.as_mut_ptr().cast(), None)
        };
        assert!(result.is_ok(), "{result:?}");
    };
    (0..3).for_each(|_| call());
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        let start = Instant::now();
        call();
        times.push(start.elapsed());
    }
    times.sort();
    (times[times.len() / 2], times[0])
}
