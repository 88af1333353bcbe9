//! Numbers in JSON, for `#[serde(with)]`. JSON cannot represent infinities and NaN, so they are strings.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

/// A number, or a string for one that is not finite.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Finite(f64),
    Word(String),
}

/// Numbers, or collections of them, and their form in JSON.
pub(crate) trait Numbers: Sized {
    type Form: Serialize + DeserializeOwned;
    fn form(&self) -> Self::Form;
    fn read(form: Self::Form) -> Result<Self, String>;
}

impl Numbers for f64 {
    type Form = Number;
    fn form(&self) -> Number {
        if self.is_finite() { Number::Finite(*self) } else { Number::Word(self.to_string()) }
    }
    fn read(form: Number) -> Result<f64, String> {
        match form {
            Number::Finite(x) => Ok(x),
            Number::Word(word) => match word.as_str() {
                "NaN" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(format!("expected a number, \"NaN\", \"inf\" or \"-inf\", got {word:?}")),
            },
        }
    }
}

impl<T: Numbers> Numbers for Vec<T> {
    type Form = Vec<T::Form>;
    fn form(&self) -> Vec<T::Form> {
        self.iter().map(T::form).collect()
    }
    fn read(form: Vec<T::Form>) -> Result<Vec<T>, String> {
        form.into_iter().map(T::read).collect()
    }
}

impl<T: Numbers> Numbers for HashMap<String, T> {
    type Form = HashMap<String, T::Form>;
    fn form(&self) -> HashMap<String, T::Form> {
        self.iter().map(|(name, x)| (name.clone(), x.form())).collect()
    }
    fn read(form: HashMap<String, T::Form>) -> Result<HashMap<String, T>, String> {
        form.into_iter().map(|(name, x)| Ok((name, T::read(x)?))).collect()
    }
}

pub(crate) fn serialize<T: Numbers, S: Serializer>(numbers: &T, to: S) -> Result<S::Ok, S::Error> {
    numbers.form().serialize(to)
}

pub(crate) fn deserialize<'de, T: Numbers, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::read(T::Form::deserialize(from)?).map_err(serde::de::Error::custom)
}
