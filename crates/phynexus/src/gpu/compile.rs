//! Why a kernel is not compiled, and what is tried before that is believed.

use std::fmt;

use super::{Driver, memory::Heap};
use crate::{Error, Result};

/// Why a driver does not compile a kernel.
#[derive(Debug)]
pub enum NotCompiled {
    /// The compiler refuses the source, or the device the code, and will every time: the compiler's messages.
    Refused(String),
    /// Something failed that may succeed another time: no memory, a call of the driver's that went wrong.
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
    /// The same with words before a refusal's.
    pub fn doing(self, what: &str) -> NotCompiled {
        match self {
            NotCompiled::Refused(messages) => NotCompiled::Refused(format!("{what}: {messages}")),
            failed => failed,
        }
    }

    /// No room for so many bytes of machine code on this device.
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
    /// What `compile` makes. Where the device has no room for it, the pool's cache is emptied, what is still to be given
    /// back is waited for, and it is tried once more.
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

    /// The error of a kernel that the engine printed.
    pub(super) fn not_compiled(&self, reason: NotCompiled) -> Error {
        match reason {
            NotCompiled::Refused(message) => {
                Error::Unsupported { device: self.driver.name().to_owned(), message }
            }
            NotCompiled::Failed(error) => error,
        }
    }
}

/// A value that is made when it is first needed. What was made stays, and so does a refusal; a failure does not.
pub(super) struct Kept<T>(std::sync::OnceLock<Result<T>>);

impl<T> Kept<T> {
    pub(super) const fn new() -> Kept<T> {
        Kept(std::sync::OnceLock::new())
    }

    /// The value, or what `make` makes of it. Of two threads that make it, one does so in vain.
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
