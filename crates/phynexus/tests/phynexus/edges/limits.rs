//! Sizes, ranks and numbers that are out of range are typed errors of the call.

use phynexus::{DType, Error, Tensor, op::composite::Cell, schedule, tensor::RecurrentWeights};

use super::{device, tensor, vector};

fn zeros(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::zeros(shape, dtype, device()).unwrap()
}

#[test]
fn tensors_have_at_most_64_dimensions() {
    let (most, beyond) = ([1usize; 64], [1usize; 65]);
    let refused = |result: phynexus::Result<Tensor>| {
        assert!(
            matches!(result.unwrap_err(), Error::Shape { ref hint, .. } if hint.contains("64 dimensions"))
        );
    };
    refused(Tensor::zeros(&beyond, DType::F32, device()));
    refused(Tensor::from_bytes(&[0; 4], DType::F32, &beyond, device()));
    refused(Tensor::rand(&[1; 300], DType::F32, device()));
    let x = tensor(&[2.5f32], &most);
    refused(x.reshape(&beyond));
    refused(x.unsqueeze(0));
    refused(x.expand(&beyond));

    assert_eq!(x.argmax(Some(63), false).unwrap().rank(), 63);
    assert_eq!(x.softmax(-1).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    let mut order: Vec<usize> = (0..64).collect();
    order.reverse();
    let mut shape = most;
    (shape[0], shape[62]) = (2, 3);
    let y = tensor(&[1i32, 2, 3, 4, 5, 6], &shape).permute(&order).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    assert_eq!(y.sum(&[63], false).unwrap().to_vec::<i64>().unwrap(), [5, 7, 9]);
    assert!(x.to_string().contains("2.5000"));
}

#[test]
fn sizes_that_overflow_are_refused() {
    let half = zeros(&[0, 1 << 62], DType::U8);
    assert!(matches!(Tensor::cat(&[&half, &half, &half, &half], 1), Err(Error::Shape { .. })));
    let hidden = isize::MAX as usize;
    let weight_hh = zeros(&[0, hidden], DType::U8);
    let (x, weight_ih) = (zeros(&[1, 0, 1], DType::U8), zeros(&[0, 1], DType::U8));
    let bias = zeros(&[0], DType::U8);
    for cell in [Cell::Lstm, Cell::Gru] {
        let weights = RecurrentWeights {
            weight_ih: &weight_ih,
            weight_hh: &weight_hh,
            bias_ih: Some(&bias),
            bias_hh: None,
        };
        assert!(x.recurrent(cell, weights, None, None, false).is_err());
    }
    let wide = |shape: &[usize]| zeros(shape, DType::F16);
    let hidden = hidden / 2;
    let weights = [wide(&[0, 1]), wide(&[0, hidden])];
    let weights =
        RecurrentWeights { weight_ih: &weights[0], weight_hh: &weights[1], bias_ih: None, bias_hh: None };
    assert!(matches!(
        wide(&[1, 0, 1]).recurrent(Cell::Lstm, weights, None, None, false),
        Err(Error::Shape { .. })
    ));
}

/// Planning does not allocate memory, so a plan may need more than exists.
#[test]
fn plans_of_enormous_tensors_do_not_overflow() {
    let one = vector(&[1f32]).expand(&[1 << 60]).unwrap();
    let sum = one.to_dtype(DType::F16).unwrap().exp().unwrap().sum(&[], false).unwrap();
    assert!(schedule::explain(&sum).unwrap().is_some());
    // Five running sums of 2^62 bytes each are live at once.
    let total = (1..=5)
        .map(|i| one.add_scalar(i).unwrap().cumsum(0).unwrap())
        .reduce(|sum, next| sum.mul(&next).unwrap())
        .unwrap();
    let plan = schedule::explain(&total.max(&[], false).unwrap()).unwrap().unwrap();
    assert_eq!(plan.arena_bytes, usize::MAX);
}

#[test]
fn sums_of_bools_are_refused_at_the_call() {
    let (x, index) = (zeros(&[2, 3], DType::Bool), zeros(&[2, 3], DType::I64));
    let refused = |result: phynexus::Result<Tensor>, op: &str| match result {
        Err(Error::DType { op: found, .. }) => assert_eq!(found, op),
        other => panic!("{other:?}"),
    };
    refused(x.scatter_add(0, &index, &x), "scatter_add");
    refused(x.index_add(0, &vector(&[0i64, 0]), &x), "index_add");
    refused(x.index_put_add(&[(&vector(&[0i64])).into()], &zeros(&[], DType::Bool)), "index_put_add");
    assert!(x.scatter(0, &index, &x).is_ok());
}

#[test]
fn labels_that_are_no_class_are_named() {
    let message = |labels: &Tensor| labels.one_hot(3, DType::F32).unwrap_err().to_string();
    let expected = "one_hot: label 3 is out of range for 3 classes";
    assert_eq!(message(&vector(&[0i64, 3])), expected);
    // Pending labels are computed.
    let pending = vector(&[0i32, 2]).add_scalar(1).unwrap();
    assert!(!pending.is_evaluated());
    assert_eq!(message(&pending), expected);
    assert!(message(&vector(&[u64::MAX])).contains("label 18446744073709551615 is"));
    assert!(message(&vector(&[-1i8])).contains("label -1 is"));
    assert_eq!(vector(&[2u8]).one_hot(3, DType::F32).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0]);
    assert!(vector::<i64>(&[]).one_hot(0, DType::F32).unwrap().is_empty());
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let randint = |low, high, dtype| Tensor::randint(low, high, &[4], dtype, device());
    assert!(matches!(randint(0, 70000, DType::F16), Err(Error::Argument { .. })));
    assert!(matches!(randint(-70000, 0, DType::F16), Err(Error::Argument { .. })));
    assert!(randint(-65504, 65505, DType::F16).is_ok());
    assert!(randint(i64::MIN, i64::MAX, DType::BF16).is_ok());
    let arange = |start: i64, stop: i64, step: i64, dtype| Tensor::arange(start, stop, step, dtype, device());
    assert!(matches!(arange(0, 1000, 1, DType::I8), Err(Error::Argument { .. })));
    assert!(matches!(arange(0, -1, -1, DType::I8).unwrap().to_vec::<i8>().as_deref(), Ok([0])));
    assert!(matches!(arange(5, -3, -2, DType::U8), Err(Error::Argument { .. })));
    assert_eq!(arange(5, 0, -2, DType::U8).unwrap().to_vec::<u8>().unwrap(), [5, 3, 1]);
    assert_eq!(arange(254, 256, 1, DType::U8).unwrap().to_vec::<u8>().unwrap(), [254, 255]);
    assert!(arange(254, 257, 1, DType::U8).is_err());
    assert!(Tensor::arange(0, u64::MAX, u64::MAX - 1, DType::U64, device()).is_ok());
}
