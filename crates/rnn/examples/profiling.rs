//! How long parts of a program take, on the host and on the device. `cargo run --release -p rnn --example profiling`

use rnn::{
    Array2, GpuManager, GpuTensor,
    gpu::{GpuOps, GpuProfiler},
};

fn main() -> rnn::Result<()> {
    let mut manager = GpuManager::new();
    let context = manager.create_context(0)?;
    let x = GpuTensor::from_cpu(&Array2::ones((512, 512)), 0, context)?;
    let mut profiler = GpuProfiler::default();
    for _ in 0..5 {
        profiler.start("matrix product");
        let product = context.matmul(&x, &x)?;
        product.to_cpu(context)?;
        profiler.end("matrix product", product.memory_size(), 0);
        profiler.start("activation");
        context.relu(&product)?.to_cpu(context)?;
        profiler.end("activation", product.memory_size(), 0);
    }
    profiler.print_summary();
    assert_eq!(profiler.results().len(), 10);
    Ok(())
}
