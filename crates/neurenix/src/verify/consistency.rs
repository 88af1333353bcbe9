//! Consistency: random programs must give the same values as a graph (with any node held or read early) and one
//! operation at a time.

use std::fmt;

use phynexus::{
    DType, Device, interrupt,
    oracle::generate::{Case, inconsistency, random_case_of, shrink},
    text::counted,
};

use serde::{Deserialize, Serialize};

use super::execute::{Outcome, guarded};

/// The result of running random programs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Consistency {
    /// The number of programs run.
    pub programs: usize,
    /// The programs in which a value or gradient depends on how it is evaluated, reduced to a small example, and where
    /// it differs.
    pub differences: Vec<String>,
}

impl Consistency {
    /// Adds the results of other programs.
    pub fn merge(&mut self, other: Consistency) {
        self.programs += other.programs;
        self.differences.extend(other.differences);
    }

    /// True if there are enough differences; more would not help.
    pub fn is_enough(&self) -> bool {
        self.differences.len() >= ENOUGH
    }

    /// True if there are no differences.
    pub fn passed(&self) -> bool {
        self.programs > 0 && self.differences.is_empty()
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Consistency { programs, differences } = self;
        self.differences.iter().try_for_each(|difference| writeln!(f, "{difference}\n"))?;
        match differences.len() {
            0 => {
                let programs = counted(*programs, "program");
                write!(f, "{programs}: the same values and gradients however they are evaluated")
            }
            count => {
                let programs = counted(*programs, "program");
                write!(f, "numbers differ one operation at a time in {count} of {programs}")
            }
        }
    }
}

/// See [`Consistency::is_enough`].
const ENOUGH: usize = 20;

/// The random program of a seed. Every other program mostly uses 16-bit floats.
pub(super) fn program(seed: u64, operations: usize) -> Case {
    let dtypes: &[DType] = if seed.is_multiple_of(2) { &[DType::F16, DType::BF16] } else { &DType::FLOATS };
    random_case_of(seed, operations, dtypes)
}

/// Runs the random programs of these seeds, with at most `operations` operations each. If the thread is
/// [interrupted](interrupt), it stops after the last finished program. `progress` receives the number of finished
/// programs.
pub fn consistency(
    device: Device,
    seeds: std::ops::Range<u64>,
    operations: usize,
    progress: &mut dyn FnMut(usize),
) -> Consistency {
    let mut found = Consistency::default();
    for seed in seeds {
        let case = program(seed, operations);
        let outcome = check(&case, device, seed);
        if interrupt::requested() || found.is_enough() {
            break;
        }
        if outcome.failure.is_some() {
            let small = shrink(&case, &mut |candidate| check(candidate, device, seed).failure.is_some());
            let failure = check(&small, device, seed).failure.or(outcome.failure);
            found.differences.push(format!("{small}\n{}", failure.unwrap_or_default()));
        }
        found.programs += 1;
        progress(found.programs);
    }
    found
}

/// Checks whether the case gives the same values one operation at a time.
pub(super) fn check(case: &Case, device: Device, seed: u64) -> Outcome {
    guarded(|| Ok(Outcome { failure: inconsistency(case, device, seed)?, ..Outcome::default() }))
}
