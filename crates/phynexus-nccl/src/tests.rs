//! Collectives of a library whose GPUs are memory of the host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use phynexus::{
    DType, Error, Result,
    distributed::{Group, Incoming, Outgoing, Transport, threads},
    kernel::step::{Library, Operand, Step},
    op::{Collective, CollectiveKind, Combine, Loss, Op, ir::IrNode},
    shape::Layout,
};

use crate::{
    Routine, Touched,
    double::{Defect, Double, ENDS, Event},
    flights::Flights,
};

const WAIT: Duration = Duration::from_secs(20);
const SUM: CollectiveKind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);

/// Runs a function on every rank of a new group, each on a thread. Returns its results in the order of the ranks.
fn on_ranks<T: Send>(size: usize, timeout: Duration, run: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    let rank = |transport: Arc<dyn Transport>| {
        let group = Group::open(transport);
        let result = run(&group);
        group.close();
        result
    };
    thread::scope(|scope| {
        let ranks = threads(size, timeout).into_iter().map(|transport| scope.spawn(|| rank(transport)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The elements of the result for an operand of so many, on so many ranks.
fn result_of(kind: CollectiveKind, operand: usize, size: usize) -> usize {
    match kind {
        CollectiveKind::AllGather { .. } => operand * size,
        CollectiveKind::ReduceScatter(_) => operand / size,
        _ => operand,
    }
}

fn step(kind: CollectiveKind, dtype: DType, operand: usize, group: &Group) -> Step {
    let op = Op::Collective(Collective::new(kind, group.member()));
    let shape = [result_of(kind, operand, group.size())][..].into();
    let node = IrNode { op, dtype, shape, inputs: Default::default() };
    let operands = vec![Operand { dtype, layout: Layout::contiguous(&[operand]) }];
    Step::Library(Library { node, operands, epilogue: None })
}

/// Submits a collective between two events. Returns the result.
fn submitted(
    kind: CollectiveKind,
    dtype: DType,
    operand: &[u8],
    group: &Group,
    gpu: &Double,
    flights: &Flights<Event>,
) -> Result<Vec<u8>> {
    let step = step(kind, dtype, operand.len() / dtype.size(), group);
    let routine = Routine::of(gpu, &step)?.expect("a collective");
    let mut result = vec![0xaa; result_of(kind, operand.len(), group.size())];
    let addresses = [operand.as_ptr().expose_provenance(), result.as_mut_ptr().expose_provenance()];
    let events = [Event::default(), Event::default()];
    events[0].happen();
    let record = |_: &Event| Ok(());
    let stream = std::ptr::null_mut();
    // SAFETY: the operand and the result have the bytes of the step, and the double is done when it returns.
    unsafe { routine.submit(gpu, flights, addresses.map(|at| at as u64), stream, events, record) }?;
    Ok(result)
}

/// The bytes of small whole numbers that differ from rank to rank.
fn numbers(dtype: DType, count: usize, rank: usize) -> Vec<u8> {
    let number = |at: usize| ((at * 7 + rank * 13) % 5) as u8 + 1;
    let bytes = |number: u8| match dtype {
        DType::F32 => f32::from(number).to_le_bytes().to_vec(),
        DType::I32 => (i32::from(number) - 3).to_le_bytes().to_vec(),
        _ => vec![number; dtype.size()],
    };
    (0..count).flat_map(|at| bytes(number(at))).collect()
}

#[test]
fn the_library_is_called_as_the_host_computes() {
    for size in [1, 2, 3] {
        let root = size as u32 - 1;
        let product = CollectiveKind::AllReduce(Combine::Prod, Loss::Shared);
        let mut cases = vec![
            (SUM, DType::F32),
            (product, DType::F32),
            (CollectiveKind::AllReduce(Combine::Max, Loss::Summed), DType::I32),
            (CollectiveKind::ReduceScatter(Combine::Min), DType::I32),
            (CollectiveKind::ReduceScatter(Combine::Sum), DType::U8),
            (CollectiveKind::Reduce { root }, DType::I32),
        ];
        for dtype in [DType::F32, DType::I16, DType::Bool, DType::F8E4M3, DType::F64] {
            cases.push((CollectiveKind::AllGather { again: false }, dtype));
            cases.push((CollectiveKind::AllToAll, dtype));
            cases.push((CollectiveKind::Broadcast { root }, dtype));
        }
        for (kind, dtype) in cases {
            for rows in [0, 1, 5] {
                let found = on_ranks(size, WAIT, |group| {
                    let gpu = Double::new(group.rank());
                    let own = numbers(dtype, rows * size, group.rank());
                    let result = submitted(kind, dtype, &own, group, &gpu, &Flights::default()).unwrap();
                    let mut expected = vec![0xaa; result.len()];
                    group.run(kind, dtype, &own, &mut expected).unwrap();
                    (result, expected)
                });
                for (result, expected) in found {
                    assert_eq!(result, expected, "{kind:?} {dtype} of {size} ranks");
                }
            }
        }
    }
}

#[test]
fn two_ranks_send_without_the_others() {
    let found = on_ranks(3, WAIT, |group| {
        let gpu = Double::new(group.rank());
        let own = numbers(DType::F32, 4, group.rank());
        let flights = Flights::default();
        let run = |kind| submitted(kind, DType::F32, &own, group, &gpu, &flights);
        // Rank 1 takes no part: it would wait for a communicator of all ranks.
        match group.rank() {
            0 => run(CollectiveKind::Send { to: 2 }),
            2 => run(CollectiveKind::Receive { from: 0 }),
            _ => Ok(Vec::new()),
        }
    });
    let found: Vec<Vec<u8>> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found[0], vec![0; 16]);
    assert_eq!(found[2], numbers(DType::F32, 4, 0));
}

#[test]
fn ranks_of_one_process_share_their_memory() {
    let shared = on_ranks(3, WAIT, |group| {
        let gpu = Double::new(10 + group.rank());
        submitted(SUM, DType::F32, &[0; 4], group, &gpu, &Flights::default()).unwrap();
        gpu.shared.into_inner().unwrap()
    });
    assert_eq!(shared, [vec![11, 12], vec![10, 12], vec![10, 11]]);
}

#[test]
fn every_rank_refuses_what_one_cannot_do() {
    let reasons = |make: fn(usize) -> Double, kind, dtype: DType| {
        let found = on_ranks(2, WAIT, |group| {
            let gpu = make(group.rank());
            Routine::of(&gpu, &step(kind, dtype, 2, group)).map(drop)
        });
        let reason = |found| match found {
            Err(Error::Unsupported { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        let reasons: Vec<String> = found.into_iter().map(reason).collect();
        assert_eq!(reasons[0], reasons[1]);
        reasons[0].clone()
    };
    let same = reasons(|_| Double::new(5), SUM, DType::F32);
    assert_eq!(same, "ranks 0 and 1 are on the same GPU");
    let broken = |rank| Double::with(if rank == 1 { Defect::Start } else { Defect::None }, rank);
    let reason = reasons(broken, SUM, DType::F32);
    assert_eq!(reason, "rank 1: NCCL does not start: NCCL: unhandled error");
    // The others do not start, which would take them until the time limit.
    let private = |rank| Double { is_private: rank == 1, ..Double::with(Defect::EndlessStart, rank) };
    let reason = reasons(private, SUM, DType::F32);
    assert!(reason.starts_with("rank 1: NCCL does not start") && reason.contains("private"), "{reason}");
    let reason = reasons(Double::new, SUM, DType::I16);
    assert_eq!(reason, "NCCL does not combine int16");
}

#[test]
fn a_group_that_another_kind_of_device_joins_is_an_error() {
    let found = on_ranks(2, Duration::from_secs(1), |group| match group.rank() {
        0 => Routine::of(&Double::new(0), &step(SUM, DType::F32, 2, group)).map(drop),
        _ => group.run(SUM, DType::F32, &[0; 8], &mut [0; 8]),
    });
    for found in found {
        let Err(Error::Collective { message, .. }) = found else { panic!("{found:?}") };
        assert!(message.contains("devices of the same kind") || message.contains("ended"), "{message}");
    }
}

#[test]
fn a_group_on_the_host_refuses_without_asking_the_others() {
    let transports = threads(2, WAIT);
    let group = Group::open_on_host(transports[0].clone(), "the kinds differ".to_owned());
    let found = Routine::of(&Double::new(0), &step(SUM, DType::F32, 2, &group)).map(drop);
    group.close();
    assert!(
        matches!(&found, Err(Error::Unsupported { message, .. }) if message == "the kinds differ"),
        "{found:?}"
    );
}

#[test]
fn launches_wait_for_what_they_touch() {
    on_ranks(1, WAIT, |group| {
        let gpu = Double::new(0);
        let flights = Flights::default();
        assert!(flights.is_quiet() && flights.open().is_empty());
        let operands = [vec![1; 64], vec![2; 64]];
        let run = |operand| submitted(SUM, DType::F32, operand, group, &gpu, &flights).unwrap();
        let results: Vec<Vec<u8>> = operands.iter().map(|operand| run(operand)).collect();
        // The numbers of the collectives that a launch waits for.
        let waits = |bytes: &[u8], written| -> Vec<usize> {
            let start = bytes.as_ptr().addr() as u64;
            let touched = [Touched { range: start..start + bytes.len() as u64, written }];
            let open = flights.open();
            (0..open.len()).filter(|&at| open[at].collides(&touched)).collect()
        };
        // Others may read an operand at the same time.
        assert_eq!(waits(&operands[0], false), []);
        assert_eq!(waits(&operands[0][63..], true), [0]);
        assert_eq!(waits(&operands[0][..0], true), []);
        assert_eq!(waits(&[0; 64], true), []);
        assert_eq!(waits(&results[1][..1], false), [1]);
        assert_eq!(waits(&results[0], true), [0]);
        let [first, second] = &flights.open()[..] else { panic!("two are open") };
        first.join();
        // Now the second is the only one.
        assert_eq!((waits(&results[0], true), waits(&results[1], true)), (vec![], vec![0]));
        second.join();
        assert!(flights.open().is_empty() && !flights.is_quiet());
        // Those that are done are forgotten.
        first.done().happen();
        flights.check(Event::has_happened).unwrap();
        assert!(!flights.is_quiet());
        second.done().happen();
        flights.check(Event::has_happened).unwrap();
        assert!(flights.is_quiet());
    });
}

/// Waits for a collective that does not end. Returns the error, and whether it remains while the group is open.
fn stuck(group: &Arc<Group>, gpu: &Double) -> (Error, bool) {
    let flights = Flights::default();
    let run = || submitted(SUM, DType::F32, &[0; 8], group, gpu, &flights);
    run().unwrap();
    let happened = Event::has_happened;
    let error = flights.watch(|| false, happened).unwrap_err();
    // The device goes on, but with undefined numbers.
    flights.open().iter().for_each(|flight| flight.done().happen());
    let remains = flights.watch(|| true, happened).is_err() && run().is_err();
    (error, remains)
}

#[test]
fn a_wait_asks_now_and_then() {
    on_ranks(1, WAIT, |group| {
        let (gpu, flights) = (Double::new(0), Flights::default());
        submitted(SUM, DType::F32, &[0; 8], group, &gpu, &flights).unwrap();
        let asked = AtomicU32::new(0);
        let look = flights.look(|event: &Event| {
            asked.fetch_add(1, Ordering::Relaxed);
            event.has_happened()
        });
        let (begun, mut calls) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(20) {
            look().unwrap();
            calls += 1;
        }
        // Each time for both events of the flight.
        let asked = asked.load(Ordering::Relaxed);
        assert!((2..=40).contains(&asked) && calls > 100, "{asked} of {calls}");
        flights.open()[0].done().happen();
    });
}

#[test]
fn a_collective_that_takes_too_long_is_aborted() {
    let before = ENDS.lock().unwrap()[0].len();
    let errors = on_ranks(2, Duration::from_millis(400), |group| {
        let group = Group::find(group.member().group).unwrap();
        stuck(&group, &Double::new(group.rank()))
    });
    for (error, remains) in errors {
        let Error::Collective { message, op: "all_reduce", .. } = error else { panic!("{error}") };
        assert!(message.starts_with("a rank did not come within 0.4 s"), "{message}");
        assert!(remains);
    }
    assert!(ENDS.lock().unwrap()[0].len() >= before + 2);
}

#[test]
fn a_rank_that_ended_is_named() {
    let transports = threads(2, Duration::from_secs(600));
    thread::scope(|scope| {
        let ranks = transports.into_iter().map(|transport| {
            scope.spawn(move || {
                let group = Group::open(transport);
                let gpu = Double::new(group.rank());
                if group.rank() == 1 {
                    submitted(SUM, DType::F32, &[0; 8], &group, &gpu, &Flights::default()).unwrap();
                    return group.close();
                }
                let (Error::Collective { message, rank, size, .. }, remains) = stuck(&group, &gpu) else {
                    panic!("another error")
                };
                assert!(message.ends_with("rank 1 has ended") && remains, "{message}");
                assert_eq!((rank, size), (0, 2));
                group.close();
            })
        });
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    });
}

/// Runs a sum on rank 0 of two, whose rank 1 ends when it has done `before`.
fn alone(gpu: &Double, before: impl FnOnce(&Arc<Group>) + Send) -> Error {
    let [first, second] = <[_; 2]>::try_from(threads(2, Duration::from_secs(600))).ok().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let group = Group::open(second);
            before(&group);
            group.transport().leave();
            group.close();
        });
        let group = Group::open(first);
        let error = submitted(SUM, DType::F32, &[0; 8], &group, gpu, &Flights::default()).unwrap_err();
        group.close();
        error
    })
}

#[test]
fn a_rank_that_ended_ends_the_wait_for_connections() {
    let begun = Instant::now();
    let error = alone(&Double::with(Defect::EndlessSum, 0), |group| {
        let step = step(SUM, DType::F32, 2, group);
        drop(Routine::of(&Double::new(1), &step).unwrap());
    });
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(error.to_string().ends_with("it cannot end; rank 1 has ended"), "{error}");
}

#[test]
fn a_rank_that_ended_ends_the_start() {
    let begun = Instant::now();
    let error = alone(&Double::with(Defect::EndlessStart, 0), |group| {
        let transport: Arc<dyn Transport> = Arc::new(Ending(group.transport().clone(), AtomicU32::new(0)));
        let group = Group::open(transport);
        let step = step(SUM, DType::F32, 2, &group);
        assert!(Routine::of(&Double::new(1), &step).is_err());
        group.close();
    });
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(error.to_string().contains("rank 1 has ended"), "{error}");
}

/// A transport whose rank ends before its fourth exchange: when it has started its communicator.
struct Ending(Arc<dyn Transport>, AtomicU32);

impl Transport for Ending {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 3 {
            self.0.leave();
            return Err(Error::internal("test", "the rank ends"));
        }
        self.0.exchange(send, receive)
    }
}

#[test]
fn a_closed_group_has_no_communicator() {
    on_ranks(1, WAIT, |group| {
        let gpu = Double::new(0);
        let flights: Flights<Event> = Flights::default();
        let routine = Routine::of(&gpu, &step(SUM, DType::F32, 2, group)).unwrap().unwrap();
        group.close();
        let events = [Event::default(), Event::default()];
        // SAFETY: nothing is submitted.
        let refused =
            unsafe { routine.submit(&gpu, &flights, [0; 2], std::ptr::null_mut(), events, |_| Ok(())) };
        assert!(matches!(refused, Err(Error::Argument { .. })) && flights.is_quiet());
        assert!(Routine::of(&gpu, &step(SUM, DType::F32, 2, group)).is_err());
    });
}
