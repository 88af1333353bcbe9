//! Settings by name, in memory and in files.

use std::{collections::HashMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{NetworkError, Result};

/// Settings by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigManager {
    /// The settings as JSON values.
    pub settings: HashMap<String, serde_json::Value>,
}

fn invalid(what: &str, error: serde_json::Error) -> NetworkError {
    NetworkError::serialization(format!("{what}: {error}"))
}

impl ConfigManager {
    /// No settings.
    pub fn new() -> ConfigManager {
        ConfigManager::default()
    }

    /// Sets a value. A number that is not finite becomes `null`, because JSON cannot represent it.
    ///
    /// # Errors
    /// If JSON cannot represent the value, such as a map whose keys are neither strings nor numbers.
    pub fn set<T: Serialize>(&mut self, key: &str, value: T) -> Result<()> {
        let value = serde_json::to_value(value).map_err(|error| invalid(key, error))?;
        self.settings.insert(key.to_owned(), value);
        Ok(())
    }

    /// A value, if it is set.
    ///
    /// # Errors
    /// If it has another type.
    pub fn get<T>(&self, key: &str) -> Result<Option<T>>
    where
        T: for<'de> Deserialize<'de>,
    {
        let own = |value: &serde_json::Value| serde_json::from_value(value.clone());
        self.settings.get(key).map(own).transpose().map_err(|error| invalid(key, error))
    }

    /// A value, or `default` if it is not set or has another type.
    pub fn get_or_default<T>(&self, key: &str, default: T) -> T
    where
        T: for<'de> Deserialize<'de>,
    {
        self.get(key).ok().flatten().unwrap_or(default)
    }

    /// Adds the settings of a JSON file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a JSON object.
    pub fn load_from_file<P: AsRef<Path>>(&mut self, path: P) -> Result<()> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|error| neurenix::Error::io("read", path, error))?;
        let read: HashMap<String, serde_json::Value> =
            serde_json::from_slice(&text).map_err(|error| invalid(&path.display().to_string(), error))?;
        self.settings.extend(read);
        Ok(())
    }

    /// Writes all settings as a JSON object.
    ///
    /// # Errors
    /// If the file cannot be written. An existing file is kept.
    pub fn save_to_file<P: AsRef<Path>>(&self, path: P) -> Result<()> {
        let path = path.as_ref();
        let text = serde_json::to_vec_pretty(&self.settings);
        let text = text.map_err(|error| invalid(&path.display().to_string(), error))?;
        Ok(neurenix::io::write_bytes_atomically(path, &text)?)
    }

    /// True if there is a setting with this name.
    pub fn contains_key(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    /// Removes a setting and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<serde_json::Value> {
        self.settings.remove(key)
    }

    /// The names, in no order.
    pub fn keys(&self) -> Vec<&String> {
        self.settings.keys().collect()
    }

    /// Removes all settings.
    pub fn clear(&mut self) {
        self.settings.clear();
    }
}
