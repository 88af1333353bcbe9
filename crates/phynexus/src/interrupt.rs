//! Interrupts long computations, as Ctrl-C does in Python.
//!
//! A thread calls [`watch`] with a check function that decides whether to stop. The engine calls it between the steps
//! of a plan, between the tasks of a long CPU kernel, and while it waits for a device or another thread. It does so
//! about every 20 ms, and never while it holds a lock.
//!
//! An interrupted computation returns [`Error::Interrupted`]. Its tensors are unchanged and can be computed later,
//! unless it had begun a collective: that ends this rank's part in the process group, since other ranks are past it. A
//! plan that has begun to overwrite memory it took over runs to its end. Without a watch, no check is called and no
//! clock is read.

use std::{
    any::Any,
    cell::Cell,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The time between two calls of the check.
const INTERVAL: Duration = Duration::from_millis(20);
/// A wait for a device spins for `ACTIVE`, then polls every `NAP`.
const ACTIVE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(100);

/// Returns whether the computation should stop. It may compute tensors itself.
pub type Check = fn() -> bool;

#[derive(Clone, Copy)]
struct Watched {
    check: Check,
    /// The time of the next check; `None` before the first opportunity.
    due: Option<Instant>,
    /// True once the check has requested a stop. It is not called again.
    ended: bool,
}

thread_local! {
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
    /// The number of nested sections that must not be interrupted.
    static SHIELDS: Cell<u32> = const { Cell::new(0) };
    /// The number of checks now running.
    static CHECKS: Cell<u32> = const { Cell::new(0) };
}

/// Makes computations of this thread interruptible while it lives. Restores the previous watch when dropped.
#[must_use = "the watch ends when it is dropped"]
pub struct Watch {
    before: Option<Watched>,
    /// Not `Send`: it belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// Watches this thread with `check`.
pub fn watch(check: Check) -> Watch {
    let before = WATCHED.replace(Some(Watched { check, due: None, ended: false }));
    Watch { before, thread: PhantomData }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.before);
    }
}

/// Returns whether computations of this thread can be interrupted.
#[inline]
pub fn is_watched() -> bool {
    WATCHED.get().is_some()
}

/// Returns whether this thread's computation should stop. Calls the check if it is due.
#[inline]
pub fn requested() -> bool {
    match WATCHED.get() {
        None => false,
        Some(watched) => ask(watched),
    }
}

#[cold]
fn ask(watched: Watched) -> bool {
    if SHIELDS.get() > 0 {
        return false;
    }
    if watched.ended {
        return true;
    }
    let now = Instant::now();
    let due = watched.due.is_some_and(|due| due <= now);
    let mut ended = false;
    if due {
        CHECKS.set(CHECKS.get() + 1);
        // The check's own computations are not interrupted by the same watch.
        WATCHED.set(None);
        ended = (watched.check)();
        CHECKS.set(CHECKS.get() - 1);
    }
    if due || watched.due.is_none() {
        WATCHED.set(Some(Watched { due: Some(Instant::now() + INTERVAL), ended, ..watched }));
    }
    ended
}

/// Returns [`Error::Interrupted`] if this thread's computation should stop.
#[inline]
pub fn check() -> Result<()> {
    if requested() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The panic payload of an interrupted kernel.
struct Left(Error);

/// Unwinds from a kernel to the plan that runs it.
pub fn leave() -> ! {
    resume_unwind(payload())
}

/// Returns the payload of [`leave`], for a thread that unwinds on behalf of another.
pub fn payload() -> Box<dyn Any + Send> {
    Box::new(Left(Error::Interrupted))
}

/// Returns the value, or unwinds from a kernel with the error, to the plan that runs it.
pub fn or_leave<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| resume_unwind(Box::new(Left(error))))
}

/// Runs `work`. Catches [`leave`] and [`or_leave`] and returns their error.
pub(crate) fn catch<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| match panic.downcast::<Left>() {
        Ok(left) => Err(left.0),
        Err(panic) => resume_unwind(panic),
    })
}

