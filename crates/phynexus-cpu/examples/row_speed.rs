//! Milliseconds of kernels over rows, `[4096, 1024]` in `f32`, on all threads; the last are gradients:
//! `cargo run --release -p phynexus-cpu --example row_speed [part of a name]`.

use std::time::{Duration, Instant};

use phynexus::{DType, Result, Tensor, tensor::Generator};

/// Prints the minimum and the median time of many runs.
fn report(filter: &str, name: &str, run: impl Fn() -> Result<Tensor>) -> Result<()> {
    if !name.contains(filter) {
        return Ok(());
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_secs(1) {
        let begin = Instant::now();
        run()?.evaluate()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:28} {:7.3} ms, median {:7.3}", times[0], times[times.len() / 2]);
    Ok(())
}

fn main() -> Result<()> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let (device, generator) = (phynexus_cpu::register(), Generator::new(0));
    let (rows, columns) = (4096, 1024);
    let random = |shape: &[usize]| generator.randn(shape, DType::F32, device)?.evaluated();
    let x = random(&[rows, columns])?;
    let (weight, bias) = (random(&[columns])?, random(&[columns])?);
    let labels = generator.randint(0, columns as i64, &[rows], DType::I64, device)?.evaluated()?;
    let tracked = x.with_grad()?;
    let gradient = |y: Tensor, by: &Tensor| -> Result<Tensor> {
        let loss = y.mul(by)?.sum(&[], false)?;
        Ok(loss.gradients(&[&tracked])?.swap_remove(0))
    };
    let by = random(&[rows, columns])?;
    report(&filter, "softmax", || x.softmax(-1))?;
    report(&filter, "log-softmax", || x.log_softmax(-1))?;
    report(&filter, "layer norm", || x.layer_norm(&[columns], None, None, 1e-5))?;
    report(&filter, "layer norm, weighted", || x.layer_norm(&[columns], Some(&weight), Some(&bias), 1e-5))?;
    report(&filter, "rms norm", || x.rms_norm(&[columns], Some(&weight), None))?;
    report(&filter, "cross-entropy", || x.cross_entropy(&labels, None, 0.0))?;
    report(&filter, "sum of rows", || x.sum(&[1], false))?;
    report(&filter, "maximum of rows", || x.max(&[1], false))?;
    report(&filter, "mean of squares", || x.square()?.mean(&[], false))?;
    report(&filter, "softmax of columns", || x.softmax(0))?;
    report(&filter, "exp", || x.exp())?;
    report(&filter, "softmax, gradient", || gradient(tracked.softmax(-1)?, &by))?;
    report(&filter, "layer norm, gradient", || {
        gradient(tracked.layer_norm(&[columns], None, None, 1e-5)?, &by)
    })?;
    report(&filter, "cross-entropy, gradient", || {
        Ok(tracked.cross_entropy(&labels, None, 0.0)?.gradients(&[&tracked])?.swap_remove(0))
    })
}
