//! Work divided among threads. A case alone keeps neither a GPU nor the compiler of its kernels busy.

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use phynexus::interrupt;

/// How often the calling thread looks whether it is interrupted.
const INTERVAL: Duration = Duration::from_millis(20);

/// Computes the numbers from 0 to `count` on as many threads as the machine runs at once, and hands the results to `take`
/// on this thread, in order. It ends early where `take` returns false or this thread is [interrupted](interrupt); then
/// results of work that was begun are dropped.
pub(super) fn in_order<T: Send>(
    count: usize,
    compute: &(dyn Fn(usize) -> T + Sync),
    take: &mut dyn FnMut(T) -> bool,
) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (sender, results) = channel();
        for _ in 0..threads {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || sender.send((at, compute(at))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut taken = 0;
        while !interrupt::requested() {
            match results.recv_timeout(INTERVAL) {
                Ok((at, result)) => drop(early.insert(at, result)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some(result) = early.remove(&taken) {
                taken += 1;
                if !take(result) {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_end_when_no_more_are_wanted() {
        let mut squares = Vec::new();
        in_order(100, &|at| at * at, &mut |square| {
            squares.push(square);
            squares.len() < 40
        });
        assert_eq!(squares, (0..40).map(|at| at * at).collect::<Vec<_>>());
        in_order(0, &|at| at, &mut |_| panic!("there is nothing to compute"));
    }

    #[test]
    fn an_interrupted_thread_takes_no_more() {
        let _watch = interrupt::watch(|| true);
        in_order(10, &|at| at, &mut |_| panic!("the thread is interrupted"));
    }
}
