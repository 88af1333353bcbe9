//! The temporary memory of operations comes from the pool: it is counted, limited and returned.

use phynexus::{DType, Error, Tensor, schedule};

/// The pool's figures are per process, so these tests run as one.
#[test]
fn copies_of_operands_come_from_the_pool() {
    let cpu = phynexus_cpu::register();
    let (rows, columns) = (512, 300);
    let bytes = rows * columns * 4;
    let x = Tensor::arange(0, (rows * columns) as i64, 1, DType::F32, cpu).unwrap().evaluated().unwrap();
    let x = x.reshape(&[rows, columns]).unwrap().remainder_scalar(1013).unwrap().evaluated().unwrap();
    let index = Tensor::from_slice(&[7i64, 0, -1], &[3], cpu).unwrap();

    // The scratch memory of threads is not the pool's, but is taken from the system too.
    cpu.empty_cache();
    let before = cpu.memory();
    let square = Tensor::ones(&[512, 512], DType::F32, cpu).unwrap().evaluated().unwrap();
    drop(square.matmul(&square).unwrap().evaluated().unwrap());
    drop(square);
    cpu.empty_cache();
    let after = cpu.memory();
    assert_eq!(after.allocated, before.allocated);
    assert!(after.reserved > before.reserved, "{before:?} {after:?}");

    let before = cpu.memory();
    // Columns are selected from a transposed copy, which lives as long as the plan runs.
    let taken = x.take(&index, Some(1)).unwrap();
    let plan = schedule::explain(&taken).unwrap().unwrap();
    assert!(plan.arena_bytes >= bytes, "{}", plan.arena_bytes);
    let values = taken.to_vec::<f32>().unwrap();
    let expected = |i: usize| ((i / 3 * columns + [7, 0, columns - 1][i % 3]) % 1013) as f32;
    assert!(values.iter().enumerate().all(|(i, &v)| v == expected(i)));
    drop((taken, plan));
    let after = cpu.memory();
    assert_eq!(after.allocated, before.allocated);
    assert!(after.peak >= before.allocated + bytes, "{after:?}");

    // A transposed leaf used twice by an operation that requires rows: one copy. No copy if strides are supported.
    let t = x.t().unwrap();
    let pair = Tensor::cat(&[&t, &t], 0).unwrap();
    assert_eq!(schedule::explain(&pair).unwrap().unwrap().arena_bytes, bytes.next_multiple_of(64));
    let columns_of = |i: usize| ((i % rows * columns + i / rows % columns) % 1013) as f32;
    assert!(pair.to_vec::<f32>().unwrap().iter().enumerate().all(|(i, &v)| v == columns_of(i)));
    let product = t.matmul(&x).unwrap();
    assert_eq!(schedule::explain(&product).unwrap().unwrap().arena_bytes, 0);

    // A limit refuses the copy before anything is computed.
    cpu.set_memory_limit(Some(after.allocated + bytes / 2));
    let refused = x.t().unwrap().argmax(Some(1), false).unwrap().to_vec::<i64>();
    cpu.set_memory_limit(None);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");

    // More memory than any machine has.
    let row = Tensor::rand(&[1 << 16], DType::F32, cpu).unwrap().evaluated().unwrap();
    let all = row.expand(&[1 << 40, 1 << 16]).unwrap().argmax(Some(0), false).unwrap();
    assert!(matches!(all.evaluate(), Err(Error::OutOfMemory { .. })));
    let one = row.narrow(0, 0, 1).unwrap().expand(&[1 << 60]).unwrap();
    let total = (1..=5)
        .map(|i| one.add_scalar(i).unwrap().cumsum(0).unwrap())
        .reduce(|sum, next| sum.mul(&next).unwrap())
        .unwrap();
    assert!(matches!(total.max(&[], false).unwrap().evaluate(), Err(Error::OutOfMemory { .. })));
}
