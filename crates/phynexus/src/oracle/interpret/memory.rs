//! Elements of memory that know who accessed them, and the values that invocations have bound.

use super::{WorkGroup, broken};
use crate::{
    DType, Result, Scalar,
    kernel::loops::{ArrayId, MemoryAccess, Type},
    op::Combine,
    oracle::scalar,
};

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

/// An element of memory with its latest writer, its latest reader, and the latest others: another invocation's, another
/// subgroup's, and another group's.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) value: Option<Scalar>,
    writer: Option<Accessor>,
    readers: [Option<Accessor>; 4],
}

impl Cell {
    pub(super) fn of(value: Option<Scalar>) -> Cell {
        Cell { value, writer: None, readers: [None; 4] }
    }

    pub(super) fn read(&mut self, by: Accessor) -> Result<Scalar, &'static str> {
        if self.readers[0].is_none_or(|last| last.invocation != by.invocation) {
            self.readers[1] = self.readers[0];
        }
        if self.readers[0].is_none_or(|last| last.subgroup != by.subgroup) {
            self.readers[2] = self.readers[0];
        }
        if self.readers[0].is_none_or(|last| last.group != by.group) {
            self.readers[3] = self.readers[0];
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

impl WorkGroup<'_> {
    /// Element `offset` of an access, for one invocation, with its accessor.
    pub(super) fn element(
        &mut self,
        access: &MemoryAccess,
        invocation: usize,
        offset: usize,
    ) -> Result<(&mut Cell, Accessor)> {
        let turns = if self.kernel.holds_panels(access.array) { self.turns.passed } else { 0 };
        let group = invocation / self.size;
        let accessor = Accessor {
            group: self.first + group,
            row: (self.first + group) / self.row,
            meetings: self.meetings[group],
            interval: self.intervals[group] + turns,
            invocation,
            subgroup: invocation / self.subgroup,
            turn: self.turn,
            atomic: false,
        };
        let row = match &access.row {
            Some(row) => {
                let number = self.lanes(row.value, invocation)?[0];
                let number = if let Scalar::UInt(u) = number {
                    i64::try_from(u).unwrap_or(i64::MAX)
                } else {
                    number.as_i64()
                };
                number.clamp(0, row.count as i64 - 1) * row.stride as i64
            }
            None => 0,
        };
        let index = access.index.evaluate(&self.points[invocation]) + row + offset as i64;
        let cells = match access.array {
            ArrayId::Buffer(at) => self.buffers.get_mut(usize::from(at)),
            ArrayId::Shared(at) => self.shared.get_mut(usize::from(at)).and_then(|a| a.get_mut(group)),
            ArrayId::Register(at) => {
                self.registers.get_mut(usize::from(at)).and_then(|a| a.get_mut(invocation))
            }
            ArrayId::Fragment(_) => None,
        };
        let length = self.kernel.array(access.array).map_or(0, |(_, length)| length);
        let cell =
            usize::try_from(index).ok().filter(|&i| i < length).zip(cells).and_then(|(i, c)| c.get_mut(i));
        match cell {
            Some(cell) => Ok((cell, accessor)),
            None => Err(broken(
                self.kernel,
                format!("{:?} has {length} elements, not one at {index}", access.array),
            )),
        }
    }

    pub(super) fn read(&mut self, access: &MemoryAccess, invocation: usize, offset: usize) -> Result<Scalar> {
        let kernel = self.kernel;
        if let ArrayId::Fragment(number) = access.array {
            return Ok(*self.element_of_share(number, access, invocation, offset)?);
        }
        let (cell, accessor) = self.element(access, invocation, offset)?;
        cell.read(accessor)
            .map_err(|fault| broken(kernel, format!("{:?} at {} {fault}", access.array, access.index)))
    }

    pub(super) fn write(
        &mut self,
        access: &MemoryAccess,
        invocation: usize,
        offset: usize,
        scalar: Scalar,
    ) -> Result<()> {
        let kernel = self.kernel;
        let dtype = kernel.array(access.array).map_or(DType::F32, |(dtype, _)| dtype);
        if let ArrayId::Fragment(number) = access.array {
            *self.element_of_share(number, access, invocation, offset)? = scalar.cast(dtype);
            return Ok(());
        }
        let (cell, accessor) = self.element(access, invocation, offset)?;
        let written = cell.write(scalar.cast(dtype), accessor);
        written.map_err(|fault| broken(kernel, format!("{:?} at {} {fault}", access.array, access.index)))
    }

    pub(super) fn atomic(
        &mut self,
        access: &MemoryAccess,
        invocation: usize,
        combine: Combine,
        value: Scalar,
    ) -> Result<()> {
        let kernel = self.kernel;
        let dtype = kernel.array(access.array).map_or(DType::I32, |(dtype, _)| dtype);
        let (cell, accessor) = self.element(access, invocation, 0)?;
        let accessor = Accessor { atomic: true, ..accessor };
        let done = cell.read(accessor).and_then(|before| {
            let after = scalar::binary(combine.binary(), dtype, before, value);
            cell.write(after.ok_or("is undetermined")?, accessor)
        });
        done.map_err(|fault| broken(kernel, format!("{:?} at {} {fault}", access.array, access.index)))
    }
}
