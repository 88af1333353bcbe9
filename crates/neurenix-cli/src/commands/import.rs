//! `neurenix import`.

use std::{collections::BTreeMap, path::PathBuf};

use neurenix::{
    Error, Result,
    error::printable,
    onnx::{self, Description, Extent, Port},
};

use super::print_json;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The ONNX file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An input or output, as `--json` prints it.
#[derive(serde::Serialize)]
struct Value {
    name: String,
    dtype: Option<String>,
    /// Numbers, expressions of symbols, and `null` for what is not known.
    shape: Option<Vec<serde_json::Value>>,
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Listing<'a> {
    producer: &'a str,
    opsets: &'a BTreeMap<String, i64>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    parameters: usize,
    elements: u64,
    bytes: u64,
    operators: &'a BTreeMap<String, usize>,
    unsupported: &'a [String],
    contradiction: Option<&'a str>,
}

fn value(port: &Port) -> Value {
    let extent = |extent: &Extent| match extent {
        Extent::Fixed(size) => (*size).into(),
        Extent::Symbol(name) => name.as_str().into(),
        Extent::Unknown => serde_json::Value::Null,
    };
    Value {
        name: port.name.clone(),
        dtype: port.element.map(|element| format!("{element:?}").to_lowercase()),
        shape: port.shape.as_ref().map(|shape| shape.iter().map(extent).collect()),
    }
}

/// An input or output as a line.
fn line(port: &Port) -> String {
    let Value { name, dtype, shape } = value(port);
    let extent = |extent: &serde_json::Value| match extent {
        serde_json::Value::String(name) => name.clone(),
        serde_json::Value::Null => "?".to_owned(),
        size => size.to_string(),
    };
    let shape = shape.map_or("of unknown shape".to_owned(), |shape| {
        format!("[{}]", shape.iter().map(extent).collect::<Vec<_>>().join(", "))
    });
    let text = format!("{name}: {} {shape}", dtype.as_deref().unwrap_or("no tensor, or of an unknown type"));
    printable(&text).into_owned()
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    neurenix::register_cpu();
    let description = onnx::describe(&arguments.file)?;
    if arguments.json {
        print_json(&Listing {
            producer: &description.producer,
            opsets: &description.opsets,
            inputs: description.inputs.iter().map(value).collect(),
            outputs: description.outputs.iter().map(value).collect(),
            parameters: description.parameters,
            elements: description.elements,
            bytes: description.bytes,
            operators: &description.operators,
            unsupported: &description.unsupported,
            contradiction: description.contradiction.as_deref(),
        })?;
    } else {
        print(&description)?;
    }
    if !description.unsupported.is_empty() {
        return Err(onnx::Error::Unsupported(description.unsupported).into());
    }
    match description.contradiction {
        Some(what) => Err(Error::data("ONNX", what)),
        None => Ok(super::SUCCESS),
    }
}

fn print(description: &Description) -> Result<()> {
    let opsets: Vec<String> =
        description.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    say!("operators of {}", printable(&opsets.join(", ")))?;
    if !description.producer.is_empty() {
        say!("written by {}", printable(&description.producer))?;
    }
    for (title, ports) in [("inputs", &description.inputs), ("outputs", &description.outputs)] {
        say!("\n{title}")?;
        for port in ports {
            say!("  {}", line(port))?;
        }
    }
    let Description { parameters, elements, bytes, .. } = description;
    say!("\n{elements} parameters in {parameters} tensors; all stored tensors have {bytes} bytes")?;
    say!("\nnodes")?;
    let mut operators: Vec<(&String, &usize)> = description.operators.iter().collect();
    operators.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
    for (name, count) in operators {
        say!("  {count:>6} {}", printable(name))?;
    }
    Ok(())
}
