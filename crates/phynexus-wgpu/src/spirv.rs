//! Makes the arithmetic of SPIR-V exact.
//!
//! Without a decoration, drivers may contract products and sums, and simplify as if NaN and signed zeros did not exist.
//! Without an execution mode, they may flush subnormal numbers to zero. WGSL cannot express either, so both are added
//! to the translated module.

const EXTENSION: u32 = 10;
const ENTRY_POINT: u32 = 15;
const EXECUTION_MODE: u32 = 16;
const CAPABILITY: u32 = 17;
const FLOAT_TYPE: u32 = 22;
const DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;
/// Negation, addition, subtraction, multiplication, division and remainders of floats.
const ARITHMETIC: [u32; 7] = [127, 129, 131, 133, 136, 140, 141];
/// Words before the first instruction.
const HEADER: usize = 5;

/// An execution mode of `SPV_KHR_float_controls`: its number, and that of the capability it needs.
pub(crate) type Mode = (u32, u32);
/// Preserves subnormal numbers.
pub(crate) const DENORM_PRESERVE: Mode = (4459, 4464);
/// Preserves the signs of zeros, infinities and NaN.
pub(crate) const SIGNED_ZERO_INF_NAN_PRESERVE: Mode = (4461, 4466);
/// Rounds results to nearest, ties to even.
pub(crate) const ROUND_TO_EVEN: Mode = (4462, 4467);

/// A mode that the driver supports for floats of this width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatControl {
    pub(crate) mode: Mode,
    pub(crate) width: u32,
}

fn instruction(code: u32, operands: &[u32]) -> Vec<u32> {
    let mut words = vec![(operands.len() as u32 + 1) << 16 | code];
    words.extend(operands);
    words
}

/// A null-terminated string as words.
fn string(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
        .chunks_exact(4)
        .map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
        .collect()
}

/// The module with every float operation marked as exact, and with the requested controls for the float types that it
/// uses.
pub(crate) fn exact(module: &[u32], controls: &[FloatControl]) -> Vec<u32> {
    let (mut capabilities_end, mut modes_end) = (HEADER, HEADER);
    let mut first_decoration = None;
    let (mut entry, mut widths, mut decorations) = (None, Vec::new(), Vec::new());
    let mut at = HEADER;
    while let Some(&word) = module.get(at) {
        let (length, code) = (((word >> 16) as usize).max(1), word & 0xffff);
        let next = at + length;
        match code {
            CAPABILITY => capabilities_end = next,
            ENTRY_POINT => (entry, modes_end) = (module.get(at + 2).copied(), next),
            EXECUTION_MODE => modes_end = next,
            FLOAT_TYPE => widths.extend(module.get(at + 2)),
            DECORATE => first_decoration = first_decoration.or(Some(at)),
            _ => {}
        }
        if let (true, Some(&result)) = (ARITHMETIC.contains(&code), module.get(at + 2)) {
            decorations.extend(instruction(DECORATE, &[result, NO_CONTRACTION]));
        }
        at = next;
    }
    let (mut capabilities, mut modes): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for control in controls.iter().filter(|control| widths.contains(&control.width)) {
        let (Some(entry), (mode, capability)) = (entry, control.mode) else { break };
        let capability = instruction(CAPABILITY, &[capability]);
        if !capabilities.windows(2).any(|known| known == capability) {
            capabilities.extend(capability);
        }
        modes.extend(instruction(EXECUTION_MODE, &[entry, mode, control.width]));
    }
    if !capabilities.is_empty() {
        capabilities.extend(instruction(EXTENSION, &string("SPV_KHR_float_controls")));
    }
    // Bindings are decorated too, so there is at least one decoration.
    let first_decoration = first_decoration.unwrap_or(module.len());
    [
        &module[..capabilities_end],
        &capabilities,
        &module[capabilities_end..modes_end],
        &modes,
        &module[modes_end..first_decoration],
        &decorations,
        &module[first_decoration..],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_stands_where_it_belongs() {
        let header = [0x0723_0203, 0x10300, 0, 20, 0];
        let shader = instruction(CAPABILITY, &[1]);
        let memory = instruction(14, &[0, 1]);
        let entry = instruction(ENTRY_POINT, &[5, 3, 0x6e69_616d, 0]);
        let size = instruction(EXECUTION_MODE, &[3, 17, 64, 1, 1]);
        let (name, decorate) = (instruction(5, &[7, 0]), instruction(DECORATE, &[7, 33, 0]));
        let single = instruction(FLOAT_TYPE, &[1, 32]);
        // OpFAdd and OpIAdd.
        let (float, integer) = (instruction(129, &[1, 9, 2, 3]), instruction(128, &[1, 10, 2, 3]));
        let before = [&header[..], &shader, &memory, &entry, &size, &name].concat();
        let after = [&decorate[..], &single, &float, &integer].concat();
        let module = [&before[..], &after].concat();
        let added = instruction(DECORATE, &[9, NO_CONTRACTION]);
        assert_eq!(exact(&module, &[]), [&before[..], &added, &after].concat());

        let control = |mode, width| FloatControl { mode, width };
        let controls =
            [control(DENORM_PRESERVE, 32), control(DENORM_PRESERVE, 64), control(ROUND_TO_EVEN, 32)];
        let capabilities = [instruction(CAPABILITY, &[4464]), instruction(CAPABILITY, &[4467])].concat();
        let extension = instruction(EXTENSION, &string("SPV_KHR_float_controls"));
        let modes =
            [instruction(EXECUTION_MODE, &[3, 4459, 32]), instruction(EXECUTION_MODE, &[3, 4462, 32])]
                .concat();
        let expected = [
            &header[..],
            &shader,
            &capabilities,
            &extension,
            &memory,
            &entry,
            &size,
            &modes,
            &name,
            &added,
            &after,
        ];
        assert_eq!(exact(&module, &controls), expected.concat());
    }

    #[test]
    fn strings_end_in_a_zero() {
        assert_eq!(string("main"), [0x6e69_616d, 0]);
        assert_eq!(string("abc"), [0x0063_6261]);
    }
}
