//! Errors outside the engine: files that cannot be read or written, and unusable data.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of every fallible function of the framework.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the framework. Every message says where it occurred, what is wrong and how to fix it.
///
/// `Debug` prints the message too, so `fn main() -> neurenix::Result<()>` shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] phynexus::Error),
    /// An error of an ONNX file.
    #[error(transparent)]
    Onnx(Box<neurenix_onnx::Error>),
    /// Quantization failed.
    #[error(transparent)]
    Quantize(Box<neurenix_quantize::Error>),
    /// A network could not be compiled for an NPU, or failed there.
    #[error(transparent)]
    Npu(Box<phynexus_npu::Error>),
    /// The operating system refused to open, read, write or replace a file.
    #[error("cannot {action} {}: {source}{}", printable(&path.to_string_lossy()), remedy(source))]
    Io {
        /// The action that failed: "read", "write", "create".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file violates its format: it is truncated, corrupt, or of an unsupported kind.
    #[error("{}: not a valid {format} file{location}: {}", printable(&path.to_string_lossy()), printable(message))]
    Format {
        /// The file.
        path: PathBuf,
        /// The format's name, such as "NumPy .npy".
        format: &'static str,
        /// Where in the file.
        location: Location,
        /// What is wrong and how to fix it.
        message: String,
    },
    /// The data was read but cannot be used: for example labels out of range, or sizes that do not match.
    #[error("{}: {}", printable(subject), printable(message))]
    Data {
        /// What the data belongs to: a file, "labels", "batch size".
        subject: String,
        /// What is wrong and how to fix it.
        message: String,
    },
    /// The contents of a file do not fit into the free memory.
    #[error(
        "{}: reading it takes {needed} bytes of memory, {}: use a machine with more memory, or less data",
        printable(&path.to_string_lossy()), show_free(*available)
    )]
    Memory {
        /// The file.
        path: PathBuf,
        /// The number of bytes that its contents need at least.
        needed: u64,
        /// The number of free bytes; `None` if the system refused memory without saying how much is free.
        available: Option<u64>,
    },
    /// An environment variable that describes a job of several processes is missing, contradicts another one, or is
    /// not what it should be.
    #[error("{variable}: {}", printable(message))]
    Environment {
        /// The variable.
        variable: &'static str,
        /// What is wrong and how to fix it.
        message: String,
    },
    /// The [store](crate::distributed::Store) of a job cannot be reached, refused a request, or lacks a key.
    #[error("store at {}: {}", printable(address), printable(&source.to_string()))]
    Store {
        /// Its host and port.
        address: String,
        /// The reason. [`io::ErrorKind::TimedOut`] if the time limit passed.
        source: io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The file as a whole.
    Whole,
    /// A byte offset from 0. In a compressed file it counts decompressed bytes.
    Byte(u64),
    /// A cell of a table.
    Cell {
        /// The line, from 1.
        line: u64,
        /// The column's name, or its number, counted from 1.
        column: String,
    },
    /// A line of a text file, counted from 1.
    Line(u64),
    /// A named part, such as the member of an archive or a tensor.
    Part(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Whole => Ok(()),
            Location::Byte(position) => write!(f, ", at byte {position}"),
            Location::Cell { line, column } => write!(f, ", line {line}, column {}", printable(column)),
            Location::Line(line) => write!(f, ", line {line}"),
            Location::Part(name) => write!(f, ", in {name:?}"),
        }
    }
}

impl From<neurenix_onnx::Error> for Error {
    fn from(error: neurenix_onnx::Error) -> Error {
        Error::Onnx(Box::new(error))
    }
}

impl From<neurenix_quantize::Error> for Error {
    fn from(error: neurenix_quantize::Error) -> Error {
        Error::Quantize(Box::new(error))
    }
}

impl From<phynexus_npu::Error> for Error {
    fn from(error: phynexus_npu::Error) -> Error {
        Error::Npu(Box::new(error))
    }
}

