//! Printing tensors in the style of NumPy and PyTorch.

use std::fmt::{self, Write};

use crate::{DType, Result, Scalar, Tensor, dtype::read_scalars};

/// Larger tensors are summarised.
const THRESHOLD: usize = 1000;
/// Elements shown at either end of a summarised dimension.
const EDGE: usize = 3;
/// Digits after the decimal point.
const PRECISION: usize = 4;
/// Maximum line width.
const LINE: usize = 80;
/// The text before the first bracket; further lines are indented to its width.
const OPENING: &str = "tensor(";

impl fmt::Display for Tensor {
    /// The values, then dtype and device unless they are the defaults. Computes pending values; if that fails, the
    /// error is printed in their place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OPENING)?;
        match shown(self) {
            Ok(text) => f.write_str(&text)?,
            Err(error) => write!(f, "<{error}>, shape={}", crate::text::show_shape(self.shape()))?,
        }
        if self.is_empty() && self.rank() > 1 {
            write!(f, ", shape={}", crate::text::show_shape(self.shape()))?;
        }
        if !matches!(self.dtype(), DType::F32 | DType::I64 | DType::Bool) {
            write!(f, ", dtype={}", self.dtype())?;
        }
        if self.device().name() != "cpu" {
            write!(f, ", device={}", self.device())?;
        }
        if self.requires_grad() {
            f.write_str(", requires_grad")?;
        }
        f.write_char(')')
    }
}

impl fmt::Debug for Tensor {
    /// Only shape, dtype and device. Computes nothing, so it is safe in logs and panic messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = crate::text::show_shape(self.shape());
        write!(f, "Tensor(shape={shape}, dtype={}, device={})", self.dtype(), self.device())
    }
}

/// The formatted elements in row-major order.
struct Elements {
    texts: Vec<String>,
    width: usize,
}

fn shown(tensor: &Tensor) -> Result<String> {
    if tensor.is_empty() {
        return Ok("[]".to_owned());
    }
    let _guard = crate::no_grad();
    let summarized = tensor.len() > THRESHOLD;
    tensor.evaluate()?;
    let edges = if summarized { edges(tensor)? } else { tensor.clone() };
    let elements = texts(&read_scalars(&edges.to_bytes()?, edges.dtype()));
    let mut text = String::new();
    write_axis(&mut text, &elements, tensor.shape(), edges.shape(), 0, 0);
    Ok(text)
}

/// The first and last elements along every long dimension.
fn edges(tensor: &Tensor) -> Result<Tensor> {
    let mut edges = tensor.clone();
    for axis in 0..tensor.rank() {
        let size = tensor.shape()[axis];
        if size > 2 * EDGE {
            let head = edges.narrow(axis as i64, 0, EDGE)?;
            let tail = edges.narrow(axis as i64, size - EDGE, EDGE)?;
            edges = Tensor::cat(&[&head, &tail], axis as i64)?;
        }
    }
    Ok(edges)
}

/// How floats are written; the rules are PyTorch's.
enum Notation {
    /// All values are integers: `1.`.
    Whole,
    /// `0.2500`.
    Fixed,
    /// `2.5000e-05`.
    Scientific,
}

fn notation(floats: impl Iterator<Item = f64> + Clone) -> Notation {
    let magnitudes = || floats.clone().filter(|x| x.is_finite() && *x != 0.0).map(f64::abs);
    let greatest = magnitudes().fold(0.0, f64::max);
    let least = magnitudes().fold(f64::INFINITY, f64::min);
    let whole = magnitudes().all(|x| x.fract() == 0.0);
    let spread = least.is_finite() && (greatest / least > 1000.0 || greatest > 1e8);
    match whole {
        true if spread && greatest > 1e8 => Notation::Scientific,
        true => Notation::Whole,
        false if spread || least < 1e-4 => Notation::Scientific,
        false => Notation::Fixed,
    }
}

fn texts(scalars: &[Scalar]) -> Elements {
    let floats = scalars.iter().filter_map(|s| if let Scalar::Float(x) = s { Some(*x) } else { None });
    let notation = notation(floats);
    let texts: Vec<String> = scalars.iter().map(|s| element_text(*s, &notation)).collect();
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    Elements { texts, width }
}

fn element_text(scalar: Scalar, notation: &Notation) -> String {
    match scalar {
        Scalar::Float(x) if x.is_nan() => "nan".to_owned(),
        Scalar::Float(x) if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.to_owned(),
        Scalar::Float(x) => match notation {
            Notation::Whole => format!("{x:.0}."),
            Notation::Fixed => format!("{x:.PRECISION$}"),
            Notation::Scientific => {
                let text = format!("{x:.PRECISION$e}");
                // Rust writes e-5 and e5; PyTorch writes e-05 and e+05.
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, digits) =
                    exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
        },
        Scalar::Bool(b) => if b { "True" } else { "False" }.to_owned(),
        other => other.to_string(),
    }
}

