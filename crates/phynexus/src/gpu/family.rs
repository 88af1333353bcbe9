//! Kernels that are alike but for their numbers.
//!
//! The plans of such graphs are a family. The kernels of its first plan have all numbers built in, so that compilers
//! fold them. When the graph comes again with other sizes, the kernels whose sources differ in numbers only get those
//! numbers as arguments ([`Variable`]), and later plans use the same kernels. If another number then changes, a kernel
//! is compiled in which it is an argument, too.
//!
//! Within a plan, kernels that differ in offsets only, such as those of the time steps of a loop, are one kernel, too.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    hash::{FastHasher, FastMap, FastSet},
    kernel::{
        loops::Kernel,
        print::{NumberSource, Variable},
    },
};

/// The maximum number of families kept.
const CAPACITY: usize = 128;
/// After this many kernels with the same skeleton, all numbers that ever differed become arguments.
const SELECTIVE: usize = 6;
/// The maximum number of a family's skeletons, of the kernels of each, and of those that were not compared yet.
const MEMBERS: usize = 1024;
/// From this many kernels of one structure on, a plan's kernels are compared with each other.
const REPEATED: u32 = 4;

/// A plan of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relation {
    family: u64,
    /// The number of plans of the family before this one.
    former: u32,
}

impl Relation {
    /// Returns whether the family has earlier plans.
    pub(super) fn has_former(&self) -> bool {
        self.former > 0
    }
}

/// How a kernel gets its machine code.
pub(super) enum Choice<M> {
    /// With all numbers built in: no earlier plan has a kernel like it.
    Alone,
    /// As a kernel compiled before, with these arguments.
    Known(Arc<M>, Vec<i32>),
    /// As a new kernel with these places.
    New(Vec<NumberSource>),
}

/// The families of a device.
pub(super) struct Families<M>(Mutex<Known<M>>);

struct Known<M> {
    families: FastMap<u64, Family<M>>,
    clock: u64,
}

struct Family<M> {
    plans: u32,
    used: u64,
    /// The number of kernels of each structure in the current plan.
    structures: FastMap<u64, u32>,
    /// Kernels whose sources have not been compared yet.
    new: Vec<(u32, Arc<Kernel>)>,
    /// By skeleton.
    members: FastMap<String, Vec<Member<M>>>,
    /// Skeletons whose numbers cannot be arguments, because the compiler refused it.
    refused: FastSet<String>,
}

struct Member<M> {
    /// The plan that it was made for.
    plan: u32,
    values: Vec<i32>,
    /// Where its numbers are, if some are arguments.
    variable: Option<(Vec<NumberSource>, Weak<M>)>,
}

