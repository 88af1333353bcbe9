//! Kernels that the checker refuses, and the faults that the interpreter detects when it runs them anyway.

use phynexus::oracle::interpret::interpret;
use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        check::{Limits, check},
        loops::{AxisKind, Kernel, KernelOp, MemoryAccess, Statement, Type},
        print::print,
    },
    op::{Binary, Combine, Unary},
};

use super::{PLAIN, kernels, limits};

/// A kernel of one group of 64 invocations over 64 elements of float32, in and out.
fn group(build: impl FnOnce(&mut Builder, &Index)) -> Kernel {
    let mut b = Builder::new("k");
    b.input(DType::F32, 64);
    b.output(DType::F32, 64);
    b.over(64, AxisKind::Block(0), build);
    b.finish()
}

fn refusal(kernel: &Kernel) -> String {
    check(kernel, &limits()).unwrap_err().to_string()
}

fn fault(kernel: &Kernel) -> String {
    let mut buffers: Vec<Vec<Scalar>> =
        kernel.buffers.iter().map(|b| vec![Scalar::Float(0.0); b.length]).collect();
    interpret(kernel, 32, &mut buffers, &[]).unwrap_err().to_string()
}

use phynexus::kernel::loops::ArrayId::{Buffer, Register, Shared};

#[test]
fn accesses_out_of_bounds() {
    let kernel = group(|b, i| {
        let x = b.load(Buffer(0), &i.shift(1));
        b.store(Buffer(1), i, x);
    });
    assert!(refusal(&kernel).contains("r0 + 1 is 1 to 64, 1 elements of 64"), "{}", refusal(&kernel));
    assert!(fault(&kernel).contains("has 64 elements, not one at 64"), "{}", fault(&kernel));
    // A mask or a condition makes the access valid.
    let guarded = group(|b, i| {
        let inside = Mask::within(i, 0, 63, b.ranges());
        let x = b.load_where(Buffer(0), &i.shift(1), inside.clone(), Scalar::Float(0.0));
        b.store_where(Buffer(1), &i.shift(1), inside.clone(), x);
        b.choose(inside, |b| b.store(Buffer(1), &i.shift(1), x), |b| b.store(Buffer(1), &i.shift(-63), x));
    });
    check(&guarded, &limits()).unwrap();
}

#[test]
fn misaligned_vectors() {
    let kernel = group(|b, i| {
        let x = b.load_lanes(Buffer(0), &i.quotient(32, b.ranges()).scale(2), 4);
        b.store(Buffer(1), &i.quotient(32, b.ranges()).scale(4), x);
    });
    assert!(refusal(&kernel).contains("4 lanes at"), "{}", refusal(&kernel));
}

#[test]
fn values_out_of_scope_and_of_the_wrong_type() {
    let kernel = group(|b, i| {
        let mut inner = 0;
        b.over(4, AxisKind::Serial, |b, _| inner = b.load(Buffer(0), i));
        b.store(Buffer(1), i, inner);
    });
    assert!(refusal(&kernel).contains("is not bound here"), "{}", refusal(&kernel));
    let kernel = group(|b, i| {
        let x = b.constant(DType::F64, 1.0);
        b.store(Buffer(1), i, x);
    });
    assert!(refusal(&kernel).contains("accessed as float64"), "{}", refusal(&kernel));
    let kernel = group(|b, _| {
        let x = b.constant(DType::I32, 1i32);
        b.unary(Unary::Exp, x);
    });
    assert!(refusal(&kernel).contains("exp of int32"), "{}", refusal(&kernel));
    // What lowering makes of a named call.
    let kernel = group(|b, _| {
        b.bind(Type::scalar(DType::F32), KernelOp::Pack(Default::default()));
    });
    assert!(refusal(&kernel).contains("lanes: 0"), "{}", refusal(&kernel));
    let kernel = group(|b, i| {
        let x = b.load(Buffer(1), i);
        b.store(Buffer(0), i, x);
    });
    assert!(refusal(&kernel).contains("which is not written"), "{}", refusal(&kernel));
}