impl Error {
    /// Creates an [`Error::Io`] about `path`. An engine error that passed through a reader or writer is returned as it
    /// is, for example an interruption or an exception of another language.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        match source.downcast::<phynexus::Error>() {
            Ok(error) => Error::Engine(error),
            Err(source) => Error::Io { action, path: path.to_owned(), source },
        }
    }
    /// Creates an [`Error::Format`] about `path`.
    pub fn format(
        path: &Path,
        format: &'static str,
        location: Location,
        message: impl Into<String>,
    ) -> Error {
        Error::Format { path: path.to_owned(), format, location, message: message.into() }
    }
    /// Creates an [`Error::Environment`].
    pub fn environment(variable: &'static str, message: impl Into<String>) -> Error {
        Error::Environment { variable, message: message.into() }
    }
    /// Creates an [`Error::Store`]. An engine error that passed through a socket is returned as it is.
    pub fn store(address: impl Into<String>, source: io::Error) -> Error {
        match source.downcast::<phynexus::Error>() {
            Ok(error) => Error::Engine(error),
            Err(source) => Error::Store { address: address.into(), source },
        }
    }
    /// Creates an [`Error::Data`].
    pub fn data(subject: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Data { subject: subject.into(), message: message.into() }
    }
}

/// Makes text from a file or the command line safe to show in a terminal: control characters and those that change the
/// writing direction are escaped as in Rust literals. Otherwise, names of columns and tensors could move the cursor,
/// rewrite lines or set colours.
pub fn printable(text: &str) -> Cow<'_, str> {
    let unsafe_to_show =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(unsafe_to_show) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if unsafe_to_show(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

fn show_free(available: Option<u64>) -> String {
    available.map_or("which the system refused".to_owned(), |bytes| format!("and {bytes} are free"))
}

/// How to fix the most common operating system errors; empty for the others.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => ": check the path",
        io::ErrorKind::PermissionDenied => ": check the permissions",
        io::ErrorKind::StorageFull => {
            ": the disk is full; free some space or write elsewhere (nothing that was there before is lost)"
        }
        io::ErrorKind::QuotaExceeded => ": your disk quota is used up; free some space or write elsewhere",
        io::ErrorKind::IsADirectory => ": name a file",
        io::ErrorKind::NotADirectory => ": a part of the path is a file, not a folder",
        io::ErrorKind::FileTooLarge => {
            ": the file system or a limit of this process (ulimit -f) allows no larger file; write elsewhere, or raise it"
        }
        io::ErrorKind::ReadOnlyFilesystem => ": the file system is mounted read-only; write elsewhere",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_file_the_location_and_the_remedy() {
        let path = Path::new("a/b.npy");
        let error = Error::io("write", path, io::Error::from(io::ErrorKind::StorageFull));
        assert!(error.to_string().starts_with("cannot write a/b.npy: "), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let location = Location::Cell { line: 3, column: "age".into() };
        let error = Error::format(path, "CSV", location, "the value is missing");
        assert_eq!(
            error.to_string(),
            "a/b.npy: not a valid CSV file, line 3, column age: the value is missing"
        );
        let error = Error::from(phynexus::Error::argument("one_hot", "classes must be positive"));
        assert_eq!(error.to_string(), "one_hot: classes must be positive");
        let evil = Path::new("a\u{1b}[2J\n\u{9b}31m");
        let location = Location::Cell { line: 3, column: "\u{1b}]0;title\u{7}".into() };
        let error_in_file = Error::format(evil, "CSV", location, "\r\u{202e}x is missing");
        assert_eq!(
            error_in_file.to_string(),
            "a\\u{1b}[2J\\n\\u{9b}31m: not a valid CSV file, line 3, column \\u{1b}]0;title\\u{7}: \\r\\u{202e}x is missing"
        );
        assert_eq!(Error::data("\u{7f}é", "\u{0}").to_string(), "\\u{7f}é: \\u{0}");
        // `main` prints an error with `Debug`.
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
