//! Compares the types of a kernel's parameters, as the driver reports them, with the signature.

use phynexus::{
    DType,
    custom::{Parameter, ParameterKind},
};

/// Returns an error if the type `name` does not match the parameter of the kernel `entry`. User-defined type names are
/// not checked.
pub(super) fn check_type(name: &str, parameter: &Parameter, entry: &str) -> Result<(), String> {
    let name: String = name.split_whitespace().collect();
    let bare = name.trim_end_matches('*');
    let bare = bare.strip_prefix("const").unwrap_or(bare);
    let element = bare.trim_end_matches(|c: char| c.is_ascii_digit());
    let Some(dtypes) = dtypes(element) else { return Ok(()) };
    let is_scalar = parameter.kind == ParameterKind::Scalar;
    // Unsigned integers may hold a tensor's bits, for atomic operations and plain copies.
    if !is_scalar && dtypes.first().is_some_and(|own| is_word(*own) && own.size() >= parameter.dtype.size()) {
        return Ok(());
    }
    // A tensor may be read as vectors; a scalar has a single element.
    if dtypes.contains(&parameter.dtype) && !(is_scalar && element.len() < bare.len()) {
        return Ok(());
    }
    let (kind, own, dtype) = (parameter.kind, &parameter.name, parameter.dtype);
    let right = declaration(parameter);
    Err(format!(
        "the parameter {own} of {entry} is {name}, but the {kind:?} {own} of the signature is {dtype}: declare it as {right}, \
         or change the signature"
    ))
}

/// The declaration of a parameter in OpenCL C.
pub(super) fn declaration(parameter: &Parameter) -> String {
    let name = match parameter.dtype {
        DType::Bool | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => "uchar",
        DType::U16 | DType::BF16 => "ushort",
        DType::U32 => "uint",
        DType::U64 => "ulong",
        DType::I8 => "char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long",
        DType::F16 => "half",
        DType::F32 => "float",
        DType::F64 => "double",
    };
    match parameter.kind {
        ParameterKind::Scalar => name.to_owned(),
        ParameterKind::Input => format!("__global const {name}*"),
        ParameterKind::Output => format!("__global {name}*"),
    }
}

/// The dtypes that a type of OpenCL C may hold; `None` for unknown names.
fn dtypes(name: &str) -> Option<&'static [DType]> {
    let held: &[DType] = match name {
        "char" | "signedchar" => &[DType::I8, DType::Bool],
        "uchar" | "unsignedchar" => &[DType::U8, DType::Bool, DType::F8E4M3, DType::F8E5M2],
        "bool" => &[DType::Bool],
        "short" => &[DType::I16],
        "ushort" | "unsignedshort" => &[DType::U16, DType::F16, DType::BF16],
        "int" => &[DType::I32],
        "uint" | "unsignedint" | "unsigned" => &[DType::U32],
        "long" => &[DType::I64],
        "ulong" | "unsignedlong" => &[DType::U64],
        "half" => &[DType::F16],
        "float" => &[DType::F32],
        "double" => &[DType::F64],
        _ => return None,
    };
    Some(held)
}

fn is_word(dtype: DType) -> bool {
    matches!(dtype, DType::U16 | DType::U32 | DType::U64)
}

#[cfg(test)]
mod tests {
    use phynexus::custom::CustomKernel;

    use super::*;

    #[test]
    fn types_of_the_language_are_compared_and_others_are_not() {
        let kernel = CustomKernel::builder("k")
            .input("x", DType::F32, "n")
            .output("y", DType::U8, "n")
            .scalar("n", DType::I32)
            .source(crate::OPENCL_C, "")
            .build()
            .unwrap();
        let check = |at: usize, name: &str| check_type(name, &kernel.parameters()[at], "k");
        for (at, name) in [
            (0, "float*"),
            (0, "float4*"),
            (0, "const float *"),
            (0, "real*"),
            (0, "uint*"),
            (1, "uint4*"),
            (0, "void*"),
            (1, "uchar*"),
            (1, "unsigned char*"),
            (2, "int"),
            (2, "index"),
        ] {
            assert_eq!(check(at, name), Ok(()), "{name}");
        }
        let expected = "the parameter x of k is int*, but the Input x of the signature is float32: declare it as \
                        __global const float*, or change the signature";
        assert_eq!(check(0, "int*").unwrap_err(), expected);
        for (at, name) in [
            (0, "double*"),
            (0, "ushort*"),
            (1, "float*"),
            (1, "char*"),
            (2, "uint"),
            (2, "int2"),
            (2, "long"),
        ] {
            assert!(check(at, name).is_err(), "{name}");
        }
    }
}
