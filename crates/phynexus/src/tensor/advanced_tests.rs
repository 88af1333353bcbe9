//! Errors of the methods beyond the core, and the graphs of random tensors. Values are compared in `golden`.

use super::null::null_device;
use crate::{
    DType, Error, Tensor,
    op::Op,
    tensor::{Generator, GeneratorState, IndexSpec},
};

fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
    Tensor::from_bytes(&bytes, dtype, shape, null_device()).unwrap()
}

fn f32s(shape: &[usize]) -> Tensor {
    tensor(shape, DType::F32)
}

#[test]
fn indices_are_checked_at_the_call() {
    let x = f32s(&[2, 3]);
    let message = |specs: &[IndexSpec]| x.index(specs).unwrap_err().to_string();
    assert_eq!(message(&[2.into()]), "index: index 2 is out of range for axis 0 of size 2");
    assert_eq!(message(&[(-3).into()]), "index: index -3 is out of range for axis 0 of size 2");
    assert_eq!(
        message(&[i64::MIN.into()]),
        format!("index: index {} is out of range for axis 0 of size 2", i64::MIN)
    );
    let all = || IndexSpec::ALL;
    assert_eq!(message(&[all(), all(), all()]), "index: too many indices: 3 for a tensor with 2 dimensions");
    assert_eq!(
        message(&[IndexSpec::Ellipsis, IndexSpec::Ellipsis]),
        "index: an index can have only one ellipsis"
    );
    assert_eq!(
        message(&[IndexSpec::Slice { start: None, stop: None, step: 0 }]),
        "index: the step of a slice must not be 0"
    );
    assert!(matches!(x.index(&[(&f32s(&[2])).into()]), Err(Error::DType { .. })));
    assert!(matches!(x.index(&[(&tensor(&[3], DType::Bool)).into()]), Err(Error::Shape { .. })));
    let apart = [(&tensor(&[2], DType::I64)).into(), (&tensor(&[3], DType::I64)).into()];
    assert!(matches!(x.index(&apart), Err(Error::Shape { .. })));
    assert!(f32s(&[0, 3]).index(&[(&tensor(&[1], DType::I64)).into()]).is_err());
    assert_eq!(f32s(&[0, 3]).index(&[(&tensor(&[0], DType::I64)).into()]).unwrap().shape(), &[0, 3]);
    assert!(matches!(x.index_put(&[0.into()], &f32s(&[2])), Err(Error::Shape { .. })));
    assert_eq!(x.index_put(&[0.into()], &f32s(&[1, 3])).unwrap().shape(), &[2, 3]);
    assert_eq!(x.index_put(&[(1..1).into()], &f32s(&[])).unwrap().shape(), &[2, 3]);
    assert_eq!(x.index(&[]).unwrap().shape(), &[2, 3]);
    assert_eq!(f32s(&[]).index(&[IndexSpec::NewAxis]).unwrap().shape(), &[1]);
}

#[test]
fn gathers_and_scatters_are_checked_at_the_call() {
    let (x, index) = (f32s(&[2, 3]), tensor(&[2, 3], DType::I64));
    assert!(x.gather(0, &f32s(&[2, 3])).is_err());
    assert!(x.gather(0, &tensor(&[2], DType::I64)).is_err());
    assert!(x.gather(0, &tensor(&[2, 4], DType::I64)).is_err());
    assert!(x.scatter(0, &index, &f32s(&[5])).is_err());
    assert_eq!(x.scatter(0, &index, &f32s(&[])).unwrap().shape(), &[2, 3]);
    assert!(x.index_add(0, &tensor(&[2], DType::I64), &f32s(&[2, 2])).is_err());
    assert!(x.index_select(0, &index).is_err());
    assert!(f32s(&[0]).take(&tensor(&[1], DType::I64), None).is_err());
    assert!(x.masked_fill(&tensor(&[2, 2, 3], DType::Bool), 0).is_err());
    assert!(tensor(&[2], DType::U8).masked_fill(&tensor(&[2], DType::Bool), 256).is_err());
    assert!(matches!(x.masked_select(&x), Err(Error::DType { .. })));
}

