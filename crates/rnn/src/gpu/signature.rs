//! The parameters of a kernel, read from its source.

use crate::{NetworkError, Result};

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// Memory that the kernel reads.
    Read(String),
    /// Memory that the kernel writes.
    Written(String),
    /// A scalar.
    Scalar(String, Number),
}

/// The type of a scalar. All have 32 bits, so only the source distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Float,
    Int,
    UInt,
}

impl Number {
    /// The name in C.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Number::Float => "float",
            Number::Int => "int",
            Number::UInt => "unsigned int",
        }
    }

    /// The type by the words of a declaration before the name.
    fn of(words: &[&str]) -> Option<Number> {
        let mut number = None;
        for word in words {
            number = match *word {
                "const" | "volatile" | "__private" | "private" => continue,
                "float" | "f32" => Some(Number::Float),
                "unsigned" | "uint" | "uint32_t" | "u32" => Some(Number::UInt),
                // As in unsigned int.
                "int" if number == Some(Number::UInt) => number,
                "int" | "signed" | "int32_t" | "i32" => Some(Number::Int),
                // Other types have other sizes, or are defined in the source.
                _ => return None,
            };
        }
        number
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect()
}

/// The position of a whole word.
fn place(source: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = source[..at].chars().next_back().is_none_or(|c| !part(c));
        let after = source[at + word.len()..].chars().next().is_none_or(|c| !part(c));
        !word.is_empty() && before && after
    })
}

/// The source without comments.
fn bare(source: &str) -> String {
    let (mut text, mut rest) = (String::new(), source);
    while let Some(at) = rest.find('/') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
        } else {
            text.push('/');
            rest = &rest[1..];
        }
    }
    text + rest
}

/// The parameters of a kernel in CUDA C, HIP C, OpenCL C or WGSL, in order.
pub(crate) fn parameters(source: &str, entry: &str, wgsl: bool) -> Result<Vec<Parameter>> {
    let source = bare(source);
    if wgsl { of_wgsl(&source) } else { of_c(&source, entry) }
}

fn unreadable(what: &str) -> NetworkError {
    NetworkError::gpu(format!("{what}: declare tensors of float and scalars of float, int or unsigned int"))
}

fn of_c(source: &str, entry: &str) -> Result<Vec<Parameter>> {
    let at = place(source, entry).ok_or_else(|| unreadable(&format!("the source has no kernel {entry}")))?;
    let rest = &source[at + entry.len()..];
    let list = rest.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(list, _)| list);
    let list = list.ok_or_else(|| unreadable(&format!("kernel {entry} has no parameter list")))?;
    list.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()).map(declared).collect()
}

/// A parameter as C declares it.
fn declared(parameter: &str) -> Result<Parameter> {
    let bare = parameter.split('[').next().unwrap_or_default();
    let all = words(bare);
    let name = all.last().copied().unwrap_or("parameter").to_owned();
    let before_star = bare.rsplit_once('*').map(|(before, _)| before);
    let Some(pointed) = before_star.or(parameter.contains('[').then_some(bare)) else {
        let number = Number::of(&all[..all.len().saturating_sub(1)]);
        let wrong = || unreadable(&format!("parameter {parameter:?} has an unsupported type"));
        return number.map(|number| Parameter::Scalar(name, number)).ok_or_else(wrong);
    };
    let words = words(pointed);
    let has = |word: &str| words.contains(&word);
    if !has("float") || has("__local") || has("local") || pointed.contains('*') {
        return Err(unreadable(&format!("parameter {parameter:?} is not a tensor of float")));
    }
    // A const after the star qualifies the pointer, not the memory.
    Ok(if has("const") { Parameter::Read(name) } else { Parameter::Written(name) })
}

/// The source after the name in a structure's declaration.
fn structure<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let declared = |part: &'a str| {
        let part = part.trim_start();
        place(part, name).filter(|at| *at == 0).map(|_| &part[name.len()..])
    };
    source.split("struct ").skip(1).find_map(declared)
}

