//! The thread pool of the CPU device, with fork and join.
//!
//! A job is a number of tasks and a body. Idle threads and the caller draw task numbers from one counter until none is
//! left. Idle workers spin briefly before they sleep, so that a sequence of small jobs costs about a microsecond per
//! job. A worker that wakes too late finds the job closed; nothing waits for it.
//!
//! If the caller can be interrupted, it checks between tasks. An interruption ends the job as if a task had panicked,
//! and unwinding continues to the plan that runs the kernel.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use phynexus::interrupt;

/// How long an idle worker looks for the next job before it sleeps. The gap between two kernels of a plan is much
/// shorter, and waking a sleeping thread costs about as much.
const SPIN: Duration = Duration::from_micros(60);

/// In the state word: the number of workers inside the open job.
const INSIDE: u64 = 0xffff;
/// In the state word: workers may enter.
const OPEN: u64 = 1 << 16;
/// In the state word: the job's number starts at this bit.
const EPOCH: u64 = 1 << 32;

/// The shared state of one `parallel_for`. It lives on the caller's stack until the last worker has left.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    next: Padded<AtomicUsize>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Whether the caller can be interrupted.
    watched: bool,
}

/// The epoch of the most recently interrupted job; 0 if none.
static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// On a worker, the epoch of the job that it is inside; otherwise 0.
    static INSIDE_OF: Cell<u64> = const { Cell::new(0) };
}

impl Job<'_> {
    /// Draws tasks until none is left. A panic ends the job early and is stored for the caller. Only the caller
    /// (`asked`) checks for interruption.
    fn work(&self, asked: bool) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                if asked {
                    check();
                }
                let task = self.next.0.fetch_add(1, Ordering::Relaxed);
                if task >= self.tasks {
                    break;
                }
                (self.body)(task);
            }
        }));
        if let Err(payload) = result {
            self.end(payload);
        }
    }

    /// Ends the job early.
    fn end(&self, payload: Box<dyn Any + Send>) {
        self.next.0.store(self.tasks, Ordering::Relaxed);
        lock(&self.panic).get_or_insert(payload);
    }
}

/// A value with its own pair of cache lines, because adjacent lines are fetched together.
#[repr(align(128))]
struct Padded<T>(T);

struct Pool {
    /// Epoch, `OPEN`, and the number of workers inside.
    state: Padded<AtomicU64>,
    /// The open job. Valid while a worker is counted inside.
    job: AtomicPtr<Job<'static>>,
    /// Held by the thread that runs a job.
    busy: Padded<AtomicBool>,
    /// The number of threads per job, including the caller; 0 if not determined yet.
    threads: AtomicUsize,
    /// The number of existing workers. Accessed only by the holder of `busy`.
    spawned: UnsafeCell<usize>,
    /// Workers that sleep or are about to.
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    wake: Condvar,
}

// SAFETY: every field except `spawned` is `Sync`, and `spawned` is only accessed by the thread that set `busy`.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool {
    state: Padded(AtomicU64::new(0)),
    job: AtomicPtr::new(ptr::null_mut()),
    busy: Padded(AtomicBool::new(false)),
    threads: AtomicUsize::new(0),
    spawned: UnsafeCell::new(0),
    sleepers: AtomicUsize::new(0),
    gate: Mutex::new(()),
    wake: Condvar::new(),
};

/// The number of threads per job, including the caller: the value passed to [`set_threads`], or the machine's number.
pub fn threads() -> usize {
    match POOL.threads.load(Ordering::Relaxed) {
        0 => {
            let found = thread::available_parallelism().map_or(1, |n| n.get());
            // A concurrent `set_threads` takes precedence.
            match POOL.threads.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => found,
                Err(set) => set,
            }
        }
        n => n,
    }
}

/// The maximum number of threads per job.
pub const MOST_THREADS: usize = 1024;

/// Sets the number of threads of later jobs, up to [`MOST_THREADS`]. 0 restores the machine's number. Results do not
/// depend on it.
pub fn set_threads(n: usize) {
    POOL.threads.store(n.min(MOST_THREADS), Ordering::Relaxed);
}

