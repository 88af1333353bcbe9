//! Checks the parameters of machine code against the signature.

use super::kernel::{CustomKernel, ParameterKind};
use crate::DType;

impl CustomKernel {
    /// Compares the signature with the machine code of a kernel in C++: the names of its kernels, each with the sizes
    /// of its parameters in bytes.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check_parameters(&self, kernels: &[(String, Vec<usize>)]) -> Result<(), String> {
        let entry = self.entry_point();
        let Some((_, sizes)) = kernels.iter().find(|(name, _)| name == entry) else {
            let names: Vec<&str> = kernels.iter().map(|(name, _)| name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!(
                "there is no kernel {entry}: declare it as extern \"C\" __global__ void {entry}(..); the kernels there: {there}"
            ));
        };
        if sizes.len() != self.parameters().len() {
            let (own, expected) = (sizes.len(), self.parameters().len());
            return Err(format!("{entry} takes {own} parameters, the kernel's signature has {expected}"));
        }
        for (parameter, &size) in self.parameters().iter().zip(sizes) {
            let (name, dtype) = (&parameter.name, parameter.dtype);
            let (expected, own, right) = match parameter.kind {
                ParameterKind::Scalar => (dtype.size(), dtype.name().to_owned(), in_c(dtype)),
                ParameterKind::Input | ParameterKind::Output => {
                    (size_of::<u64>(), format!("pointer to {dtype}"), "a pointer")
                }
            };
            if size != expected {
                return Err(format!(
                    "the parameter {name} of {entry} has {size} bytes, the signature's {own} has {expected}: declare it as \
                     {right}, or change the signature"
                ));
            }
        }
        Ok(())
    }
}

/// The C type of a scalar.
fn in_c(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I64 => "long long",
        DType::U64 => "unsigned long long",
        DType::F32 => "float",
        DType::F64 => "double",
        // The builder rejects scalars of these types.
        DType::Bool | DType::U8 | DType::U16 | DType::I8 | DType::I16 => dtype.name(),
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => dtype.name(),
    }
}
