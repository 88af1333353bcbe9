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

#[test]
fn methods_give_what_numpy_and_pytorch_give() {
    let device = phynexus_cpu::register();
    cases::check(GOLDEN.lines(), device, |tensor| values(tensor).map(Some));
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