#[test]
fn axes_out_of_place() {
    let kernel = group(|b, _| b.over(4, AxisKind::Serial, |b, _| b.over(4, AxisKind::Grid(0), |_, _| {})));
    assert!(refusal(&kernel).contains("not outermost"), "{}", refusal(&kernel));
    let kernel = group(|b, i| {
        let (_, unopened) = b.axis(4, AxisKind::Serial);
        let x = b.load(Buffer(0), &unopened);
        b.store(Buffer(1), i, x);
    });
    assert!(refusal(&kernel).contains("outside a loop over its axes"), "{}", refusal(&kernel));
    let kernel = group(|b, _| {
        b.axis(4, AxisKind::Grid(0));
    });
    assert!(refusal(&kernel).contains("is not looped over"), "{}", refusal(&kernel));
}

#[test]
fn participants_that_do_not_come() {
    let part = |b: &mut Builder, i: &Index, below: i64| Mask::within(i, 0, below, b.ranges());
    let kernel = group(|b, i| {
        let some = part(b, i, 32);
        b.when(some, |b| b.barrier());
    });
    assert!(refusal(&kernel).contains("part of a group"), "{}", refusal(&kernel));
    assert!(fault(&kernel).contains("part of the group"), "{}", fault(&kernel));
    let shuffle = |below: i64| {
        group(|b, i| {
            let some = part(b, i, below);
            b.when(some, |b| {
                let x = b.load(Buffer(0), i);
                let y = b.bind(Type::scalar(DType::F32), KernelOp::ShuffleXor(x, 1));
                b.store(Buffer(1), i, y);
            });
        })
    };
    check(&shuffle(32), &limits()).unwrap();
    assert!(refusal(&shuffle(31)).contains("part of a subgroup"), "{}", refusal(&shuffle(31)));
    assert!(fault(&shuffle(31)).contains("does not take part"), "{}", fault(&shuffle(31)));
}

#[test]
fn races_and_uninitialised_memory() {
    let neighbour = |barrier: bool| {
        let mut b = Builder::new("k");
        b.input(DType::F32, 64);
        b.output(DType::F32, 64);
        let shared = b.shared(DType::F32, 64);
        b.over(64, AxisKind::Block(0), |b, i| {
            let x = b.load(Buffer(0), i);
            b.store(shared, i, x);
            if barrier {
                b.barrier();
            }
            let y = b.load(shared, &i.scale(-1).shift(63));
            b.store(Buffer(1), i, y);
        });
        b.finish()
    };
    assert!(fault(&neighbour(false)).contains("without a barrier"), "{}", fault(&neighbour(false)));
    let mut buffers =
        vec![(0..64).map(|i| Scalar::Float(f64::from(i))).collect(), vec![Scalar::Float(0.0); 64]];
    interpret(&neighbour(true), 32, &mut buffers, &[]).unwrap();
    assert_eq!(buffers[1][0], Scalar::Float(63.0));

    // Each invocation reads, then writes elements that others read.
    let kernel = {
        let mut kernel = neighbour(true);
        let Some(Statement::Loop { body, .. }) = kernel.body.first_mut() else { panic!() };
        let Some(store) = body.get(1).cloned() else { panic!() };
        body.push(store);
        kernel
    };
    assert!(fault(&kernel).contains("without a barrier"), "{}", fault(&kernel));

    // Two groups write the same elements.
    let mut b = Builder::new("k");
    b.output(DType::F32, 64);
    b.over(2, AxisKind::Grid(0), |b, _| {
        b.over(64, AxisKind::Block(0), |b, i| {
            let x = b.constant(DType::F32, 1.0);
            b.store(Buffer(0), i, x);
        });
    });
    assert!(fault(&b.finish()).contains("without a barrier"));

    for array in [Shared(0), Register(0)] {
        let mut b = Builder::new("k");
        b.output(DType::F32, 64);
        b.shared(DType::F32, 64);
        b.registers(DType::F32, 64);
        b.over(64, AxisKind::Block(0), |b, i| {
            let x = b.load(array, i);
            b.store(Buffer(0), i, x);
        });
        assert!(fault(&b.finish()).contains("before it is written"));
    }
}

