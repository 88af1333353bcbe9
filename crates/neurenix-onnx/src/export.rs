//! Networks as ONNX files.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use phynexus::{Tensor, schedule::trace::trace};
use prost::Message;

use self::{
    emit::Emitter,
    graph::{Extent, Graph},
    opset::OPSETS,
    symbols::{Symbols, varies},
    writer::{Value, Writer},
};
use crate::{
    Error, Result,
    edit::Network,
    proto::{GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto},
};

mod elementwise;
mod emit;
mod fuse;
mod gamma;
mod graph;
mod leaves;
mod lower;
mod movement;
mod neural;
mod opset;
mod patterns;
mod reduce;
mod symbols;
mod writer;

/// The version of ONNX's operators that files have unless another is wanted.
pub const OPSET: i64 = 21;
/// Above this many bytes, tensors are in a file of their own: messages end at 2 GiB.
const GREATEST_MESSAGE: usize = 1_500_000_000;
/// Where tensors begin in that file, so that it can be mapped into memory.
const ALIGNMENT: usize = 4096;
/// The value of `data_location` of tensors in another file.
const EXTERNAL: i32 = 1;

/// A network to write: tensors that were computed from others and are still pending.
#[derive(Clone, Debug, Default)]
pub struct Export<'a> {
    /// What the network is computed from, with the names of its inputs. They are pending, too, or require a gradient:
    /// the graph does not show views of tensors that are computed.
    pub inputs: Vec<(String, &'a Tensor)>,
    /// What it computes.
    pub outputs: Vec<(String, &'a Tensor)>,
    /// Tensors to store under these names, such as weights; others that the graph reads get names of their own.
    pub names: Vec<(String, &'a Tensor)>,
    /// For each input axis that varies: the input's position, the axis, a symbol. Axes with one symbol have equal
    /// sizes.
    pub symbols: Vec<(usize, usize, String)>,
}

/// Writes a network whose inputs have fixed shapes.
///
/// # Errors
/// If a name occurs twice, or the network needs what ONNX's operators cannot do: then the error names all of that.
pub fn export(network: &Export<'_>) -> Result<ModelProto> {
    if !network.symbols.is_empty() {
        return Err(Error::invalid(
            "sizes that vary need a second network with other sizes: use export_with",
        ));
    }
    export_with(network, network)
}

/// Writes a network whose inputs have axes that vary: the [`Export::symbols`]. `other` is the same network computed
/// from inputs with other sizes there, of at least 2; no two symbols may differ by the same amount or factor. Where its
/// sizes and numbers differ, the file computes them from the sizes of its inputs.
///
/// # Errors
/// As for [`export`]; and if the two networks differ in more than sizes, or it is not clear how a size follows from
/// those of the inputs.
pub fn export_with(network: &Export<'_>, other: &Export<'_>) -> Result<ModelProto> {
    export_as(network, other, OPSET)
}

/// [`export_with`] for an opset from 13 to 28. Without sizes that vary, `other` is the network itself.
///
/// # Errors
/// As for [`export_with`]; and if the opset lacks what the network needs: the error names all of that.
pub fn export_as(network: &Export<'_>, other: &Export<'_>, opset: i64) -> Result<ModelProto> {
    if !OPSETS.contains(&opset) {
        let (first, last) = OPSETS.into_inner();
        return Err(Error::unsupported(format!(
            "exports of opset {opset}: choose one from {first} to {last}"
        )));
    }
    check_names(network)?;
    let symbols = symbols(network, other)?;
    let mut weights: Vec<(&str, &Tensor)> = Vec::new();
    for (name, tensor) in &network.names {
        let known = |known: &&Tensor| known.is_same(tensor);
        let is_input =
            [network, other].iter().flat_map(|n| &n.inputs).map(|(_, input)| *input).any(|t| known(&t));
        if !is_input && !weights.iter().map(|(_, weight)| *weight).any(|t| known(&t)) {
            weights.push((name, tensor));
        }
    }
    let traced = |network: &Export<'_>| {
        let outputs: Vec<&Tensor> = network.outputs.iter().map(|(_, tensor)| *tensor).collect();
        let inputs = network.inputs.iter().map(|(_, tensor)| *tensor);
        let leaves: Vec<&Tensor> = inputs.chain(weights.iter().map(|(_, tensor)| *tensor)).collect();
        trace(&outputs, &leaves, &|composite| opset::keeps(composite, opset))
    };
    let (first, second) = (traced(network)?, traced(other)?);
    let others = second.leaves.clone();
    let mut graph = Graph::merge(first, &second)?;
    graph.simplify();
    let live = graph.live();
    let mut emitter = Emitter::new(&graph, Writer::new(symbols, opset));
    let inputs: Vec<&Tensor> = network.inputs.iter().map(|(_, tensor)| *tensor).collect();
    let mut stored: Vec<(&Tensor, Value)> = Vec::new();
    for (at, (&id, tensor)) in graph.leaves.iter().zip(&graph.tensors).enumerate() {
        let value = if let Some((name, _)) = network.inputs.get(at) {
            emitter.writer.input(name, tensor.dtype(), graph.nodes[id].shape.clone())
        } else if let Some(&(name, weight)) = weights.get(at - inputs.len()) {
            let value = emitter.writer.tensor(Some(name), tensor);
            stored.push((weight, value.clone()));
            value
        } else if let (true, Some(other)) = (live[id], others.get(at)) {
            emitter.leaf([tensor, other], &stored, &inputs)?
        } else {
            continue;
        };
        emitter.set(id, value);
    }
    let (writer, values) = emitter.run()?;
    let outputs: Vec<_> = network.outputs.iter().map(|(name, _)| name.clone()).zip(values).collect();
    let graph = writer.finish("network", &outputs)?;
    let mut file = Network::new(ModelProto {
        ir_version: opset::file_version(opset),
        producer_name: "neurenix".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        ..Default::default()
    })?;
    fuse::fuse(&mut file)?;
    Ok(file.to_proto())
}

fn check_names(network: &Export<'_>) -> Result<()> {
    let mut seen = HashSet::new();
    for (name, _) in network.inputs.iter().chain(&network.outputs).chain(&network.names) {
        if name.is_empty() || !seen.insert(name) {
            return Err(Error::invalid(format!("names must be there and differ: {name:?}")));
        }
    }
    Ok(())
}

/// The sizes that vary, after a check that no others do.
fn symbols(network: &Export<'_>, other: &Export<'_>) -> Result<Symbols> {
    let shapes =
        |network: &Export<'_>| network.inputs.iter().map(|(_, t)| t.shape().to_vec()).collect::<Vec<_>>();
    let (first, second) = (shapes(network), shapes(other));
    let ranks = |shapes: &[Vec<usize>]| shapes.iter().map(Vec::len).collect::<Vec<_>>();
    if ranks(&first) != ranks(&second) || network.outputs.len() != other.outputs.len() {
        return Err(Error::invalid("the two networks must have the same inputs, but for sizes, and outputs"));
    }
    let extent = |input: usize, axis: usize| -> Option<Extent> {
        Some([*first.get(input)?.get(axis)? as i64, *second.get(input)?.get(axis)? as i64])
    };
    let mut symbols = Symbols::default();
    for (input, axis, name) in &network.symbols {
        let missing = || Error::invalid(format!("there is no axis {axis} of input {input} for {name:?}"));
        symbols.add(name, extent(*input, *axis).ok_or_else(missing)?)?;
    }
    for (input, shape) in first.iter().enumerate() {
        for axis in 0..shape.len() {
            let named = network.symbols.iter().any(|(i, a, _)| (*i, *a) == (input, axis));
            if !named && extent(input, axis).is_some_and(varies) {
                let name = &network.inputs[input].0;
                return Err(Error::invalid(format!(
                    "axis {axis} of the input {name:?} varies and has no symbol"
                )));
            }
        }
    }
    Ok(symbols)
}

/// Writes the file. If its tensors exceed what one message holds, their bytes go to `<file name>.data` beside it. Files
/// of these names are replaced once the new ones are complete.
///
/// # Errors
/// If a file cannot be written.
pub fn save(model: &ModelProto, path: &Path) -> Result<()> {
    save_within(model, path, GREATEST_MESSAGE)
}

/// A file's bytes, with all of its tensors.
pub fn to_bytes(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}

fn save_within(model: &ModelProto, path: &Path, greatest: usize) -> Result<()> {
    let tensors = model.graph.iter().flat_map(|graph| &graph.initializer);
    if tensors.map(|tensor| tensor.raw_data.len()).sum::<usize>() <= greatest {
        return Part::write(path, |file| file.write_all(&model.encode_to_vec()))?.finish();
    }
    let (light, graph) = (without_graph(model), model.graph.as_ref());
    let name = path.file_name().map(|name| format!("{}.data", name.to_string_lossy()));
    let name = name.ok_or_else(|| Error::invalid(format!("{} is not the name of a file", path.display())))?;
    let mut offset = 0usize;
    let mut places = Vec::new();
    for tensor in graph.iter().flat_map(|graph| &graph.initializer) {
        places.push(offset);
        offset = (offset + tensor.raw_data.len()).next_multiple_of(ALIGNMENT);
    }
    // Both files are complete before either has its name, so that a failure leaves old files as they were.
    let data = Part::write(&path.with_file_name(&name), |file| {
        let mut written = 0usize;
        for (tensor, &place) in graph.iter().flat_map(|graph| &graph.initializer).zip(&places) {
            file.write_all(&vec![0; place - written])?;
            file.write_all(&tensor.raw_data)?;
            written = place + tensor.raw_data.len();
        }
        Ok(())
    })?;
    let external = graph.map(|graph| {
        let outside = |(tensor, &place): (&TensorProto, &usize)| TensorProto {
            dims: tensor.dims.clone(),
            data_type: tensor.data_type,
            name: tensor.name.clone(),
            external_data: [
                ("location", name.clone()),
                ("offset", place.to_string()),
                ("length", tensor.raw_data.len().to_string()),
            ]
            .map(|(key, value)| StringStringEntryProto { key: key.to_owned(), value })
            .into(),
            data_location: EXTERNAL,
            ..Default::default()
        };
        GraphProto {
            node: graph.node.clone(),
            name: graph.name.clone(),
            initializer: graph.initializer.iter().zip(&places).map(outside).collect(),
            input: graph.input.clone(),
            output: graph.output.clone(),
            value_info: graph.value_info.clone(),
            sparse_initializer: graph.sparse_initializer.clone(),
        }
    });
    let model = ModelProto { graph: external, ..light };
    let message = Part::write(path, |file| file.write_all(&model.encode_to_vec()))?;
    data.finish()?;
    message.finish()
}

fn without_graph(model: &ModelProto) -> ModelProto {
    ModelProto {
        ir_version: model.ir_version,
        producer_name: model.producer_name.clone(),
        producer_version: model.producer_version.clone(),
        graph: None,
        opset_import: model.opset_import.clone(),
        metadata_props: model.metadata_props.clone(),
        functions: model.functions.clone(),
    }
}

/// A file that is complete under another name. It is removed unless it gets its own.
struct Part {
    written: PathBuf,
    path: PathBuf,
}

impl Part {
    fn write(
        path: &Path,
        write: impl FnOnce(&mut io::BufWriter<fs::File>) -> io::Result<()>,
    ) -> Result<Part> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = Part { written: path.with_file_name(name), path: path.to_owned() };
        let attempt = || {
            let mut file = io::BufWriter::new(fs::File::create(&part.written)?);
            write(&mut file)?;
            file.into_inner()?.sync_all()
        };
        attempt().map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(part)
    }

    /// Gives the file its name.
    fn finish(self) -> Result<()> {
        let renamed = fs::rename(&self.written, &self.path);
        renamed.map_err(|source| Error::File { path: self.path.clone(), source })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is not there any more if it has its name. Another error is the one to report.
        let _ = fs::remove_file(&self.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn tensors_in_a_file_of_their_own() {
        let device = phynexus_cpu::register();
        let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device).unwrap().neg().unwrap();
        let weights = [3, 5].map(|n| Tensor::from_slice(&vec![0.5f32; 2 * n], &[2, n], device).unwrap());
        let outputs = weights.each_ref().map(|weight| x.matmul(weight).unwrap());
        let named = |names: [&str; 2], tensors| names.into_iter().map(str::to_owned).zip(tensors).collect();
        let network = Export {
            inputs: vec![("x".to_owned(), &x)],
            outputs: named(["a", "b"], &outputs),
            names: named(["v", "w"], &weights),
            symbols: Vec::new(),
        };
        let model = export(&network).unwrap();
        let folder = std::env::temp_dir().join(format!("neurenix_external_{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("network.onnx");
        save_within(&model, &path, 8).unwrap();
        let names = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut files: Vec<String> = fs::read_dir(&folder).unwrap().map(names).collect();
        files.sort();
        assert_eq!(files, ["network.onnx", "network.onnx.data"]);
        let read = Model::load(&path, device).unwrap();
        let parameters: Vec<_> =
            read.parameters().map(|(name, tensor, _)| (name, tensor.shape().to_vec())).collect();
        assert_eq!(parameters, [("v", vec![2, 3]), ("w", vec![2, 5])]);
        assert!(
            read.parameters().all(|(_, tensor, _)| tensor.to_vec::<f32>().unwrap().iter().all(|x| *x == 0.5))
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The network's file cannot be written, so the tensors of an older one stay.
    #[test]
    fn a_failure_leaves_older_files() {
        let device = phynexus_cpu::register();
        let x = Tensor::from_slice(&[1.0f32, 2.0], &[1, 2], device).unwrap().neg().unwrap();
        let weight = Tensor::from_slice(&[0.5f32; 6], &[2, 3], device).unwrap();
        let y = x.matmul(&weight).unwrap();
        let model = export(&Export {
            inputs: vec![("x".to_owned(), &x)],
            outputs: vec![("y".to_owned(), &y)],
            names: vec![("w".to_owned(), &weight)],
            symbols: Vec::new(),
        });
        let folder = std::env::temp_dir().join(format!("neurenix_failure_{}", std::process::id()));
        // A folder is where the file should be written first.
        let path = folder.join("network.onnx");
        fs::create_dir_all(folder.join(format!("network.onnx.{}.part", std::process::id()))).unwrap();
        fs::write(folder.join("network.onnx.data"), "older").unwrap();
        assert!(matches!(save_within(&model.unwrap(), &path, 8), Err(Error::File { .. })));
        assert_eq!(fs::read(folder.join("network.onnx.data")).unwrap(), b"older");
        assert!(!path.exists() && fs::read_dir(&folder).unwrap().count() == 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
