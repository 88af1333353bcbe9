//! The order in which a plan's steps run, and which steps run together.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::plan::Piece;
use crate::kernel::step::Step;
use crate::{
    Error, Result,
    hash::{FastMap, FastSet},
    op::{
        Collective, Op,
        ir::{Id, Ir},
    },
};

/// Orders the pieces so that each follows the pieces it depends on.
///
/// Pieces that only make results come last, with fused ones at the very end. Once the first of these stores in place,
/// no remaining step can fail on its data. Among the other ready pieces, the one that leaves the least memory in use
/// goes first. For example, a weight gradient, which releases an activation, precedes the gradient of the layer below.
pub(super) fn order(ir: &Ir, pieces: &[Piece]) -> Vec<usize> {
    let mut waits = vec![0usize; pieces.len()];
    let mut readers: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); pieces.len()];
    let mut producer: FastMap<Id, usize> = FastMap::default();
    for (index, piece) in pieces.iter().enumerate() {
        producer.extend(piece.stored().map(|node| (node, index)));
    }
    // The number of pieces that have yet to read each intermediate result.
    let mut unread: FastMap<Id, usize> = FastMap::default();
    for (index, piece) in pieces.iter().enumerate() {
        let read = distinct(piece.read().map(|(_, node)| node));
        let mut producers: SmallVec<[usize; 8]> =
            read.iter().filter_map(|node| producer.get(node).copied()).collect();
        producers.sort_unstable();
        producers.dedup();
        waits[index] = producers.len();
        producers.into_iter().for_each(|p| readers[p].push(index));
        for node in read.into_iter().filter(|node| producer.contains_key(node)) {
            *unread.entry(node).or_default() += 1;
        }
    }
    for output in &ir.outputs {
        unread.remove(output);
    }
    let collectives = in_turn(pieces);
    let repeated = collectives.iter().copied().filter(|&index| is_repeated(&pieces[index]));
    let repeated: Vec<(usize, SmallVec<[usize; 4]>)> =
        repeated.map(|index| (index, readers[index].clone())).collect();
    for pair in collectives.windows(2) {
        readers[pair[0]].push(pair[1]);
        waits[pair[1]] += 1;
    }
    // The readers of one wait for the next to begin.
    for pair in repeated.windows(2) {
        for &reader in &pair[0].1 {
            readers[pair[1].0].push(reader);
            waits[reader] += 1;
        }
    }
    let last = |index: usize| match (readers[index].is_empty(), &pieces[index].step) {
        (false, _) => 0,
        // A device may run it beside other steps.
        (true, _) if is_collective(&pieces[index]) => 0,
        (true, Step::Fused(_)) => 2,
        (true, _) => 1,
    };
    let reads: Vec<SmallVec<[Id; 8]>> =
        pieces.iter().map(|piece| distinct(piece.read().map(|(_, node)| node))).collect();
    let mut readers_of: FastMap<Id, SmallVec<[usize; 4]>> = FastMap::default();
    for (index, read) in reads.iter().enumerate() {
        for node in read.iter().filter(|node| unread.contains_key(node)) {
            readers_of.entry(*node).or_default().push(index);
        }
    }
    // The change in bytes in use. Results are allocated from the start and do not count.
    let bytes = |node: &Id| ir.node(*node).bytes() as i128;
    let mut growth: Vec<i128> = (pieces.iter().zip(&reads))
        .map(|(piece, read)| {
            let taken: i128 =
                piece.stored().filter(|node| unread.contains_key(node)).map(|n| bytes(&n)).sum();
            let freed: i128 = read.iter().filter(|node| unread.get(node) == Some(&1)).map(bytes).sum();
            taken - freed
        })
        .collect();
    let rank = |index: usize, growth: &[i128]| {
        (last(index), growth[index], pieces[index].parameters.last().copied(), index)
    };
    let mut ready: BTreeSet<_> =
        (0..pieces.len()).filter(|&index| waits[index] == 0).map(|index| rank(index, &growth)).collect();
    let mut order = Vec::with_capacity(pieces.len());
    let mut is_done = vec![false; pieces.len()];
    while let Some((.., index)) = ready.pop_first() {
        order.push(index);
        is_done[index] = true;
        for node in &reads[index] {
            let Some(count) = unread.get_mut(node) else { continue };
            *count -= 1;
            if *count != 1 {
                continue;
            }
            // The last remaining reader frees the node.
            for &reader in readers_of[node].iter().filter(|&&reader| !is_done[reader]) {
                let was_ready = ready.remove(&rank(reader, &growth));
                growth[reader] -= bytes(node);
                if was_ready {
                    ready.insert(rank(reader, &growth));
                }
            }
        }
        for &reader in &readers[index] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.insert(rank(reader, &growth));
            }
        }
    }
    when_needed(order, pieces, &producer, &readers)
}

