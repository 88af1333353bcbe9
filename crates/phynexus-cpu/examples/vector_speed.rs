//! Elements per second of the vector kernels on one core, in the first-level cache and from memory:
//! `cargo run --release -p phynexus-cpu --example vector_speed [part of a kernel's name]`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use phynexus::DType;
use phynexus::op::{Binary, Combine, Unary};
use phynexus_cpu::vector::{
    Chain, InstructionSet, binary_for, cast_for, chain_for, mul_add_for, reduce_for, select_for, sub_exp_for,
    unary_for,
};

/// Elements of a tile that stays in the first-level cache with its operands.
const TILE: usize = 2048;
/// More elements than fit in any cache.
const LONG: usize = 1 << 24;

/// Operands for all kernels here: 8 bytes per element, small positive `f32` numbers in the first half.
struct Operands {
    a: Vec<u64>,
    b: Vec<u64>,
    condition: Vec<u8>,
    out: Vec<u64>,
}

impl Operands {
    fn new(dtype: DType) -> Operands {
        let word = |i: usize| {
            let x = (i % 1000) as f64 / 250.0 - 1.9;
            match dtype {
                DType::F32 => u64::from((x as f32).to_bits()) * 0x1_0000_0001,
                DType::F64 => x.to_bits(),
                _ => (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            }
        };
        Operands {
            a: (0..LONG).map(word).collect(),
            b: (0..LONG).map(|i| word(i * 7 + 3)).collect(),
            condition: (0..LONG).map(|i| u8::from(i % 3 == 0)).collect(),
            out: vec![0; LONG],
        }
    }
}

/// Elements per second: the best of many runs within a tenth of a second.
fn rate(n: usize, mut run: impl FnMut()) -> f64 {
    run();
    let repeats = (1 << 18) / n + 1;
    let (start, mut best) = (Instant::now(), f64::MAX);
    while start.elapsed() < Duration::from_millis(100) {
        let begin = Instant::now();
        for _ in 0..repeats {
            run();
        }
        best = best.min(begin.elapsed().as_secs_f64() / repeats as f64);
    }
    n as f64 / best
}

fn report(
    filter: &str,
    set: InstructionSet,
    name: &str,
    operands: &mut Operands,
    call: impl Fn(&mut Operands, usize),
) {
    if !name.contains(filter) {
        return;
    }
    let tile = rate(TILE, || call(black_box(operands), TILE));
    let long = rate(LONG, || call(black_box(operands), LONG));
    println!("{:7} {name:26} {:7.2} {:7.2}", set.name(), tile / 1e9, long / 1e9);
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    println!("{:7} {:26} {:>7} {:>7}   G elements/s", "set", "kernel", "L1", "memory");
    for dtype in [DType::F32, DType::F64, DType::I32, DType::U8] {
        let mut operands = Operands::new(dtype);
        for set in InstructionSet::available() {
            for op in Unary::ALL {
                if let Some(kernel) = unary_for(set, op, dtype) {
                    report(&filter, set, &format!("{} {dtype}", op.name()), &mut operands, |o, n| {
                        // SAFETY: the operands have room for n elements of 8 bytes.
                        unsafe { kernel(o.a.as_ptr().cast(), o.out.as_mut_ptr().cast(), n) }
                    });
                }
            }
            for op in Binary::ALL {
                if let Some(kernels) = binary_for(set, op, dtype) {
                    report(&filter, set, &format!("{} {dtype}", op.name()), &mut operands, |o, n| {
                        // SAFETY: as above.
                        unsafe {
                            (kernels.vector_vector)(
                                o.a.as_ptr().cast(),
                                o.b.as_ptr().cast(),
                                o.out.as_mut_ptr().cast(),
                                n,
                            )
                        }
                    });
                }
            }
            for chain in Chain::ALL {
                if let Some(kernel) = chain_for(set, chain, dtype) {
                    report(&filter, set, &format!("{chain:?} {dtype}"), &mut operands, |o, n| {
                        // SAFETY: as above.
                        unsafe { kernel(o.a.as_ptr().cast(), o.out.as_mut_ptr().cast(), n) }
                    });
                }
            }
            if let Some(kernels) = sub_exp_for(set, dtype) {
                report(&filter, set, &format!("sub_exp scalar {dtype}"), &mut operands, |o, n| {
                    // SAFETY: as above.
                    unsafe {
                        (kernels.vector_scalar)(
                            o.a.as_ptr().cast(),
                            o.b.as_ptr().cast(),
                            o.out.as_mut_ptr().cast(),
                            n,
                        )
                    }
                });
            }
            if let Some(kernel) = mul_add_for(set, dtype, false, true) {
                report(&filter, set, &format!("mul_add v*v+s {dtype}"), &mut operands, |o, n| {
                    // SAFETY: as above.
                    unsafe {
                        kernel(
                            o.a.as_ptr().cast(),
                            o.b.as_ptr().cast(),
                            o.b.as_ptr().cast(),
                            o.out.as_mut_ptr().cast(),
                            n,
                        )
                    }
                });
            }
            let kernel = select_for(set, dtype, false, false);
            report(&filter, set, &format!("select {dtype}"), &mut operands, |o, n| {
                // SAFETY: as above; the condition has n bytes.
                unsafe {
                    kernel(
                        o.condition.as_ptr(),
                        o.a.as_ptr().cast(),
                        o.b.as_ptr().cast(),
                        o.out.as_mut_ptr().cast(),
                        n,
                    )
                }
            });
            for combine in [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min] {
                if let Some(kernel) = reduce_for(set, combine, dtype) {
                    report(
                        &filter,
                        set,
                        &format!("reduce {} {dtype}", combine.name()),
                        &mut operands,
                        |o, n| {
                            // SAFETY: as above.
                            unsafe { kernel(o.a.as_ptr().cast(), o.out.as_mut_ptr().cast(), n) }
                        },
                    );
                }
            }
            for to in DType::ALL {
                let kernel = cast_for(set, dtype, to);
                report(&filter, set, &format!("cast {dtype} -> {to}"), &mut operands, |o, n| {
                    // SAFETY: as above.
                    unsafe { kernel(o.a.as_ptr().cast(), o.out.as_mut_ptr().cast(), n) }
                });
            }
        }
    }
}
