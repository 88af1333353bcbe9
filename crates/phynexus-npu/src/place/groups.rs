//! Units as parts: as few as possible, without a cycle between them.

use std::collections::{BTreeMap, BTreeSet};

use super::units::{Sets, Unit};

/// Units that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Whether they run on the device.
    pub(super) on_device: bool,
    /// The units, in order.
    pub(super) units: Vec<usize>,
}

/// Groups of units of the same place, in an order in which each follows those that it reads.
///
/// The level of a unit is the number of changes of place on the way to it, the most of all ways. Between units of a
/// place and level there is no way through another place; each connected set of them is a group. Groups of different
/// levels are merged where no way leaves the one and comes to the other through a third.
pub(super) fn group(units: &[Unit], on_device: &[bool]) -> Vec<Group> {
    let mut levels = vec![0usize; units.len()];
    let mut by_level: BTreeMap<(usize, bool), Vec<usize>> = BTreeMap::new();
    for (at, unit) in units.iter().enumerate() {
        let from = |&before: &usize| levels[before] + usize::from(on_device[before] != on_device[at]);
        levels[at] = unit.after.iter().map(from).max().unwrap_or(0);
        by_level.entry((levels[at], on_device[at])).or_default().push(at);
    }
    let mut groups = Vec::new();
    for ((_, on_device), members) in by_level {
        let mut sets = Sets::new(members.len());
        for one in 0..members.len() {
            for other in 0..one {
                if are_connected(units, &[members[one]], &[members[other]]) {
                    sets.join(one, other);
                }
            }
        }
        let all = sets.all().into_iter();
        groups.extend(
            all.map(|set| Group { on_device, units: set.into_iter().map(|at| members[at]).collect() }),
        );
    }
    while let Some((one, other)) = mergeable(units, &groups) {
        let last = groups.remove(other);
        groups[one].units.extend(last.units);
        groups[one].units.sort_unstable();
    }
    ordered(units, groups)
}

/// Whether some units read others of the two, or both read the same value.
fn are_connected(units: &[Unit], one: &[usize], other: &[usize]) -> bool {
    let reads = |from: &[usize], to: &[usize]| {
        from.iter().any(|&unit| to.iter().any(|before| units[unit].after.contains(before)))
    };
    let shares = || {
        one.iter().any(|&unit| other.iter().any(|&with| !units[unit].reads.is_disjoint(&units[with].reads)))
    };
    reads(one, other) || reads(other, one) || shares()
}

/// The groups that each group reads.
fn edges(units: &[Unit], groups: &[Group]) -> Vec<BTreeSet<usize>> {
    let mut of_unit = vec![0; units.len()];
    for (at, group) in groups.iter().enumerate() {
        group.units.iter().for_each(|&unit| of_unit[unit] = at);
    }
    let before = |(at, group): (usize, &Group)| {
        let all = group.units.iter().flat_map(|&unit| &units[unit].after);
        all.map(|&unit| of_unit[unit]).filter(|&other| other != at).collect()
    };
    groups.iter().enumerate().map(before).collect()
}

/// Two groups that can be one, the first of them first.
fn mergeable(units: &[Unit], groups: &[Group]) -> Option<(usize, usize)> {
    let edges = edges(units, groups);
    for other in 0..groups.len() {
        for one in 0..other {
            let (a, b) = (&groups[one], &groups[other]);
            if a.on_device == b.on_device
                && are_connected(units, &a.units, &b.units)
                && !has_detour(&edges, one, other)
                && !has_detour(&edges, other, one)
            {
                return Some((one, other));
            }
        }
    }
    None
}

/// Whether `late` reads `early` by way of a third group.
fn has_detour(edges: &[BTreeSet<usize>], late: usize, early: usize) -> bool {
    let mut open: Vec<usize> = edges[late].iter().copied().filter(|&group| group != early).collect();
    let mut seen = BTreeSet::new();
    while let Some(group) = open.pop() {
        if group == early {
            return true;
        }
        if seen.insert(group) {
            open.extend(&edges[group]);
        }
    }
    false
}

