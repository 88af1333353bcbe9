//! Every tensor method on the CPU device against NumPy, SciPy and PyTorch: the same cases that the engine's own tests
//! give to the oracle, here through the scheduler and the kernels.

#[path = "../../phynexus/src/tensor/golden/cases.rs"]
mod cases;

use phynexus::{DType, Device, Error, Result, Tensor, tensor::IndexSpec};

const GOLDEN: &str = include_str!("../../phynexus/src/tensor/golden/golden.txt");

fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    match tensor.dtype() {
        DType::I64 => Ok(tensor.to_vec::<i64>()?.into_iter().map(|v| v as f64).collect()),
        DType::U64 => Ok(tensor.to_vec::<u64>()?.into_iter().map(|v| v as f64).collect()),
        _ => tensor.to_dtype(DType::F64)?.to_vec::<f64>(),
    }
}

fn close(actual: f64, expected: f64) -> bool {
    let tolerance = 4e-6 * expected.abs().max(1.0);
    actual == expected || (actual.is_nan() && expected.is_nan()) || (actual - expected).abs() <= tolerance
}

fn failure(line: &str, device: Device) -> Result<Option<String>> {
    let fields: Vec<&str> = line.split('|').collect();
    let &[name, dtype, shape, expected] = fields.as_slice() else { return Ok(Some("unreadable".to_owned())) };
    let shape: Vec<usize> = shape.split_whitespace().map(|d| d.parse().unwrap()).collect();
    let expected: Vec<f64> = expected.split_whitespace().map(|v| v.parse().unwrap()).collect();
    let Some(tensor) = cases::run(name, device)? else { return Ok(Some("no such case".to_owned())) };
    if (tensor.dtype(), tensor.shape()) != (DType::parse(dtype).unwrap(), &shape[..]) {
        return Ok(Some(format!("{tensor:?} instead of {dtype} {shape:?}")));
    }
    let actual = values(&tensor)?;
    let same = actual.len() == expected.len() && actual.iter().zip(&expected).all(|(&a, &e)| close(a, e));
    Ok((!same).then(|| format!("{actual:?} instead of {expected:?}")))
}

#[test]
fn methods_give_what_numpy_and_pytorch_give() {
    let device = phynexus_cpu::register();
    let failures: Vec<String> = GOLDEN
        .lines()
        .filter_map(|line| {
            let name = line.split('|').next().unwrap_or_default();
            match failure(line, device) {
                Ok(None) => None,
                Ok(Some(text)) => Some(format!("{name}: {text}")),
                Err(error) => Some(format!("{name}: {error}")),
            }
        })
        .collect();
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn an_index_out_of_range_is_an_error_when_the_result_is_computed() {
    let device = phynexus_cpu::register();
    let refused =
        |result: Result<Tensor>| matches!(result.unwrap().to_vec::<f32>(), Err(Error::Index { .. }));
    let x = Tensor::arange(0, 12, 1, DType::F32, device).unwrap().reshape(&[3, 4]).unwrap();
    let index = Tensor::from_slice(&[0i64, 3], &[2], device).unwrap();
    assert!(refused(x.take(&index, Some(0))));
    let below = Tensor::from_slice(&[0i64, -4], &[2], device).unwrap();
    assert!(refused(x.take(&below, Some(0))));
    // Within the tensor, but outside its axis.
    let along = Tensor::from_slice(&[0i64, 3, 1, 1], &[1, 4], device).unwrap();
    assert!(refused(x.gather(0, &along)));
    assert!(refused(x.scatter(0, &along, &along)));
    let specs = [IndexSpec::from(&index), IndexSpec::from(&index)];
    assert!(refused(x.index(&specs)));
}

#[test]
fn large_tensors_are_printed_by_their_edges() {
    let device = phynexus_cpu::register();
    let x = Tensor::arange(0, 10_000, 1, DType::I64, device).unwrap().reshape(&[100, 100]).unwrap();
    let text = x.to_string();
    assert!(text.starts_with("tensor([[   0,    1,    2, ...,   97,   98,   99],\n"), "{text}");
    assert!(text.ends_with("        [9900, 9901, 9902, ..., 9997, 9998, 9999]])"), "{text}");
    assert_eq!(text.lines().count(), 7, "{text}");
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let device = phynexus_cpu::register();
    let draw = |seed| {
        let generator = phynexus::tensor::Generator::new(seed);
        let uniform = generator.rand(&[1001], DType::F32, device).unwrap().to_vec::<f32>().unwrap();
        (uniform, generator.randn(&[7, 3], DType::F64, device).unwrap().to_vec::<f64>().unwrap())
    };
    assert_eq!(draw(5), draw(5));
    assert_ne!(draw(5), draw(6));
    assert!(draw(5).0.iter().all(|u| (0.0..1.0).contains(u)));
}