fn collective(piece: &Piece) -> Option<&Collective> {
    match piece.step.routine() {
        Some(Op::Collective(collective)) => Some(collective),
        _ => None,
    }
}

pub(super) fn is_collective(piece: &Piece) -> bool {
    collective(piece).is_some()
}

fn is_repeated(piece: &Piece) -> bool {
    collective(piece).is_some_and(Collective::is_repeated)
}

/// Returns the collectives in their order, which every rank must keep to, whatever else it computes.
fn in_turn(pieces: &[Piece]) -> Vec<usize> {
    let mut found: Vec<(u32, usize)> = (pieces.iter().enumerate())
        .filter_map(|(index, piece)| Some((collective(piece)?.turn, index)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, index)| index).collect()
}

/// Checks that the order contains each piece once, after the pieces that store what it reads, and that every result is
/// stored.
///
/// # Errors
/// If the check fails. A step would then read memory that nothing has written, for example because a kernel waits for
/// itself.
pub(super) fn check(ir: &Ir, pieces: &[Piece], order: &[usize], results: &[Id]) -> Result<()> {
    let broken = |message: String| Err(Error::internal("schedule::order", message));
    let mut stored: FastSet<Id> = ir.leaves.iter().copied().collect();
    let mut placed = vec![false; pieces.len()];
    for &index in order {
        let missing = pieces[index].read().find(|(_, node)| !stored.contains(node));
        if let Some((_, node)) = missing.filter(|(_, node)| !ir.node(*node).is_empty()) {
            return broken(format!(
                "step {index} reads {}, which is not stored before it",
                ir.node(node).op.name()
            ));
        }
        if std::mem::replace(&mut placed[index], true) {
            return broken(format!("step {index} appears twice in the order"));
        }
        stored.extend(pieces[index].stored());
    }
    if let Some(index) = placed.iter().position(|placed| !placed) {
        return broken(format!("step {index} of {} is missing from the order", pieces.len()));
    }
    match results.iter().find(|result| !stored.contains(result)) {
        Some(&result) => broken(format!("no step stores the result of {}", ir.node(result).op.name())),
        None => Ok(()),
    }
}

/// Moves each piece that depends only on leaves to just before its first reader. Any earlier it would only occupy
/// memory.
fn when_needed(
    order: Vec<usize>,
    pieces: &[Piece],
    producer: &FastMap<Id, usize>,
    readers: &[SmallVec<[usize; 4]>],
) -> Vec<usize> {
    let sources = |index: usize| {
        let mut sources: SmallVec<[usize; 8]> =
            pieces[index].read().filter_map(|(_, node)| producer.get(&node).copied()).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    };
    let waits = |index: usize| {
        !readers[index].is_empty() && sources(index).is_empty() && !is_collective(&pieces[index])
    };
    let mut waits: Vec<bool> = (0..pieces.len()).map(waits).collect();
    let mut moved = Vec::with_capacity(order.len());
    for index in order {
        if waits[index] {
            continue;
        }
        moved.extend(sources(index).into_iter().filter(|&source| std::mem::take(&mut waits[source])));
        moved.push(index);
    }
    moved
}

fn distinct(nodes: impl Iterator<Item = Id>) -> SmallVec<[Id; 8]> {
    let mut nodes: SmallVec<[Id; 8]> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Splits the order into launches. Fused kernels that only make results come last and are independent of one another,
/// so they run together, as many as the buffer limit allows.
pub(super) fn batch(pieces: &[Piece], order: Vec<usize>, limit: usize) -> Vec<SmallVec<[usize; 1]>> {
    let read: FastSet<Id> = pieces.iter().flat_map(|piece| piece.read().map(|(_, node)| node)).collect();
    let can_join = |piece: &Piece| {
        // A refused kernel must not take others with it to the CPU.
        let fused = piece.step.fused().is_some() && piece.refusal.is_none();
        fused && !piece.stored().any(|node| read.contains(&node))
    };
    let mut launches: Vec<SmallVec<[usize; 1]>> = Vec::new();
    // The number of buffers in the last launch, if others may join it.
    let mut open: Option<usize> = None;
    for index in order {
        let count = pieces[index].parameters.len();
        let joins = can_join(&pieces[index]);
        match (launches.last_mut(), open) {
            (Some(launch), Some(buffers)) if joins && buffers + count <= limit => {
                launch.push(index);
                open = Some(buffers + count);
            }
            _ => {
                launches.push(SmallVec::from_elem(index, 1));
                open = joins.then_some(count);
            }
        }
    }
    launches
}
