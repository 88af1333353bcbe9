//! Ending a long computation from outside, as Ctrl-C does in Python.
//!
//! A thread that computes says with [`watch`] how it is asked whether to go on. The engine asks between the steps of a plan,
//! between the tasks of a long kernel on the CPU, and while it waits for a device or for another thread, about every 20
//! milliseconds and never while it holds a lock. What is ended gives [`Error::Interrupted`]; tensors stay as they were, and
//! can be computed later. Once a plan stores into memory that it took over, it goes on to its end. Without a watch nothing is
//! asked, and no time is read.

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

/// How often the thread is asked.
const INTERVAL: Duration = Duration::from_millis(20);
/// A wait for a device is active for so long, and looks again after so long from then on.
const ACTIVE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(100);

/// Asked whether the computation is to end. It may compute tensors itself.
pub type Check = fn() -> bool;

#[derive(Clone, Copy)]
struct Watched {
    check: Check,
    /// When it is asked next; nothing before the first time that it could be.
    due: Option<Instant>,
    /// It said that the computation is to end, and need not be asked again.
    ended: bool,
}

thread_local! {
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
    /// Parts that must not be ended, entered one inside another.
    static SHIELDS: Cell<u32> = const { Cell::new(0) };
    /// Checks that run.
    static CHECKS: Cell<u32> = const { Cell::new(0) };
}

/// As long as it lives, computations of this thread are ended when its check says so. Then the watch before it is back.
#[must_use = "the watch ends when it is dropped"]
pub struct Watch {
    before: Option<Watched>,
    /// It stays on its thread.
    thread: PhantomData<*const ()>,
}

/// Begins to ask `check` on this thread.
pub fn watch(check: Check) -> Watch {
    let before = WATCHED.replace(Some(Watched { check, due: None, ended: false }));
    Watch { before, thread: PhantomData }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.before);
    }
}

/// Whether computations of this thread may be ended.
#[inline]
pub fn is_watched() -> bool {
    WATCHED.get().is_some()
}

/// Whether the computation of this thread is to end: asks the watch, if it is time.
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
        // What it computes is not ended by the same watch.
        WATCHED.set(None);
        ended = (watched.check)();
        CHECKS.set(CHECKS.get() - 1);
    }
    if due || watched.due.is_none() {
        WATCHED.set(Some(Watched { due: Some(Instant::now() + INTERVAL), ended, ..watched }));
    }
    ended
}

/// An error if the computation of this thread is to end.
#[inline]
pub fn check() -> Result<()> {
    if requested() { Err(Error::Interrupted) } else { Ok(()) }
}

/// What a kernel unwinds with that is ended in its midst.
struct Left(Error);

/// Leaves a kernel in its midst, up to the plan that runs it.
pub fn leave() -> ! {
    resume_unwind(payload())
}

/// What [`leave`] unwinds with, for a thread that unwinds on another one's behalf.
pub fn payload() -> Box<dyn Any + Send> {
    Box::new(Left(Error::Interrupted))
}

/// The value; or leaves a kernel in its midst with the error, up to the plan that runs it.
pub fn or_leave<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| resume_unwind(Box::new(Left(error))))
}

/// Does some work, from whose midst [`leave`] and [`or_leave`] lead here.
pub(crate) fn catch<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| match panic.downcast::<Left>() {
        Ok(left) => Err(left.0),
        Err(panic) => resume_unwind(panic),
    })
}

/// Until it is dropped, this thread is not asked: something is being overwritten, and half of it would be wrong.
#[must_use = "the shield ends when it is dropped"]
pub struct Shield(PhantomData<*const ()>);

#[expect(clippy::new_without_default, reason = "a shield is raised, not a value")]
impl Shield {
    /// Raises it.
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

/// Whether this thread runs a check, and so is in the midst of another computation.
pub(crate) fn is_checking() -> bool {
    CHECKS.get() > 0
}

/// Waits until `done`, asking meanwhile.
pub(crate) fn wait_until(done: &dyn Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !done() {
        check()?;
        if begun.elapsed() < ACTIVE { std::hint::spin_loop() } else { thread::sleep(NAP) }
    }
    Ok(())
}

/// Does a wait for other threads.
pub type Wait = fn(&mut (dyn FnMut() + Send));

static WAIT: OnceLock<Wait> = OnceLock::new();

/// Says how a thread waits for another one that computes what it needs: `around` is called with the wait, and gives up
/// before it what the other may need to be asked, such as a language's global lock. Only the first call counts.
pub fn set_wait(around: Wait) {
    let _ = WAIT.set(around);
}

/// Waits for other threads. The caller holds no lock of the engine's.
pub(crate) fn wait(wait: &mut (dyn FnMut() + Send)) {
    match WAIT.get() {
        Some(around) => around(wait),
        None => wait(),
    }
}

/// How long a thread that waits for another sleeps at most before it asks.
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
        // It is not asked twice.
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
