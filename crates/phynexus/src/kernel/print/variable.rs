//! Sources whose numbers can become arguments.
//!
//! A source is printed with a mark around each extent, stride, offset, divisor, bound and constant. Kernels for
//! different sizes often have the same source but for these numbers. Such sources share one kernel: numbers that differ
//! are read from a buffer, and the others stay as they are. Everything that a value decides, such as a condition that
//! always holds, changes the text between the marks. Numbers beyond 32 bits have no marks and belong to that text.

/// Begins a mark: `value`, `LITERAL`, how the number is written, `ARGUMENT`, how an argument is converted, `END`.
const VALUE: char = '\u{1}';
const LITERAL: char = '\u{2}';
const ARGUMENT: char = '\u{3}';
const END: char = '\u{4}';
/// Begins and ends the line that reads an argument from the buffer.
const DECLARATION: char = '\u{5}';
/// How an offset is converted.
const OFFSET: &str = "(#)";
/// The number of an argument, in declarations and conversions.
const NUMBER: char = '#';

/// A number as it is written, with a mark. `argument` converts the argument `size#` to the number's type.
pub(super) fn mark(value: i32, literal: &str, argument: &str) -> String {
    format!("{VALUE}{value}{LITERAL}{literal}{ARGUMENT}{argument}{END}")
}

/// A number that is added to an index: as an argument it costs nothing.
pub(super) fn offset(value: i32) -> String {
    format!("{VALUE}{value}{LITERAL}{value}{ARGUMENT}{OFFSET}{END}")
}

/// The line that reads argument `#`, with a mark.
pub(super) fn declaration(line: &str) -> String {
    format!("{DECLARATION}{line}{DECLARATION}")
}

/// How a number of a source is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberSource {
    /// As a literal.
    Fixed(i32),
    /// As this argument.
    Argument(usize),
}

/// A source with marks.
#[derive(Debug)]
pub struct Variable {
    /// The marked numbers in their order.
    pub values: Vec<i32>,
    /// Whether each of them is an offset.
    pub offsets: Vec<bool>,
    /// The source without the numbers: equal for kernels that differ in their numbers only.
    pub skeleton: String,
    source: String,
}

impl Variable {
    /// Reads a marked source.
    pub fn new(source: String) -> Variable {
        let (mut values, mut offsets) = (Vec::new(), Vec::new());
        let mut skeleton = String::with_capacity(source.len());
        for piece in pieces(&source) {
            match piece {
                Piece::Text(text) | Piece::Declaration(text) => skeleton.push_str(text),
                Piece::Number { value, argument, .. } => {
                    values.push(value);
                    offsets.push(argument == OFFSET);
                    skeleton.push(VALUE);
                    skeleton.push_str(argument);
                }
            }
        }
        Variable { values, offsets, skeleton, source }
    }

    /// The source with all numbers as arguments.
    pub fn general_source(&self) -> String {
        self.source(&(0..self.values.len()).map(NumberSource::Argument).collect::<Vec<_>>())
    }

    /// The source with each number in its place.
    pub fn source(&self, places: &[NumberSource]) -> String {
        let arguments = places.iter().map(|place| match place {
            NumberSource::Argument(number) => number + 1,
            NumberSource::Fixed(_) => 0,
        });
        let arguments = arguments.max().unwrap_or(0);
        let mut text = String::with_capacity(self.source.len());
        let mut places = places.iter();
        for piece in pieces(&self.source) {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Declaration(line) => {
                    (0..arguments)
                        .for_each(|number| text.push_str(&line.replace(NUMBER, &number.to_string())));
                }
                Piece::Number { literal, argument, .. } => match places.next() {
                    Some(NumberSource::Argument(number)) => {
                        text.push_str(&argument.replace(NUMBER, &format!("size{number}")));
                    }
                    _ => text.push_str(literal),
                },
            }
        }
        text
    }
}

enum Piece<'a> {
    Text(&'a str),
    Number { value: i32, literal: &'a str, argument: &'a str },
    Declaration(&'a str),
}

fn pieces(source: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = source;
    std::iter::from_fn(move || {
        let end = rest.find([VALUE, DECLARATION]).unwrap_or(rest.len());
        if end > 0 {
            let (text, after) = rest.split_at(end);
            rest = after;
            return Some(Piece::Text(text));
        }
        if let Some(marked) = rest.strip_prefix(DECLARATION) {
            let (line, after) = marked.split_once(DECLARATION)?;
            rest = after;
            return Some(Piece::Declaration(line));
        }
        let (value, marked) = rest.strip_prefix(VALUE)?.split_once(LITERAL)?;
        let (literal, marked) = marked.split_once(ARGUMENT)?;
        let (argument, after) = marked.split_once(END)?;
        rest = after;
        Some(Piece::Number { value: value.parse().ok()?, literal, argument })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_arguments() {
        let printed = |a: i32, b: i32| {
            let text = declaration("int size# = sizes[#];\n")
                + "x = y * "
                + &mark(a, &a.to_string(), "#")
                + " % u32("
                + &mark(b, &format!("{b}u"), "u32(#)")
                + ");";
            Variable::new(text)
        };
        let (one, other) = (printed(3, 4), printed(5, 4));
        assert_eq!((&one.skeleton, &one.values[..]), (&other.skeleton, &[3, 4][..]));
        assert_eq!(one.source(&[NumberSource::Fixed(3), NumberSource::Fixed(4)]), "x = y * 3 % u32(4u);");
        assert_eq!(
            one.source(&[NumberSource::Argument(0), NumberSource::Argument(1)]),
            "int size0 = sizes[0];\nint size1 = sizes[1];\nx = y * size0 % u32(u32(size1));"
        );
        let one_argument = "int size0 = sizes[0];\nx = y * size0 % u32(4u);";
        assert_eq!(other.source(&[NumberSource::Argument(0), NumberSource::Fixed(4)]), one_argument);
    }
}
