//! Numbers in JSON, which has none for infinities and what is no number: those are words there.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number, or the word for it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Word(String),
}

impl From<f64> for Number {
    fn from(x: f64) -> Number {
        if x.is_finite() { Number::Finite(x) } else { Number::Word(x.to_string()) }
    }
}

impl Number {
    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Number::Finite(x) => Ok(x),
            Number::Word(word) => match word.as_str() {
                "NaN" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(E::custom(format!("{word:?} is no number"))),
            },
        }
    }
}

/// For `#[serde(with)]` of lists.
pub(crate) mod list {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|x| Number::from(*x)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        Vec::<Number>::deserialize(from)?.into_iter().map(Number::value).collect()
    }
}

/// For `#[serde(with)]` of numbers by name.
pub(crate) mod map {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(numbers: &HashMap<String, f64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(numbers.iter().map(|(name, x)| (name, Number::from(*x))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HashMap<String, f64>, D::Error> {
        let numbers = HashMap::<String, Number>::deserialize(from)?;
        numbers.into_iter().map(|(name, number)| Ok((name, number.value()?))).collect()
    }
}

/// For `#[serde(with)]` of lists by name.
pub(crate) mod lists {
    use super::*;

    type Lists = HashMap<String, Vec<f64>>;

    pub(crate) fn serialize<S: Serializer>(lists: &Lists, to: S) -> Result<S::Ok, S::Error> {
        let numbers = |list: &Vec<f64>| list.iter().map(|x| Number::from(*x)).collect::<Vec<_>>();
        to.collect_map(lists.iter().map(|(name, list)| (name, numbers(list))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Lists, D::Error> {
        let lists = HashMap::<String, Vec<Number>>::deserialize(from)?;
        let list = |(name, list): (String, Vec<Number>)| {
            Ok((name, list.into_iter().map(Number::value).collect::<Result<_, D::Error>>()?))
        };
        lists.into_iter().map(list).collect()
    }
}
