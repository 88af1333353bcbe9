//! Networks in files: JSON, binary, safetensors. A network that is read has exactly the weights that were written.

use std::{collections::BTreeMap, path::Path};

use neurenix::{
    data::HostArray,
    io,
    phynexus::{DType, Tensor},
};
use serde::{Deserialize, Serialize};

use super::{Network, Plan, TrainingHistory, builder::NetworkBuilder, weights::put};
use crate::{NetworkError, Result};

/// The version of the files that this crate writes and reads.
const VERSION: u32 = 1;
const FORMAT: &str = "rnn-network";
/// The first bytes of a binary file.
const MAGIC: &[u8; 8] = b"RNNBIN\r\n";

/// A file's contents without tensors.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    network: Plan,
    history: TrainingHistory,
}

/// A tensor in a JSON file.
#[derive(Serialize, Deserialize)]
struct Numbers {
    shape: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Json {
    #[serde(flatten)]
    head: Head,
    tensors: BTreeMap<String, Numbers>,
}

impl Network {
    /// Writes the network as JSON, which people and other programs can read. As with the other formats, missing folders
    /// are created, and a symbolic link is followed.
    ///
    /// # Errors
    /// If the file cannot be written (an existing file is kept), or a weight is not finite, which JSON cannot
    /// represent.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut tensors = BTreeMap::new();
        for (name, array) in self.arrays()? {
            let values = array.cast(DType::F64).to_vec::<f64>()?;
            if values.iter().any(|x| !x.is_finite()) {
                let message = format!("{name} is not finite, which JSON cannot represent: use save_binary");
                return Err(NetworkError::serialization(message));
            }
            tensors.insert(name, Numbers { shape: array.shape().to_vec(), values });
        }
        let json = Json { head: self.head(&self.history), tensors };
        let text =
            serde_json::to_vec(&json).map_err(|error| NetworkError::serialization(error.to_string()))?;
        Ok(io::write_bytes_atomically(path.as_ref(), &text)?)
    }

    fn read_json(path: &Path, device: Option<&str>) -> Result<Network> {
        let bytes = read(path)?;
        if bytes.starts_with(MAGIC) {
            return Err(wrong(path, "it is a binary network: read it with load_binary".to_owned()));
        }
        let invalid = |error: serde_json::Error| wrong(path, format!("it is not a network in JSON: {error}"));
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(invalid)?;
        check_version(
            path,
            value.get("format").and_then(|f| f.as_str()),
            value.get("version").and_then(|v| v.as_u64()),
        )?;
        let json: Json = serde_json::from_value(value).map_err(invalid)?;
        let array = |(name, numbers): (String, Numbers)| -> Result<(String, HostArray)> {
            Ok((name, HostArray::from_values(&numbers.shape, &numbers.values)?))
        };
        let arrays = json.tensors.into_iter().map(array).collect::<Result<_>>();
        Network::restore(path, json.head, arrays?, device)
    }

    /// Writes the network in a binary format, which is smaller than JSON.
    ///
    /// # Errors
    /// If the file cannot be written. An existing file is kept.
    pub fn save_binary(&self, path: impl AsRef<Path>) -> Result<()> {
        let arrays = self.arrays()?;
        let table: Vec<(&String, &str, &[usize])> =
            arrays.iter().map(|(name, array)| (name, array.dtype().name(), array.shape())).collect();
        let text = serde_json::to_vec(&(self.head(&self.history), table));
        let text = text.map_err(|error| NetworkError::serialization(error.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text);
        arrays.values().for_each(|array| bytes.extend(array.bytes()));
        bytes.extend(checksum(&bytes).to_le_bytes());
        Ok(io::write_bytes_atomically(path.as_ref(), &bytes)?)
    }

    fn read_binary(path: &Path, device: Option<&str>) -> Result<Network> {
        let bytes = read(path)?;
        let damaged =
            || wrong(path, "it is truncated or damaged: write it again with save_binary".to_owned());
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(wrong(
                path,
                "it is not a binary network of this crate: write it with save_binary".to_owned(),
            ));
        };
        let (contents, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
        if checksum(contents) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged())?;
        let (text, mut rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let invalid = |error: serde_json::Error| wrong(path, error.to_string());
        let value: serde_json::Value = serde_json::from_slice(text).map_err(invalid)?;
        let head = &value[0];
        check_version(path, head["format"].as_str(), head["version"].as_u64())?;
        let (head, table): (Head, Vec<(String, String, Vec<usize>)>) =
            serde_json::from_value(value).map_err(invalid)?;
        let mut arrays = BTreeMap::new();
        for (name, dtype, shape) in table {
            let dtype = DType::parse(&dtype).ok_or_else(damaged)?;
            let count = neurenix::data::byte_count(dtype, &shape).ok_or_else(damaged)?;
            let (own, after) = rest.split_at_checked(count).ok_or_else(damaged)?;
            arrays.insert(name, HostArray::from_bytes(dtype, &shape, own.to_vec())?);
            rest = after;
        }
        Network::restore(path, head, arrays, device)
    }

    /// Writes weights and buffers as safetensors, which other frameworks can read. The description is in its metadata.
    ///
    /// # Errors
    /// If the file cannot be written. An existing file is kept.
    pub fn save_safetensors(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path.as_ref(), &self.history)
    }

    /// As [`Network::save_safetensors`], with the history of the current run.
    pub(crate) fn save_with(&self, path: &Path, history: &TrainingHistory) -> Result<()> {
        let head = serde_json::to_string(&self.head(history));
        let head = head.map_err(|error| NetworkError::serialization(error.to_string()))?;
        let metadata = BTreeMap::from([(FORMAT.to_owned(), head)]);
        let contents = io::safetensors::NamedArrays { arrays: self.arrays()?, metadata };
        Ok(io::safetensors::save(path, &contents)?)
    }

