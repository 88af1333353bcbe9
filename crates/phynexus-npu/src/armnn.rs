//! Arm NN: Arm's Ethos-N, and its reference backend on the host's CPU.
//!
//! Arm NN has an interface for C++ only, whose functions differ from compiler to compiler. Its Python module `pyarmnn`
//! is used instead, in another process, which gets a TFLite file once and then inputs. Debian has it:
//! `python3-pyarmnn`, `libarmnntfliteparser22` and `libarmnn-cpuref-backend22` (version 20.08, proven on CpuRef). The
//! backend `EthosNAcc` comes with Arm's driver stack; it was not run, for want of the hardware.

mod process;

use std::{
    collections::HashMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use neurenix_onnx::edit::{Network, ValueType};
use phynexus::{Tensor, device::DeviceNature};

use self::process::Process;
use crate::{
    Accepts, Error, Found, Options, Place, Placed, Program, Properties, Result, Runtime, Search,
    library::Known,
    tflite::{self, Dialect, FileOperator, Port},
    tool::{self, Folder, SEARCH_LIMIT},
};

const KIND: &str = "Arm NN";
/// The program of the other process.
const SERVE: &str = include_str!("armnn/serve.py");
/// Arm NN multiplies matrices by weights of one scale; other products fail in it without a reason. It reads neither
/// the biases of 64 bits that go with values of 16, nor constants of 16 bits.
const DIALECT: Dialect = Dialect { plain_products: true, real_words: true, generated_names: false };
/// How long loading or one run may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The operators that the TFLite parser of Arm NN 20.08 knows.
const OPERATORS: [&str; 30] = [
    "ADD",
    "AVERAGE_POOL_2D",
    "CONCATENATION",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "DEQUANTIZE",
    "DIV",
    "EXP",
    "FULLY_CONNECTED",
    "LOGISTIC",
    "MAX_POOL_2D",
    "MAXIMUM",
    "MEAN",
    "MINIMUM",
    "MUL",
    "NEG",
    "PAD",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RESHAPE",
    "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR",
    "SLICE",
    "SOFTMAX",
    "STRIDED_SLICE",
    "SUB",
    "TANH",
    "TRANSPOSE",
    "TRANSPOSE_CONV",
];

/// Arm NN with one backend.
#[derive(Clone, Debug)]
pub struct ArmNn {
    interpreter: PathBuf,
    backend: &'static str,
    properties: Properties,
}

/// What each interpreter's Arm NN has: starting it takes half a second.
static KNOWN: Known<(String, Vec<String>)> = Known::new();

/// The backends of Arm NN that `search` finds: Ethos-N and the CPU.
pub fn find(search: &Search) -> Found {
    let mut found = Found::default();
    let usual = PathBuf::from("/usr/bin/python3");
    let own = search.tool("python3").filter(|own| *own != usual);
    let mut reason = "python3 was not found".to_owned();
    for interpreter in [Some(usual).filter(|usual| usual.is_file()), own].into_iter().flatten() {
        let key = interpreter.display().to_string();
        match KNOWN.get(key, || backends(&interpreter)) {
            Ok((version, backends)) => {
                let device = |backend, model: &str, nature| ArmNn {
                    interpreter: interpreter.clone(),
                    backend,
                    properties: Properties {
                        vendor: "Arm".to_owned(),
                        model: model.to_owned(),
                        runtime: format!("{KIND}, {backend}"),
                        version: version.clone(),
                        architecture: None,
                        memory: None,
                        nature,
                    },
                };
                let has = |name: &str| backends.iter().any(|backend| backend == name);
                if has("EthosNAcc") {
                    let ethos = device("EthosNAcc", "Ethos-N", DeviceNature::Hardware);
                    found.runtimes.push(Arc::new(ethos));
                } else {
                    let reason = format!(
                        "Arm NN {version} has no backend EthosNAcc (it has {}); Arm's Ethos-N driver stack brings it: \
                         github.com/Arm-software/ethos-n-driver-stack",
                        backends.join(", ")
                    );
                    found.missing.push((format!("{KIND}, Ethos-N"), reason));
                }
                if has("CpuRef") {
                    found.runtimes.push(Arc::new(device("CpuRef", "CPU", DeviceNature::HostCpu)));
                }
                return found;
            }
            Err(error) => reason = error,
        }
    }
    let remedy =
        "on Debian: apt-get install python3-pyarmnn libarmnntfliteparser22 libarmnn-cpuref-backend22";
    found.missing.push((KIND.to_owned(), format!("{reason}; {remedy}")));
    found
}

/// The version and the backends of an interpreter's Arm NN.
fn backends(interpreter: &Path) -> Result<(String, Vec<String>)> {
    let folder = Folder::new()?;
    let script = folder.write("serve.py", SERVE.as_bytes())?;
    let arguments: [&OsStr; 2] = ["-I".as_ref(), script.as_os_str()];
    let printed = tool::run(interpreter, &arguments, folder.path(), SEARCH_LIMIT)?;
    if !printed.succeeded {
        let said = printed.output.trim().trim_start_matches("error ").to_owned();
        return Err(failed(format!("{}: {said}", interpreter.display())));
    }
    let mut words = printed.output.split_whitespace().map(str::to_owned);
    let version = words.next().ok_or_else(|| failed("it says no version".to_owned()))?;
    Ok((version, words.collect()))
}

fn failed(message: String) -> Error {
    Error::Runtime { runtime: KIND.to_owned(), message }
}

impl Runtime for ArmNn {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn accepts(&self, network: &Network, node: usize, types: &HashMap<String, ValueType>) -> Accepts {
        let knows = |written: &FileOperator| match OPERATORS.contains(&written.operator) {
            true => Accepts::Yes,
            false => Accepts::No(format!("Arm NN does not read {}", written.operator)),
        };
        tflite::accepts(network, node, types, DIALECT, knows)
    }

    /// Only the device's own backend is allowed, so that all of the network runs there or compiling fails. Arm NN has
    /// no limit of memory, no cache and no choice of power: [`Options::memory_limit`] counts the inputs and outputs.
    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>> {
        let file = tflite::write_with(network, &tflite::value_types(network)?, DIALECT)?;
        let memory: usize = file.inputs.iter().chain(&file.outputs).map(Port::bytes).sum();
        if let Some(limit) = options.memory_limit.filter(|limit| memory as u64 > *limit) {
            let message = format!("inputs and outputs need {memory} bytes, the limit is {limit}");
            return Err(Error::Invalid(message));
        }
        let folder = Folder::new()?;
        let script = folder.write("serve.py", SERVE.as_bytes())?;
        let model = folder.write("network.tflite", &file.bytes)?;
        let mut command = Command::new(&self.interpreter);
        command.args(["-I".as_ref(), script.as_os_str(), model.as_os_str(), self.backend.as_ref()]);
        command.current_dir(folder.path());
        let size = file.outputs.iter().map(Port::bytes).sum();
        let process = Process::start(&mut command, size)?;
        let line = process.answer(LIMIT)?;
        match String::from_utf8_lossy(&line).trim() {
            "ready" => Ok(Box::new(ArmNnProgram {
                process: Some(process),
                limit: LIMIT,
                placement: tflite::placed(&file, network, |_| Place::Device),
                inputs: file.inputs,
                outputs: file.outputs,
            })),
            line => Err(failed(line.trim_start_matches("error ").to_owned())),
        }
    }
}

/// A network that Arm NN loaded in another process.
#[derive(Debug)]
struct ArmNnProgram {
    /// `None` after an error: what a process answers late belongs to an earlier input.
    process: Option<Process>,
    limit: Duration,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    placement: Vec<Placed>,
}

impl Program for ArmNnProgram {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let (expected, given) = (self.inputs.len(), inputs.len());
            return Err(Error::Invalid(format!("expected {expected} inputs, got {given}")));
        }
        let bytes: Vec<Vec<u8>> = (self.inputs.iter().zip(inputs))
            .map(|(port, input)| port.encode(input))
            .collect::<Result<_>>()?;
        let process = self.process.take();
        let process = process.ok_or_else(|| failed("its process was ended after an error".to_owned()))?;
        let answer = process.ask(bytes.concat(), self.limit)?;
        self.process = Some(process);
        let mut rest = &answer[..];
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for port in &self.outputs {
            let (own, others) = rest.split_at_checked(port.bytes()).unwrap_or((rest, &[]));
            outputs.push(port.decode(own)?);
            rest = others;
        }
        Ok(outputs)
    }

    fn placement(&self) -> &[Placed] {
        &self.placement
    }

    /// Arm NN does not say.
    fn memory(&self) -> Option<u64> {
        None
    }
}

