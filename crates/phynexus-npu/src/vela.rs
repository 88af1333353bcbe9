//! Arm's Ethos-U, through its compiler Vela.
//!
//! Ethos-U is a part of microcontrollers: what Vela compiles runs there, with Arm's firmware, not here. The result is
//! the file for the board and Vela's report: which operators the NPU takes, why it does not take the others, memory and
//! cycles. The numbers are Vela's estimates.
//!
//! Vela is the Python package `ethos-u-vela` (proven with 5.2.0).

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use neurenix_onnx::edit::Network;

use crate::{
    CompiledFile, Error, FileMemory, Place, Placed, Result, Search,
    library::Known,
    tflite::{self, Dialect, File},
    tool::{self, Folder, SEARCH_LIMIT},
};

/// How long Vela may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Vela quotes no names in its tables.
const DIALECT: Dialect = Dialect { plain_products: false, real_words: false, generated_names: true };

/// An Ethos-U and its number of multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Ethos-U55 with 32 to 256.
    U55(u32),
    /// Ethos-U65 with 256 or 512.
    U65(u32),
    /// Ethos-U85 with 128 to 2048.
    U85(u32),
}

impl Accelerator {
    /// All that Vela compiles for.
    pub const ALL: [Accelerator; 11] = [
        Accelerator::U55(32),
        Accelerator::U55(64),
        Accelerator::U55(128),
        Accelerator::U55(256),
        Accelerator::U65(256),
        Accelerator::U65(512),
        Accelerator::U85(128),
        Accelerator::U85(256),
        Accelerator::U85(512),
        Accelerator::U85(1024),
        Accelerator::U85(2048),
    ];

    /// The one of this name, such as `ethos-u55-128`.
    pub fn of_name(name: &str) -> Option<Accelerator> {
        Accelerator::ALL.into_iter().find(|accelerator| accelerator.name() == name)
    }

    /// Vela's name, such as `ethos-u55-128`.
    pub fn name(self) -> String {
        match self {
            Accelerator::U55(size) => format!("ethos-u55-{size}"),
            Accelerator::U65(size) => format!("ethos-u65-{size}"),
            Accelerator::U85(size) => format!("ethos-u85-{size}"),
        }
    }
}

/// Vela, if it is installed.
#[derive(Clone, Debug)]
pub struct Vela {
    program: PathBuf,
    version: String,
}

impl Vela {
    /// Vela as `search` finds it.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed.
    pub fn find(search: &Search) -> Result<Vela> {
        let program = search.tool("vela").ok_or_else(|| {
            let remedy =
                "vela, the compiler of Ethos-U, was not found; install it with `pip install ethos-u-vela`";
            Error::Missing(remedy.to_owned())
        })?;
        static VERSIONS: Known<String> = Known::new();
        let version = VERSIONS.get(program.display().to_string(), || Vela::version_of(&program));
        Ok(Vela { version: version.map_err(failed)?, program })
    }

    fn version_of(program: &Path) -> Result<String> {
        let folder = Folder::new()?;
        let printed = tool::run(program, &["--version".as_ref()], folder.path(), SEARCH_LIMIT)?;
        match printed.succeeded {
            true => Ok(printed.output.trim().to_owned()),
            false => Err(failed(printed.end())),
        }
    }

