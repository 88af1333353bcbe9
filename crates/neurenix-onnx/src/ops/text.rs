//! Strings.

mod pattern;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use phynexus::{Tensor, host_memory, interrupt};
use regex::Regex;

use super::{
    Rows,
    elementwise::logic::{common_shape, stretched},
};
use crate::{
    Error, Result, Text, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("RegexFullMatch", regex_full_match),
    ("StringConcat", string_concat),
    ("StringNormalizer", string_normalizer),
    ("StringSplit", string_split),
    ("TfIdfVectorizer", tf_idf_vectorizer),
];

fn regex_full_match(call: &Call<'_>) -> Result<Vec<Value>> {
    let text = call.text(0)?;
    let pattern = pattern::from_re2(call.string_or("pattern", "")?);
    let bad = |e: regex::Error| Error::invalid(format!("the pattern is not valid: {e}"));
    // On its own first: parentheses that do not match would end the group around it.
    Regex::new(&pattern).map_err(bad)?;
    let regex = Regex::new(&format!(r"\A(?:{pattern})\z")).map_err(bad)?;
    let matches: Vec<bool> = text.values.iter().map(|value| regex.is_match(value)).collect();
    one(Tensor::from_slice(&matches, &text.shape, call.device)?)
}

fn string_concat(call: &Call<'_>) -> Result<Vec<Value>> {
    let (a, b) = (call.text(0)?, call.text(1)?);
    let shape = common_shape(&[&a.shape, &b.shape])?;
    let count = shape.iter().fold(1usize, |count, &size| count.saturating_mul(size));
    let mut values = host_memory::room(count)?;
    values.extend(stretched(a, &shape).zip(stretched(b, &shape)).map(|(a, b)| a.to_owned() + b));
    Ok(vec![Value::Text(Text { shape, values })])
}

fn string_split(call: &Call<'_>) -> Result<Vec<Value>> {
    let text = call.text(0)?;
    let delimiter = call.string_or("delimiter", "")?;
    let most = call.int("maxsplit")?.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let most = most.saturating_add(1);
    let split = |value: &'_ str| -> Vec<String> {
        if !delimiter.is_empty() {
            return value.splitn(most, delimiter).map(str::to_owned).collect();
        }
        let mut parts = Vec::new();
        let mut rest = value.trim();
        while !rest.is_empty() {
            let end = if parts.len() + 1 == most { None } else { rest.find(char::is_whitespace) };
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            parts.push(part.to_owned());
            rest = after.trim_start();
        }
        parts
    };
    let parts: Vec<Vec<String>> = text.values.iter().map(|value| split(value)).collect();
    let counts: Vec<i64> = parts.iter().map(|parts| parts.len() as i64).collect();
    let greatest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut values = host_memory::room(greatest.saturating_mul(parts.len()))?;
    for mut parts in parts {
        parts.resize(greatest, String::new());
        values.extend(parts);
    }
    let substrings = Text { shape: [text.shape.as_slice(), &[greatest]].concat(), values };
    Ok(vec![Value::Text(substrings), Tensor::from_slice(&counts, &text.shape, call.device)?.into()])
}

fn string_normalizer(call: &Call<'_>) -> Result<Vec<Value>> {
    let text = call.text(0)?;
    let before: &[usize] = match text.shape[..] {
        [_] => &[],
        [1, _] => &[1],
        _ => {
            return Err(Error::invalid(format!(
                "strings must have the shape (C) or (1, C), not {:?}",
                text.shape
            )));
        }
    };
    let change: fn(&str) -> String = match call.string_or("case_change_action", "NONE")? {
        "NONE" => str::to_owned,
        "LOWER" => str::to_lowercase,
        "UPPER" => str::to_uppercase,
        other => {
            return Err(Error::invalid(format!(
                "case_change_action {other:?}: there are LOWER, UPPER and NONE"
            )));
        }
    };
    let key: fn(&str) -> String =
        if call.int_or("is_case_sensitive", 0)? != 0 { str::to_owned } else { str::to_lowercase };
    let stops: HashSet<String> =
        call.strings("stopwords")?.unwrap_or_default().iter().map(|word| key(word)).collect();
    let kept = text.values.iter().filter(|word| !stops.contains(&key(word)));
    let mut values: Vec<String> = kept.map(|word| change(word)).collect();
    if values.is_empty() {
        values.push(String::new());
    }
    Ok(vec![Value::Text(Text { shape: [before, &[values.len()]].concat(), values })])
}

