//! Profiles of parts of a program, in a process of their own: the engine has one profiler, and it sees all threads.

use rnn::{
    Array2, GpuManager, GpuTensor, Result,
    gpu::{ByteCount, GpuOps, GpuProfiler},
};

#[test]
fn profiles_tell_times() -> Result<()> {
    let mut manager = GpuManager::new();
    let context = manager.create_context(0)?;
    let x = GpuTensor::from_cpu(&Array2::ones((200, 200)), 0, context)?;
    let mut profiler = GpuProfiler::default();
    profiler.start("product");
    // A part inside another has no device time of its own.
    profiler.start("inside");
    let y = context.matmul(&x, &x)?;
    y.to_cpu(context)?;
    profiler.end("inside", 1024, 1);
    profiler.end("product", y.memory_size(), 0);
    profiler.end("never begun", 0usize, 0);
    let [inside, product] = profiler.results() else { panic!("two parts") };
    assert_eq!((inside.memory_used, inside.device_id, inside.device_time), (ByteCount(1024), 1, None));
    assert_eq!((product.name.as_str(), product.memory_used), ("product", ByteCount(160_000)));
    assert!(product.device_time.is_some_and(|time| !time.is_zero()));
    assert!(product.duration >= inside.duration && product.start_time <= inside.start_time);
    let summary = profiler.summary();
    let line = |name: &str| summary.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("product").contains("160000") && line("product").matches(" ms").count() == 2, "{summary}");
    assert!(line("inside").contains(" - ") && line("inside").contains("1024"), "{summary}");
    profiler.clear();
    assert!(profiler.results().is_empty());
    // Nothing is under way any more: another profiler has the times.
    let mut other = GpuProfiler::default();
    other.start("sum");
    context.sum(&x, None)?.to_values(context)?;
    other.end("sum", 0usize, 0);
    assert!(other.results()[0].device_time.is_some());
    Ok(())
}