    /// The version, such as `5.2.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Compiles a network of fixed shapes, quantized to 8 bits or to 16 with weights of 8, and writes the result to
    /// `path`.
    ///
    /// # Errors
    /// If the network has no form in TFLite, if Vela refuses it, if a file cannot be read or written.
    pub fn compile(&self, network: &Network, accelerator: Accelerator, path: &Path) -> Result<CompiledFile> {
        let file = tflite::write_with(network, &tflite::value_types(network)?, DIALECT)?;
        let folder = Folder::new()?;
        let input = folder.write("network.tflite", &file.bytes)?;
        let config = accelerator.name();
        let arguments: [&OsStr; 7] = [
            "--accelerator-config".as_ref(),
            config.as_ref(),
            "--output-dir".as_ref(),
            folder.path().as_os_str(),
            "--show-cpu-operations".as_ref(),
            "--verbose-performance".as_ref(),
            input.as_os_str(),
        ];
        let printed = tool::run(&self.program, &arguments, folder.path(), LIMIT)?;
        if !printed.succeeded {
            return Err(failed(with_names(&printed.end(), &file)));
        }
        let names: Vec<String> = (fs::read_dir(folder.path()).into_iter().flatten().flatten())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let read = |is: &dyn Fn(&str) -> bool| {
            let name = names.iter().find(|name| is(name)).ok_or_else(|| failed(printed.end()))?;
            folder.read(name)
        };
        let compiled = read(&|name| name.ends_with("_vela.tflite"))?;
        let layers = table(&read(&|name| name.ends_with("_per-layer.csv"))?)?;
        let summary = table(&read(&|name| name.contains("_summary_"))?)?;
        let text = format!("{}\n{}", printed.output, printed.errors);
        let placement = placement(&file, network, &layers, &reasons(&text))?;
        fs::write(path, compiled).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let totals = summary.first().ok_or_else(|| failed("its summary is empty".to_owned()))?;
        let number = |key: &str| totals.get(key).and_then(|value| value.parse::<f64>().ok());
        // The summary has kibibytes.
        let bytes = |key: &str| (number(key).unwrap_or(0.0) * 1024.0).round() as u64;
        Ok(CompiledFile {
            path: path.to_owned(),
            placement,
            memory: FileMemory {
                sram: bytes("sram_memory_used"),
                dram: bytes("dram_memory_used"),
                flash: bytes("on_chip_flash_memory_used") + bytes("off_chip_flash_memory_used"),
            },
            cycles: number("cycles_total").map(|cycles| cycles as u64),
        })
    }
}

fn failed(message: String) -> Error {
    Error::Runtime { runtime: "Vela".to_owned(), message }
}

/// A text in which generated names of tensors are replaced by what they stand for.
fn with_names(text: &str, file: &File) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|letter| !is_name(letter)).unwrap_or(rest.len()));
        named.push_str(file.names.get(word).map_or(word, String::as_str));
        let (between, after) = after.split_at(after.find(is_name).unwrap_or(after.len()));
        named.push_str(between);
        rest = after;
    }
    named
}

/// The rows of a table of comma-separated values, by column. Vela quotes no values.
fn table(bytes: &[u8]) -> Result<Vec<HashMap<String, String>>> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let header = lines.next().map(cells).unwrap_or_default();
    let row = |line: &str| {
        let cells = cells(line);
        match cells.len() == header.len() {
            true => Ok(header.iter().cloned().zip(cells).collect()),
            false => Err(failed(format!("its table has a row of {} cells: {line}", cells.len()))),
        }
    };
    lines.map(row).collect()
}

/// Why Vela leaves operators to the CPU, by the name of their result. It prints
///
/// ```text
/// Warning (supported operators) operator: EXP, ofm: 'name'
/// Reason: Operation has tensor with unsupported DataType Float32 (other)
/// Feature-map dataTypes must be one of {"INT16", "INT32", "INT64", "INT8", "UINT8"}
/// ```
fn reasons(text: &str) -> HashMap<String, String> {
    let mut reasons = HashMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_warning = line.starts_with("Warning (") && line.contains("operator:");
        let Some((_, name)) = line.split_once("ofm: '").filter(|_| is_warning) else { continue };
        let mut parts = Vec::new();
        while let Some(part) = lines.next_if(|next| !next.trim().is_empty() && !next.starts_with("Warning")) {
            parts.push(part.trim().trim_start_matches("Reason: "));
        }
        reasons.insert(name.trim_end_matches('\'').to_owned(), parts.join("; "));
    }
    reasons
}

