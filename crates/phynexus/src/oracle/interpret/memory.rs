//! Elements of memory that know who accessed them, and the values that invocations have bound.

use crate::{Result, Scalar, kernel::loops::Type};

/// Which invocation accessed an element, and in which interval between barriers.
#[derive(Clone, Copy)]
pub(super) struct Accessor {
    pub(super) group: usize,
    /// The groups with the same number wait for each other.
    pub(super) row: usize,
    /// The number of their barriers before it.
    pub(super) meetings: usize,
    pub(super) interval: usize,
    pub(super) invocation: usize,
    pub(super) subgroup: usize,
    /// The number of operations before it that order the invocations of a subgroup.
    pub(super) turn: usize,
    /// The access is an atomic read-modify-write.
    pub(super) atomic: bool,
}

impl Accessor {
    /// True if nothing orders the two accesses.
    pub(super) fn races(self, other: Accessor) -> bool {
        if self.atomic && other.atomic {
            false
        } else if self.group == other.group {
            let ordered = self.subgroup == other.subgroup && self.turn != other.turn;
            self.interval == other.interval && self.invocation != other.invocation && !ordered
        } else {
            self.row != other.row || self.meetings == other.meetings
        }
    }
}

/// An element of memory with its latest writer, its latest reader, and the latest others: another invocation's, and
/// another subgroup's.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) value: Option<Scalar>,
    writer: Option<Accessor>,
    readers: [Option<Accessor>; 3],
}

impl Cell {
    pub(super) fn of(value: Option<Scalar>) -> Cell {
        Cell { value, writer: None, readers: [None; 3] }
    }

    pub(super) fn read(&mut self, by: Accessor) -> Result<Scalar, &'static str> {
        if self.readers[0].is_none_or(|last| last.invocation != by.invocation) {
            self.readers[1] = self.readers[0];
        }
        if self.readers[0].is_none_or(|last| last.subgroup != by.subgroup) {
            self.readers[2] = self.readers[0];
        }
        self.readers[0] = Some(by);
        if self.writer.is_some_and(|writer| writer.races(by)) {
            return Err("is read and written without a barrier between");
        }
        self.value.ok_or("is read before it is written")
    }

    pub(super) fn write(&mut self, value: Scalar, by: Accessor) -> Result<(), &'static str> {
        let others = self.readers.iter().flatten().chain(&self.writer);
        if others.into_iter().any(|other| other.races(by)) {
            return Err("is written and accessed by another invocation without a barrier between");
        }
        (self.value, self.writer) = (Some(value), Some(by));
        Ok(())
    }

    /// Notes that a device may begin to write it.
    pub(super) fn begin_write(&mut self, by: Accessor) -> Result<(), &'static str> {
        self.write(Scalar::Int(0), by)?;
        self.value = None;
        Ok(())
    }
}

/// A bound value.
pub(super) struct Value {
    pub(super) of: Type,
    /// The numbers by invocation and lane.
    pub(super) numbers: Vec<Scalar>,
    /// Whether each invocation has bound it.
    pub(super) bound: Vec<bool>,
}

impl Value {
    pub(super) fn new(of: Type) -> Value {
        Value { of, numbers: Vec::new(), bound: Vec::new() }
    }

    /// Forgets the numbers and makes room for those of `count` invocations.
    pub(super) fn reset(&mut self, of: Type, count: usize) {
        self.of = of;
        self.numbers.clear();
        self.numbers.resize(count * usize::from(of.lanes), Scalar::Int(0));
        self.bound.clear();
        self.bound.resize(count, false);
    }

    pub(super) fn lanes(&self, invocation: usize) -> std::ops::Range<usize> {
        let lanes = usize::from(self.of.lanes);
        invocation * lanes..(invocation + 1) * lanes
    }
}
