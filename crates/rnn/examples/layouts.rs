//! In which order a matrix lies in a device's memory. `cargo run --release -p rnn --example layouts`

use rnn::{Array2, GpuManager, GpuTensor, MemoryLayout, gpu::GpuOps};

fn main() -> rnn::Result<()> {
    let mut manager = GpuManager::new();
    let context = manager.create_context(0)?;
    let data = Array2::from_shape_fn((3, 4), |(row, column)| (row * 4 + column) as f64);
    for layout in [MemoryLayout::RowMajor, MemoryLayout::ColumnMajor, MemoryLayout::GpuOptimized] {
        let tensor = GpuTensor::from_cpu_with_layout(&data, 0, context, layout)?;
        println!("{layout:?}: strides {:?}", tensor.strides()?);
        let sums = context.sum(&tensor, Some(1))?;
        assert_eq!(sums.to_values(context)?, [6.0, 22.0, 38.0]);
    }
    Ok(())
}