impl<M> Families<M> {
    pub(super) fn new() -> Families<M> {
        Families(Mutex::new(Known { families: FastMap::default(), clock: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Known<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins another plan of a family.
    pub(super) fn begin(&self, family: u64) -> Relation {
        let mut known = self.lock();
        known.clock += 1;
        let used = known.clock;
        let mut dropped = Vec::new();
        if known.families.len() >= CAPACITY && !known.families.contains_key(&family) {
            // The older half at once.
            let mut ages: Vec<u64> = known.families.values().map(|family| family.used).collect();
            ages.sort_unstable();
            let limit = ages[ages.len() / 2];
            dropped.extend(known.families.extract_if(|_, family| family.used <= limit));
        }
        let new = || Family {
            plans: 0,
            used,
            structures: FastMap::default(),
            new: Vec::new(),
            members: FastMap::default(),
            refused: FastSet::default(),
        };
        let entry = known.families.entry(family).or_insert_with(new);
        (entry.used, entry.plans) = (used, entry.plans + 1);
        entry.structures.clear();
        let relation = Relation { family, former: entry.plans - 1 };
        // Kernels are large, so they are dropped after the lock is released.
        drop(known);
        drop(dropped);
        relation
    }

    /// Counts a kernel of a plan. Returns whether the plan has many of the same structure.
    pub(super) fn is_repeated(&self, relation: Relation, kernel: &Kernel) -> bool {
        let structure = structure(kernel);
        self.lock().families.get_mut(&relation.family).is_some_and(|family| {
            let count = family.structures.entry(structure).or_default();
            *count += 1;
            *count >= REPEATED
        })
    }

    /// Notes a kernel with all numbers built in.
    pub(super) fn note(&self, relation: Relation, kernel: &Arc<Kernel>) {
        if let Some(family) = self.lock().families.get_mut(&relation.family)
            && family.new.len() < MEMBERS
        {
            family.new.push((relation.former, kernel.clone()));
        }
    }

    /// Notes that the compiler refuses a kernel with arguments.
    pub(super) fn refuse(&self, relation: Relation, skeleton: String) {
        if let Some(family) = self.lock().families.get_mut(&relation.family) {
            if family.refused.len() >= MEMBERS {
                family.refused.clear();
            }
            family.members.remove(&skeleton);
            family.refused.insert(skeleton);
        }
    }

    /// Chooses machine code for a kernel of this source, of which `own` sizes get their own. `print` prints a kernel
    /// noted before.
    pub(super) fn choose(
        &self,
        relation: Relation,
        variable: &Variable,
        own: usize,
        print: impl Fn(&Kernel) -> Option<Variable>,
    ) -> Choice<M> {
        let take =
            || self.lock().families.get_mut(&relation.family).map(|family| std::mem::take(&mut family.new));
        let new = take().unwrap_or_default();
        let printed: Vec<(u32, Variable)> =
            new.iter().filter_map(|(plan, kernel)| Some((*plan, print(kernel)?))).collect();
        let mut known = self.lock();
        let Some(family) = known.families.get_mut(&relation.family) else { return Choice::Alone };
        for (plan, Variable { skeleton, values, .. }) in printed {
            if family.refused.contains(&skeleton) {
                continue;
            }
            let members = family.members.entry(skeleton).or_default();
            if members.len() < MEMBERS && members.iter().all(|member| member.values != values) {
                members.push(Member { plan, values, variable: None });
            }
        }
        if family.members.len() > MEMBERS {
            family.members.clear();
        }
        let Some(members) = family.members.get_mut(&variable.skeleton) else { return Choice::Alone };
        if members.iter().filter(|member| member.variable.is_none()).count() < own {
            return Choice::Alone;
        }
        // Kernels live as long as plans that use them.
        members.retain(|member| member.variable.as_ref().is_none_or(|(_, module)| module.strong_count() > 0));
        let variables = members.iter().filter_map(|member| member.variable.as_ref());
        for (places, module) in variables.clone() {
            if let (Some(arguments), Some(module)) = (arguments(places, &variable.values), module.upgrade()) {
                return Choice::Known(module, arguments);
            }
        }
        let differing = |member: &Member<M>| {
            let pairs = member.values.iter().zip(&variable.values).zip(&variable.offsets);
            pairs
                .filter(|((before, now), _)| before != now)
                .map(|(_, is_offset)| *is_offset)
                .collect::<Vec<_>>()
        };
        let is_equal = |member: &Member<M>| member.values == variable.values;
        if members.iter().any(is_equal) {
            return Choice::Alone;
        }
        if relation.has_former() && variables.count() >= SELECTIVE {
            let place =
                |(at, &now): (usize, &i32)| match members.iter().all(|member| member.values[at] == now) {
                    true => NumberSource::Fixed(now),
                    false => NumberSource::Argument(at),
                };
            return Choice::New(numbered(variable.values.iter().enumerate().map(place)));
        }
        let is_related = |member: &&Member<M>| {
            member.plan < relation.former || differing(member).into_iter().all(|is_offset| is_offset)
        };
        match members.iter().filter(is_related).min_by_key(|member| differing(member).len()) {
            Some(nearest) => Choice::New(widened(nearest, &variable.values)),
            None => Choice::Alone,
        }
    }

    /// Adds a kernel with arguments.
    pub(super) fn add(
        &self,
        relation: Relation,
        variable: Variable,
        places: Vec<NumberSource>,
        module: &Arc<M>,
    ) {
        if let Some(family) = self.lock().families.get_mut(&relation.family) {
            let Variable { skeleton, values, .. } = variable;
            let member =
                Member { plan: relation.former, values, variable: Some((places, Arc::downgrade(module))) };
            family.members.entry(skeleton).or_default().push(member);
        }
    }
}

/// The same places, whose arguments have the numbers from 0 on.
fn numbered(places: impl Iterator<Item = NumberSource>) -> Vec<NumberSource> {
    let mut count = 0;
    let numbered = places.map(|place| match place {
        NumberSource::Fixed(_) => place,
        NumberSource::Argument(_) => {
            count += 1;
            NumberSource::Argument(count - 1)
        }
    });
    numbered.collect()
}

/// The arguments with which a kernel has these numbers, if it can have them.
pub(super) fn arguments(places: &[NumberSource], values: &[i32]) -> Option<Vec<i32>> {
    let mut arguments: Vec<Option<i32>> = Vec::new();
    for (&place, &value) in places.iter().zip(values) {
        let held = match place {
            NumberSource::Fixed(own) => own,
            NumberSource::Argument(number) => {
                if arguments.len() <= number {
                    arguments.resize(number + 1, None);
                }
                *arguments[number].get_or_insert(value)
            }
        };
        if held != value {
            return None;
        }
    }
    Some(arguments.into_iter().map(Option::unwrap_or_default).collect())
}

/// Places for numbers that differ from a kernel's: arguments for those that do, in addition to its own. Numbers that
/// are equal in both share an argument.
fn widened<M>(member: &Member<M>, values: &[i32]) -> Vec<NumberSource> {
    let own = |at: usize| match &member.variable {
        Some((places, _)) => match places[at] {
            NumberSource::Argument(number) => Some(number),
            NumberSource::Fixed(_) => None,
        },
        None => None,
    };
    let mut shared: FastMap<(Option<usize>, i32, i32), usize> = FastMap::default();
    let place = |(at, (&before, &now)): (usize, (&i32, &i32))| match own(at) {
        None if before == now => NumberSource::Fixed(now),
        own => {
            let count = shared.len();
            NumberSource::Argument(*shared.entry((own, before, now)).or_insert(count))
        }
    };
    member.values.iter().zip(values).enumerate().map(place).collect()
}

/// A number that kernels share whose sources may differ in numbers only.
fn structure(kernel: &Kernel) -> u64 {
    let mut hasher = FastHasher::default();
    let mut statements = 0;
    kernel.visit(&mut |_| statements += 1);
    let lengths = (kernel.buffers.len(), kernel.axes.len(), kernel.registers.len(), kernel.shared.len());
    (&kernel.name, statements, lengths, kernel.block()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(values: &[i32], places: Option<&[NumberSource]>) -> Member<()> {
        Member { plan: 0, values: values.into(), variable: places.map(|places| (places.into(), Weak::new())) }
    }

    /// The first sizes of a kernel get code of their own, if it is to have it; the next one makes them arguments.
    #[test]
    fn some_sizes_get_their_own_code() {
        let families: Families<()> = Families::new();
        let printed = |size: i32| Variable::new(format!("x * \u{1}{size}\u{2}{size}\u{3}#\u{4};"));
        let chosen = (1..=4).map(|size| {
            let relation = families.begin(7);
            // The name of a kernel stands for its size.
            let print = |kernel: &Kernel| kernel.name.parse().ok().map(printed);
            let choice = families.choose(relation, &printed(size), 3, print);
            families.note(relation, &Arc::new(Kernel { name: size.to_string(), ..Kernel::default() }));
            matches!(choice, Choice::New(_))
        });
        assert_eq!(chosen.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn numbers_that_change_become_arguments_and_equal_ones_share_them() {
        use NumberSource::{Argument, Fixed};
        let first = widened(&member(&[4, 7, 4, 8], None), &[5, 7, 5, 10]);
        assert_eq!(first, [Argument(0), Fixed(7), Argument(0), Argument(1)]);
        assert_eq!(arguments(&first, &[6, 7, 6, 12]), Some(vec![6, 12]));
        assert_eq!(arguments(&first, &[6, 8, 6, 12]), None);
        // Those that shared an argument differ: they get two.
        assert_eq!(arguments(&first, &[6, 7, 5, 12]), None);
        let second = widened(&member(&[5, 7, 5, 10], Some(&first)), &[6, 7, 5, 12]);
        assert_eq!(second, [Argument(0), Fixed(7), Argument(1), Argument(2)]);
    }
}