fn of_wgsl(source: &str) -> Result<Vec<Parameter>> {
    let mut bound: Vec<(usize, Parameter)> = Vec::new();
    let mut scalars = Vec::new();
    for part in source.split("@binding(").skip(1) {
        let number = part.split(')').next().and_then(|n| n.trim().parse::<usize>().ok());
        let (Some(number), Some(kind)) =
            (number, part.split_once("var<").and_then(|(_, k)| k.split_once('>')))
        else {
            return Err(unreadable("a binding cannot be read"));
        };
        let name = kind.1.split(':').next().unwrap_or_default().trim().to_owned();
        let own = kind.1.split_once(':').and_then(|(_, t)| t.split(';').next()).unwrap_or_default().trim();
        let is_float = words(own).iter().any(|word| matches!(*word, "f32" | "vec2f" | "vec3f" | "vec4f"));
        match kind.0.replace(' ', "").as_str() {
            storage if storage.starts_with("storage") && !is_float => {
                return Err(unreadable(&format!("binding {name} of {own}")));
            }
            "storage,read" | "storage" => bound.push((number, Parameter::Read(name))),
            "storage,read_write" => bound.push((number, Parameter::Written(name))),
            "uniform" => {
                let body = structure(source, own).and_then(|rest| rest.split_once('{'));
                let body = body.and_then(|(_, b)| b.split_once('}')).map(|(b, _)| b);
                let members = body.ok_or_else(|| unreadable("the uniform is not a structure"))?;
                for (name, own) in members.split(',').filter_map(|member| member.split_once(':')) {
                    let wrong = || unreadable(&format!("member {} of {}", name.trim(), own.trim()));
                    let number = Number::of(&words(own)).ok_or_else(wrong)?;
                    scalars.push(Parameter::Scalar(name.trim().to_owned(), number));
                }
            }
            other => return Err(unreadable(&format!("a binding var<{other}>"))),
        }
    }
    bound.sort_by_key(|(number, _)| *number);
    Ok(bound.into_iter().map(|(_, parameter)| parameter).chain(scalars).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        Number::{Float, Int, UInt},
        *,
    };

    fn read(name: &str) -> Parameter {
        Parameter::Read(name.to_owned())
    }
    fn written(name: &str) -> Parameter {
        Parameter::Written(name.to_owned())
    }
    fn number(name: &str, number: Number) -> Parameter {
        Parameter::Scalar(name.to_owned(), number)
    }

    #[test]
    fn parameters_of_c_are_read() -> Result<()> {
        let source = "
            // void apply(float* not_this_one);
            __device__ float other(float x) { return x / 2; }
            extern \"C\" __global__ void __launch_bounds__(256) apply(
                const float* __restrict__ a, float const * b, /* the result, */ float* const out, const float list[],
                int n, const unsigned int m, unsigned k, float rate
            ) {}";
        let expected = [
            read("a"),
            read("b"),
            written("out"),
            read("list"),
            number("n", Int),
            number("m", UInt),
            number("k", UInt),
            number("rate", Float),
        ];
        assert_eq!(parameters(source, "apply", false)?, expected);
        let opencl = "__kernel void f(__global const float *a, __global float *b, const uint n) {}";
        assert_eq!(parameters(opencl, "f", false)?, [read("a"), written("b"), number("n", UInt)]);
        Ok(())
    }

    #[test]
    fn parameters_that_no_argument_fits_are_refused() {
        for list in [
            "double x",
            "long n",
            "unsigned long n",
            "size_t n",
            "int* a",
            "float4* a",
            "float** a",
            "__local float* a",
            "Settings settings",
        ] {
            let source = format!("__kernel void f({list}) {{}}");
            let error = parameters(&source, "f", false).expect_err(list).to_string();
            assert!(error.contains("declare tensors of float"), "{error}");
        }
        assert!(parameters("void g() {}", "f", false).is_err());
        assert!(parameters("void f", "f", false).is_err());
        assert_eq!(parameters("void f()", "f", false).ok(), Some(Vec::new()));
    }

    #[test]
    fn bindings_of_wgsl_are_read() -> Result<()> {
        let source = "
            struct Other { x: f32 }
            struct Scalars { n: i32, rate: f32, /* last */ m: u32, }
            @group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;
            @group(0) @binding(2) var<uniform> scalars: Scalars;
            @binding(0) @group(0) var<storage, read> input: array<f32>;
            @compute @workgroup_size(64) fn f() {}";
        let expected =
            [read("input"), written("output"), number("n", Int), number("rate", Float), number("m", UInt)];
        assert_eq!(parameters(source, "f", true)?, expected);
        for (from, to) in
            [("array<f32>", "array<u32>"), ("n: i32", "n: vec2<i32>"), ("<uniform>", "<workgroup>")]
        {
            assert!(parameters(&source.replace(from, to), "f", true).is_err(), "{to}");
        }
        Ok(())
    }
}
