//! Compares the types that a shader declares with the signature.

use phynexus::{
    DType,
    custom::{CustomKernel, Parameter, ParameterKind, SourceLanguage},
};
use wgpu::naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner};

use crate::language::SPIR_V;

/// Returns an error if the elements of the variable `called` do not match the signature's tensor bound to it.
pub(super) fn check_elements(
    module: &Module,
    ty: Handle<Type>,
    called: &str,
    tensor: &Parameter,
    language: SourceLanguage,
) -> Result<(), String> {
    let mut other = None;
    visit(module, ty, 0, 1, &mut |_, number, is_atomic| {
        if !holds(tensor.dtype, number, is_atomic, language) {
            other = Some(number);
        }
    });
    let Some(other) = other else { return Ok(()) };
    let (kind, name, dtype) = (tensor.kind, &tensor.name, tensor.dtype);
    let (own, right) = (spelled(other), array(dtype));
    Err(format!(
        "{called} has elements of {own}, but the {kind:?} {name} of the signature is {dtype}: declare it as {right}, or \
         change the signature"
    ))
}

/// Returns an error if the members of the scalars structure do not match the signature, in order.
pub(super) fn check_scalars(
    module: &Module,
    ty: Handle<Type>,
    called: &str,
    kernel: &CustomKernel,
) -> Result<(), String> {
    let mut members = Vec::new();
    visit(module, ty, 0, u32::MAX, &mut |start, number, _| members.push((start, number)));
    let scalars = kernel.parameters().iter().filter(|parameter| parameter.kind == ParameterKind::Scalar);
    for (at, scalar) in scalars.enumerate() {
        let (start, name, dtype) = (4 * at as u32, &scalar.name, scalar.dtype);
        let own = members.iter().find(|(place, _)| *place == start).map(|(_, number)| *number);
        if own.is_some() && own == of(dtype) {
            continue;
        }
        let there = own.map_or("nothing".to_owned(), spelled);
        let right = of(dtype).map_or_else(|| dtype.to_string(), spelled);
        return Err(format!(
            "{called} has {there} at byte {start}, but the signature's scalar {name} is {dtype}: declare the member there as \
             {name}: {right}, or change the signature"
        ));
    }
    Ok(())
}

/// Returns an error if an output of the signature has no variable: it would never be written.
pub(super) fn check_outputs(
    tensors: &[&Parameter],
    bindings: &[u32],
    language: SourceLanguage,
) -> Result<(), String> {
    for (at, tensor) in tensors.iter().enumerate() {
        // An output that starts as zeros or as a copy may stay unwritten.
        let needed = tensor.kind == ParameterKind::Output && !tensor.zeroed && !tensor.copied;
        if !needed || bindings.contains(&(at as u32)) {
            continue;
        }
        let (name, dtype) = (&tensor.name, tensor.dtype);
        let how = match language {
            SPIR_V => format!("a StorageBuffer at DescriptorSet 0, Binding {at}"),
            _ => format!("@group(0) @binding({at}) var<storage, read_write> {name}: {}", array(dtype)),
        };
        return Err(format!(
            "the Output {name} of {dtype} must be written, but the shader does not declare it: {how}"
        ));
    }
    Ok(())
}

/// Calls `see` for every number in a type with its byte offset, its type, and whether it is atomic. Visits at most
/// `most` elements of an array, and one of a runtime-sized array.
fn visit(module: &Module, ty: Handle<Type>, start: u32, most: u32, see: &mut dyn FnMut(u32, Scalar, bool)) {
    match &module.types[ty].inner {
        TypeInner::Scalar(number) => see(start, *number, false),
        TypeInner::Atomic(number) => see(start, *number, true),
        TypeInner::Vector { size, scalar } => {
            (0..*size as u32).for_each(|at| see(start + at * u32::from(scalar.width), *scalar, false));
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            let (rows, width) = (*rows as u32, u32::from(scalar.width));
            // A column of three takes the space of four.
            let stride = width * rows.next_power_of_two();
            for column in 0..*columns as u32 {
                (0..rows).for_each(|row| see(start + column * stride + row * width, *scalar, false));
            }
        }
        TypeInner::Array { base, size, stride } => {
            let count = match size {
                ArraySize::Constant(count) => count.get().min(most),
                ArraySize::Pending(_) | ArraySize::Dynamic => 1,
            };
            (0..count).for_each(|at| visit(module, *base, start + at * stride, most, see));
        }
        TypeInner::Struct { members, .. } => {
            members.iter().for_each(|member| visit(module, member.ty, start + member.offset, most, see));
        }
        // No other types occur in buffers.
        _ => {}
    }
}

/// The shader type of this dtype.
fn of(dtype: DType) -> Option<Scalar> {
    let kind = match dtype {
        DType::I32 | DType::I64 => ScalarKind::Sint,
        DType::U32 | DType::U64 => ScalarKind::Uint,
        DType::F16 | DType::F32 | DType::F64 => ScalarKind::Float,
        DType::Bool | DType::U8 | DType::U16 | DType::I8 | DType::I16 | DType::BF16 => return None,
        DType::F8E4M3 | DType::F8E5M2 => return None,
    };
    Some(Scalar { kind, width: dtype.size() as u8 })
}

/// Whether a shader's numbers are a tensor's elements, or words that contain them.
fn holds(dtype: DType, number: Scalar, is_atomic: bool, language: SourceLanguage) -> bool {
    let is_word = number.width == 4 && matches!(number.kind, ScalarKind::Sint | ScalarKind::Uint);
    // Compilers to SPIR-V may treat every buffer as words.
    let is_plain = language == SPIR_V && number.kind == ScalarKind::Uint;
    // Atomics exist only for integers; other types use their bits.
    of(dtype) == Some(number) || is_word && (is_atomic || is_plain || dtype.size() != 4)
}

