//! The order in which a plan's steps run, and which of them run together.

use std::collections::{BTreeSet, HashMap, HashSet};

use smallvec::SmallVec;

use super::plan::Piece;
use crate::kernel::step::Step;
use crate::{
    Error, Result,
    op::ir::{Id, Ir},
};

/// The pieces in an order that respects what they read.
///
/// Those that only make results come last, fused ones at the very end: once the first of these has stored in place,
/// nothing that can fail on its data is left. Of the others that are ready, the one goes first that leaves the least
/// memory in use: a gradient of weights, which lets an activation go, before the gradient of the layer below.
pub(super) fn order(ir: &Ir, pieces: &[Piece]) -> Vec<usize> {
    let mut waits = vec![0usize; pieces.len()];
    let mut readers: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); pieces.len()];
    let mut producer: HashMap<Id, usize> = HashMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        producer.extend(piece.stored().map(|node| (node, index)));
    }
    // How many pieces have yet to read each intermediate result.
    let mut unread: HashMap<Id, usize> = HashMap::new();
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
    let last = |index: usize| match (readers[index].is_empty(), &pieces[index].step) {
        (false, _) => 0,
        (true, Step::Fused(_)) => 2,
        (true, _) => 1,
    };
    let reads: Vec<SmallVec<[Id; 8]>> =
        pieces.iter().map(|piece| distinct(piece.read().map(|(_, node)| node))).collect();
    let mut readers_of: HashMap<Id, SmallVec<[usize; 4]>> = HashMap::new();
    for (index, read) in reads.iter().enumerate() {
        for node in read.iter().filter(|node| unread.contains_key(node)) {
            readers_of.entry(*node).or_default().push(index);
        }
    }
    // Bytes in use afterwards that are not now. Results have memory from the beginning.
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
            // The only one left to read it lets it go.
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

/// Checks that the order has every piece once, behind all that store what it reads, and that every result is stored.
///
/// # Errors
/// Where that does not hold, a step would read memory that nothing has written: a kernel that waits for itself, say.
pub(super) fn check(ir: &Ir, pieces: &[Piece], order: &[usize], results: &[Id]) -> Result<()> {
    let broken = |message: String| Err(Error::internal("schedule::order", message));
    let mut stored: HashSet<Id> = ir.leaves.iter().copied().collect();
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
            return broken(format!("step {index} is there twice"));
        }
        stored.extend(pieces[index].stored());
    }
    if let Some(index) = placed.iter().position(|placed| !placed) {
        return broken(format!("step {index} of {} has no place in the order", pieces.len()));
    }
    match results.iter().find(|result| !stored.contains(result)) {
        Some(&result) => broken(format!("no step stores the result of {}", ir.node(result).op.name())),
        None => Ok(()),
    }
}

/// The same order, but what is made of leaves alone comes right before its first reader: until then it would only take
/// memory.
fn when_needed(
    order: Vec<usize>,
    pieces: &[Piece],
    producer: &HashMap<Id, usize>,
    readers: &[SmallVec<[usize; 4]>],
) -> Vec<usize> {
    let sources = |index: usize| {
        let mut sources: SmallVec<[usize; 8]> =
            pieces[index].read().filter_map(|(_, node)| producer.get(&node).copied()).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    };
    let mut waits: Vec<bool> =
        (0..pieces.len()).map(|index| !readers[index].is_empty() && sources(index).is_empty()).collect();
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

/// The order as launches. Fused kernels that only make results, the last of the order, do not depend on one another:
/// they are run together, as many as their buffers allow.
pub(super) fn batch(pieces: &[Piece], order: Vec<usize>, limit: usize) -> Vec<SmallVec<[usize; 1]>> {
    let read: HashSet<Id> = pieces.iter().flat_map(|piece| piece.read().map(|(_, node)| node)).collect();
    let can_join = |piece: &Piece| {
        // What the device refuses takes nothing with it to the CPU.
        let fused = piece.step.fused().is_some() && piece.refusal.is_none();
        fused && !piece.stored().any(|node| read.contains(&node))
    };
    let mut launches: Vec<SmallVec<[usize; 1]>> = Vec::new();
    // Buffers of the last launch, if others may join it.
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
