//! Compilation failures: refusals, transient failures and retries.

use std::fmt;

use super::{Driver, heap::Heap};
use crate::{Error, Result};

/// The reason why a driver did not compile a kernel.
#[derive(Debug)]
pub enum NotCompiled {
    /// The compiler rejects the source, or the device rejects the code, every time. Contains the compiler's messages.
    Refused(String),
    /// A transient failure, such as lack of memory or a failed driver call.
    Failed(Error),
}

impl From<String> for NotCompiled {
    fn from(messages: String) -> NotCompiled {
        NotCompiled::Refused(messages)
    }
}

impl From<Error> for NotCompiled {
    fn from(error: Error) -> NotCompiled {
        match error {
            Error::Unsupported { message, .. } => NotCompiled::Refused(message),
            error => NotCompiled::Failed(error),
        }
    }
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotCompiled::Refused(messages) => f.write_str(messages),
            NotCompiled::Failed(error) => error.fmt(f),
        }
    }
}

impl NotCompiled {
    /// Prefixes a refusal's message with `what`.
    pub fn doing(self, what: &str) -> NotCompiled {
        match self {
            NotCompiled::Refused(messages) => NotCompiled::Refused(format!("{what}: {messages}")),
            failed => failed,
        }
    }

    /// The device has no room for this many bytes of machine code.
    pub fn out_of_memory(device: &str, bytes: usize) -> NotCompiled {
        NotCompiled::Failed(Error::OutOfMemory {
            device: device.to_owned(),
            requested: bytes,
            in_use: 0,
            limit: usize::MAX,
            hint: "there is no room for a kernel's machine code: use a smaller batch, or drop tensors that \
                   are no longer needed"
                .to_owned(),
        })
    }
}

impl<D: Driver> Heap<D> {
    /// Runs `compile`. If the device is out of memory, empties the pool's cache, waits for pending frees, and tries
    /// once more.
    pub(super) fn compiled<T>(&self, compile: impl Fn() -> Result<T, NotCompiled>) -> Result<T, NotCompiled> {
        match compile() {
            Err(NotCompiled::Failed(Error::OutOfMemory { .. })) => {}
            other => return other,
        }
        self.pool.empty_cache();
        self.driver.synchronize()?;
        self.driver.trim();
        compile().map_err(|error| match error {
            NotCompiled::Failed(error) => NotCompiled::Failed(self.with_usage(error)),
            refused => refused,
        })
    }

    /// Converts the error of a generated kernel.
    pub(super) fn not_compiled(&self, reason: NotCompiled) -> Error {
        match reason {
            NotCompiled::Refused(message) => {
                Error::Unsupported { device: self.driver.name().to_owned(), message }
            }
            NotCompiled::Failed(error) => error,
        }
    }
}

/// A value made on first use. Both the value and a refusal are kept; a transient failure is not.
pub(super) struct Kept<T>(std::sync::OnceLock<Result<T>>);

impl<T> Kept<T> {
    pub(super) const fn new() -> Kept<T> {
        Kept(std::sync::OnceLock::new())
    }

    /// Returns the value, made by `make` if necessary. If two threads make it at once, one result is discarded.
    pub(super) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let kept = match self.0.get() {
            Some(kept) => kept,
            None => {
                let made = match make() {
                    Err(error) if !matches!(error, Error::Unsupported { .. }) => return Err(error),
                    made => made,
                };
                self.0.get_or_init(|| made)
            }
        };
        kept.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_and_what_was_refused_is_kept_and_failures_are_not() {
        let device = || "gpu:0".to_owned();
        let kept = Kept::new();
        let failed = || Err(Error::Device { device: device(), message: "busy".into() });
        assert!(matches!(kept.get(failed), Err(Error::Device { .. })));
        assert_eq!(kept.get(|| Ok(7)).ok(), Some(&7));
        assert_eq!(kept.get(failed).ok(), Some(&7));
        let kept = Kept::<u8>::new();
        let refused = || Err(Error::Unsupported { device: device(), message: "too large".into() });
        assert!(matches!(kept.get(refused), Err(Error::Unsupported { .. })));
        assert!(matches!(kept.get(|| Ok(7)), Err(Error::Unsupported { .. })));
    }
}