/// Suppresses checks on this thread until it is dropped. Use it while overwriting something that must not be left half
/// done.
#[must_use = "the shield ends when it is dropped"]
pub struct Shield(PhantomData<*const ()>);

#[expect(clippy::new_without_default, reason = "a shield is raised, not a value")]
impl Shield {
    /// Raises the shield.
    pub fn new() -> Shield {
        SHIELDS.set(SHIELDS.get() + 1);
        Shield(PhantomData)
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        SHIELDS.set(SHIELDS.get() - 1);
    }
}

/// Returns whether this thread is running a check, and so is inside another computation.
pub(crate) fn is_checking() -> bool {
    CHECKS.get() > 0
}

/// Waits until `done` returns true, with checks in between.
pub(crate) fn wait_until(done: &dyn Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !done() {
        check()?;
        if begun.elapsed() < ACTIVE { std::hint::spin_loop() } else { thread::sleep(NAP) }
    }
    Ok(())
}

/// Runs a wait for other threads.
pub type Wait = fn(&mut (dyn FnMut() + Send));

static WAIT: OnceLock<Wait> = OnceLock::new();

/// Sets the function that runs every wait for another thread. `around` is called with the wait. It must release
/// whatever the other thread may need, such as a language's global lock, before it calls the wait. Only the first call
/// takes effect.
pub fn set_wait(around: Wait) {
    let _ = WAIT.set(around);
}

/// Waits for other threads. The caller holds no engine lock.
pub(crate) fn wait(wait: &mut (dyn FnMut() + Send)) {
    match WAIT.get() {
        Some(around) => around(wait),
        None => wait(),
    }
}

/// The maximum time that a thread sleeps between checks while it waits for another.
pub(crate) const PATIENCE: Duration = INTERVAL;

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    fn no() -> bool {
        ASKED.set(ASKED.get() + 1);
        false
    }
    fn yes() -> bool {
        ASKED.set(ASKED.get() + 1);
        true
    }
    fn pass() {
        thread::sleep(INTERVAL + Duration::from_millis(5));
    }

    #[test]
    fn nobody_is_asked_without_a_watch_nor_before_it_is_time() {
        assert!(!is_watched() && check().is_ok());
        let watch = watch(yes);
        assert!(is_watched());
        assert!(check().is_ok() && check().is_ok());
        assert_eq!(ASKED.get(), 0);
        pass();
        assert!(matches!(check(), Err(Error::Interrupted)));
        // The check is not called again.
        assert!(check().is_err());
        assert_eq!(ASKED.get(), 1);
        drop(watch);
        assert!(check().is_ok());
    }

    #[test]
    fn an_inner_watch_has_an_end_of_its_own() {
        let _outer = watch(no);
        assert!(check().is_ok());
        {
            let _inner = watch(yes);
            assert!(check().is_ok());
            pass();
            assert!(check().is_err());
        }
        pass();
        assert!(check().is_ok());
        assert_eq!(ASKED.get(), 2);
    }

    #[test]
    fn a_shield_keeps_the_question_away() {
        let _watch = watch(yes);
        assert!(check().is_ok());
        pass();
        {
            let _shield = Shield::new();
            assert!(check().is_ok());
        }
        assert_eq!(ASKED.get(), 0);
        assert!(check().is_err());
    }

    #[test]
    fn leaving_is_an_error_and_a_panic_stays_one() {
        let _watch = watch(no);
        assert!(matches!(catch::<()>(|| leave()), Err(Error::Interrupted)));
        assert_eq!(catch(|| Ok(3)).unwrap(), 3);
        let refused = catch::<u8>(|| Ok(or_leave(Err(Error::HostMemory { requested: 5 }))));
        assert!(matches!(refused, Err(Error::HostMemory { requested: 5 })));
        let panic = catch_unwind(|| catch::<()>(|| panic!("mine")));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"mine"));
    }

    #[test]
    fn waiting_is_ended() {
        let _watch = watch(yes);
        assert!(matches!(wait_until(&|| false), Err(Error::Interrupted)));
        assert!(wait_until(&|| true).is_ok());
    }
}
