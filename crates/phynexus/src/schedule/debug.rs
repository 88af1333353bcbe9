//! `RNN_GPU_DEBUG=1` prints every step and kernel to standard error, with its time and a check of its results.

use std::{
    fmt::Arguments,
    io::Write,
    sync::OnceLock,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use super::plan::PlannedStep;
use crate::kernel::step::Step;
use crate::{
    DType, Error, Result, Scalar,
    device::{Binding, Device},
    kernel::fused::Fusion,
    profile::show_time,
    text::counted,
};

/// Reads the variable, once per process.
pub(crate) fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        let value = std::env::var("RNN_GPU_DEBUG").unwrap_or_default();
        !matches!(value.trim(), "" | "0")
    })
}

/// Prints a line to standard error. Write errors are ignored.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "RNN_GPU_DEBUG {line}");
}

/// Runs a step. If debugging is enabled, waits for it and prints its time and any NaN or infinite results.
pub(super) fn watch(
    device: Device,
    step: &PlannedStep,
    bindings: &[Binding],
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !is_enabled() {
        return run();
    }
    let begun = Instant::now();
    let result = run().and_then(|()| device.synchronize());
    let time = begun.elapsed();
    let summary = step.summary(device);
    let what = format!("{} step {} {}", summary.device, summary.name, summary.detail);
    match result {
        Ok(()) => {
            let results = results(device, step, bindings)?;
            say(format_args!("{}", line(&what, time, &results)));
            Ok(())
        }
        Err(error) => {
            say(format_args!("{what}: failed after {}: {error}", show_time(time)));
            Err(error)
        }
    }
}

/// Statistics of a float result.
struct Looked {
    dtype: DType,
    elements: usize,
    not_numbers: usize,
    infinities: usize,
    /// The index of the first NaN.
    first: Option<usize>,
}

fn line(what: &str, time: Duration, results: &[Looked]) -> String {
    let mut line = format!("{what}: {}", show_time(time));
    for (number, result) in results.iter().enumerate() {
        line += &format!("; result {number}: {} of {}", counted(result.elements, "element"), result.dtype);
        match result.first {
            Some(first) => {
                line += &format!(", {} NaN, the first is element {first}", result.not_numbers);
            }
            None => line += ", no NaN",
        }
        if result.infinities > 0 {
            line += &format!(", {} infinite", result.infinities);
        }
    }
    line
}

/// Reads the float results of a step.
fn results(device: Device, step: &PlannedStep, bindings: &[Binding]) -> Result<Vec<Looked>> {
    let dtypes = written_dtypes(&step.step);
    let written = step.parameters.iter().zip(bindings).filter(|(parameter, _)| parameter.written);
    let mut looked = Vec::new();
    for ((parameter, binding), dtype) in written.zip(dtypes) {
        if !dtype.is_float() {
            continue;
        }
        let end = binding.offset.saturating_add(parameter.bytes);
        if end > binding.buffer.size() {
            return Err(Error::internal("debug", "a result extends past the end of its buffer"));
        }
        let mut bytes = vec![0; parameter.bytes];
        device.backend().read(&binding.buffer, binding.offset, &mut bytes)?;
        looked.push(look(dtype, &bytes));
    }
    Ok(looked)
}

fn look(dtype: DType, bytes: &[u8]) -> Looked {
    let numbers: Vec<f64> =
        crate::dtype::read_scalars(bytes, dtype).into_iter().map(Scalar::as_f64).collect();
    Looked {
        dtype,
        elements: numbers.len(),
        not_numbers: numbers.iter().filter(|x| x.is_nan()).count(),
        infinities: numbers.iter().filter(|x| x.is_infinite()).count(),
        first: numbers.iter().position(|x| x.is_nan()),
    }
}

/// The dtypes of a step's results, in the order of its bindings.
fn written_dtypes(step: &Step) -> SmallVec<[DType; 4]> {
    let fused = |kernel: &Fusion| -> SmallVec<[DType; 4]> {
        kernel.parameters.iter().filter(|p| p.written).map(|p| p.dtype).collect()
    };
    match step {
        Step::Fused(kernel) => fused(kernel),
        Step::Batch(kernels) => kernels.iter().flat_map(fused).collect(),
        Step::Library(library) => match &library.epilogue {
            Some(epilogue) => fused(epilogue),
            None => SmallVec::from_slice(&[library.node.dtype]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_found_and_told() {
        let values = [1.0f32, f32::NAN, f32::INFINITY, f32::NAN];
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let result = look(DType::F32, &bytes);
        assert_eq!((result.not_numbers, result.infinities, result.first), (2, 1, Some(1)));
        let told = line("cpu step elementwise exp", Duration::from_micros(1500), &[result]);
        assert_eq!(
            told,
            "cpu step elementwise exp: 1.50 ms; result 0: 4 elements of float32, 2 NaN, the first is element 1, 1 infinite"
        );
        let fine = look(DType::F16, &half::f16::from_f32(2.0).to_le_bytes());
        assert!(line("x", Duration::ZERO, &[fine]).ends_with("result 0: 1 element of float16, no NaN"));
    }
}
