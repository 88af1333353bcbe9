//! Google's Edge TPU, through its compiler.
//!
//! The compiler is a program of Google's package archive, for x86-64 Linux only, and gives a file for a board that has
//! the device. Neither the compiler nor the device was at hand: this reads the compiler's log as its documentation
//! shows it, and is not tested with the program.

use std::{collections::HashMap, ffi::OsStr, fs, path::Path, time::Duration};

use neurenix_onnx::edit::Network;

use crate::{
    CompiledFile, Error, FileMemory, Place, Result, Search,
    tflite::{self, FileOperator},
    tool::{self, Folder},
};

/// How long the compiler may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Compiles a network that is quantized to 8 bits, and writes the result to `path`.
///
/// # Errors
/// [`Error::Missing`] if the compiler is not installed; if the network has no form in TFLite, if the compiler refuses
/// it, if a file cannot be read or written.
pub fn compile(network: &Network, search: &Search, path: &Path) -> Result<CompiledFile> {
    let program = search.tool("edgetpu_compiler").ok_or_else(|| {
        let remedy = "edgetpu_compiler was not found; install it from Google's package archive: \
                      coral.ai/docs/edgetpu/compiler";
        Error::Missing(remedy.to_owned())
    })?;
    let file = tflite::write(network)?;
    let folder = Folder::new()?;
    let input = folder.write("network.tflite", &file.bytes)?;
    let arguments: [&OsStr; 4] = ["-s".as_ref(), "-o".as_ref(), folder.path().as_os_str(), input.as_os_str()];
    let printed = tool::run(&program, &arguments, folder.path(), LIMIT)?;
    let compiled = folder.read("network_edgetpu.tflite").ok().filter(|_| printed.succeeded);
    let compiled = compiled
        .ok_or_else(|| Error::Runtime { runtime: "edgetpu_compiler".to_owned(), message: printed.end() })?;
    fs::write(path, compiled).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let rows = operators(&printed.output);
    Ok(CompiledFile {
        path: path.to_owned(),
        placement: tflite::placed(&file, network, |operator| place(operator, &rows)),
        memory: memory(&printed.output),
        cycles: None,
    })
}

/// What the log says of each operator: (count, status).
fn operators(log: &str) -> HashMap<&str, Vec<(usize, &str)>> {
    let mut rows: HashMap<&str, Vec<(usize, &str)>> = HashMap::new();
    let table = log.lines().skip_while(|line| !(line.starts_with("Operator ") && line.contains("Status")));
    for line in table.skip(1) {
        let Some((operator, rest)) = line.split_once(char::is_whitespace) else { continue };
        let Some((count, status)) = rest.trim_start().split_once(char::is_whitespace) else { continue };
        if let Ok(count) = count.parse() {
            rows.entry(operator).or_default().push((count, status.trim()));
        }
    }
    rows
}

/// Where an operator runs. The log counts operators of a kind and does not name them: if only some are mapped, all of
/// the kind are reported as work for the CPU.
fn place(operator: &FileOperator, rows: &HashMap<&str, Vec<(usize, &str)>>) -> Place {
    let rows = rows.get(operator.operator).map(Vec::as_slice).unwrap_or_default();
    let left = rows.iter().find(|(_, status)| *status != "Mapped to Edge TPU");
    match (rows.is_empty(), left) {
        (true, _) => Place::Cpu(format!("{}: the compiler's log does not list it", operator.operator)),
        (false, None) => Place::Device,
        (false, Some((count, status))) => {
            let all: usize = rows.iter().map(|(count, _)| count).sum();
            Place::Cpu(format!("{count} of {all} {}: {status}", operator.operator))
        }
    }
}

/// The memory on and off the chip that the log states.
fn memory(log: &str) -> FileMemory {
    let stated = |what: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(what))?;
        let text = line.trim_start_matches(':').trim();
        let units = [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("B", 1.0)];
        let (number, factor) = units.iter().find_map(|(unit, factor)| {
            Some((text.strip_suffix(unit)?.trim().parse::<f64>().ok()?, factor))
        })?;
        Some((number * factor) as u64)
    };
    FileMemory {
        sram: stated("On-chip memory used for caching model parameters").unwrap_or(0),
        dram: stated("Off-chip memory used for streaming uncached model parameters").unwrap_or(0),
        flash: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form that the documentation of the compiler shows.
    const LOG: &str = "Edge TPU Compiler version 16.0.384591198\n\nModel compiled successfully in 11 ms.\n\n\
        On-chip memory used for caching model parameters: 3.50KiB\n\
        Off-chip memory used for streaming uncached model parameters: 0.00B\n\
        Total number of operations: 4\n\n\
        Operator                       Count      Status\n\n\
        CONV_2D                        2          Mapped to Edge TPU\n\
        CONV_2D                        1          More than one subgraph is not supported\n\
        SOFTMAX                        1          Mapped to Edge TPU\n";

    #[test]
    fn logs_are_read() {
        let rows = operators(LOG);
        let at =
            |operator| place(&FileOperator { operator, node: String::new(), output: String::new() }, &rows);
        assert_eq!(at("SOFTMAX"), Place::Device);
        let split = Place::Cpu("1 of 3 CONV_2D: More than one subgraph is not supported".to_owned());
        assert_eq!(at("CONV_2D"), split);
        assert!(matches!(at("MEAN"), Place::Cpu(reason) if reason.contains("does not list")));
        assert_eq!(memory(LOG), FileMemory { sram: 3584, dram: 0, flash: 0 });
    }
}