#[test]
fn atomics_and_breaks() {
    // Each invocation counts the numbers before the first one above its own.
    let mut b = Builder::new("k");
    let (x, total) = (b.input(DType::I32, 64), b.output(DType::U32, 1));
    let counted = b.output(DType::I32, 64);
    let sum = b.registers(DType::I32, 1);
    b.over(64, AxisKind::Block(0), |b, i| {
        let (mine, zero, one) = (b.load(x, i), b.constant(DType::I32, 0i32), b.constant(DType::I32, 1i32));
        b.store(sum, &Index::default(), zero);
        b.over(64, AxisKind::Serial, |b, j| {
            let other = b.load(x, j);
            let above = b.binary(Binary::Lt, mine, other);
            b.leave(above);
            b.accumulate(sum, &Index::default(), Binary::Add, one);
        });
        let count = b.load(sum, &Index::default());
        b.store(counted, i, count);
        let (positive, count) = (b.binary(Binary::Lt, zero, mine), b.cast(DType::U32, count));
        b.atomic(MemoryAccess::at(total, &Index::default()), Combine::Sum, count, positive);
    });
    let kernel = b.finish();
    check(&kernel, &limits()).unwrap();
    let source = print(&kernel, &PLAIN).unwrap();
    assert!(source.contains(") break;") && source.contains("atomicAdd(out1 + 0, "), "{source}");
    let x: Vec<i64> = (0..64).map(|i| i * 37 % 64 - 5).collect();
    let ints = |x: &[i64]| x.iter().map(|&x| Scalar::Int(x)).collect::<Vec<_>>();
    let mut buffers = vec![ints(&x), vec![Scalar::UInt(7)], ints(&[0; 64])];
    interpret(&kernel, 32, &mut buffers, &[]).unwrap();
    let expected: Vec<i64> =
        x.iter().map(|mine| x.iter().take_while(|other| *other <= mine).count() as i64).collect();
    assert_eq!(buffers[2], ints(&expected));
    let positive = x.iter().zip(&expected).filter(|(x, _)| **x > 0).map(|(_, count)| *count as u64);
    assert_eq!(buffers[1][0], Scalar::UInt(7 + positive.sum::<u64>()));

    let kernel = group(|b, i| {
        let x = b.load(Buffer(0), i);
        let nan = b.unary(Unary::IsNan, x);
        b.over(4, AxisKind::Serial, |b, _| {
            b.leave(nan);
            b.barrier();
        });
    });
    assert!(refusal(&kernel).contains("part of a group"), "{}", refusal(&kernel));
    let kernel = group(|b, i| {
        let x = b.load(Buffer(0), i);
        let nan = b.unary(Unary::IsNan, x);
        b.leave(nan);
    });
    assert!(refusal(&kernel).contains("outside a loop"), "{}", refusal(&kernel));
    let kernel = group(|b, i| {
        let x = b.load(Buffer(0), i);
        let nan = b.unary(Unary::IsNan, x);
        b.atomic(MemoryAccess::at(Buffer(1), i), Combine::Sum, x, nan);
    });
    assert!(refusal(&kernel).contains("an atomic sum"), "{}", refusal(&kernel));
}

#[test]
fn devices_that_are_too_small() {
    let refusal = |kernel: &Kernel, limits: Limits| check(kernel, &limits).unwrap_err().to_string();
    let softmax = kernels::softmax(3, 1000);
    let small = Limits { bindings: 1, ..limits() };
    assert_eq!(refusal(&softmax, small), "test: kernel row_softmax needs 2 bindings, the device has 1");
    assert!(
        refusal(&softmax, Limits { shared_bytes: 128, ..limits() }).contains("256 bytes of shared memory")
    );
    assert!(refusal(&softmax, Limits { block_size: 32, ..limits() }).contains("64 invocations"));
    assert!(refusal(&softmax, Limits { grid: [2, 2, 2], ..limits() }).contains("3 groups"));
    let elementwise = kernels::elementwise(64);
    assert!(refusal(&elementwise, Limits { dtypes: vec![DType::F32], ..limits() }).contains("needs float16"));
    assert!(
        refusal(&kernels::row_sum(2, 300), Limits { subgroup: None, ..limits() }).contains("needs subgroups")
    );
    let fragments = kernels::matrix_multiply(64, 64, 16);
    assert!(refusal(&fragments, Limits { matrices: Vec::new(), ..limits() }).contains("matrix instruction"));
}
