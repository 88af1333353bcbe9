//! File access: readers that do not trust the contents, and atomic writes.

mod atomic;
mod checksum;
mod pipe;
pub mod safetensors;
mod source;
pub mod tensorboard;

pub use atomic::{write_atomically, write_bytes_atomically};
pub use source::{Source, deflate_bound};
