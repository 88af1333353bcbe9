//! Groups that wait for each other: what they see, what the checker refuses, and the faults that the interpreter
//! detects.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        check::{Limits, check},
        loops::{AxisKind, BufferParameter, Kernel, MemoryAccess},
        print::print,
    },
    oracle::interpret::interpret,
};

use super::{PLAIN, limits};

const ROWS: usize = 2;
const GROUPS: usize = 3;
const BLOCK: usize = 32;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    NoBarrier,
    /// Only the first group of each row waits.
    OnlySome,
    /// All rows have one counter.
    OneCounter,
    /// The first row has another counter for its second barrier.
    SeveralCounters,
    /// The counter is read.
    CounterIsRead,
    /// A group of the row overwrites what another one reads between the same barriers.
    TooEarly,
}

/// Every group stores its number, and then adds those of its row, twice.
fn kernel(fault: Fault) -> Kernel {
    let mut b = Builder::new("exchange");
    let shared = BufferParameter { dtype: DType::I32, length: ROWS * GROUPS, written: true, exclusive: true };
    let numbers = b.buffer(shared.clone());
    let counters = b.buffer(BufferParameter { dtype: DType::U32, length: ROWS, ..shared.clone() });
    let sums = b.buffer(shared);
    b.over(ROWS, AxisKind::Grid(1), |b, row| {
        b.over(GROUPS, AxisKind::Grid(0), |b, group| {
            b.over(BLOCK, AxisKind::Block(0), |b, x| {
                let own = row.scale(GROUPS as i64).add(group);
                let total = b.registers(DType::I32, 1);
                let only = Index::default();
                let zero = b.constant(DType::I32, Scalar::Int(0));
                b.store(total, &only, zero);
                let is_first = Mask::within(x, 0, 1, b.ranges());
                for turn in 0..2 {
                    let number = b.number(&own.shift(1 + turn));
                    b.when(is_first.clone(), |b| b.store(numbers, &own, number));
                    let at = match (fault, turn) {
                        (Fault::OneCounter, _) | (Fault::SeveralCounters, 1) => only.clone(),
                        _ => row.clone(),
                    };
                    let counter = MemoryAccess::at(counters, &at);
                    match fault {
                        Fault::NoBarrier => b.barrier(),
                        Fault::OnlySome => {
                            let some = Mask::within(group, 0, 1, b.ranges());
                            b.when(some, |b| b.grid_barrier(counter));
                        }
                        _ => b.grid_barrier(counter.clone()),
                    }
                    b.over(GROUPS, AxisKind::Serial, |b, other| {
                        let number = b.load(numbers, &row.scale(GROUPS as i64).add(other));
                        b.accumulate(total, &only, phynexus::op::Binary::Add, number);
                    });
                    if fault == Fault::CounterIsRead {
                        b.load(counters, row);
                    }
                    // Before numbers are overwritten, all have read them.
                    if fault != Fault::TooEarly && fault != Fault::NoBarrier && fault != Fault::OnlySome {
                        b.grid_barrier(MemoryAccess::at(counters, &at));
                    }
                }
                let sum = b.load(total, &only);
                b.when(is_first, |b| b.store(sums, &own, sum));
            });
        });
    });
    b.finish()
}

fn interpreted(fault: Fault) -> Result<Vec<i64>, String> {
    let kernel = kernel(fault);
    let mut buffers: Vec<Vec<Scalar>> =
        kernel.buffers.iter().map(|buffer| vec![Scalar::Int(0).cast(buffer.dtype); buffer.length]).collect();
    interpret(&kernel, 32, &mut buffers, &[]).map_err(|error| error.to_string())?;
    Ok(buffers[2].iter().map(|sum| sum.as_i64()).collect())
}

#[test]
fn groups_see_what_others_wrote_before_a_barrier() {
    check(&kernel(Fault::Nothing), &limits()).unwrap();
    // 1 + 2 + 3 and 2 + 3 + 4 in the first row, then the same three further on.
    let expected = [[6 + 9; GROUPS], [15 + 18; GROUPS]].concat();
    assert_eq!(interpreted(Fault::Nothing), Ok(expected));
}

#[test]
fn accesses_without_a_barrier_of_the_groups_are_races() {
    for fault in [Fault::NoBarrier, Fault::TooEarly] {
        let message = interpreted(fault).unwrap_err();
        assert!(message.contains("without a barrier between"), "{message}");
    }
    let message = interpreted(Fault::OnlySome).unwrap_err();
    assert!(message.contains("only some groups"), "{message}");
}

#[test]
fn barriers_that_would_hang_are_refused() {
    let refusal = |fault: Fault, limits: &Limits| check(&kernel(fault), limits).unwrap_err().to_string();
    for (fault, reason) in [
        (Fault::OnlySome, "only some groups"),
        (Fault::OneCounter, "not one for each row"),
        (Fault::SeveralCounters, "not the only counter"),
        (Fault::CounterIsRead, "an access to the counters"),
    ] {
        let message = refusal(fault, &limits());
        assert!(message.contains(reason), "{message}");
    }
    let few = Limits { meeting_groups: ROWS * GROUPS - 1, ..limits() };
    let message = refusal(Fault::Nothing, &few);
    assert!(message.contains("6 groups that run at once, the device has 5"), "{message}");
    let message = print(&kernel(Fault::Nothing), &PLAIN).unwrap_err().to_string();
    assert!(message.contains("no barriers of several groups"), "{message}");
}
