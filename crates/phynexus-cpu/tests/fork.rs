//! A process that has computed, and its child. In a separate program, because a fork copies only one of its threads.
#![cfg(unix)]

use phynexus::{Error, Tensor};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

#[test]
fn a_child_of_a_process_that_has_computed_is_refused() {
    let x = Tensor::from_slice(&[1f32, 2.0], &[2], phynexus_cpu::register()).unwrap();
    let sum = || x.exp()?.sum(&[], false)?.item::<f32>();
    let expected = sum().unwrap();
    // SAFETY: no other thread holds a lock of this process now; the child records, is refused, and exits.
    let child = unsafe { fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = matches!(sum(), Err(Error::Forked { .. }));
        // SAFETY: it exits this process.
        unsafe { _exit(if refused { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is an integer of the right size.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    // The exit status is in the second byte.
    assert_eq!(status, 7 << 8);
    assert_eq!(sum().unwrap(), expected);
}
