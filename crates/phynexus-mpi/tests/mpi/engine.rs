//! Collectives of tensors on the CPU, and their gradients.

use phynexus::{
    Device, Result, Tensor,
    distributed::Group,
    op::{CollectiveKind, Combine, Loss},
};

use crate::{collectives::LIMIT, passed};

/// Small numbers that differ from rank to rank.
fn numbers(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7 + rank * 13) % 5) as f64 + 1.0).collect()
}

/// The results of all ranks, of the operands of all.
fn results(kind: CollectiveKind, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (size, count) = (operands.len(), operands[0].len());
    let part = |rank: usize| rank * count / size..(rank + 1) * count / size;
    let sum: Vec<f64> = (0..count).map(|at| operands.iter().map(|operand| operand[at]).sum()).collect();
    let result = |rank: usize| match kind {
        CollectiveKind::AllReduce(..) => sum.clone(),
        CollectiveKind::Reduce { root } if root as usize == rank => sum.clone(),
        CollectiveKind::Reduce { .. } => vec![0.0; count],
        CollectiveKind::ReduceScatter(_) => sum[part(rank)].to_vec(),
        CollectiveKind::AllGather { .. } => operands.concat(),
        CollectiveKind::Broadcast { root } => operands[root as usize].clone(),
        CollectiveKind::AllToAll => {
            operands.iter().flat_map(|operand| operand[part(rank)].to_vec()).collect()
        }
        CollectiveKind::Send { .. } => vec![0.0; count],
        CollectiveKind::Receive { from } => operands[from as usize].clone(),
    };
    (0..size).map(result).collect()
}

/// The sum of the ranks' losses: weighted squares of their results, with other weights on each.
fn loss(kind: CollectiveKind, operands: &[Vec<f64>]) -> f64 {
    let of_rank = |(rank, result): (usize, Vec<f64>)| -> f64 {
        let weights = numbers(rank + 7, result.len());
        result.iter().zip(weights).map(|(y, weight)| weight * y * y).sum()
    };
    results(kind, operands).into_iter().enumerate().map(of_rank).sum()
}

fn check(group: &Group, device: Device, kind: CollectiveKind) -> Result<()> {
    let (rank, count) = (group.rank(), 6 * group.size());
    let mut operands: Vec<Vec<f64>> = (0..group.size()).map(|rank| numbers(rank, count)).collect();
    let x = Tensor::from_slice(&operands[rank], &[count], device)?.with_grad()?;
    let y = x.collective(kind, group)?;
    assert_eq!(y.to_vec::<f64>()?, results(kind, &operands)[rank], "{kind:?}");
    let weights = Tensor::from_slice(&numbers(rank + 7, y.len()), y.shape(), device)?;
    y.mul(&y)?.mul(&weights)?.sum(&[], false)?.backward()?;
    let gradient = x.grad().expect("a gradient").to_vec::<f64>()?;
    for (at, gradient) in gradient.into_iter().enumerate() {
        let mut with = |change: f64| {
            operands[rank][at] += change;
            let loss = loss(kind, &operands);
            operands[rank][at] -= change;
            loss
        };
        // Exact for a quadratic function.
        let slope = with(0.5) - with(-0.5);
        assert!((gradient - slope).abs() < 1e-9, "{kind:?}, element {at}: {gradient}, not {slope}");
    }
    Ok(())
}

pub(crate) fn engine() -> Result<()> {
    phynexus_cpu::register();
    let device = Device::find("cpu")?;
    let group = Group::open(phynexus_mpi::connect(LIMIT)?);
    let root = group.size() as u32 - 1;
    for kind in [
        CollectiveKind::AllReduce(Combine::Sum, Loss::Summed),
        CollectiveKind::Reduce { root },
        CollectiveKind::ReduceScatter(Combine::Sum),
        CollectiveKind::AllGather { again: false },
        CollectiveKind::Broadcast { root },
        CollectiveKind::AllToAll,
    ] {
        check(&group, device, kind)?;
    }
    // A message, whose gradient comes back.
    let x = Tensor::from_slice(&numbers(0, 5), &[5], device)?.with_grad()?;
    let expected: Vec<f64> = numbers(0, 5).iter().map(|x| 2.0 * x).collect();
    match group.rank() {
        0 => {
            let sent = x.collective(CollectiveKind::Send { to: 1 }, &group)?;
            sent.evaluate()?;
            sent.sum(&[], false)?.backward()?;
            assert_eq!(x.grad().expect("a gradient").to_vec::<f64>()?, expected);
        }
        1 => {
            let template = Tensor::from_slice(&[0.0; 5], &[5], device)?.with_grad()?;
            let y = template.collective(CollectiveKind::Receive { from: 0 }, &group)?;
            assert_eq!(y.to_vec::<f64>()?, numbers(0, 5));
            y.mul(&y)?.sum(&[], false)?.backward()?;
            assert_eq!(template.grad().expect("a gradient").to_vec::<f64>()?, [0.0; 5]);
        }
        _ => {}
    }
    group.transport().barrier()?;
    passed(&**group.transport());
    Ok(())
}
