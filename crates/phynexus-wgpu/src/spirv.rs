//! SPIR-V whose arithmetic is what the kernel says.
//!
//! Without a decoration drivers may contract products and sums, and simplify as if there were neither NaN nor signed
//! zeros. WGSL has no word for it, so the decoration is added to the translated module.

const DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;
/// Negation, addition, subtraction, multiplication, division and remainders of floats.
const ARITHMETIC: [u32; 7] = [127, 129, 131, 133, 136, 140, 141];
/// Words before the first instruction.
const HEADER: usize = 5;

/// The module with every operation on floats marked as exact.
pub(crate) fn exact(module: &[u32]) -> Vec<u32> {
    let mut decorations = Vec::new();
    let mut first = None;
    let mut at = HEADER;
    while let Some(&word) = module.get(at) {
        let (length, code) = ((word >> 16) as usize, word & 0xffff);
        if code == DECORATE {
            first.get_or_insert(at);
        }
        if let (true, Some(&result)) = (ARITHMETIC.contains(&code), module.get(at + 2)) {
            decorations.extend([3 << 16 | DECORATE, result, NO_CONTRACTION]);
        }
        at += length.max(1);
    }
    // Bindings are decorated too, so there is a first one.
    let (before, after) = module.split_at(first.unwrap_or(module.len()));
    [before, &decorations, after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorations_come_before_what_they_name() {
        let instruction = |code: u32, words: &[u32]| {
            let mut all = vec![(words.len() as u32 + 1) << 16 | code];
            all.extend(words);
            all
        };
        let header = [0x0723_0203, 0x10300, 0, 20, 0];
        let (name, decorate) = (instruction(5, &[7, 0]), instruction(71, &[7, 33, 0]));
        // OpFAdd and OpIAdd.
        let (float, integer) = (instruction(129, &[1, 9, 2, 3]), instruction(128, &[1, 10, 2, 3]));
        let module = [&header[..], &name, &decorate, &float, &integer].concat();
        let added = instruction(71, &[9, 42]);
        assert_eq!(exact(&module), [&header[..], &name, &added, &decorate, &float, &integer].concat());
    }
}