    fn read_safetensors(path: &Path, device: Option<&str>) -> Result<Network> {
        let contents = io::safetensors::load(path)?;
        let head = contents.metadata.get(FORMAT).ok_or_else(|| {
            wrong(
                path,
                "it has tensors but no network's description: write it with save_safetensors".to_owned(),
            )
        })?;
        let invalid = |error: serde_json::Error| wrong(path, error.to_string());
        let value: serde_json::Value = serde_json::from_str(head).map_err(invalid)?;
        check_version(path, value["format"].as_str(), value["version"].as_u64())?;
        let head: Head = serde_json::from_value(value).map_err(invalid)?;
        Network::restore(path, head, contents.arrays, device)
    }

    fn head(&self, history: &TrainingHistory) -> Head {
        Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            network: self.plan.clone(),
            history: history.clone(),
        }
    }

    fn arrays(&self) -> Result<BTreeMap<String, HostArray>> {
        let array = |(name, _, parameter): (String, _, neurenix::nn::Parameter)| -> Result<_> {
            let tensor = parameter.tensor();
            Ok((name, HostArray::from_bytes(tensor.dtype(), tensor.shape(), tensor.to_bytes()?)?))
        };
        self.named_state().into_iter().map(array).collect()
    }

    fn restore(
        path: &Path,
        head: Head,
        arrays: BTreeMap<String, HostArray>,
        device: Option<&str>,
    ) -> Result<Network> {
        let builder = NetworkBuilder::of(head.network);
        let builder = match device {
            Some(device) => builder.device(device),
            None => builder,
        };
        let mut network = builder.made()?;
        network.history = head.history;
        let own = network.named_state();
        if own.len() != arrays.len() {
            return Err(wrong(
                path,
                format!("it has {} tensors, but its network has {}", arrays.len(), own.len()),
            ));
        }
        let mut values = Vec::new();
        for (name, _, parameter) in own {
            let expected = parameter.tensor();
            let array = arrays.get(&name).filter(|array| array.shape() == expected.shape());
            let array = array.ok_or_else(|| {
                wrong(path, format!("tensor {name} is missing, or its shape is not {:?}", expected.shape()))
            })?;
            let array = array.cast(expected.dtype());
            values.push((
                parameter,
                Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), network.device)?,
            ));
        }
        put(values)?;
        Ok(network)
    }
}

/// Functions that read a file, onto the default device and onto another.
macro_rules! loads {
    ($($(#[$about:meta])+ $load:ident, $load_on:ident = $read:ident;)+) => {
        impl Network { $(
            $(#[$about])+
            pub fn $load(path: impl AsRef<Path>) -> Result<Network> {
                Network::$read(path.as_ref(), None)
            }

            #[doc = concat!("As [`Network::", stringify!($load), "`], onto a device by its name: `cpu`, `cuda:0`.")]
            pub fn $load_on(path: impl AsRef<Path>, device: &str) -> Result<Network> {
                Network::$read(path.as_ref(), Some(device))
            }
        )+ }
    };
}

loads! {
    /// Reads a file of [`Network::save`], onto the default device.
    ///
    /// # Errors
    /// If the file cannot be read, or has another format or version.
    load, load_on = read_json;
    /// Reads a file of [`Network::save_binary`], onto the default device.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or has another format or version.
    load_binary, load_binary_on = read_binary;
    /// Reads a file of [`Network::save_safetensors`], onto the default device.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or does not contain a network's description of this version.
    load_safetensors, load_safetensors_on = read_safetensors;
}

/// The published crate's names of the functions for files.
macro_rules! aliases {
    ($($save:ident = $saves:ident; $load:ident = $loads:ident;)+) => {
        impl Network { $(
            #[doc = concat!("Another name of [`Network::", stringify!($saves), "`].")]
            pub fn $save(&self, path: impl AsRef<Path>) -> Result<()> {
                self.$saves(path)
            }

            #[doc = concat!("Another name of [`Network::", stringify!($loads), "`].")]
            pub fn $load(path: impl AsRef<Path>) -> Result<Network> {
                Network::$loads(path)
            }
        )+ }
    };
}

aliases! {
    export_json = save; import_json = load;
    export_binary = save_binary; import_binary = load_binary;
    export_weights = save_safetensors; import_weights = load_safetensors;
}

/// The contents of a regular file: reading a device may never end.
fn read(path: &Path) -> Result<Vec<u8>> {
    let contents = || {
        let found = std::fs::metadata(path)?;
        if !found.is_file() && !found.is_dir() {
            let reason = "this is a device, a pipe or a socket; a regular file is needed";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, reason));
        }
        std::fs::read(path)
    };
    contents().map_err(|error| neurenix::Error::io("read", path, error).into())
}

fn wrong(path: &Path, message: String) -> NetworkError {
    NetworkError::serialization(format!("{}: {message}", path.display()))
}

fn check_version(path: &Path, format: Option<&str>, version: Option<u64>) -> Result<()> {
    match (format, version) {
        (Some(FORMAT), Some(version)) if version == u64::from(VERSION) => Ok(()),
        (Some(FORMAT), Some(version)) => {
            let message = format!(
                "it has version {version}, but this crate reads {VERSION}: use the crate that wrote it"
            );
            Err(wrong(path, message))
        }
        _ => Err(wrong(path, "it is not a network of this crate".to_owned())),
    }
}

/// FNV-1a, 64 bits. It detects damage, not forgery.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
