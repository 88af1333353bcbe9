//! CRC-32C, the checksum of event files and of the safetensors files written by this library.

/// CRC-32C (Castagnoli), reflected, polynomial 0x1EDC6F41, computed incrementally.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc32c(u32);

/// `TABLES[k][b]` is the contribution of byte `b` followed by `k` zeros, so eight bytes take eight independent lookups.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0u32; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut index = 0;
        while index < 256 {
            let before = tables[zeros - 1][index];
            tables[zeros][index] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            index += 1;
        }
        zeros += 1;
    }
    tables
};

impl Crc32c {
    /// The state before any bytes.
    pub(super) fn new() -> Crc32c {
        Crc32c(!0)
    }

    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<8>();
        for block in blocks {
            let bytes = (u64::from_le_bytes(*block) ^ u64::from(self.0)).to_le_bytes();
            self.0 =
                bytes.iter().rev().zip(&TABLES).fold(0, |crc, (&byte, table)| crc ^ table[byte as usize]);
        }
        for &byte in rest {
            self.0 = self.0 >> 8 ^ TABLES[0][(self.0 as u8 ^ byte) as usize];
        }
    }

    /// The checksum of all bytes so far.
    pub(super) fn finish(self) -> u32 {
        !self.0
    }
}

/// The checksum of these bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_castagnolis() {
        // RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[]), 0);
        // In pieces of any size.
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            let mut crc = Crc32c::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.finish(), crc32c(&bytes));
        }
    }
}