/// Writes the part of the tensor that starts at `at` (an index into the shown elements), from `axis` on.
fn write_axis(
    text: &mut String,
    elements: &Elements,
    shape: &[usize],
    kept: &[usize],
    axis: usize,
    at: usize,
) {
    if axis == shape.len() {
        let element = elements.texts.get(at).map_or("", String::as_str);
        // A scalar is not padded.
        let width = elements.width;
        text.push_str(&format!("{element:>width$}"));
        return;
    }
    let inner: usize = kept[axis + 1..].iter().product();
    let last = axis + 1 == shape.len();
    let indent = OPENING.len() + axis + 1;
    let per_line = ((LINE + 1).saturating_sub(indent) / (elements.width + 2)).max(1);
    text.push('[');
    for i in 0..kept[axis] {
        let cut = kept[axis] < shape[axis] && i == EDGE;
        if i > 0 {
            separate(text, last && i % per_line != 0, shape.len() - axis - 1, indent);
        }
        if cut {
            text.push_str("...");
            separate(text, last, shape.len() - axis - 1, indent);
        }
        write_axis(text, elements, shape, kept, axis + 1, at + i * inner);
    }
    text.push(']');
}

/// Writes a comma, then a space or one newline per new dimension.
fn separate(text: &mut String, same_line: bool, dimensions: usize, indent: usize) {
    text.push(',');
    if same_line {
        text.push(' ');
    } else {
        text.extend(std::iter::repeat_n('\n', dimensions.max(1)));
        text.extend(std::iter::repeat_n(' ', indent));
    }
}

#[cfg(test)]
mod tests {
    use super::super::null::null_device;
    use crate::{DType, Element, Tensor};

    fn text<T: Element>(values: &[T], shape: &[usize]) -> String {
        // Removes the name of the test device.
        Tensor::from_slice(values, shape, null_device()).unwrap().to_string().replace(", device=null", "")
    }

    #[test]
    fn numbers_are_written_as_pytorch_writes_them() {
        assert_eq!(
            text(&[1f32, 2.5, -3.25, 4.0], &[2, 2]),
            "tensor([[ 1.0000,  2.5000],\n        [-3.2500,  4.0000]])"
        );
        assert_eq!(text(&[1f32, 2.0, 30.0], &[3]), "tensor([ 1.,  2., 30.])");
        assert_eq!(text(&[1e-5f32, 1.0], &[2]), "tensor([1.0000e-05, 1.0000e+00])");
        assert_eq!(text(&[1e9f32, 2e9], &[2]), "tensor([1.0000e+09, 2.0000e+09])");
        assert_eq!(text(&[f32::NAN, f32::INFINITY, -1.5], &[3]), "tensor([    nan,     inf, -1.5000])");
        assert_eq!(text(&[1i64, -20, 300, 4], &[2, 2]), "tensor([[  1, -20],\n        [300,   4]])");
        assert_eq!(text(&[true, false], &[2]), "tensor([ True, False])");
        assert_eq!(text(&[3.5f32], &[]), "tensor(3.5000)");
        assert_eq!(text::<f32>(&[], &[0]), "tensor([])");
        assert_eq!(text::<u8>(&[], &[2, 0]), "tensor([], shape=(2, 0), dtype=uint8)");
        assert_eq!(text(&[1.5f64], &[1]), "tensor([1.5000], dtype=float64)");
        assert_eq!(text(&[12345.678f32], &[1]), "tensor([12345.6777])");
        assert_eq!(text(&[0f32], &[1]), "tensor([0.])");
        assert_eq!(text(&[1e-30f32], &[1]), "tensor([1.0000e-30])");
    }

    #[test]
    fn long_rows_are_wrapped_and_blocks_set_apart() {
        let sevenths: Vec<f32> = (0..30).map(|i| i as f32 / 7.0).collect();
        assert_eq!(
            text(&sevenths, &[30]),
            "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n        \
             1.2857, 1.4286, 1.5714, 1.7143, 1.8571, 2.0000, 2.1429, 2.2857, 2.4286,\n        \
             2.5714, 2.7143, 2.8571, 3.0000, 3.1429, 3.2857, 3.4286, 3.5714, 3.7143,\n        \
             3.8571, 4.0000, 4.1429])"
        );
        let eight: Vec<f32> = (0..8).map(|i| i as f32).collect();
        assert_eq!(
            text(&eight, &[2, 2, 2]),
            "tensor([[[0., 1.],\n         [2., 3.]],\n\n        [[4., 5.],\n         [6., 7.]]])"
        );
    }

    #[test]
    fn an_error_is_shown_and_debug_computes_nothing() {
        let pending = Tensor::full(&[2], 1, DType::F32, null_device()).unwrap().exp().unwrap();
        assert_eq!(format!("{pending:?}"), "Tensor(shape=(2,), dtype=float32, device=null)");
        let text = pending.to_string();
        assert!(text.starts_with("tensor(<") && text.contains("shape=(2,)"), "{text}");
    }
}
