//! A TFLite model in memory, and its bytes.

use std::collections::HashMap;

use super::schema::{Bytes, Code, Entry, Field, Kind, Offset, Options};

/// How a tensor's integers stand for real numbers: `scale * (q - zero)`, for each position along `axis` if there is
/// more than one scale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantization {
    pub(crate) scales: Vec<f32>,
    pub(crate) zeros: Vec<i64>,
    pub(crate) axis: usize,
}

impl Quantization {
    /// One scale and one zero point.
    pub(crate) fn whole(scale: f32, zero: i64) -> Quantization {
        Quantization { scales: vec![scale], zeros: vec![zero], axis: 0 }
    }

    /// The scale and zero point if there is one of each.
    pub(crate) fn single(&self) -> Option<(f32, i64)> {
        match (&self.scales[..], &self.zeros[..]) {
            (&[scale], &[zero]) => Some((scale, zero)),
            _ => None,
        }
    }
}

/// A tensor of the file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) shape: Vec<i32>,
    pub(crate) kind: Kind,
    pub(crate) quantization: Option<Quantization>,
    /// The elements of a constant.
    pub(crate) data: Option<Vec<u8>>,
}

/// An operator of the file. A missing input is -1.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) code: Code,
    pub(crate) version: i32,
    pub(crate) inputs: Vec<i32>,
    pub(crate) outputs: Vec<i32>,
    pub(crate) options: Options,
    /// The node of the network that it computes.
    pub(crate) node: String,
}

/// A model with one graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) tensors: Vec<Stored>,
    pub(crate) steps: Vec<Step>,
    pub(crate) inputs: Vec<i32>,
    pub(crate) outputs: Vec<i32>,
}

impl Graph {
    /// Gives tensors other than inputs names of a letter and a number, and returns what they stand for.
    pub(crate) fn generate_names(&mut self) -> HashMap<String, String> {
        let mut names = HashMap::new();
        for (at, tensor) in self.tensors.iter_mut().enumerate() {
            if !self.inputs.contains(&(at as i32)) {
                let name = format!("t{at}");
                names.insert(name.clone(), std::mem::replace(&mut tensor.name, name));
            }
        }
        names
    }

    /// The file's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Bytes::default();
        // The first buffer is the empty one, of all tensors that are not constant.
        let mut buffers = vec![bytes.table(vec![])];
        let tensors: Vec<Offset> = (self.tensors.iter())
            .map(|tensor| {
                let buffer = tensor.data.as_deref().map(|data| {
                    let data = bytes.data(data);
                    buffers.push(bytes.table(vec![(0, data)]));
                    buffers.len() - 1
                });
                tensor.encode(buffer.unwrap_or(0), &mut bytes)
            })
            .collect();
        let mut kinds: Vec<(Code, i32)> = Vec::new();
        let steps: Vec<Offset> = (self.steps.iter())
            .map(|step| {
                let kind = (step.code, step.version);
                let at = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                    kinds.push(kind);
                    kinds.len() - 1
                });
                step.encode(at, &mut bytes)
            })
            .collect();
        let codes: Vec<Offset> = (kinds.into_iter())
            .map(|(code, version)| {
                // The first field is the number of old readers, of at most 127.
                let old = (code as i32).min(127) as i8;
                bytes.table(vec![
                    (0, Entry::Field(Field::Byte(old))),
                    (2, Entry::Field(Field::Int(version))),
                    (3, Entry::Field(Field::Int(code as i32))),
                ])
            })
            .collect();
        let fields = vec![
            (0, bytes.tables(&tensors)),
            (1, bytes.ints(&self.inputs)),
            (2, bytes.ints(&self.outputs)),
            (3, bytes.tables(&steps)),
            (4, bytes.string("main")),
        ];
        let graph = bytes.table(fields);
        let fields = vec![
            (0, Entry::Unsigned(3)),
            (1, bytes.tables(&codes)),
            (2, bytes.tables(&[graph])),
            (3, bytes.string("Neurenix")),
            (4, bytes.tables(&buffers)),
        ];
        let root = bytes.table(fields);
        bytes.finish(root)
    }
}

impl Stored {
    fn encode(&self, buffer: usize, bytes: &mut Bytes) -> Offset {
        let mut fields = vec![
            (0, bytes.ints(&self.shape)),
            (1, Entry::Field(Field::Byte(self.kind as i8))),
            (2, Entry::Unsigned(buffer as u32)),
            (3, bytes.string(&self.name)),
            (8, Entry::Field(Field::Bool(true))),
        ];
        if let Some(quantization) = &self.quantization {
            let parts = vec![
                (2, bytes.floats(&quantization.scales)),
                (3, bytes.longs(&quantization.zeros)),
                (6, Entry::Field(Field::Int(quantization.axis as i32))),
            ];
            fields.push((4, Entry::Part(bytes.table(parts).value())));
        }
        bytes.table(fields)
    }
}

impl Step {
    fn encode(&self, code: usize, bytes: &mut Bytes) -> Offset {
        let mut fields = vec![
            (0, Entry::Unsigned(code as u32)),
            (1, bytes.ints(&self.inputs)),
            (2, bytes.ints(&self.outputs)),
        ];
        let Options(table, options) = &self.options;
        if *table != 0 {
            let options = options.iter().map(|(slot, field)| (*slot, Entry::Field(field.clone()))).collect();
            fields.push((3, Entry::UnsignedByte(*table)));
            fields.push((4, Entry::Part(bytes.table(options).value())));
        }
        bytes.table(fields)
    }
}