#[test]
fn equations_are_checked_at_the_call() {
    let message =
        |equation: &str, operands: &[&Tensor]| Tensor::einsum(equation, operands).unwrap_err().to_string();
    let (a, b) = (f32s(&[2, 3]), f32s(&[4, 5]));
    assert_eq!(message("ij,jk", &[&a]), "einsum: \"ij,jk\" has 2 operands, got 1");
    assert_eq!(message("ijk->i", &[&a]), "einsum: \"ijk\" names 3 dimensions, the operand has 2");
    assert_eq!(message("ij->k", &[&a]), "einsum: the result \"k\" contains a letter that no operand has");
    assert_eq!(message("ij->ii", &[&a]), "einsum: the result \"ii\" repeats a letter");
    assert_eq!(message("i1", &[&a]), "einsum: '1' in \"i1\" is not a letter, \"...\", \",\" or \"->\"");
    assert_eq!(message("......", &[&a]), "einsum: \"......\" has more than one ellipsis");
    assert_eq!(
        message("ij,jk", &[&a, &b]),
        "einsum: shapes (2, 3) and (4, 5) do not fit: the same letter has sizes 3 and 4"
    );
    assert!(Tensor::einsum("", &[]).is_err());
    assert_eq!(Tensor::einsum("", &[&f32s(&[])]).unwrap().shape(), &[0; 0]);
    assert_eq!(Tensor::einsum("ij->", &[&f32s(&[0, 3])]).unwrap().shape(), &[0; 0]);
}

#[test]
fn other_refusals() {
    let x = f32s(&[2, 3]);
    assert!(x.topk(4, 1, true).is_err() && x.searchsorted(&x, false).is_err());
    assert!(
        x.roll(&[1, 2], &[0]).is_err() && x.repeat(&[2]).is_err() && x.norm(f64::NAN, &[], false).is_err()
    );
    assert!(
        f32s(&[3]).tril(0).is_err() && x.diag(4).unwrap().is_empty() && f32s(&[2, 2, 2]).diag(0).is_err()
    );
    assert_eq!(x.diag(3).unwrap().shape(), &[0]);
    assert!(
        x.cross(&x, 0).is_err() && x.dot(&x).is_err() && x.outer(&x).is_err() && f32s(&[2]).trace().is_err()
    );
    let labels = Tensor::from_slice(&[0i64, 3], &[2], null_device()).unwrap();
    assert_eq!(labels.one_hot(4, DType::F32).unwrap().shape(), &[2, 4]);
    assert!(f32s(&[2, 0]).norm(f64::INFINITY, &[1], false).is_err());
}

/// The contents of the random-bits leaf that a tensor depends on, and the number of words.
fn bits(tensor: &Tensor) -> Option<(Vec<u32>, usize)> {
    if *tensor.node().op() == Op::RandomBits {
        let leaf = Tensor::from_node(tensor.node().sources()[0].clone());
        return Some((leaf.to_vec().unwrap(), tensor.len()));
    }
    tensor.node().sources().iter().find_map(|s| bits(&Tensor::from_node(s.clone())))
}

#[test]
fn random_tensors_carry_key_and_counter_in_a_leaf() {
    let (generator, device) = (Generator::new(7 | 9 << 32), null_device());
    let first = generator.rand(&[3, 3], DType::F32, device).unwrap();
    assert_eq!(bits(&first), Some((vec![7, 9, 0, 0], 9)));
    // Nine words take five blocks of two.
    let second = generator.randn(&[4], DType::F32, device).unwrap();
    assert_eq!(bits(&second), Some((vec![7, 9, 5, 0], 8)));
    assert_eq!(generator.state(), GeneratorState { seed: 7 | 9 << 32, counter: 9 });
    generator.set_state(GeneratorState { seed: 1, counter: u64::MAX });
    let last = generator.rand(&[2], DType::F64, device).unwrap();
    assert_eq!(bits(&last), Some((vec![1, 0, u32::MAX, u32::MAX], 4)));
    assert_eq!(generator.state().counter, 1);
    // Values drawn since then are not handed out again.
    let before = generator.advance(3);
    generator.give_back(before, 3);
    assert_eq!(generator.state(), before);
    generator.advance(3);
    generator.advance(2);
    generator.give_back(before, 3);
    assert_eq!(generator.state(), before.after(5));
}

#[test]
fn random_arguments_are_checked() {
    let (generator, device) = (Generator::new(0), null_device());
    assert!(generator.rand(&[2], DType::I32, device).is_err());
    assert!(generator.randint(3, 3, &[2], DType::I32, device).is_err());
    assert!(generator.randint(0, 257, &[2], DType::U8, device).is_err());
    assert!(generator.randint(0, 256, &[2], DType::U8, device).is_ok());
    assert!(generator.randint(i64::MIN, i64::MAX, &[2], DType::I64, device).is_ok());
    assert!(generator.bernoulli(1.5, &[2], DType::F32, device).is_err());
    assert!(generator.bernoulli(f64::NAN, &[2], DType::F32, device).is_err());
    assert!(generator.rand(&[usize::MAX, 2], DType::F32, device).is_err());
}