/// The WGSL name of a number type.
fn spelled(number: Scalar) -> String {
    let letter = match number.kind {
        ScalarKind::Sint => "i",
        ScalarKind::Uint => "u",
        ScalarKind::Float => "f",
        ScalarKind::Bool | ScalarKind::AbstractInt | ScalarKind::AbstractFloat => {
            return format!("{:?}", number.kind);
        }
    };
    format!("{letter}{}", 8 * u32::from(number.width))
}

/// The WGSL type for a tensor.
fn array(dtype: DType) -> String {
    match of(dtype) {
        Some(number) if dtype.size() == 4 => format!("array<{}>", spelled(number)),
        Some(number) => format!("array<{}>, or array<u32> with its bytes", spelled(number)),
        None => format!("array<u32>, words with {} elements each", 4 / dtype.size()),
    }
}

#[cfg(test)]
mod tests {
    use phynexus::custom::CustomKernelBuilder;

    use super::*;
    use crate::{
        language::WGSL,
        source::{declared, read},
    };

    const SHADER: &str = "struct Scalars { n: i32, c: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(256)
fn kernel() { y[0] = f32(x[0]) + f32(scalars.n) + f32(scalars.c); }";

    fn signature(x: DType, y: DType) -> CustomKernelBuilder {
        CustomKernel::builder("kernel").input("x", x, "n").output("y", y, "n")
    }

    fn outcome(builder: CustomKernelBuilder, shader: &str) -> Result<(), String> {
        let kernel = builder.source(WGSL, shader).build().unwrap();
        let (module, info) = read(kernel.source(WGSL).unwrap())?;
        declared(&kernel, module, &info, WGSL).map(drop)
    }

    fn with_scalars(builder: CustomKernelBuilder) -> CustomKernelBuilder {
        builder.scalar("n", DType::I32).scalar("c", DType::F32)
    }

    #[test]
    fn types_that_are_not_the_signatures_are_told_with_the_remedy() {
        let floats = || with_scalars(signature(DType::F32, DType::F32));
        assert_eq!(outcome(floats(), SHADER), Ok(()));
        let changed = |from: &str, to: &str| {
            let shader = SHADER.replace(from, to);
            assert_ne!(shader, SHADER);
            outcome(floats(), &shader).unwrap_err()
        };
        let cases = [
            (
                changed("x: array<f32>", "x: array<i32>"),
                "x has elements of i32, but the Input x of the signature is float32: declare it as array<f32>",
            ),
            (changed("x: array<f32>", "x: array<u32>"), "x has elements of u32"),
            (
                changed("var<storage, read> x", "var<storage, read_write> x"),
                "declare it as var<storage, read>",
            ),
            (
                changed("n: i32, c: f32", "n: u32, c: f32"),
                "has u32 at byte 0, but the signature's scalar n is int32",
            ),
            (
                changed("n: i32, c: f32", "c: f32, n: i32"),
                "has f32 at byte 0, but the signature's scalar n is int32",
            ),
            (
                changed("n: i32, c: f32", "n: i32, c: i32"),
                "has i32 at byte 4, but the signature's scalar c is float32: declare the member there as c: f32",
            ),
            (changed("n: i32, c: f32", "n: i32, c: f32, more: u32"), "the signature's scalars have 8"),
            (
                changed(
                    "@group(0) @binding(1) var<storage, read_write> y: array<f32>",
                    "var<private> y: array<f32, 1>",
                ),
                "the Output y of float32 must be written, but the shader does not declare it: @group(0) @binding(1)",
            ),
            (changed("binding(2)", "binding(3)"), "the signature has no parameter for scalars"),
        ];
        for (message, expected) in cases {
            assert!(message.contains(expected), "{message} should tell of: {expected}");
        }
    }

    #[test]
    fn vectors_structures_and_words_that_hold_elements_are_taken() {
        let shader = |x: &str, y: &str| {
            format!(
                "struct Pair {{ a: f32, b: f32 }}
struct Pairs {{ count: vec2<f32>, all: array<Pair> }}
@group(0) @binding(0) var<storage, read> x: {x};
@group(0) @binding(1) var<storage, read_write> y: {y};
@compute @workgroup_size(256)
fn kernel() {{}}"
            )
        };
        let taken = |x, declared_x: &str, y, declared_y: &str| {
            outcome(signature(x, y), &shader(declared_x, declared_y))
        };
        for floats in ["array<vec4<f32>>", "array<mat3x3<f32>>", "Pairs", "array<array<f32, 4>>"] {
            assert_eq!(taken(DType::F32, floats, DType::F32, "array<atomic<u32>>"), Ok(()), "{floats}");
            let told = taken(DType::I32, floats, DType::F32, "array<f32>").unwrap_err();
            assert!(told.contains("x has elements of f32") && told.contains("array<i32>"), "{told}");
        }
        assert_eq!(taken(DType::U8, "array<u32>", DType::I8, "array<i32>"), Ok(()));
        assert_eq!(taken(DType::BF16, "array<u32>", DType::F64, "array<vec2<u32>>"), Ok(()));
        let told = taken(DType::U8, "array<f32>", DType::F32, "array<f32>").unwrap_err();
        assert!(told.contains("array<u32>, words with 4 elements each"), "{told}");
    }
}
