//! Functions of libraries that are loaded at run time.

/// A structure of C functions, and its loading from a library.
///
/// A library stays loaded until the process ends: unloading one that has started threads is not safe.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        $name:ident { $($function:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }
        $(variadic { $($other:ident: $kind:ty;)* })?
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the names are the library's")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $($(pub(crate) $other: $kind,)*)?
        }

        impl $name {
            /// The functions of the library at `path`, or what is wrong with it.
            pub(crate) fn load(path: &std::path::Path) -> std::result::Result<$name, String> {
                // SAFETY: a runtime's library may run code when it is loaded; the search names only runtimes.
                let library = unsafe { libloading::Library::new(path) }
                    .map_err(|error| {
                        format!("{} cannot be loaded: {}", path.display(), $crate::library::reason(&error))
                    })?;
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok($name {
                    $($function: {
                        // SAFETY: the type is that of the function in the library's C header.
                        unsafe { $crate::library::symbol(library, path, stringify!($function)) }?
                    },)*
                    $($($other: {
                        // SAFETY: as above.
                        unsafe { $crate::library::symbol(library, path, stringify!($other)) }?
                    },)*)?
                })
            }
        }
    };
}

pub(crate) use functions;

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char},
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::Error;

/// A function of a library.
///
/// # Safety
/// `T` must be the type of the function in the library's C header.
pub(crate) unsafe fn symbol<T: Copy>(
    library: &'static libloading::Library,
    path: &Path,
    name: &str,
) -> Result<T, String> {
    // SAFETY: the caller gives the function's type, and the library is never unloaded.
    let symbol = unsafe { library.get::<T>(name) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|error| format!("{} has no {name}: {}", path.display(), reason(&error)))
}

/// An error's text with that of its last cause: the loader's own words.
pub(crate) fn reason(error: &libloading::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Results of work that need not be done twice in a process, by what they are for: what was found, or an error's text.
pub(crate) struct Known<T>(Mutex<BTreeMap<String, Result<T, String>>>);

impl<T: Clone> Known<T> {
    pub(crate) const fn new() -> Known<T> {
        Known(Mutex::new(BTreeMap::new()))
    }

    /// What is known of this key, or what `find` finds. Threads that ask at the same time all search, and share what
    /// the first finds: no lock is held in the meantime. What an interrupted thread finds is not kept, and neither is
    /// that a program took too long: the machine may have been busy.
    pub(crate) fn get(&self, key: String, find: impl FnOnce() -> crate::Result<T>) -> Result<T, String> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known().get(&key) {
            return value.clone();
        }
        let found = find();
        let may_pass = matches!(found, Err(Error::TimedOut { .. }));
        let found = found.map_err(|error| error.to_string());
        if may_pass || phynexus::interrupt::requested() {
            return found;
        }
        known().entry(key).or_insert(found).clone()
    }
}

/// A C string as text; empty if the pointer is null.
///
/// # Safety
/// The pointer is null or a string that ends with a zero byte.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises a string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn a_slow_search_does_not_hold_up_others_and_what_may_pass_is_not_kept() {
        static KNOWN: Known<u32> = Known::new();
        let get = |key: &str, find: &dyn Fn() -> crate::Result<u32>| KNOWN.get(key.to_owned(), find);
        let (go, wait) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let slow = thread::spawn(move || {
            KNOWN.get("slow".to_owned(), || {
                begin.send(()).unwrap();
                wait.recv().unwrap();
                Ok(1)
            })
        });
        begun.recv().unwrap();
        assert_eq!(get("other", &|| Ok(2)), Ok(2));
        assert_eq!(get("slow", &|| Ok(3)), Ok(3));
        go.send(()).unwrap();
        // The first that was found is kept.
        assert_eq!(slow.join().unwrap(), Ok(3));
        let watch = phynexus::interrupt::watch(|| true);
        let interrupted = || while !phynexus::interrupt::requested() {};
        let found = get("interrupted", &|| {
            interrupted();
            Ok(4)
        });
        drop(watch);
        assert_eq!((found, get("interrupted", &|| Ok(5))), (Ok(4), Ok(5)));

        let late = || Err(Error::TimedOut { runtime: "tool".to_owned(), seconds: 60 });
        assert!(get("late", &late).unwrap_err().contains("60 seconds"));
        assert_eq!(get("late", &|| Ok(6)), Ok(6));
        let missing = || Err(Error::Missing("it is not there".to_owned()));
        for find in [&missing as &dyn Fn() -> crate::Result<u32>, &|| Ok(7)] {
            assert_eq!(get("missing", find), Err("it is not there".to_owned()));
        }
    }
}
