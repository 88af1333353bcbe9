//! Rows of inputs and their classes, from files.

use std::{collections::HashMap, path::Path};

use neurenix::{
    Error, Result,
    data::{self, HostArray},
    onnx::{
        Element, Value,
        edit::Network,
        proto::{DimensionKind, TensorTypeProto, TypeKind, ValueInfoProto},
    },
    phynexus::{DType, Device, Tensor},
    quantize::Sample,
};

use crate::commands::{predict, run_folder::RunConfig};

/// Rows of a batch, unless the network fixes their number.
const BATCH: usize = 32;

/// Rows of inputs, by name.
#[derive(Default)]
pub(super) struct Rows {
    inputs: Vec<(String, HostArray)>,
    /// The rows of the file that are in use.
    places: Vec<usize>,
    /// The number of rows in the file.
    total: usize,
    /// The number of rows in a batch.
    batch: usize,
}

/// A batch of inputs and, if there are labels, the class of each of its rows.
pub(super) struct Batch<'a> {
    pub(super) sample: &'a Sample,
    pub(super) classes: &'a [usize],
}

impl Rows {
    /// The number of rows in use.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Reads at most `most` rows of a file, evenly spaced: rows as `predict` takes them for a run, else arrays for the
    /// inputs of the network.
    pub(super) fn read(
        path: &Path,
        network: &Network,
        config: Option<&RunConfig>,
        most: usize,
    ) -> Result<Rows> {
        let wrong = |message: String| Error::data(path.display().to_string(), message);
        let wanted = &network.graph.input;
        let names: Vec<&str> = wanted.iter().map(|input| input.name.as_str()).collect();
        let arrays: Vec<(&ValueInfoProto, HostArray)> = match (config, &wanted[..]) {
            (None, _) if ends_in(path, "npz") => {
                let mut arrays = data::read_npz(path)?;
                wanted.iter().filter_map(|input| Some((input, arrays.remove(&input.name)?))).collect()
            }
            (Some(config), [input]) => vec![(input, predict::read(path, config)?)],
            (None, [input]) => vec![(input, data::read_npy(path)?)],
            _ => {
                let message = format!("the network has the inputs {}: give .npz with each", names.join(", "));
                return Err(wrong(message));
            }
        };
        if arrays.len() != names.len() {
            return Err(wrong(format!("it must have an array for each input: {}", names.join(", "))));
        }
        let total = arrays.first().map_or(0, |(_, array)| array.rows());
        if let Some((input, array)) = arrays.iter().find(|(_, array)| array.rows() != total) {
            let (name, rows) = (&input.name, array.rows());
            return Err(wrong(format!("{name} has {rows} rows, {} has {total}", names[0])));
        }
        if total == 0 {
            return Err(wrong("it has no rows".to_owned()));
        }
        let fixed = wanted.iter().find_map(fixed_rows);
        let count = total.min(most);
        let count = count - count % fixed.unwrap_or(1);
        if count == 0 {
            let (fixed, rows) = (fixed.unwrap_or(1), total.min(most));
            return Err(wrong(format!(
                "the network takes {fixed} rows at a time, and only {rows} are in use"
            )));
        }
        let typed = |(input, array): (&ValueInfoProto, HostArray)| {
            Ok((input.name.clone(), typed(array, input, path)?))
        };
        Ok(Rows {
            inputs: arrays.into_iter().map(typed).collect::<Result<_>>()?,
            places: (0..count).map(|row| row * total / count).collect(),
            total,
            batch: fixed.unwrap_or(BATCH),
        })
    }

    /// The rows in batches.
    pub(super) fn samples(&self, device: Device) -> Result<Vec<Sample>> {
        let sample = |places: &[usize]| {
            let tensor = |(name, array): &(String, HostArray)| {
                let part = array.take_rows(places)?;
                let tensor = Tensor::from_bytes(part.bytes(), part.dtype(), part.shape(), device)?;
                Ok((name.clone(), Value::from(tensor)))
            };
            self.inputs.iter().map(tensor).collect::<Result<HashMap<_, _>>>()
        };
        self.places.chunks(self.batch.max(1)).map(sample).collect()
    }

    /// The batches with their classes, from the results of [`Rows::samples`] and [`Rows::classes`].
    pub(super) fn batches<'a>(&self, samples: &'a [Sample], classes: &'a [usize]) -> Vec<Batch<'a>> {
        let batches = samples.iter().zip(classes.chunks(self.batch.max(1)));
        batches.map(|(sample, classes)| Batch { sample, classes }).collect()
    }

    /// The classes of the rows in use, from a file with a class for each row.
    pub(super) fn classes(&self, path: &Path) -> Result<Vec<usize>> {
        let array = if ends_in(path, "npy") { data::read_npy(path)? } else { data::read_idx(path)? };
        let all = exact(array, DType::I64, path)?.to_vec::<i64>()?;
        if all.len() != self.total {
            let message = format!("it has {} classes for {} rows", all.len(), self.total);
            return Err(Error::data(path.display().to_string(), message));
        }
        let class = |(row, class): (usize, i64)| {
            let wrong =
                || Error::data(path.display().to_string(), format!("row {row} has the class {class}"));
            usize::try_from(class).map_err(|_| wrong())
        };
        self.places.iter().filter_map(|&row| Some((row, *all.get(row)?))).map(class).collect()
    }
}

fn ends_in(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

/// What a file declares of an input that is a tensor.
fn declared(input: &ValueInfoProto) -> Option<&TensorTypeProto> {
    match input.r#type.as_ref()?.value.as_ref()? {
        TypeKind::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

/// The first extent of an input, if it is a number.
fn fixed_rows(input: &ValueInfoProto) -> Option<usize> {
    match declared(input)?.shape.as_ref()?.dim.first()?.value.as_ref()? {
        DimensionKind::Value(rows) => usize::try_from(*rows).ok().filter(|rows| *rows > 0),
        DimensionKind::Parameter(_) => None,
    }
}

/// The array in the type that the network declares for its input. Numbers may be rounded to floats.
fn typed(array: HostArray, input: &ValueInfoProto, path: &Path) -> Result<HostArray> {
    let number = declared(input).map(|tensor| i64::from(tensor.elem_type));
    match number.and_then(Element::of_number).and_then(Element::dtype) {
        Some(dtype) if dtype.is_float() => Ok(array.cast(dtype)),
        Some(dtype) => exact(array, dtype, path),
        None => Ok(array),
    }
}

/// The array in an integer type that has all of its numbers.
fn exact(array: HostArray, dtype: DType, path: &Path) -> Result<HostArray> {
    let cast = array.cast(dtype);
    let (before, after) = (array.cast(DType::F64).to_vec::<f64>()?, cast.cast(DType::F64).to_vec::<f64>()?);
    match before.iter().zip(&after).find(|(before, after)| before != after) {
        Some((before, _)) => Err(Error::data(
            path.display().to_string(),
            format!("it has {before}, which {dtype} cannot hold"),
        )),
        None => Ok(cast),
    }
}