/// Calls `body(0)` to `body(tasks - 1)`, each once and in no particular order, on the pool's threads and the caller's.
/// Returns when all are done. Inside another job, or while another thread runs one, all calls are made here in order. A
/// panic of the body ends the job early and continues in the caller once every thread has left the body.
pub fn parallel_for(tasks: usize, body: &(dyn Fn(usize) + Sync)) {
    let threads = threads().min(tasks);
    let claim = || POOL.busy.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let watched = interrupt::is_watched();
    if threads <= 1 || !claim() {
        if watched || INSIDE_OF.get() != 0 {
            (0..tasks).for_each(|task| {
                check();
                body(task);
            });
        } else {
            (0..tasks).for_each(body);
        }
        return;
    }
    let job = Job { body, tasks, next: Padded(AtomicUsize::new(0)), panic: Mutex::new(None), watched };
    POOL.run(&job, threads - 1);
    POOL.busy.0.store(false, Ordering::Release);
    let panic = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// Unwinds from the kernel if its caller was interrupted: for routines with long tasks, between their parts. Does
/// nothing if interruption is not possible.
pub(crate) fn check() {
    let inside = INSIDE_OF.get();
    let ended = match inside {
        0 => interrupt::requested(),
        _ => INTERRUPTED.load(Ordering::Relaxed) == inside,
    };
    if ended {
        interrupt::leave();
    }
}

impl Pool {
    /// Runs a job with at most `helpers` workers. The caller must hold `busy`. Does not unwind.
    fn run(&'static self, job: &Job<'_>, helpers: usize) {
        self.spawn_up_to(helpers);
        self.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        let epoch = (self.state.0.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        // The available places are counted down from `INSIDE`, so that a lower limit needs no second word.
        let closed = epoch | (INSIDE - helpers as u64);
        // Sequentially consistent, like the sleeper count: either this thread sees the sleeper, or the sleeper sees the
        // job.
        self.state.0.store(closed | OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _gate = lock(&self.gate);
            self.wake.notify_all();
        }
        job.work(job.watched);
        self.state.0.fetch_and(!OPEN, Ordering::Relaxed);
        let mut spins = 0u32;
        while self.state.0.load(Ordering::Acquire) != closed {
            spins += 1;
            if job.watched {
                // The check may panic, and workers are still using the job.
                let asked = catch_unwind(interrupt::requested);
                let ended = asked.map_or_else(Some, |ended| ended.then(interrupt::payload));
                if let Some(payload) = ended
                    && INTERRUPTED.swap(epoch, Ordering::Relaxed) != epoch
                {
                    job.end(payload);
                }
            }
            // The awaited worker may need this core.
            if spins < 2000 { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }

    fn spawn_up_to(&'static self, wanted: usize) {
        // SAFETY: the caller holds `busy`, so no other thread accesses `spawned`.
        let spawned = unsafe { &mut *self.spawned.get() };
        while *spawned < wanted {
            let builder = thread::Builder::new().name(format!("phynexus-cpu-{}", *spawned + 1));
            if builder.spawn(|| self.worker()).is_err() {
                break; // Run the job with fewer threads.
            }
            *spawned += 1;
        }
    }

    fn worker(&self) {
        let mut seen = 0;
        loop {
            let state = self.next_job(seen);
            seen = state & !(EPOCH - 1);
            if self.enter(seen) {
                let job = self.job.load(Ordering::Relaxed);
                INSIDE_OF.set(seen);
                // Workers do not check for interruption; they observe the caller's result.
                // SAFETY: this worker is counted inside an open job, and the job's caller keeps it alive until it has
                // left. The acquiring exchange in `enter` makes the pointer and its target visible.
                unsafe { (*job).work(false) };
                INSIDE_OF.set(0);
                self.state.0.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Counts this worker inside job `epoch`, unless the job is closed or full.
    fn enter(&self, epoch: u64) -> bool {
        let mut state = self.state.0.load(Ordering::Relaxed);
        loop {
            if state & !(EPOCH - 1) != epoch || state & OPEN == 0 || state & INSIDE == INSIDE {
                return false;
            }
            match self.state.0.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Waits for an open job other than `seen`: first spinning, then asleep.
    fn next_job(&self, seen: u64) -> u64 {
        let is_new = |state: u64| state & OPEN != 0 && state & !(EPOCH - 1) != seen;
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                let state = self.state.0.load(Ordering::Relaxed);
                if is_new(state) {
                    return state;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                break;
            }
        }
        let mut gate = lock(&self.gate);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let state = loop {
            let state = self.state.0.load(Ordering::SeqCst);
            if is_new(state) {
                break state;
            }
            gate = self.wake.wait(gate).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        state
    }
}

/// No code panics while holding one of these locks, so poisoning is irrelevant.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a job and checks that every task ran exactly once.
    fn covers(tasks: usize) {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        parallel_for(tasks, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{tasks} tasks");
    }

    #[test]
    fn every_task_runs_once() {
        for tasks in [0, 1, 2, 3, 7, 64, 1000] {
            covers(tasks);
        }
    }

    #[test]
    fn many_small_jobs() {
        let total = AtomicUsize::new(0);
        for _ in 0..20_000 {
            parallel_for(3, &|i| {
                total.fetch_add(i, Ordering::Relaxed);
            });
        }
        assert_eq!(total.into_inner(), 3 * 20_000);
    }

    #[test]
    fn workers_wake_from_sleep() {
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(1));
            covers(50);
        }
    }

    #[test]
    fn nested_jobs_run_in_place() {
        let total = AtomicUsize::new(0);
        parallel_for(8, &|_| {
            let here = thread::current().id();
            parallel_for(5, &|i| {
                if threads() > 1 {
                    assert_eq!(thread::current().id(), here);
                }
                total.fetch_add(i, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 80);
    }

    #[test]
    fn concurrent_callers_all_finish() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|i| covers(i % 17)));
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        for bad in [0, 5, 99] {
            let inside = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                parallel_for(100, &|i| {
                    inside.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::Relaxed);
                    assert!(i != bad, "task {i}");
                });
            }));
            let payload = result.expect_err("the panic goes on in the caller");
            assert_eq!(
                payload.downcast_ref::<String>().map(String::as_str),
                Some(format!("task {bad}").as_str())
            );
            assert_eq!(inside.into_inner(), 0);
            covers(100);
        }
    }

    #[test]
    fn an_interruption_ends_the_job_and_those_inside_it() {
        let watch = interrupt::watch(|| true);
        for _ in 0..3 {
            let done = AtomicUsize::new(0);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                parallel_for(4, &|_| {
                    parallel_for(10_000, &|_| {
                        thread::sleep(Duration::from_millis(1));
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }));
            assert!(ended.is_err() && done.into_inner() < 40_000);
        }
        drop(watch);
        covers(100);
    }

    #[test]
    fn the_number_of_threads_can_be_changed() {
        for n in [1, 4, 2, 7, 0] {
            set_threads(n);
            assert!(threads() >= 1);
            covers(200);
        }
    }
}
