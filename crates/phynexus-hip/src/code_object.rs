//! Reads kernel parameters from the metadata of an AMDGPU code object: a MessagePack document in a note of the ELF
//! file. The format, since code object version 3, is defined in LLVM's "User Guide for AMDGPU Backend".
//!
//! The runtime reads as many argument bytes as the kernel's parameters take, regardless of how many are passed, so they
//! are compared first.

use phynexus::custom::CustomKernel;

use crate::{message_pack::Reader, parameters::Packed};

/// The start of a 64-bit little-endian ELF file.
const ELF: &[u8] = b"\x7fELF\x02\x01";
/// The type of a note segment.
const NOTES: usize = 4;
/// The owner and type of the note that holds the metadata.
const OWNER: &[u8] = b"AMDGPU\0";
const METADATA: usize = 32;

/// A kernel parameter, in bytes.
struct Parameter {
    start: usize,
    size: usize,
    /// Whether the runtime adds it to the kernel's own parameters.
    hidden: bool,
}

/// A kernel and its own parameters, in order.
struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
}

/// A little-endian integer of this many bytes.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes: &[u8; BYTES] = bytes.get(at..)?.first_chunk()?;
    usize::try_from(bytes.iter().rev().fold(0, |number, &byte| (number << 8) | u64::from(byte))).ok()
}

/// The metadata in machine code.
fn metadata(code: &[u8]) -> Option<&[u8]> {
    if !code.starts_with(ELF) {
        return None;
    }
    let (table, size) = (number::<8>(code, 0x20)?, number::<2>(code, 0x36)?);
    for segment in 0..number::<2>(code, 0x38)? {
        let header = code.get(table.checked_add(segment * size)?..)?;
        if number::<4>(header, 0)? == NOTES {
            let (start, bytes) = (number::<8>(header, 8)?, number::<8>(header, 0x20)?);
            if let Some(found) = note(code.get(start..start.checked_add(bytes)?)?) {
                return Some(found);
            }
        }
    }
    None
}

/// The metadata in a segment of notes.
fn note(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (name, bytes) = (number::<4>(notes, 0)?, number::<4>(notes, 4)?);
        let kind = number::<4>(notes, 8)?;
        let names = notes.get(12..)?;
        let contents = names.get(name.checked_next_multiple_of(4)?..)?;
        if kind == METADATA && names.get(..name)? == OWNER {
            return contents.get(..bytes);
        }
        notes = contents.get(bytes.checked_next_multiple_of(4)?..)?;
    }
}

/// The kernels in machine code.
fn kernels(code: &[u8]) -> Option<Vec<Kernel>> {
    let mut found = Vec::new();
    Reader::new(metadata(code)?).map(|reader, key| match key {
        b"amdhsa.kernels" => reader.sequence(|reader| {
            found.push(kernel(reader)?);
            Some(())
        }),
        _ => reader.skip(),
    })?;
    Some(found)
}

fn kernel(reader: &mut Reader<'_>) -> Option<Kernel> {
    let (mut name, mut parameters) = (None, Vec::new());
    reader.map(|reader, key| match key {
        b".name" => {
            name = Some(reader.text()?);
            Some(())
        }
        // Absent if the kernel has no parameters.
        b".args" => reader.sequence(|reader| {
            parameters.push(parameter(reader)?);
            Some(())
        }),
        _ => reader.skip(),
    })?;
    parameters.retain(|parameter: &Parameter| !parameter.hidden);
    parameters.sort_by_key(|parameter| parameter.start);
    Some(Kernel { name: String::from_utf8_lossy(name?).into_owned(), parameters })
}

fn parameter(reader: &mut Reader<'_>) -> Option<Parameter> {
    let (mut start, mut size, mut kind) = (None, None, None);
    reader.map(|reader, key| {
        match key {
            b".offset" => start = Some(reader.size()?),
            b".size" => size = Some(reader.size()?),
            b".value_kind" => kind = Some(reader.text()?),
            _ => reader.skip()?,
        }
        Some(())
    })?;
    Some(Parameter { start: start?, size: size?, hidden: kind?.starts_with(b"hidden_") })
}

