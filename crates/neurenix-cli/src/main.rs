//! The command `neurenix`.

fn main() {}