#[cfg(all(test, unix))]
mod tests {
    use phynexus::Device;

    use super::*;

    #[test]
    fn a_late_answer_is_not_that_of_the_next_input() {
        phynexus_cpu::register();
        let file = tflite::write(&crate::litert::small().unwrap()).unwrap();
        let size: usize = file.outputs.iter().map(Port::bytes).sum();
        let script = format!("echo ready; head -c {size}; sleep 1; exec cat");
        let process = Process::start(Command::new("/bin/sh").args(["-c", &script]), size).unwrap();
        assert_eq!(process.answer(LIMIT).unwrap(), b"ready\n");
        let (inputs, outputs) = (file.inputs, file.outputs);
        let limit = Duration::from_secs(30);
        let process = Some(process);
        let mut program = ArmNnProgram { process, limit, inputs, outputs, placement: Vec::new() };
        let cpu = Device::find("cpu").unwrap();
        let input = |number: i8| Tensor::from_slice(&[number; 16], &[1, 16], cpu).unwrap();
        let output = program.run(&[input(1)]).unwrap();
        assert_eq!(output[0].to_vec::<i8>().unwrap(), [1; 16]);
        program.limit = Duration::from_millis(100);
        assert!(matches!(program.run(&[input(2)]).unwrap_err(), Error::TimedOut { .. }));
        // The answer comes a second later; nothing may take it for that of another input.
        program.limit = limit;
        let error = program.run(&[input(3)]).unwrap_err();
        assert!(error.to_string().contains("was ended after an error"), "{error}");
    }
}
