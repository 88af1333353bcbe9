//! Every loss against PyTorch, with all reductions and gradients (`golden/make_losses.py`).

use std::{collections::BTreeMap, path::PathBuf};

use neurenix::{
    Result,
    data::{HostArray, read_npz},
    loss::Loss,
};
use phynexus::{DType, Device, Tensor, tensor::Reduction};

type Arrays = BTreeMap<String, HostArray>;

fn golden() -> Arrays {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/losses.npz");
    read_npz(&path).unwrap().into_iter().collect()
}

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

fn tensor(array: &HostArray, dtype: DType) -> Tensor {
    let tensor = Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device()).unwrap();
    if array.dtype().is_float() { tensor.to_dtype(dtype).unwrap() } else { tensor }
}

fn apply(loss: &Loss, inputs: &[Tensor], target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    match inputs {
        [first, second] => loss.forward_pair(first, second, target, reduction),
        [input] => loss.forward(input, target, reduction),
        _ => unreachable!("one input or two"),
    }
}

/// Creates a loss from the tensors that its case has besides inputs and target.
type Make = fn(&dyn Fn(&str) -> Option<Tensor>) -> Loss;

fn check(arrays: &Arrays, case: &str, make: Make, dtype: DType) {
    let array = |name: String| arrays.get(&format!("{case}/{name}"));
    let loss = make(&|name| array(name.to_owned()).map(|a| tensor(a, dtype)));
    let inputs: Vec<Tensor> = (0..2)
        .filter_map(|i| array(format!("in/{i}")))
        .map(|a| tensor(a, dtype).with_grad().unwrap())
        .collect();
    let target = tensor(array("target".to_owned()).unwrap(), dtype);
    let compare = |what: &str, found: &Tensor| {
        let expected = array(what.to_owned()).unwrap();
        assert_eq!(found.shape(), expected.shape(), "{case} {what}");
        let found = found.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
        let tolerance = if dtype == DType::F64 { 1e-12 } else { 3e-6 };
        for (found, expected) in found.into_iter().zip(expected.to_vec::<f64>().unwrap()) {
            let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
            assert!(close, "{case} in {dtype}, {what}: {found} is not {expected}");
        }
    };
    for (name, reduction) in [("none", Reduction::None), ("mean", Reduction::Mean), ("sum", Reduction::Sum)] {
        compare(&format!("out/{name}"), &apply(&loss, &inputs, &target, reduction).unwrap());
    }
    apply(&loss, &inputs, &target, Reduction::Mean).unwrap().backward().unwrap();
    for (i, input) in inputs.iter().enumerate() {
        compare(&format!("grad/{i}"), &input.grad().unwrap());
    }
}

#[test]
fn losses_are_those_of_pytorch() {
    let cases: [(&str, Make); 14] = [
        ("mse", |_| Loss::MSE),
        ("l1", |_| Loss::L1),
        ("smooth_l1", |_| Loss::SmoothL1 { beta: 0.5 }),
        ("huber", |_| Loss::Huber { delta: 0.7 }),
        ("cross_entropy", |_| Loss::cross_entropy(0.0)),
        ("cross_entropy_options", |of| Loss::CrossEntropy {
            weight: of("weight"),
            ignore_index: 2,
            label_smoothing: 0.1,
        }),
        ("cross_entropy_probabilities", |_| Loss::cross_entropy(0.2)),
        ("nll", |of| Loss::NLL { weight: of("weight"), ignore_index: 1 }),
        ("bce", |of| Loss::BCE { weight: of("weight") }),
        ("bce_with_logits", |of| Loss::BCEWithLogits { weight: of("weight"), pos_weight: of("pos_weight") }),
        ("kl_div", |_| Loss::KLDiv { log_target: false }),
        ("kl_div_log", |_| Loss::KLDiv { log_target: true }),
        ("hinge_embedding", |_| Loss::HingeEmbedding { margin: 0.5 }),
        ("cosine_embedding", |_| Loss::CosineEmbedding { margin: 0.2 }),
    ];
    let arrays = golden();
    for (case, make) in &cases {
        for dtype in [DType::F64, DType::F32] {
            check(&arrays, case, *make, dtype);
        }
    }
    let untested = arrays.keys().find(|name| !cases.iter().any(|(c, _)| name.split('/').next() == Some(c)));
    assert_eq!(untested, None);
}

#[test]
fn certainty_that_is_wrong_costs_100_and_has_a_finite_gradient() {
    let of = |values: &[f32]| Tensor::from_slice(values, &[values.len()], device()).unwrap();
    let (x, target) = (of(&[0.0, 1.0, 0.0, 1.0]).with_grad().unwrap(), of(&[1.0, 0.0, 0.0, 1.0]));
    let losses = Loss::BCE { weight: None }.forward(&x, &target, Reduction::None).unwrap();
    assert_eq!(losses.to_vec::<f32>().unwrap(), [100.0, 100.0, 0.0, 0.0]);
    losses.sum(&[], false).unwrap().backward().unwrap();
    let gradients = x.grad().unwrap().to_vec::<f32>().unwrap();
    assert!(gradients.iter().all(|gradient| gradient.is_finite()), "{gradients:?}");
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let x = Tensor::from_slice(&[1f32, 2.0], &[2], device()).unwrap();
    let (pairs, single) = (Loss::CosineEmbedding { margin: 0.0 }, Loss::MSE);
    let message = pairs.forward(&x, &x, Reduction::Mean).unwrap_err().to_string();
    assert!(message.contains("CosineEmbeddingLoss") && message.contains("forward_pair"), "{message}");
    assert!(single.forward_pair(&x, &x, &x, Reduction::Mean).is_err());
    assert!(single.forward(&x, &x.unsqueeze(0).unwrap(), Reduction::Mean).is_err());
    assert!(Loss::Huber { delta: 0.0 }.forward(&x, &x, Reduction::Mean).is_err());
}
