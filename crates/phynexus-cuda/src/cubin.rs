//! Reads kernel parameters from the ELF sections of machine code: `.nv.info.NAME` has a record for each parameter.
//!
//! The driver reads as many arguments as the kernel has parameters, regardless of how many are passed, so they are
//! compared first. No driver function reports them on every version.

use phynexus::custom::CustomKernel;

/// The prefix of sections that describe a kernel.
const SECTION: &str = ".nv.info.";
/// The attribute of a parameter: an index, its ordinal, its offset, and flags with its size from bit 18 on.
const PARAMETER: u8 = 0x17;
/// The format of attributes whose value has the length that follows.
const SIZED: u8 = 4;

/// The parameter sizes in bytes of each kernel in machine code, by kernel name.
fn kernels(code: &[u8]) -> Option<Vec<(String, Vec<usize>)>> {
    let table = usize::try_from(u64::from_le_bytes(*code.get(0x28..)?.first_chunk()?)).ok()?;
    let [entry, count, names] = [0x3a, 0x3c, 0x3e].map(|at| half(code, at));
    let section = |number: usize| code.get(table.checked_add(number * usize::from(entry?))?..);
    let content = |number: usize| {
        let header = section(number)?;
        let [start, size] =
            [0x18, 0x20].map(|at| header.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b)));
        let start = usize::try_from(start?).ok()?;
        code.get(start..start.checked_add(usize::try_from(size?).ok()?)?)
    };
    let all_names = content(names?.into())?;
    let mut found = Vec::new();
    for number in 0..usize::from(count?) {
        let name = all_names.get(word(section(number)?, 0)? as usize..)?;
        let name = std::str::from_utf8(name.split(|&byte| byte == 0).next()?).ok()?;
        if let Some(kernel) = name.strip_prefix(SECTION) {
            found.push((kernel.to_owned(), parameters(content(number)?)?));
        }
    }
    Some(found)
}

/// The parameter sizes in a kernel's attributes, in order.
fn parameters(mut attributes: &[u8]) -> Option<Vec<usize>> {
    let mut sizes = Vec::new();
    while let Some((&[format, attribute, low, high], rest)) = attributes.split_first_chunk() {
        let length = if format == SIZED { u16::from_le_bytes([low, high]).into() } else { 0 };
        let (value, others) = rest.split_at_checked(length)?;
        attributes = others;
        if format == SIZED && attribute == PARAMETER {
            sizes.push((half(value, 4)?, (word(value, 8)? >> 18) as usize));
        }
    }
    sizes.sort_unstable();
    Some(sizes.into_iter().map(|(_, size)| size).collect())
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Compares a kernel's signature with its machine code.
///
/// # Errors
/// A description of the difference.
pub(crate) fn check(code: &[u8], kernel: &CustomKernel) -> Result<(), String> {
    let all = kernels(code).ok_or("the compiler produced machine code in an unknown format")?;
    kernel.check_parameters(&all)
}

#[cfg(test)]
mod tests {
    use phynexus::DType;

    use super::*;
    use crate::compile::tests::compiler;

    const SOURCE: &str = r#"
        extern "C" __global__ void scaled(const float* x, float* y, double by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[i] * by;
        }
        extern "C" __global__ void unused(const float*, float*, double, int) {}"#;

    fn kernel(entry: &str, scalars: &[DType]) -> CustomKernel {
        let mut builder = CustomKernel::builder(entry)
            .input("x", DType::F32, "n")
            .output("y", DType::F32, "n")
            .source(crate::CUDA_C, SOURCE);
        for (at, dtype) in scalars.iter().enumerate() {
            builder = builder.scalar(&format!("s{at}"), *dtype);
        }
        builder.build().unwrap()
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn signatures_are_compared_with_machine_code() {
        let code = compiler().compile_source(SOURCE).unwrap();
        let check = |entry, scalars: &[DType]| check(&code, &kernel(entry, scalars));
        assert_eq!(check("scaled", &[DType::F64, DType::I32]), Ok(()));
        assert_eq!(check("unused", &[DType::F64, DType::I32]), Ok(()));
        let missing = check("absent", &[]).unwrap_err();
        assert!(missing.contains("no kernel absent") && missing.contains("scaled"), "{missing}");
        assert!(
            check("scaled", &[]).unwrap_err().contains("takes 4 parameters, the kernel's signature has 2")
        );
        assert!(check("scaled", &[DType::F32, DType::I32]).unwrap_err().contains("s0"));
        assert!(check("scaled", &[DType::I32, DType::F64]).is_err());
    }

    #[test]
    fn what_is_not_machine_code_is_refused() {
        let kernel = kernel("scaled", &[]);
        assert!(super::check(b"", &kernel).is_err() && super::check(&[0xff; 400], &kernel).is_err());
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn damaged_machine_code_is_refused() {
        let kernel = kernel("scaled", &[]);
        let code = compiler().compile_source(SOURCE).unwrap();
        for end in (0..code.len()).step_by(37) {
            assert!(super::check(&code[..end], &kernel).is_err());
        }
    }
}
