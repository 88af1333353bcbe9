//! Every tensor method on the CPU device against NumPy, SciPy and PyTorch: the cases that the engine's own tests run on
//! the oracle, here through the scheduler and the kernels.

#[path = "../../../phynexus/src/tensor/golden/cases.rs"]
mod cases;

use phynexus::{DType, Device, Error, Result, Tensor, op::Combine, tensor::IndexSpec};

const GOLDEN: &str = include_str!("../../../phynexus/src/tensor/golden/golden.txt");

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
fn an_index_out_of_range_is_an_error_at_once_or_when_the_result_is_computed() {
    let device = phynexus_cpu::register();
    let x = Tensor::arange(0, 12, 1, DType::F32, device).unwrap().reshape(&[3, 4]).unwrap();
    let given = |values: &[i64], shape: &[usize]| Tensor::from_slice(values, shape, device).unwrap();
    let computed = |index: &Tensor| index.add_scalar(0).unwrap();
    let is_index = |result: Result<Vec<f32>>| matches!(result, Err(Error::Index { .. }));
    let check =
        |function: &dyn Fn(&Tensor) -> Result<Tensor>, index: &Tensor, axis: Option<usize>, bad: i64| {
            match function(index) {
                Err(Error::Index { index, axis: found, .. }) => assert_eq!((index, found), (bad, axis)),
                _ => panic!("an index from the host is checked at once"),
            }
            assert!(is_index(function(&computed(index)).unwrap().to_vec()));
        };
    let rows = given(&[0, 3], &[2]);
    check(&|index| x.take(index, Some(0)), &rows, Some(0), 3);
    check(&|index| x.take(index, Some(0)), &given(&[0, -4], &[2]), Some(0), -4);
    check(&|index| x.take(index, None), &given(&[0, 12], &[2]), None, 12);
    // Within the tensor, but outside the axis.
    let along = given(&[0, 3, 1, 1], &[1, 4]);
    check(&|index| x.gather(0, index), &along, Some(0), 3);
    check(&|index| x.scatter(0, index, &along), &along, Some(0), 3);
    check(&|index| x.index_add(1, index, &x.narrow(1, 0, 2)?), &given(&[4, 0], &[2]), Some(1), 4);
    check(&|index| x.index(&[IndexSpec::from(index), IndexSpec::from(index)]), &rows, Some(0), 3);
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
