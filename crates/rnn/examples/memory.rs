//! Memory of devices: figures, tensors, handles. `cargo run --release -p rnn --example memory`

use rnn::{Array2, GpuManager, GpuTensor};

fn main() -> rnn::Result<()> {
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        let context = manager.create_context(device.id)?;
        let tensor = GpuTensor::from_cpu(&Array2::zeros((1000, 784)), device.id, context)?;
        let memory = context.allocate(1 << 20)?;
        let stats = context.memory_stats();
        println!("{} ({})", device.name, device.engine_name);
        println!("  {} MB used of {} MB", stats.allocated / 1024 / 1024, stats.total / 1024 / 1024);
        assert!(stats.allocated >= rnn::gpu::ByteCount::from(tensor.memory_size() + memory.size));
        if stats.total > 0 && stats.allocated > stats.total * 0.9 {
            println!("  more than 90% of it: use smaller batches");
        }
        context.deallocate(memory)?;
        // Copies may still be on their way.
        context.synchronize()?;
    }
    Ok(())
}