/// The n-grams that are counted, by the numbers or strings of which they consist.
struct Grams<'a> {
    /// The start of the n-grams of 1, 2, .. elements in the pool.
    starts: Vec<usize>,
    /// The sizes to count.
    sizes: std::ops::RangeInclusive<usize>,
    /// The most elements between two of an n-gram.
    skips: usize,
    /// The column of the result for each n-gram of the pool.
    columns: &'a [usize],
}

fn tf_idf_vectorizer(call: &Call<'_>) -> Result<Vec<Value>> {
    let wrong = |name: &str| Error::invalid(format!("attribute {name:?} must be given and not be negative"));
    let list = |name: &str| {
        let all = call.ints(name)?.unwrap_or_default().into_iter().map(usize::try_from);
        all.collect::<Result<Vec<_>, _>>().map_err(|_| wrong(name))
    };
    let size =
        |name: &str| call.int(name)?.and_then(|size| usize::try_from(size).ok()).ok_or_else(|| wrong(name));
    let columns = list("ngram_indexes")?;
    let grams = Grams {
        starts: list("ngram_counts")?,
        sizes: size("min_gram_length")?.max(1)..=size("max_gram_length")?,
        skips: size("max_skip_count")?,
        columns: &columns,
    };
    let value = call.value(0)?;
    let shape = value.shape()?;
    let (rows, row) = match *shape {
        [] => (1, 1),
        [row] => (1, row),
        [rows, row] => (rows, row),
        _ => {
            return Err(Error::invalid(format!(
                "the input must have the shape (C) or (N, C), not {shape:?}"
            )));
        }
    };
    let width = columns.iter().max().map_or(0, |greatest| greatest.saturating_add(1));
    let mut counts = host_memory::filled(0f32, rows.saturating_mul(width))?;
    match (call.strings("pool_strings")?, call.ints("pool_int64s")?) {
        (Some(pool), None) => grams.count(&pool, &value.text()?.values, row, width, &mut counts)?,
        (None, Some(pool)) => grams.count(&pool, &call.integers(0)?, row, width, &mut counts)?,
        _ => return Err(Error::invalid("one of pool_strings and pool_int64s must be given")),
    }
    let mode = call.string_or("mode", "")?;
    match mode {
        "TF" | "TFIDF" => {}
        "IDF" => counts.iter_mut().for_each(|count| *count = count.min(1.0)),
        other => return Err(Error::invalid(format!("mode {other:?}: there are TF, IDF and TFIDF"))),
    }
    if let Some(weights) = call.float_list("weights")?.filter(|weights| mode != "TF" && !weights.is_empty()) {
        if weights.len() != columns.len() {
            return Err(Error::invalid(format!(
                "there are {} weights for {} n-grams",
                weights.len(),
                columns.len()
            )));
        }
        let mut factors = host_memory::filled(1f32, width)?;
        columns.iter().zip(weights).for_each(|(&column, weight)| factors[column] = weight);
        counts
            .chunks_mut(width.max(1))
            .for_each(|row| row.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor));
    }
    let leading = if shape.len() == 2 { &shape[..1] } else { &[] };
    one(Tensor::from_slice(&counts, &[leading, &[width]].concat(), call.device)?)
}

impl Grams<'_> {
    /// Counts the n-grams of a pool in each row of items.
    fn count<K: Hash + Eq>(
        &self,
        pool: &[K],
        items: &[K],
        row: usize,
        width: usize,
        counts: &mut [f32],
    ) -> Result<()> {
        let mut known: HashMap<Vec<&K>, usize> = HashMap::new();
        let mut number = 0;
        for (at, &start) in self.starts.iter().enumerate() {
            let size = at + 1;
            let end = self.starts.get(size).copied().unwrap_or(pool.len());
            let wrong = || Error::invalid("ngram_counts must ascend up to the size of the pool");
            for gram in pool.get(start..end).ok_or_else(wrong)?.chunks_exact(size) {
                let few = || Error::invalid("ngram_indexes has fewer indices than there are n-grams");
                let column = *self.columns.get(number).ok_or_else(few)?;
                number += 1;
                if self.sizes.contains(&size) {
                    known.insert(gram.iter().collect(), column);
                }
            }
        }
        for (items, counts) in items.chunks(row.max(1)).zip(counts.chunks_mut(width.max(1))) {
            for size in self.sizes.clone().take_while(|&size| size <= items.len().min(self.starts.len())) {
                // A single element has nothing to skip.
                let farthest = if size == 1 { 1 } else { self.skips.saturating_add(1).min(items.len()) };
                for step in 1..=farthest {
                    interrupt::check()?;
                    for start in 0..items.len().saturating_sub((size - 1).saturating_mul(step)) {
                        let gram: Vec<&K> = items[start..].iter().step_by(step).take(size).collect();
                        if let Some(&column) = known.get(&gram) {
                            counts[column] += 1.0;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
