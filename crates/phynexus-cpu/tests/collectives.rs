//! Collectives among threads of this process: values and gradients.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    distributed::{Group, Incoming, Outgoing, Transport, threads},
    graph::GradientReducer,
    interrupt,
    op::{CollectiveKind, Combine, Loss, Op},
};

const WAIT: Duration = Duration::from_secs(20);

/// Runs a function on every rank of a new group, each on a thread. Returns its results in the order of the ranks.
fn on_ranks<T: Send>(size: usize, run: impl Fn(&Group) -> Result<T> + Sync) -> Vec<Result<T>> {
    phynexus_cpu::register();
    let run = &run;
    thread::scope(|scope| {
        let ranks: Vec<_> = threads(size, WAIT)
            .into_iter()
            .map(|transport| {
                scope.spawn(move || {
                    let group = Group::open(transport);
                    let result = run(&group);
                    group.close();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn cpu() -> Device {
    Device::find("cpu").unwrap()
}

/// Small whole numbers that differ from rank to rank.
fn numbers(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7 + rank * 13) % 5) as f64 + 1.0).collect()
}

fn tensor(values: &[f64], shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_slice(values, shape, cpu()).unwrap().to_dtype(dtype).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

const COMBINED: [DType; 12] = [
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

fn combined(by: Combine, size: usize, count: usize) -> Vec<f64> {
    let all: Vec<Vec<f64>> = (0..size).map(|rank| numbers(rank, count)).collect();
    let fold = |at: usize| {
        let of_ranks = all.iter().map(|values| values[at]);
        match by {
            Combine::Sum => of_ranks.sum(),
            Combine::Prod => of_ranks.product(),
            Combine::Max => of_ranks.fold(f64::NEG_INFINITY, f64::max),
            Combine::Min => of_ranks.fold(f64::INFINITY, f64::min),
        }
    };
    (0..count).map(fold).collect()
}

#[test]
fn values_of_every_kind_and_dtype() {
    for size in [1, 2, 3, 4] {
        for dtype in COMBINED {
            for rows in [0, 1, 5] {
                let (count, width) = (rows * size * 3, rows * 3);
                let shape = [rows * size, 3];
                let found = on_ranks(size, |group| {
                    let rank = group.rank();
                    let x = tensor(&numbers(rank, count), &shape, dtype);
                    // A view in another order.
                    let turned =
                        tensor(&numbers(rank, count), &shape, dtype).transpose(0, 1)?.transpose(0, 1)?;
                    let mut results = Vec::new();
                    for by in [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min] {
                        let all = turned.collective(CollectiveKind::AllReduce(by, Loss::Summed), group)?;
                        assert_eq!((all.shape(), all.dtype()), (&shape[..], dtype));
                        results.push(values(&all));
                        results.push(values(&x.collective(CollectiveKind::ReduceScatter(by), group)?));
                    }
                    let root = (size - 1) as u32;
                    for kind in [
                        CollectiveKind::AllGather { again: false },
                        CollectiveKind::AllToAll,
                        CollectiveKind::Broadcast { root },
                        CollectiveKind::Reduce { root },
                    ] {
                        results.push(values(&x.collective(kind, group)?));
                    }
                    Ok(results)
                });
                let all: Vec<Vec<f64>> = (0..size).map(|rank| numbers(rank, count)).collect();
                for (rank, found) in found.into_iter().enumerate() {
                    let part = rank * width..(rank + 1) * width;
                    let mut expected = Vec::new();
                    for by in [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min] {
                        let combined = combined(by, size, count);
                        expected.push(combined.clone());
                        expected.push(combined[part.clone()].to_vec());
                    }
                    expected.push(all.concat());
                    expected.push(all.iter().flat_map(|values| values[part.clone()].to_vec()).collect());
                    expected.push(all[size - 1].clone());
                    let sum = combined(Combine::Sum, size, count);
                    expected.push(if rank == size - 1 { sum } else { vec![0.0; count] });
                    assert_eq!(found.unwrap(), expected, "rank {rank} of {size}, {dtype}, {rows} rows");
                }
            }
        }
    }
}

#[test]
fn booleans_and_small_floats_are_moved_but_not_summed() {
    for dtype in [DType::Bool, DType::F8E4M3, DType::F8E5M2] {
        let found = on_ranks(2, |group| {
            let x = tensor(&[0.0, group.rank() as f64], &[2], dtype);
            let sum = x.collective(CollectiveKind::AllReduce(Combine::Sum, Loss::Summed), group);
            assert!(matches!(sum, Err(Error::DType { .. })));
            Ok(values(&x.collective(CollectiveKind::AllGather { again: false }, group)?))
        });
        assert!(found.into_iter().all(|found| found.unwrap() == [0.0, 0.0, 0.0, 1.0]), "{dtype}");
    }
}

/// Gradients of the sum of all ranks' losses, against finite differences over all ranks' operands.
#[test]
fn gradients_are_those_of_all_losses() {
    let kinds = [
        CollectiveKind::AllReduce(Combine::Sum, Loss::Summed),
        CollectiveKind::ReduceScatter(Combine::Sum),
        CollectiveKind::AllGather { again: false },
        CollectiveKind::AllToAll,
        CollectiveKind::Broadcast { root: 1 },
        CollectiveKind::Reduce { root: 1 },
    ];
    let (size, count) = (3, 6);
    for kind in kinds {
        // The loss of a rank: a different quadratic form of the result for each.
        let loss = |group: &Group, x: &Tensor| -> Result<Tensor> {
            let y = x.collective(kind, group)?;
            let weights = tensor(&numbers(group.rank() + 7, y.len()), y.shape(), DType::F64);
            y.mul(&y)?.mul(&weights)?.sum(&[], false)
        };
        let total = |changed: Option<(usize, usize, f64)>| -> f64 {
            let losses = on_ranks(size, |group| {
                let mut own = numbers(group.rank(), count);
                if let Some((rank, at, by)) = changed.filter(|(rank, ..)| *rank == group.rank()) {
                    let _ = rank;
                    own[at] += by;
                }
                Ok(values(&loss(group, &tensor(&own, &[count], DType::F64))?)[0])
            });
            losses.into_iter().map(|loss| loss.unwrap()).sum()
        };
        let gradients = on_ranks(size, |group| {
            let x = tensor(&numbers(group.rank(), count), &[count], DType::F64).with_grad()?;
            loss(group, &x)?.backward()?;
            Ok(values(&x.grad().expect("a gradient")))
        });
        for (rank, gradient) in gradients.into_iter().enumerate() {
            for (at, gradient) in gradient.unwrap().into_iter().enumerate() {
                let difference = (total(Some((rank, at, 0.5))) - total(Some((rank, at, -0.5)))) / 1.0;
                assert!((gradient - difference).abs() < 1e-6, "{kind:?}: {gradient} is not {difference}");
            }
        }
    }
}

#[test]
fn a_shared_loss_has_the_gradient_of_one() {
    let gradients = on_ranks(2, |group| {
        let x = tensor(&[1.0, 2.0], &[2], DType::F32).with_grad()?;
        let sum = x.collective(CollectiveKind::AllReduce(Combine::Sum, Loss::Shared), group)?;
        sum.sum(&[], false)?.backward()?;
        Ok(values(&x.grad().expect("a gradient")))
    });
    assert!(gradients.into_iter().all(|gradient| gradient.unwrap() == [1.0, 1.0]));
}

/// What one rank sends, another one receives, and its gradient comes back.
#[test]
fn sent_tensors_send_their_gradients_back() {
    let found = on_ranks(2, |group| {
        let x = tensor(&[1.0, 2.0, 3.0], &[3], DType::F32).with_grad()?;
        if group.rank() == 0 {
            let token = x.collective(CollectiveKind::Send { to: 1 }, group)?;
            token.evaluate()?;
            token.sum(&[], false)?.backward()?;
            Ok(values(&x.grad().expect("a gradient")))
        } else {
            let template = tensor(&[0.0; 3], &[3], DType::F32).with_grad()?;
            let y = template.collective(CollectiveKind::Receive { from: 0 }, group)?;
            y.mul(&y)?.sum(&[], false)?.backward()?;
            assert_eq!(values(&template.grad().expect("a gradient")), [0.0; 3]);
            Ok(values(&y))
        }
    });
    let found: Vec<Vec<f64>> = found.into_iter().map(|found| found.unwrap()).collect();
    assert_eq!(found, [vec![2.0, 4.0, 6.0], vec![1.0, 2.0, 3.0]]);
}

#[test]
fn two_messages_of_the_same_tensor_are_two() {
    let found = on_ranks(2, |group| {
        let x = tensor(&[group.rank() as f64 + 1.0], &[1], DType::F32);
        if group.rank() == 0 {
            let x = x.evaluated()?;
            let twice =
                [x.clone(), x.add(&x)?].map(|x| x.collective(CollectiveKind::Send { to: 1 }, group).unwrap());
            Tensor::evaluate_all(&twice.iter().collect::<Vec<_>>())?;
            return Ok(Vec::new());
        }
        // These depend on leaves alone.
        let x = x.evaluated()?;
        let twice = [(); 2].map(|()| x.collective(CollectiveKind::Receive { from: 0 }, group).unwrap());
        Tensor::evaluate_all(&twice.iter().collect::<Vec<_>>())?;
        Ok(twice.iter().flat_map(values).collect::<Vec<f64>>())
    });
    assert_eq!(found.into_iter().nth(1).unwrap().unwrap(), [1.0, 2.0]);
}

#[test]
fn what_cannot_be_is_an_error() {
    let found = on_ranks(2, |group| {
        let x = tensor(&[1.0; 3], &[3], DType::F32);
        for kind in [CollectiveKind::ReduceScatter(Combine::Sum), CollectiveKind::AllToAll] {
            assert!(matches!(x.collective(kind, group), Err(Error::Shape { .. })));
        }
        let scalar = tensor(&[1.0], &[], DType::F32);
        assert!(matches!(
            scalar.collective(CollectiveKind::AllGather { again: false }, group),
            Err(Error::Shape { .. })
        ));
        for kind in [CollectiveKind::Broadcast { root: 2 }, CollectiveKind::Send { to: 2 }] {
            assert!(matches!(x.collective(kind, group), Err(Error::Argument { .. })));
        }
        let own = CollectiveKind::Send { to: group.rank() as u32 };
        assert!(matches!(x.collective(own, group), Err(Error::Argument { .. })));
        // Ranks that disagree about the shape.
        let other = tensor(&vec![1.0; 4 + 4 * group.rank()], &[4 + 4 * group.rank()], DType::F32);
        let sum = other.collective(CollectiveKind::AllGather { again: false }, group)?.evaluate();
        Ok(sum.unwrap_err().to_string())
    });
    for error in found.into_iter().map(|found| found.unwrap()) {
        assert!(error.contains("all_gather on rank") && error.contains("bytes"), "{error}");
    }
}

#[test]
fn groups_of_some_ranks_and_closed_groups() {
    let found = on_ranks(4, |group| {
        let members: &[usize] = if group.rank() % 2 == 0 { &[0, 2] } else { &[3, 1] };
        let part = group.subgroup(members)?.expect("every rank is in one");
        assert!(group.subgroup(&[(group.rank() + 1) % 4])?.is_none());
        assert!(
            group.subgroup(&[0, 0]).is_err() && group.subgroup(&[4]).is_err() && group.subgroup(&[]).is_err()
        );
        let x = tensor(&[group.rank() as f64], &[1], DType::F32);
        let all = values(&x.collective(CollectiveKind::AllGather { again: false }, &part)?);
        let pending = x.collective(CollectiveKind::AllGather { again: false }, &part)?;
        part.close();
        let error = pending.evaluate().unwrap_err().to_string();
        assert!(error.contains("closed"), "{error}");
        Ok(all)
    });
    let found: Vec<Vec<f64>> = found.into_iter().map(|found| found.unwrap()).collect();
    assert_eq!(found, [[0.0, 2.0], [3.0, 1.0], [0.0, 2.0], [3.0, 1.0]]);
}

#[test]
fn a_rank_that_ends_is_named() {
    let found = on_ranks(2, |group| {
        if group.rank() == 1 {
            return Ok(String::new());
        }
        let x = tensor(&[1.0], &[1], DType::F32);
        let sum = x.collective(CollectiveKind::AllReduce(Combine::Sum, Loss::Summed), group)?;
        Ok(sum.evaluate().unwrap_err().to_string())
    });
    assert_eq!(found[0].as_ref().unwrap(), "all_reduce on rank 0 of 2: rank 1 has ended");
}

/// A reducer that notes what it gets, doubles it, and adds nothing.
#[derive(Default)]
struct Doubling(Mutex<Vec<usize>>);

impl GradientReducer for Doubling {
    fn is_active(&self) -> bool {
        true
    }
    fn reduce(&self, gradients: Vec<(usize, Tensor, Tensor)>) -> Result<Vec<(Tensor, Tensor)>> {
        self.0.lock().unwrap().extend(gradients.iter().map(|(number, ..)| *number));
        gradients.into_iter().map(|(_, leaf, gradient)| Ok((leaf, gradient.mul_scalar(2.0)?))).collect()
    }
}

#[test]
fn a_reducer_gets_all_gradients_of_a_pass_with_what_was_collected() {
    phynexus_cpu::register();
    let leaf = |x: f64| tensor(&[x], &[1], DType::F32).with_grad().unwrap();
    let (a, b, own) = (leaf(3.0), leaf(5.0), leaf(7.0));
    let reducer = Arc::new(Doubling::default());
    a.set_reducer(Some((reducer.clone(), 4))).unwrap();
    b.set_reducer(Some((reducer.clone(), 6))).unwrap();
    let loss = || a.mul(&b).unwrap().mul(&own).unwrap().sum(&[], false).unwrap();
    loss().backward().unwrap();
    let gradients = || [&a, &b, &own].map(|leaf| values(&leaf.grad().unwrap())[0]);
    assert_eq!(gradients(), [70.0, 42.0, 15.0]);
    loss().backward().unwrap();
    assert_eq!(gradients(), [210.0, 126.0, 30.0]);
    let again = loss().leaf_gradients().unwrap();
    assert_eq!(values(again.get(&a).unwrap()), [70.0]);
    a.set_reducer(None).unwrap();
    assert_eq!(values(loss().leaf_gradients().unwrap().get(&a).unwrap()), [35.0]);
    let mut numbers = reducer.0.lock().unwrap().clone();
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 4, 4, 6, 6, 6, 6]);
}

const SUM: CollectiveKind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);

/// The names of a plan's collectives and products, in order.
fn steps(tensor: &Tensor) -> Vec<&'static str> {
    let plan = tensor.explain().unwrap().expect("something to compute");
    let names = plan.steps.iter().filter_map(|step| step.step.routine().map(Op::name));
    names.filter(|name| *name != "sum").collect()
}

/// The order is that of the program, although each rank computes other things beside the collectives.
#[test]
fn ranks_with_other_work_keep_one_order() {
    let found = on_ranks(2, |group| {
        let own = |at: usize| tensor(&numbers(group.rank() + at, 4), &[4], DType::F32).evaluated();
        let far = |mut x: Tensor| {
            for _ in 0..3 {
                x = x.mul_scalar(2.0)?.reshape(&[2, 2])?.matmul(&tensor(
                    &[0.5, 0.0, 0.0, 0.5],
                    &[2, 2],
                    DType::F32,
                ))?;
            }
            x.reshape(&[4])
        };
        let mut operands = [own(0)?, own(1)?, own(2)?];
        let place = 2 * group.rank();
        operands[place] = far(operands[place].clone())?;
        let sums: Vec<Tensor> = operands.iter().map(|x| x.collective(SUM, group)).collect::<Result<_>>()?;
        // A kernel that could also store what the first collective of the other rank needs.
        let beside = operands[place].add(&sums[1])?;
        Tensor::evaluate_all(&[&sums[2], &sums[0], &beside, &sums[1]])?;
        Ok(sums.iter().map(values).collect::<Vec<_>>())
    });
    for found in found {
        let found = found.unwrap();
        for (at, found) in found.iter().enumerate() {
            let (zero, one) = (numbers(at, 4), numbers(at + 1, 4));
            let expected: Vec<f64> = zero.iter().zip(one).map(|(a, b)| a + b).collect();
            assert_eq!(*found, expected, "collective {at}");
        }
    }
}

/// A network whose weights are gathered for each use: the forward pass keeps none of them, and gathers one layer ahead.
#[test]
fn repeated_gathers_are_not_kept() {
    let network = |group: &Group, again: bool| -> Result<(Vec<Tensor>, Tensor)> {
        let shard = |at: usize| {
            tensor(&numbers(group.rank() + at, 8), &[2, 4], DType::F32)
                .mul_scalar(0.1)?
                .evaluated()?
                .with_grad()
        };
        let shards: Vec<Tensor> = (0..3).map(shard).collect::<Result<_>>()?;
        let mut x = tensor(&numbers(group.rank(), 12), &[3, 4], DType::F32);
        for shard in &shards {
            let whole = shard.mul_scalar(0.5)?.collective(CollectiveKind::AllGather { again }, group)?;
            x = x.matmul(&whole.permute(&[1, 0])?)?.tanh()?;
        }
        Ok((shards, x))
    };
    let found = on_ranks(2, |group| {
        let (kept, x) = network(group, false)?;
        x.sum(&[], false)?.backward()?;
        let expected: Vec<Vec<f64>> = kept.iter().map(|shard| values(&shard.grad().unwrap())).collect();

        let (shards, x) = network(group, true)?;
        let (gather, product) = ("all_gather", "dot");
        assert_eq!(steps(&x), [gather, gather, product, gather, product, product]);
        x.evaluate()?;
        let all = x.sum(&[], false)?.gradients(&shards.iter().collect::<Vec<_>>())?;
        // The first layer's input has no gradient, so its weights are not needed.
        let joined = all[0].sum(&[], false)?.add(&all[1].sum(&[], false)?)?.add(&all[2].sum(&[], false)?)?;
        let order = steps(&joined);
        let collectives: Vec<&str> = order.iter().copied().filter(|name| *name != product).collect();
        let scatter = "reduce_scatter";
        assert_eq!(collectives, [gather, gather, scatter, scatter, scatter], "{order:?}");
        Ok((all.iter().map(values).collect::<Vec<_>>(), expected))
    });
    for found in found {
        let (found, expected) = found.unwrap();
        assert_eq!(found, expected);
    }
}

thread_local! {
    /// Whether this thread's computations are to stop.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// A transport after whose first message its rank is interrupted.
struct Interrupting(Arc<dyn Transport>);

impl Transport for Interrupting {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn leave(&self) {
        self.0.leave();
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()> {
        self.0.exchange(send, receive)?;
        STOPS.set(true);
        // Longer than the time between two checks.
        thread::sleep(Duration::from_millis(100));
        Ok(())
    }
}

#[test]
fn a_plan_that_ends_between_its_collectives_ends_the_group() {
    phynexus_cpu::register();
    let [first, second] = <[_; 2]>::try_from(threads(2, WAIT)).ok().unwrap();
    let rank = |transport: Arc<dyn Transport>| -> [Result<()>; 2] {
        let group = Group::open(transport);
        let part = group.subgroup(&[0, 1]).unwrap().unwrap();
        let broadcast = |value: f64| {
            let value = if group.rank() == 0 { value } else { 0.0 };
            tensor(&[value], &[1], DType::F64)
                .collective(CollectiveKind::Broadcast { root: 0 }, &part)
                .unwrap()
        };
        let [one, two] = [1.0, 2.0].map(broadcast);
        let evaluate = || Tensor::evaluate_all(&[&one, &two]);
        let interrupted = {
            let _watch = interrupt::watch(|| STOPS.get());
            evaluate()
        };
        // The second message would be taken for the first one.
        let again = evaluate();
        part.close();
        group.close();
        [interrupted, again]
    };
    let [first, second] = thread::scope(|scope| {
        let second = scope.spawn(|| rank(second));
        [rank(Arc::new(Interrupting(first))), second.join().unwrap()]
    });
    assert!(matches!(first[0], Err(Error::Interrupted)), "{first:?}");
    assert!(first[1].as_ref().is_err_and(|error| error.to_string().contains("out of step")), "{first:?}");
    assert!(
        second[0].as_ref().is_err_and(|error| error.to_string().contains("rank 0 has ended")),
        "{second:?}"
    );
    assert!(second[1].is_err(), "{second:?}");
}
