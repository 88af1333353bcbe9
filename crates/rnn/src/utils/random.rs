//! Random numbers that are reproducible on every machine.

use std::collections::HashMap;

use ndarray::Array2;
use neurenix::data::random::RandomStream;

use crate::{NetworkError, Result, convert, error::within, network::time, training::random::normal};

/// Random numbers from a seed; without one, the seed comes from the clock.
#[derive(Clone, Copy, Debug)]
pub struct RandomUtils;

fn stream(seed: Option<u64>) -> RandomStream {
    RandomStream::new(seed.unwrap_or_else(time), 0)
}

impl RandomUtils {
    /// Uniform numbers from `min` (inclusive) to `max`.
    ///
    /// # Errors
    /// If `min` is above `max`, or one of them or their difference is not finite.
    pub fn uniform_random(
        shape: (usize, usize),
        min: f64,
        max: f64,
        seed: Option<u64>,
    ) -> Result<Array2<f64>> {
        within("min", min, f64::MIN, max)?;
        within("max", max, min, f64::INFINITY)?;
        within("max - min", max - min, 0.0, f64::INFINITY)?;
        let mut random = stream(seed);
        convert::made(shape, || min + random.uniform() * (max - min))
    }

    /// Normal numbers.
    ///
    /// # Errors
    /// If `std` is negative, or one of the numbers is not finite.
    pub fn normal_random(
        shape: (usize, usize),
        mean: f64,
        std: f64,
        seed: Option<u64>,
    ) -> Result<Array2<f64>> {
        within("mean", mean, f64::MIN, f64::INFINITY)?;
        within("std", std, 0.0, f64::INFINITY)?;
        let mut random = stream(seed);
        convert::made(shape, || mean + std * normal(&mut random))
    }

    /// `k` distinct numbers below `n`.
    ///
    /// # Errors
    /// If `k` is above `n`, or there is not enough memory.
    pub fn random_indices(n: usize, k: usize, seed: Option<u64>) -> Result<Vec<usize>> {
        if k > n {
            return Err(NetworkError::invalid_parameter(
                "k",
                k,
                format!("it must be at most n, which is {n}"),
            ));
        }
        let mut chosen = Vec::new();
        chosen
            .try_reserve_exact(k)
            .map_err(|_| NetworkError::memory(format!("there is no room for {k} numbers: ask for fewer")))?;
        // A Fisher-Yates shuffle that stores only the exchanged elements, because `n` may be large.
        let (mut random, mut moved) = (stream(seed), HashMap::new());
        for place in 0..k {
            let other = place + random.below((n - place) as u64) as usize;
            let own = moved.get(&place).copied().unwrap_or(place);
            chosen.push(moved.insert(other, own).unwrap_or(other));
        }
        Ok(chosen)
    }

    /// The numbers below `n` in random order.
    ///
    /// # Panics
    /// If there is not enough memory; [`RandomUtils::random_indices`] returns an error then.
    pub fn permutation(n: usize, seed: Option<u64>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        stream(seed).shuffle(&mut order);
        order
    }
}