/// Where nodes run: on the CPU if Vela's table says so of an operator of theirs. It leaves the names of those as they
/// are; what it gives to the NPU, it merges, splits and names as it likes.
fn placement(
    file: &File,
    network: &Network,
    layers: &[HashMap<String, String>],
    reasons: &HashMap<String, String>,
) -> Result<Vec<Placed>> {
    if layers.is_empty() {
        return Err(failed("its table has no operators".to_owned()));
    }
    let made: HashSet<&str> = file.operators.iter().map(|operator| operator.output.as_str()).collect();
    let mut on_cpu = HashSet::new();
    for row in layers {
        match (row.get("Target").map(String::as_str), row.get("Name")) {
            (Some("NPU"), Some(_)) => {}
            (Some("CPU"), Some(name)) if made.contains(name.as_str()) => _ = on_cpu.insert(name.as_str()),
            _ => return Err(failed(format!("its table has an operator that the file lacks: {row:?}"))),
        }
    }
    Ok(tflite::placed(file, network, |operator| {
        let reason = reasons.get(&operator.output);
        match reason.is_some() || on_cpu.contains(operator.output.as_str()) {
            false => Place::Device,
            true => {
                let reason = reason.map_or("Vela gives no reason", String::as_str);
                Place::Cpu(format!("{}: {}", operator.operator, with_names(reason, file)))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::{
        Element, edit,
        proto::{GraphProto, ModelProto, OperatorSetIdProto},
    };

    use super::*;

    #[test]
    fn reports_are_read() {
        let text = "Warning: No memory mode specified.\n\nWarning (supported operators) operator: EXP, ofm: 'e_raw'\n\
                    Reason: Operation has tensor with unsupported DataType Float32\nMust be one of {\"INT8\"}\n\n\
                    Warning (supported operators) operator: DEQUANTIZE, ofm: 'a/real'\nReason: Unsupported opType\n";
        let found = reasons(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found["a/real"], "Unsupported opType");
        assert_eq!(
            found["e_raw"],
            "Operation has tensor with unsupported DataType Float32; Must be one of {\"INT8\"}"
        );
        let rows = table(b"Target,Name\nNPU,t1\nCPU,t2\n").unwrap();
        assert_eq!((rows.len(), rows[1]["Target"].as_str(), rows[1]["Name"].as_str()), (2, "CPU", "t2"));
        assert!(table(b"Target,Name\nCPU,a,b\n").unwrap_err().to_string().contains("3 cells"));
    }

    #[test]
    fn nodes_are_found_by_whatever_name_their_results_have() {
        phynexus_cpu::register();
        let graph = GraphProto {
            node: vec![
                edit::node("Exp", "first", &["t1, 'x'"], &["e, ofm: 'x'"], vec![]),
                edit::node("Relu", "second", &["e, ofm: 'x'"], &["y,NPU"], vec![]),
            ],
            input: vec![edit::info("t1, 'x'", Element::Float, &[1, 4])],
            output: vec![edit::info("y,NPU", Element::Float, &[1, 4])],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() };
        let network = Network::new(model).unwrap();
        let file = tflite::write_with(&network, &tflite::value_types(&network).unwrap(), DIALECT).unwrap();
        let [first, second] = &file.operators[..] else { panic!("{:?}", file.operators) };
        assert!([first, second].iter().all(|operator| operator.output.starts_with('t')));
        assert_eq!(file.names[&first.output], "e, ofm: 'x'");
        let text = format!(
            "Warning (supported operators) operator: EXP, ofm: '{0}'\nReason: Float32 ({0})\n",
            first.output
        );
        let placed = |rows: &str| {
            let rows = table(format!("Target,Name\n{rows}").as_bytes()).unwrap();
            placement(&file, &network, &rows, &reasons(&text))
        };
        let found = placed(&format!("CPU,{}\nNPU,{}_avgpool\n", first.output, second.output)).unwrap();
        assert_eq!((found[0].node.as_str(), found[1].node.as_str()), ("first", "second"));
        assert_eq!(found[0].place, Place::Cpu("EXP: Float32 (e, ofm: 'x')".to_owned()));
        assert_eq!(found[1].place, Place::Device);
        let found = placed(&format!("CPU,{}\nCPU,{}\n", first.output, second.output)).unwrap();
        assert_eq!(found[1].place, Place::Cpu("RELU: Vela gives no reason".to_owned()));
        // What the CPU has must be known, so that nothing of it is reported as the NPU's.
        for rows in ["CPU,other\n", "GPU,t1\n", ""] {
            assert!(placed(rows).is_err(), "{rows}");
        }
    }
}
