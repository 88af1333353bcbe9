//! Signals: windows, mel scales and Fourier transforms.

use std::f64::consts::TAU;

use phynexus::{DType, Device, Tensor, host_memory};

use super::{Rows, counted, table_size};
use crate::{
    Element, Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("BlackmanWindow", |call| window(call, [0.42, 0.5, 0.08])),
    ("DFT", dft),
    ("HammingWindow", |call| window(call, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    ("HannWindow", |call| window(call, [0.5, 0.5, 0.0])),
    ("MelWeightMatrix", mel_weight_matrix),
    ("STFT", stft),
];

/// `a - b cos(t) + c cos(2t)`, where t goes around once.
fn window(call: &Call<'_>, [a, b, c]: [f64; 3]) -> Result<Vec<Value>> {
    let size = length(call, 0)?;
    // A symmetric window ends as it begins.
    let period = if call.int_or("periodic", 1)? != 0 { size } else { size.saturating_sub(1) };
    let mut values = host_memory::room(size)?;
    for at in 0..size {
        let turn = TAU * at as f64 / period as f64;
        values.push(if period == 0 { 1.0 } else { a - b * turn.cos() + c * (2.0 * turn).cos() });
    }
    of_output_type(call, &values, &[size])
}

/// A size that an input gives.
fn length(call: &Call<'_>, input: usize) -> Result<usize> {
    match call.integers(input)?[..] {
        [size] if size >= 0 => table_size(size as usize),
        ref other => Err(Error::invalid(format!("input {input} must be one size, it is {other:?}"))),
    }
}

/// Numbers in the type that `output_datatype` names.
fn of_output_type(call: &Call<'_>, values: &[f64], shape: &[usize]) -> Result<Vec<Value>> {
    let element = call.element("output_datatype")?.unwrap_or(Element::Float);
    let dtype = element.dtype().filter(|_| !element.is_narrow() && element != Element::Bool);
    let dtype =
        dtype.ok_or_else(|| Error::invalid(format!("output_datatype {element:?} is not a number type")))?;
    // Not every device has float64.
    let tensor = Tensor::from_slice(values, shape, Device::find("cpu")?)?.to_dtype(dtype)?;
    one(tensor.to_device(call.device)?)
}

fn mel_weight_matrix(call: &Call<'_>) -> Result<Vec<Value>> {
    let (bands, dft_length) = (length(call, 0)?, length(call, 1)?);
    let (rate, low, high) = (call.number(2)?, call.number(3)?, call.number(4)?);
    if rate <= 0.0 || low < 0.0 || high < low {
        return Err(Error::invalid(
            "the sample rate must be positive, and the edges not negative and in order",
        ));
    }
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bands as f64 + 2.0);
    // The bin of the spectrum at each edge: a band rises from its own edge to the next, and falls to the one after.
    let bin = |edge: usize| {
        let hertz = 700.0 * (10f64.powf((mel(low) + edge as f64 * step) / 2595.0) - 1.0);
        ((dft_length as f64 + 1.0) * hertz / rate).floor() as usize
    };
    let bins = dft_length / 2 + 1;
    let mut weights = host_memory::filled(0.0, bins.saturating_mul(bands))?;
    for band in 0..bands {
        phynexus::interrupt::check()?;
        let (left, centre, right) = (bin(band), bin(band + 1), bin(band + 2));
        let mut set = |at: usize, weight: f64| {
            if at < bins {
                weights[at * bands + band] = weight;
            }
        };
        for at in left..centre.min(bins) {
            set(at, (at - left) as f64 / (centre - left) as f64);
        }
        set(centre, 1.0);
        for at in centre..right.min(bins) {
            set(at, (right - at) as f64 / (right - centre) as f64);
        }
    }
    of_output_type(call, &weights, &[bins, bands])
}

/// A Fourier transform along an axis of a tensor whose last axis has the real and the imaginary parts.
struct Transform {
    /// The number of samples; `None` for those of the input.
    length: Option<usize>,
    inverse: bool,
    onesided: bool,
}

fn dft(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = match call.opset() < 20 {
        true => call.int_or("axis", 1)?,
        false => call.optional_integers(2)?.and_then(|axis| axis.first().copied()).unwrap_or(-2),
    };
    let transform = Transform {
        length: if call.has(1) { Some(length(call, 1)?) } else { None },
        inverse: call.int_or("inverse", 0)? != 0,
        onesided: call.int_or("onesided", 0)? != 0,
    };
    one(transform.apply(&x, call.axis(axis, x.rank())?)?)
}

impl Transform {
    fn apply(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        let parts = x.shape().last().copied().unwrap_or(0);
        if !matches!(parts, 1 | 2) || axis + 1 == x.rank() {
            let message =
                "the last axis must have the real and perhaps the imaginary parts, and is not transformed";
            return Err(Error::invalid(format!("{message}: the shape is {:?}, the axis {axis}", x.shape())));
        }
        if self.onesided && !self.inverse && parts == 2 {
            return Err(Error::invalid(
                "the spectrum of complex numbers is not one-sided: onesided must be 0",
            ));
        }
        let real = self.onesided && self.inverse;
        let given = x.shape()[axis];
        let length = self.length.unwrap_or(if real { 2 * given.saturating_sub(1) } else { given });
        if length == 0 {
            return Err(Error::invalid("a transform needs at least one sample"));
        }
        let half = length / 2 + 1;
        let used = if real { half } else { length };
        let results = if self.onesided && !self.inverse { half } else { length };
        let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (cosine, sine) = turns(length, used, results, wide, x.device())?;
        let samples = x.to_dtype(wide)?.move_axis(axis as i64, -2)?;
        let samples = samples.narrow(-2, 0, given.min(used))?;
        let mut padding = vec![(0, 0); x.rank()];
        padding[x.rank() - 2].1 = used - given.min(used);
        let samples = samples.pad(&padding, 0)?;
        let part = |at: usize| samples.narrow(-1, at, 1)?.squeeze(-1);
        let mut re = part(0)?;
        let mut im = if parts == 2 { Some(part(1)?) } else { None };
        if real {
            // The other half of the spectrum has the same real parts.
            let twice = |at: usize| if at == 0 || 2 * at == length { 1.0 } else { 2.0 };
            let weights: Vec<f32> = (0..used).map(twice).collect();
            let weights = Tensor::from_slice(&weights, &[used], x.device())?.to_dtype(wide)?;
            re = re.mul(&weights)?;
            im = im.map(|im| im.mul(&weights)).transpose()?;
        }
        // (re + i im)(cos - i sin), or + i sin for the inverse.
        let sine = if self.inverse { sine.neg()? } else { sine };
        let (mut a, mut b) = (re.matmul(&cosine)?, re.matmul(&sine)?.neg()?);
        if let Some(im) = im {
            a = a.add(&im.matmul(&sine)?)?;
            b = b.add(&im.matmul(&cosine)?)?;
        }
        let result = if real { a.unsqueeze(-1)? } else { Tensor::stack(&[&a, &b], -1)? };
        let result = if self.inverse { result.div_scalar(length as f64)? } else { result };
        Ok(result.move_axis(-2, axis as i64)?.to_dtype(x.dtype())?)
    }
}

/// Matrices of the cosines and sines of `row * column / length` turns.
fn turns(
    length: usize,
    rows: usize,
    columns: usize,
    dtype: DType,
    device: Device,
) -> Result<(Tensor, Tensor)> {
    // Few distinct angles, computed exactly, instead of great multiples of an angle.
    let place = counted(rows, device)?
        .unsqueeze(1)?
        .mul(&counted(columns, device)?)?
        .remainder_scalar(length as i64)?;
    let table = |function: fn(f64) -> f64| {
        let mut values = host_memory::room(length)?;
        values.extend((0..length).map(|at| function(TAU * at as f64 / length as f64)));
        match dtype {
            DType::F64 => Tensor::from_slice(&values, &[length], device),
            _ => {
                let mut narrow = host_memory::room(length)?;
                narrow.extend(values.iter().map(|&value: &f64| value as f32));
                Tensor::from_slice(&narrow, &[length], device)
            }
        }
    };
    Ok((table(f64::cos)?.take(&place, Some(0))?, table(f64::sin)?.take(&place, Some(0))?))
}

fn stft(call: &Call<'_>) -> Result<Vec<Value>> {
    let signal = call.tensor(0)?;
    let &[_, samples, _] = signal.shape() else {
        return Err(Error::invalid(format!(
            "a signal must have the shape (N, T, 1 or 2), not {:?}",
            signal.shape()
        )));
    };
    let step = length(call, 1)?;
    let window = call.optional(2)?;
    let frame = match (call.has(3), &window) {
        (true, _) => length(call, 3)?,
        (false, Some(window)) => window.len(),
        (false, None) => samples,
    };
    if step == 0
        || frame == 0
        || frame > samples
        || window.as_ref().is_some_and(|window| window.shape() != [frame])
    {
        return Err(Error::invalid(format!(
            "{samples} samples cannot have frames of {frame}, {step} apart, with a window of {:?}",
            window.map(|window| window.shape().to_vec())
        )));
    }
    let starts = counted((samples - frame) / step + 1, call.device)?.mul_scalar(step as i64)?;
    let frames = signal.take(&starts.unsqueeze(1)?.add(&counted(frame, call.device)?)?, Some(1))?;
    let wide = if signal.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let frames = frames.to_dtype(wide)?;
    let frames = match window {
        Some(window) => frames.mul(&window.to_dtype(wide)?.unsqueeze(1)?)?,
        None => frames,
    };
    let transform = Transform { length: None, inverse: false, onesided: call.int_or("onesided", 1)? != 0 };
    one(transform.apply(&frames, 2)?.to_dtype(signal.dtype())?)
}
