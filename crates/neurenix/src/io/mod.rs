//! Files: read with a distrust of their contents, written so that nothing is ever half there.

mod atomic;
mod checksum;
mod pipe;
pub mod safetensors;
mod source;
pub mod tensorboard;

pub use atomic::{write_atomically, write_bytes_atomically};
pub use source::{Source, deflate_bound};
