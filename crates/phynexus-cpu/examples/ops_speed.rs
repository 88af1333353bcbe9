//! Milliseconds of the operations without tile kernels, on all threads:
//! `cargo run --release -p phynexus-cpu --example ops_speed [part of a name]`.

use std::time::{Duration, Instant};

use phynexus::DType;
use phynexus::op::{Combine, ScatterMode};
use phynexus_cpu::ops::{
    Axis, Indices, Part, arg_reduce, arg_sort, cat, gather, random_bits, scan, scatter, search_sorted,
};

/// Number of elements of most operands.
const N: usize = 1 << 22;

/// Prints the best time of several runs.
fn report(filter: &str, name: &str, mut run: impl FnMut()) {
    if !name.contains(filter) {
        return;
    }
    run();
    let (start, mut best) = (Instant::now(), f64::MAX);
    while start.elapsed() < Duration::from_millis(300) {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    println!("{name:36} {:9.3} ms", best * 1e3);
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let mut words = vec![0u32; N];
    // SAFETY: as many elements as the vector has.
    unsafe { random_bits([1, 2, 0, 0], N, words.as_mut_ptr()) };
    let x: Vec<f32> = words.iter().map(|&w| (w >> 8) as f32 / 16_777_216.0 - 0.5).collect();
    let mut sorted = x[..1 << 20].to_vec();
    sorted.sort_by(f32::total_cmp);
    let (rows, width) = (50_000, 512);
    let table = vec![0.5f32; rows * width];
    let index: Vec<i64> = words[..8192].iter().map(|&w| i64::from(w) % rows as i64).collect();
    let bins: Vec<i64> = words.iter().map(|&w| i64::from(w % 1000)).collect();
    let ten: Vec<i64> = words[..1 << 20].iter().map(|&w| i64::from(w % 10)).collect();
    let (mut out, mut long) = (vec![0f32; rows * width], vec![0i64; N]);
    let (src, f32s) = (x.as_ptr().cast::<u8>(), DType::F32);
    // SAFETY: every buffer has the size given in the call.
    unsafe {
        let dst = out.as_mut_ptr().cast::<u8>();
        let positions = long.as_mut_ptr();
        report(&filter, "random_bits 4M", || random_bits([1, 2, 0, 0], N, words.as_mut_ptr()));
        for (name, rows, n) in
            [("arg_sort 4M", 1, N), ("arg_sort 4096x1024", 4096, 1024), ("arg_sort 65536x64", 65536, 64)]
        {
            report(&filter, name, || arg_sort(f32s, false, rows, n, src, positions));
        }
        report(&filter, "search_sorted 4M in 1M", || {
            search_sorted(f32s, false, sorted.as_ptr().cast(), sorted.len(), src, N, positions);
        });
        for (name, outer, n, inner) in
            [("4M", 1, N, 1), ("4096x1024 rows", 4096, 1024, 1), ("4096x1024 columns", 1, 4096, 1024)]
        {
            let axis = Axis { outer, n, inner };
            report(&filter, &format!("cumsum {name}"), || {
                scan(Combine::Sum, f32s, axis, false, src, dst);
            });
            report(&filter, &format!("argmax {name}"), || arg_reduce(f32s, false, axis, src, positions));
        }
        let indices = Indices::new(DType::I64, index.as_ptr().cast(), index.len());
        let binned = Indices::new(DType::I64, bins.as_ptr().cast(), N);
        let ten = Indices::new(DType::I64, ten.as_ptr().cast(), ten.len());
        if let (Some(indices), Some(binned), Some(ten)) = (indices, binned, ten) {
            report(&filter, "gather 8192x512 of 50000", || {
                let _ = gather(table.as_ptr().cast(), rows, width * 4, indices, dst);
            });
            report(&filter, "scatter add 8192x512 into 50000", || {
                let mode = ScatterMode::Combine(Combine::Sum);
                let _ = scatter(mode, f32s, [rows, width], dst, indices, src, dst);
            });
            report(&filter, "scatter add 4M into 1000", || {
                let mode = ScatterMode::Combine(Combine::Sum);
                let _ = scatter(mode, f32s, [1000, 1], dst, binned, src, dst);
            });
            report(&filter, "scatter add 1M into 10", || {
                let mode = ScatterMode::Combine(Combine::Sum);
                let _ = scatter(mode, f32s, [10, 1], dst, ten, src, dst);
            });
        }
        let two: Vec<i64> = words[..1 << 20].iter().map(|&w| i64::from(w % 2)).collect();
        let padded: Vec<i64> =
            words[..1 << 20].iter().map(|&w| i64::from(w % 2 * (w / 2 % 50_000))).collect();
        let wide = vec![0.5f32; 64 << 20];
        for (name, rows, index) in [("2", 2, &two), ("50000, half into one", 50_000, &padded)] {
            let Some(index) = Indices::new(DType::I64, index.as_ptr().cast(), index.len()) else { continue };
            report(&filter, &format!("scatter add 1Mx64 into {name}"), || {
                let mode = ScatterMode::Combine(Combine::Sum);
                let _ = scatter(mode, f32s, [rows, 64], dst, index, wide.as_ptr().cast(), dst);
            });
        }
        report(&filter, "cat 2 x 4096x1024 along 1", || {
            let part = Part { start: src, n: 1024 };
            cat(&[part, part], 4096, 4, dst);
        });
    }
}
