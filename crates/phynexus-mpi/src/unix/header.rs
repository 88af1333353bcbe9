//! What a rank calls, so that ranks which call different collectives find out.
//!
//! MPI leaves undefined what differing calls do, such as writing beyond the end of a buffer.

use phynexus::{DType, distributed::other_length, op::Combine};

const OPS: [&str; 6] = ["barrier", "broadcast", "all_gather", "all_to_all", "reduce_scatter", "all_reduce"];

/// A call, as ranks send it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header([u8; Header::BYTES]);

impl Header {
    pub(crate) const BYTES: usize = 24;

    /// A call of one of the collectives, on this many bytes of each rank.
    pub(crate) fn new(op: &str, bytes: usize) -> Header {
        let mut header = Header([0; Header::BYTES]);
        header.0[0] = place(&OPS, |other| *other == op);
        header.0[16..].copy_from_slice(&(bytes as u64).to_le_bytes());
        header
    }

    /// With elements that are combined.
    pub(crate) fn combining(mut self, dtype: DType, by: Combine) -> Header {
        self.0[1] = 1 + place(&DType::ALL, |other| *other == dtype);
        self.0[2] = 1 + place(&Combine::ALL, |other| *other == by);
        self
    }

    /// From or to one rank.
    pub(crate) fn root(mut self, root: usize) -> Header {
        self.0[8..16].copy_from_slice(&(root as u64).to_le_bytes());
        self
    }

    pub(crate) fn bytes(&self) -> &[u8; Header::BYTES] {
        &self.0
    }

    /// The number of bytes of the operand.
    fn length(&self) -> u64 {
        self.0[16..].iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte))
    }

    /// The call in words.
    fn show(&self) -> String {
        let op = OPS.get(usize::from(self.0[0])).copied().unwrap_or("another collective");
        let mut text = format!("{op} of {} bytes", self.length());
        let before = |place: u8| usize::from(place).checked_sub(1);
        if let Some(dtype) = before(self.0[1]).and_then(|place| DType::ALL.get(place)) {
            text += &format!(" of {dtype}");
        }
        if let Some(by) = before(self.0[2]).and_then(|place| Combine::ALL.get(place)) {
            text += &format!(" by {}", by.name());
        }
        if op == "broadcast" {
            text += &format!(
                " from rank {}",
                self.0[8..16].iter().rev().fold(0, |rank, &byte| rank << 8 | u64::from(byte))
            );
        }
        text
    }

    /// Finds the first rank that calls something else, and says what. `all` are the ranks' headers, in order.
    pub(crate) fn difference(&self, all: &[u8]) -> Option<String> {
        let headers = all.as_chunks::<{ Header::BYTES }>().0.iter();
        let (rank, other) =
            headers.map(|bytes| Header(*bytes)).enumerate().find(|(_, other)| other != self)?;
        if other.0[..16] == self.0[..16] {
            return Some(other_length(rank, other.length() as usize, self.length() as usize));
        }
        Some(format!(
            "rank {rank} calls {}, where this rank calls {}: all ranks must run the same collectives in the same \
             order, with the same shapes and dtypes",
            other.show(),
            self.show()
        ))
    }
}

/// The place of the value that is looked for.
fn place<T>(values: &[T], is: impl Fn(&T) -> bool) -> u8 {
    values.iter().position(is).unwrap_or(values.len()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_rank() {
        let own = Header::new("all_reduce", 300).combining(DType::F32, Combine::Sum);
        let with = |other: &Header| own.difference(&[*own.bytes(), *other.bytes()].concat());
        assert_eq!(with(&own), None);
        let longer = Header::new("all_reduce", 70_000).combining(DType::F32, Combine::Sum);
        assert!(with(&longer).unwrap().starts_with("rank 1 sent 70000 bytes, where 300 were expected"));
        let maximum = Header::new("all_reduce", 300).combining(DType::BF16, Combine::Max);
        let said = with(&maximum).unwrap();
        assert!(said.starts_with(
            "rank 1 calls all_reduce of 300 bytes of bfloat16 by max, where this rank calls all_reduce of 300 bytes of \
             float32 by sum: "
        ), "{said}");
        let said = with(&Header::new("broadcast", 300).root(258)).unwrap();
        assert!(said.starts_with("rank 1 calls broadcast of 300 bytes from rank 258, where"), "{said}");
    }
}
