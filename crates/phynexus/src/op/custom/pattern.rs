//! Shape patterns of parameters.
//!
//! A pattern is a list of words, one per axis. A number is that extent. A name is any extent, which must be the same
//! wherever the name occurs. `_` is any extent. One word may end with `..`, which matches any number of axes. For
//! example, `"m k"`, `"k n"` and `"m n"` are the shapes of a matrix product, and `"shape.."` is any shape.

use std::{collections::HashMap, fmt};

use smallvec::SmallVec;

use crate::shape::Dims;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Word>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Extent(usize),
    Any,
    Name(String),
    /// Any number of axes, bound to a name unless it is empty.
    Rest(String),
}

/// The values of names; names of several axes end with `..`.
pub(super) type Bound = HashMap<String, Dims>;

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A description of the mistake.
    pub(super) fn parse(text: &str) -> Result<Pattern, String> {
        let words: Vec<Word> = text.split_whitespace().map(word).collect::<Result<_, _>>()?;
        if words.iter().filter(|word| matches!(word, Word::Rest(_))).count() > 1 {
            return Err(format!("the pattern {text:?} has more than one word with .."));
        }
        Ok(Pattern(words))
    }

    /// All names, as they are bound; an error for words that do not determine an extent.
    pub(super) fn names(&self) -> Result<Vec<String>, String> {
        let name = |word: &Word| match word {
            Word::Extent(_) => None,
            Word::Any => Some(Err("_".to_owned())),
            Word::Rest(name) if name.is_empty() => Some(Err("..".to_owned())),
            Word::Name(name) => Some(Ok(name.clone())),
            Word::Rest(name) => Some(Ok(format!("{name}.."))),
        };
        self.0.iter().filter_map(name).collect()
    }

    /// The names that matching this pattern binds.
    pub(super) fn bound_names(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|word| match word {
            Word::Name(name) => Some(name.clone()),
            Word::Rest(name) if !name.is_empty() => Some(format!("{name}..")),
            _ => None,
        })
    }

    /// True if the shape matches the pattern and the bound names; binds its names.
    pub(super) fn bind(&self, shape: &[usize], bound: &mut Bound) -> bool {
        let rest = self.0.iter().position(|word| matches!(word, Word::Rest(_)));
        let single = self.0.len() - usize::from(rest.is_some());
        if shape.len() < single || rest.is_none() && shape.len() > single {
            return false;
        }
        let mut left = shape;
        self.0.iter().all(|word| {
            let count = if matches!(word, Word::Rest(_)) { shape.len() - single } else { 1 };
            let (own, others) = left.split_at(count);
            left = others;
            match word {
                Word::Extent(extent) => own == [*extent],
                Word::Any => true,
                Word::Name(name) => bind(name.clone(), own, bound),
                Word::Rest(name) => name.is_empty() || bind(format!("{name}.."), own, bound),
            }
        })
    }

    /// The shape of this pattern, if all names are bound.
    pub(super) fn shape(&self, bound: &Bound) -> Option<Dims> {
        let mut shape = Dims::new();
        for word in &self.0 {
            match word {
                Word::Extent(extent) => shape.push(*extent),
                Word::Any => return None,
                Word::Name(name) => shape.extend_from_slice(bound.get(name)?),
                Word::Rest(name) => shape.extend_from_slice(bound.get(&format!("{name}.."))?),
            }
        }
        Some(shape)
    }

    /// The pattern with the values of its bound names: `(k = 4, n)`.
    pub(super) fn describe(&self, bound: &Bound) -> String {
        let show = |name: &str, extents: &Dims| {
            let extents: Vec<String> = extents.iter().map(usize::to_string).collect();
            format!("{name} = {}", extents.join(", "))
        };
        let words: SmallVec<[String; 4]> = self
            .0
            .iter()
            .map(|word| {
                let text = word.to_string();
                bound.get(&text).map_or(text.clone(), |extents| show(&text, extents))
            })
            .collect();
        match &words[..] {
            [one] => format!("({one},)"),
            many => format!("({})", many.join(", ")),
        }
    }
}

fn bind(name: String, own: &[usize], bound: &mut Bound) -> bool {
    bound.entry(name).or_insert_with(|| own.into()).as_slice() == own
}

fn word(text: &str) -> Result<Word, String> {
    let name = |name: &str| match is_identifier(name) {
        true => Ok(name.to_owned()),
        false => {
            Err(format!("{text:?} in a shape pattern is neither a number, a name, _ nor a name with .."))
        }
    };
    match text.strip_suffix("..") {
        Some("") => Ok(Word::Rest(String::new())),
        Some(rest) => Ok(Word::Rest(name(rest)?)),
        None if text == "_" => Ok(Word::Any),
        None => match text.parse() {
            Ok(extent) => Ok(Word::Extent(extent)),
            Err(_) => Ok(Word::Name(name(text)?)),
        },
    }
}

/// True for valid identifiers in every language.
pub(super) fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Extent(extent) => write!(f, "{extent}"),
            Word::Any => f.write_str("_"),
            Word::Name(name) => f.write_str(name),
            Word::Rest(name) => write!(f, "{name}.."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(patterns: &[&str], shapes: &[&[usize]]) -> Option<Bound> {
        let mut bound = Bound::new();
        let all = patterns.iter().zip(shapes).all(|(p, s)| Pattern::parse(p).unwrap().bind(s, &mut bound));
        all.then_some(bound)
    }

    #[test]
    fn names_stand_for_one_extent_and_words_with_dots_for_many() {
        assert!(fits(&["m k", "k n"], &[&[2, 3], &[3, 4]]).is_some());
        assert!(fits(&["m k", "k n"], &[&[2, 3], &[4, 3]]).is_none());
        assert!(fits(&["n"], &[&[2, 3]]).is_none() && fits(&["a b"], &[&[2]]).is_none());
        assert!(fits(&["", "_ 3"], &[&[], &[7, 3]]).is_some() && fits(&["3"], &[&[4]]).is_none());
        let bound = fits(&["batch.. n", "n batch.."], &[&[5, 6, 2], &[2, 5, 6]]).unwrap();
        assert_eq!(Pattern::parse("n 1 batch..").unwrap().shape(&bound).unwrap().as_slice(), [2, 1, 5, 6]);
        assert!(fits(&["batch.. n", "n batch.."], &[&[5, 6, 2], &[2, 6, 5]]).is_none());
        assert!(fits(&["n.. m", "n"], &[&[0], &[7]]).is_some(), "n and n.. are two names");
        assert!(Pattern::parse("missing").unwrap().shape(&bound).is_none());
    }

    #[test]
    fn patterns_are_described_with_what_is_known() {
        let bound = fits(&["k", "r.."], &[&[4], &[2, 3]]).unwrap();
        assert_eq!(Pattern::parse("k n").unwrap().describe(&bound), "(k = 4, n)");
        assert_eq!(Pattern::parse("r..").unwrap().describe(&bound), "(r.. = 2, 3,)");
    }

    #[test]
    fn bad_patterns_are_refused() {
        for text in ["a.. b..", "3x", "a-b", "-1", "a,b", "..a", "99999999999999999999999"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
