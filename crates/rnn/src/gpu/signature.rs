//! What parameters a kernel takes, read from its source.

use crate::{NetworkError, Result};

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// Memory that is read.
    Read(String),
    /// Memory that is written.
    Written(String),
    /// A number.
    Scalar(String),
}

/// Where a word stands by itself.
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
    NetworkError::gpu(format!("{what}: give tensors of float and numbers of float, int or unsigned int"))
}

fn of_c(source: &str, entry: &str) -> Result<Vec<Parameter>> {
    let at = place(source, entry)
        .ok_or_else(|| unreadable(&format!("there is no kernel {entry} in the source")))?;
    let rest = &source[at + entry.len()..];
    let (open, close) = (rest.find('('), rest.find(')'));
    let (Some(open), Some(close)) = (open, close) else {
        return Err(unreadable(&format!("kernel {entry} has no list of parameters")));
    };
    let list = rest.get(open + 1..close).unwrap_or_default();
    let mut parameters = Vec::new();
    for parameter in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let words: Vec<&str> =
            parameter.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect();
        let name = words.last().copied().unwrap_or("parameter").to_owned();
        let has = |word: &str| words.contains(&word);
        parameters.push(if !parameter.contains('*') {
            Parameter::Scalar(name)
        } else if !has("float") {
            return Err(unreadable(&format!("parameter {parameter:?} is not of float")));
        } else if has("const") {
            Parameter::Read(name)
        } else {
            Parameter::Written(name)
        });
    }
    Ok(parameters)
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
        match kind.0.replace(' ', "").as_str() {
            "storage,read" | "storage" => bound.push((number, Parameter::Read(name))),
            "storage,read_write" => bound.push((number, Parameter::Written(name))),
            "uniform" => {
                let own =
                    kind.1.split(':').nth(1).and_then(|t| t.split(';').next()).unwrap_or_default().trim();
                let body = source.split_once(&format!("struct {own}")).and_then(|(_, b)| b.split_once('{'));
                let body = body.and_then(|(_, b)| b.split_once('}')).map(|(b, _)| b);
                let members = body.ok_or_else(|| unreadable("the uniform is no structure"))?;
                let names =
                    members.split(',').filter_map(|m| m.split_once(':')).map(|(n, _)| n.trim().to_owned());
                scalars.extend(names.map(Parameter::Scalar));
            }
            other => return Err(unreadable(&format!("a binding var<{other}>"))),
        }
    }
    bound.sort_by_key(|(number, _)| *number);
    Ok(bound.into_iter().map(|(_, parameter)| parameter).chain(scalars).collect())
}
