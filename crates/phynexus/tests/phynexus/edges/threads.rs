//! Several threads that use one leaf.

use std::thread;

use super::vector;

const THREADS: usize = 4;
const STEPS: usize = 200;

#[test]
fn concurrent_gradients_add_up() {
    let leaf = vector(&[1f64, 2.0]).with_grad().unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..STEPS {
                    leaf.mul_scalar(0.5).unwrap().sum(&[], false).unwrap().backward().unwrap();
                }
            });
        }
    });
    let expected = 0.5 * (THREADS * STEPS) as f64;
    assert_eq!(leaf.grad().unwrap().to_vec::<f64>().unwrap(), [expected; 2]);
}