/// Compares a kernel's signature with its machine code.
///
/// # Errors
/// A description of the difference.
pub(crate) fn check(code: &[u8], kernel: &CustomKernel) -> Result<(), String> {
    let all = kernels(code).ok_or("the compiler produced machine code in an unknown format")?;
    let signature = |own: &Kernel| (own.name.clone(), own.parameters.iter().map(|p| p.size).collect());
    let signatures: Vec<(String, Vec<usize>)> = all.iter().map(signature).collect();
    kernel.check_parameters(&signatures)?;
    // Arguments are passed as bytes, so offsets are compared too: a structure's alignment may differ from that of a
    // number of the same size.
    let entry = kernel.entry_point();
    let own = all.iter().filter(|own| own.name == entry).flat_map(|own| &own.parameters);
    let mut end = 0;
    for (parameter, own) in kernel.parameters().iter().zip(own) {
        let expected = Packed::start(end, own.size);
        if own.start != expected {
            let (name, start) = (&parameter.name, own.start);
            return Err(format!(
                "the parameter {name} of {entry} begins at byte {start}, the signature's at byte {expected}"
            ));
        }
        end = expected + own.size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use phynexus::DType;

    use super::*;
    use crate::{compile::Compiler, library::hip};

    const SOURCE: &str = r#"
        extern "C" __global__ void scaled(const float* x, float* y, double by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[i] * by;
        }
        extern "C" __global__ void unused(const float*, float*, double, int) {}
        struct Pair { int first, second; };
        extern "C" __global__ void paired(const float*, float*, int, Pair) {}"#;

    fn kernel(entry: &str, scalars: &[DType]) -> CustomKernel {
        let mut builder = CustomKernel::builder(entry)
            .input("x", DType::F32, "n")
            .output("y", DType::F32, "n")
            .source(crate::HIP_C, SOURCE);
        for (at, dtype) in scalars.iter().enumerate() {
            builder = builder.scalar(&format!("s{at}"), *dtype);
        }
        builder.build().unwrap()
    }

    fn text(text: &str) -> Vec<u8> {
        assert!(text.len() < 32);
        let mut bytes = vec![0xa0 | text.len() as u8];
        bytes.extend(text.as_bytes());
        bytes
    }

    /// A sequence with a two-byte length, as used for long ones.
    fn sequence(values: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0xdc, 0, values.len() as u8];
        bytes.extend(values.concat());
        bytes
    }

    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        assert!(entries.len() < 16);
        let mut bytes = vec![0x80 | entries.len() as u8];
        for (key, value) in entries {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        bytes
    }

    /// The metadata of a parameter, with unused entries between those that are read.
    fn parameter(start: u8, size: u8, kind: &str) -> Vec<u8> {
        map(&[
            (".address_space", text("global")),
            (".offset", vec![start]),
            (".is_const", vec![0xc3]),
            (".size", vec![0xcc, size]),
            (".value_kind", text(kind)),
        ])
    }

    /// The metadata of a kernel, with its parameters before its name.
    fn named(name: &str, parameters: Option<&[Vec<u8>]>) -> Vec<u8> {
        let mut entries = vec![(".agpr_count", vec![0])];
        entries.extend(parameters.map(|parameters| (".args", sequence(parameters))));
        entries.push((".language_version", sequence(&[vec![2], vec![0]])));
        entries.push((".name", text(name)));
        entries.push((".symbol", text(&format!("{name}.kd"))));
        map(&entries)
    }

    /// A code object with these kernels: an ELF file with one segment of two notes.
    fn object(kernels: &[Vec<u8>]) -> Vec<u8> {
        let document = map(&[
            ("amdhsa.target", text("amdgcn-amd-amdhsa--gfx90a")),
            ("amdhsa.kernels", sequence(kernels)),
            ("amdhsa.version", sequence(&[vec![1], vec![1]])),
        ]);
        let note = |owner: &[u8], kind: u32, contents: &[u8]| {
            let mut note: Vec<u8> = Vec::new();
            let lengths = [owner.len() as u32, contents.len() as u32, kind];
            lengths.iter().for_each(|number| note.extend(number.to_le_bytes()));
            for part in [owner, contents] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [note(b"GNU\0", 3, b"an id"), note(OWNER, METADATA as u32, &document)].concat();
        let (header, segment) = (64usize, 56usize);
        let mut object = vec![0; header + segment];
        let mut set = |at: usize, bytes: &[u8]| object[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, ELF);
        set(0x20, &(header as u64).to_le_bytes());
        set(0x36, &(segment as u16).to_le_bytes());
        set(0x38, &1u16.to_le_bytes());
        set(header, &(NOTES as u32).to_le_bytes());
        set(header + 8, &((header + segment) as u64).to_le_bytes());
        set(header + 0x20, &(notes.len() as u64).to_le_bytes());
        object.extend(notes);
        object
    }

    /// The code object as the compiler produces it from the source.
    fn whole() -> Vec<u8> {
        let pointers = [parameter(0, 8, "global_buffer"), parameter(8, 8, "global_buffer")];
        let with = |others: &[Vec<u8>]| [&pointers[..], others].concat();
        let numbers = [parameter(16, 8, "by_value"), parameter(24, 4, "by_value")];
        let hidden = [parameter(32, 4, "hidden_block_count_x"), parameter(36, 2, "hidden_group_size_x")];
        let pair = [parameter(16, 4, "by_value"), parameter(20, 8, "by_value")];
        object(&[
            named("scaled", Some(&with(&[&numbers[..], &hidden].concat()))),
            named("unused", Some(&with(&numbers))),
            named("paired", Some(&with(&pair))),
            named("idle", None),
        ])
    }

    fn signatures_are_compared(code: &[u8]) {
        let check = |entry, scalars: &[DType]| check(code, &kernel(entry, scalars));
        assert_eq!(check("scaled", &[DType::F64, DType::I32]), Ok(()));
        assert_eq!(check("unused", &[DType::F64, DType::I32]), Ok(()));
        let missing = check("absent", &[]).unwrap_err();
        assert!(missing.contains("no kernel absent") && missing.contains("scaled"), "{missing}");
        assert!(
            check("scaled", &[]).unwrap_err().contains("takes 4 parameters, the kernel's signature has 2")
        );
        let other = check("scaled", &[DType::F32, DType::I32]).unwrap_err();
        let expected = "the parameter s0 of scaled has 8 bytes, the signature's float32 has 4: declare it as float, or \
                        change the signature";
        assert_eq!(other, expected);
        assert!(check("scaled", &[DType::I32, DType::F64]).is_err());
        // A structure of two 32-bit numbers has the size of a 64-bit number, but a smaller alignment.
        let elsewhere = check("paired", &[DType::I32, DType::U64]).unwrap_err();
        assert_eq!(elsewhere, "the parameter s1 of paired begins at byte 20, the signature's at byte 24");
    }

    #[test]
    fn signatures_are_compared_with_machine_code() {
        signatures_are_compared(&whole());
        let idle = check(&whole(), &kernel("idle", &[])).unwrap_err();
        assert_eq!(idle, "idle takes 0 parameters, the kernel's signature has 2");
    }

    #[test]
    #[ignore = "needs hipRTC"]
    fn what_the_compiler_makes_is_read() {
        // hipRTC needs no GPU.
        let hip = hip().expect("hipRTC");
        let code = Compiler::of_sources(hip, "gfx90a").machine_code(SOURCE).unwrap();
        signatures_are_compared(&code);
    }

    #[test]
    fn damaged_machine_code_is_refused() {
        let (code, kernel) = (whole(), kernel("scaled", &[DType::F64, DType::I32]));
        assert_eq!(check(&code, &kernel), Ok(()));
        assert!(check(b"", &kernel).is_err() && check(&[0xff; 400], &kernel).is_err());
        for end in 0..code.len() {
            assert!(check(&code[..end], &kernel).is_err(), "cut off at {end}");
        }
        // Corrupted bytes never cause a panic.
        for at in 0..code.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xc1, 0xc6, 0xdb, 0xdd, 0xdf, 0xff] {
                let mut damaged = code.clone();
                damaged[at] = byte;
                let _ = check(&damaged, &kernel);
            }
        }
    }
}