/// The groups in an order in which each follows those that it reads.
fn ordered(units: &[Unit], groups: Vec<Group>) -> Vec<Group> {
    let edges = edges(units, &groups);
    let mut done = BTreeSet::new();
    let mut order = Vec::with_capacity(groups.len());
    while order.len() < groups.len() {
        let next = (0..groups.len()).find(|at| !done.contains(at) && edges[*at].is_subset(&done));
        // Groups have no cycle, so that there always is one.
        let Some(next) = next else { break };
        done.insert(next);
        order.push(groups[next].clone());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units that read those units and values.
    fn units(after: &[(&[usize], &[&str])]) -> Vec<Unit> {
        let unit = |(after, reads): &(&[usize], &[&str])| Unit {
            after: after.iter().copied().collect(),
            reads: (after.iter().map(|unit| format!("value {unit}")))
                .chain(reads.iter().map(|name| (*name).to_owned()))
                .collect(),
            ..Unit::default()
        };
        after.iter().map(unit).collect()
    }

    fn groups(after: &[(&[usize], &[&str])], on_device: &[bool]) -> Vec<(bool, Vec<usize>)> {
        let all = group(&units(after), on_device);
        all.into_iter().map(|group| (group.on_device, group.units)).collect()
    }

    #[test]
    fn a_refused_unit_in_a_chain_makes_three_groups() {
        let chain: &[(&[usize], &[&str])] =
            &[(&[], &["x"]), (&[0], &[]), (&[1], &[]), (&[2], &[]), (&[3], &[])];
        let found = groups(chain, &[true, true, false, true, true]);
        assert_eq!(found, [(true, vec![0, 1]), (false, vec![2]), (true, vec![3, 4])]);
    }

    #[test]
    fn a_refused_branch_does_not_split_what_lies_beside_it() {
        // 0 feeds 1, 2 and 3; 3 is refused, and only 5 reads it. 4 reads 1 and 2.
        let graph: &[(&[usize], &[&str])] =
            &[(&[], &["x"]), (&[0], &[]), (&[0], &[]), (&[0], &[]), (&[1, 2], &[]), (&[3, 4], &[])];
        let found = groups(graph, &[true, true, true, false, true, true]);
        assert_eq!(found, [(true, vec![0, 1, 2, 4]), (false, vec![3]), (true, vec![5])]);
    }

    #[test]
    fn groups_of_different_levels_merge_without_a_cycle() {
        // The refused 0 feeds 2 only; 1 feeds 2, too: 1 and 2 can be one, after 0.
        let graph: &[(&[usize], &[&str])] = &[(&[], &["x"]), (&[], &["y"]), (&[0, 1], &[])];
        assert_eq!(groups(graph, &[false, true, true]), [(false, vec![0]), (true, vec![1, 2])]);
        // If 0 reads 1, they cannot.
        let graph: &[(&[usize], &[&str])] = &[(&[], &["y"]), (&[0], &[]), (&[1, 0], &[])];
        let found = groups(graph, &[true, false, true]);
        assert_eq!(found, [(true, vec![0]), (false, vec![1]), (true, vec![2])]);
    }

    #[test]
    fn every_grouping_of_a_random_graph_can_be_run_in_its_order() {
        let mut state = 7u32;
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as usize % below
        };
        for _ in 0..300 {
            let count = 1 + next(12);
            let after: Vec<BTreeSet<usize>> = (0..count)
                .map(|at| (0..next(3)).filter(|_| at > 0).map(|_| next(at.max(1))).collect())
                .collect();
            let on_device: Vec<bool> = (0..count).map(|_| next(3) > 0).collect();
            let all: Vec<Unit> = (after.iter())
                .map(|after| Unit {
                    after: after.clone(),
                    reads: after.iter().map(|unit| format!("value {unit}")).collect(),
                    ..Unit::default()
                })
                .collect();
            let mut done = BTreeSet::new();
            for group in group(&all, &on_device) {
                for &unit in &group.units {
                    assert_eq!(on_device[unit], group.on_device);
                    assert!(after[unit].iter().all(|from| done.contains(from) || group.units.contains(from)));
                }
                done.extend(group.units);
            }
            assert_eq!(done.len(), count, "{after:?} {on_device:?}");
        }
    }
}
