//! The functions of MPI in use, and calling them one at a time.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use libloading::os::unix::Library;

use super::dialect::{Dialect, Handle};

/// Room for any implementation's `MPI_Status`: the largest is the standard ABI's, of 32 bytes. Only MPI reads it.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Status([u64; 8]);

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions, for an implementation whose handles are `H`.
        #[allow(non_snake_case)]
        pub(crate) struct Functions<H> { $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl<H: Handle> Functions<H> {
            fn open(library: &Library) -> Result<Functions<H>, libloading::Error> {
                Ok(Functions { $(
                    // SAFETY: the MPI standard declares the function so; the caller chose the type of handles for this
                    // library, which is never closed.
                    $name: unsafe { *library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(stringify!($name))? },
                )* })
            }
        }
    };
}

functions! {
    MPI_Initialized(*mut c_int);
    MPI_Finalized(*mut c_int);
    MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    MPI_Query_thread(*mut c_int);
    MPI_Finalize();
    MPI_Error_string(c_int, *mut c_char, *mut c_int);
    MPI_Comm_set_errhandler(H, H);
    MPI_Comm_idup(H, *mut H, *mut H);
    MPI_Comm_rank(H, *mut c_int);
    MPI_Comm_size(H, *mut c_int);
    MPI_Isend(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    MPI_Irecv(*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    MPI_Recv(*mut c_void, c_int, H, c_int, c_int, H, *mut Status);
    MPI_Iprobe(c_int, c_int, H, *mut c_int, *mut Status);
    MPI_Test(*mut H, *mut c_int, *mut Status);
    MPI_Get_count(*const Status, H, *mut c_int);
    MPI_Ibarrier(H, *mut H);
    MPI_Ibcast(*mut c_void, c_int, H, c_int, H, *mut H);
    MPI_Iallgather(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    MPI_Ialltoall(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
}

/// One call of MPI at a time, so that `MPI_THREAD_SERIALIZED` is enough. None of the calls waits for another rank.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What MPI says is wrong.
pub(crate) type Fault = String;

/// A loaded implementation.
pub(crate) struct Api<H: 'static> {
    pub(crate) functions: Functions<H>,
    pub(crate) dialect: Dialect<H>,
}

impl<H: Handle> Api<H> {
    /// Finds the functions of a library whose handles are `H`.
    pub(crate) fn open(library: &Library, dialect: Dialect<H>) -> Result<Api<H>, libloading::Error> {
        Ok(Api { functions: Functions::open(library)?, dialect })
    }

    /// Turns a function's result into MPI's message.
    pub(crate) fn check(&self, name: &str, code: c_int) -> Result<(), Fault> {
        // MPI_SUCCESS is 0 everywhere.
        if code == 0 {
            return Ok(());
        }
        // The longest MPI_MAX_ERROR_STRING is 512.
        let (mut text, mut length) = ([0u8; 1024], 0);
        let _turn = turn();
        // SAFETY: there is room for the text, which ends with a zero.
        unsafe { (self.functions.MPI_Error_string)(code, text.as_mut_ptr().cast(), &mut length) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        Err(format!("{name} failed: {text}"))
    }

    /// The number of bytes of a received message.
    pub(crate) fn count(&self, status: &Status) -> Result<usize, Fault> {
        let mut count = 0;
        let turn = turn();
        // SAFETY: MPI set the status of a receive.
        let code = unsafe { (self.functions.MPI_Get_count)(status, self.dialect.byte, &mut count) };
        drop(turn);
        self.check("MPI_Get_count", code)?;
        usize::try_from(count).map_err(|_| "MPI_Get_count failed: no whole number of bytes".to_owned())
    }

    /// Calls a function that only has a result.
    pub(crate) fn number(
        &self,
        name: &str,
        function: unsafe extern "C" fn(*mut c_int) -> c_int,
    ) -> Result<c_int, Fault> {
        let mut number = 0;
        let turn = turn();
        // SAFETY: the function writes one number.
        let code = unsafe { function(&mut number) };
        drop(turn);
        self.check(name, code)?;
        Ok(number)
    }
}

/// An operation that MPI carries out, and the memory that it uses.
///
/// The memory belongs to the transfer. A transfer that is dropped before it is complete leaks it, because MPI, or
/// another process on its behalf, may still access it: a collective or a matched message cannot be ended early.
pub(crate) struct Transfer<H: Handle> {
    api: &'static Api<H>,
    request: H,
    /// `None` after the end.
    memory: Option<Vec<u8>>,
}

impl<H: Handle> Transfer<H> {
    /// Begins an operation. `start` gets the memory's address and sets the request.
    pub(crate) fn begin(
        api: &'static Api<H>,
        name: &str,
        memory: Vec<u8>,
        start: impl FnOnce(*mut u8, *mut H) -> c_int,
    ) -> Result<Transfer<H>, Fault> {
        let mut transfer = Transfer { api, request: H::default(), memory: Some(memory) };
        let address = transfer.memory.as_mut().map_or(ptr::null_mut(), |memory| memory.as_mut_ptr());
        let turn = turn();
        let code = start(address, &mut transfer.request);
        drop(turn);
        api.check(name, code)?;
        Ok(transfer)
    }

    /// Returns the memory once the operation is complete.
    pub(crate) fn test(&mut self) -> Result<Option<(Vec<u8>, Status)>, Fault> {
        let (mut is_complete, mut status) = (0, Status::default());
        let turn = turn();
        // SAFETY: the request is pending, or null once it is complete.
        let code = unsafe { (self.api.functions.MPI_Test)(&mut self.request, &mut is_complete, &mut status) };
        drop(turn);
        self.api.check("MPI_Test", code)?;
        match is_complete {
            0 => Ok(None),
            _ => Ok(self.memory.take().map(|memory| (memory, status))),
        }
    }
}

impl<H: Handle> Drop for Transfer<H> {
    fn drop(&mut self) {
        std::mem::forget(self.memory.take());
    }
}
