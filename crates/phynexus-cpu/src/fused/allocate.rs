//! Where the values of a program lie: registers shared by values that are not alive together, tiles small enough for
//! the registers to stay in the cache, and values computed straight into memory.

use std::collections::HashMap;

use super::{
    access::Varies,
    axis::{LANES, OUTER},
    plan::{self, Plan},
    program::{Code, Home, Program, Schedule, Slot, SlotId, Store, elements},
};

/// Registers are this far apart at least, in bytes: a cache line.
const LINE: usize = 64;

/// Cuts the axes of a program and gives every slot its place.
pub(super) fn allocate(mut program: Program, plan: &Plan) -> Program {
    let mut registers = Registers::default();
    match &program.schedule {
        Schedule::Whole(codes) => registers.assign(codes, &program),
        Schedule::Chunked { passes, end, .. } => {
            for codes in passes.iter().flat_map(|p| [&p.rows, &p.columns]).chain([end]) {
                registers.assign(codes, &program);
            }
        }
    }
    program.direct = direct(&program);
    let bytes = streamed_bytes(&program) + registers.full_bytes();
    program.cuts = plan::cut(plan, bytes, transposes(&program));
    place(&mut program, &registers);
    program
}

/// Registers by class; values of one class are exactly as large as one another, so that a kernel may write its result
/// over an operand that is not read again.
#[derive(Default)]
struct Registers {
    /// The class of each register.
    classes: Vec<(Varies, usize)>,
    /// The register of each slot that has one.
    of: HashMap<SlotId, usize>,
}

impl Registers {
    /// Assigns registers to the targets of a list of codes.
    fn assign(&mut self, codes: &[Code], program: &Program) {
        let mut last_use: HashMap<SlotId, usize> = HashMap::new();
        for (at, code) in codes.iter().enumerate() {
            for &slot in code.sources().iter().chain(&code.target()) {
                last_use.insert(slot, at);
            }
        }
        // Each list starts anew: nothing in a register outlives it.
        let mut free: Vec<usize> = (0..self.classes.len()).collect();
        for (at, code) in codes.iter().enumerate() {
            let mut ended: Vec<usize> = (code.sources().iter())
                .filter(|slot| last_use.get(slot) == Some(&at))
                .filter_map(|slot| self.of.get(slot).copied())
                .collect();
            ended.sort_unstable();
            ended.dedup();
            free.extend(ended);
            let Some(target) = code.target() else { continue };
            if !matches!(program.slots[target].home, Home::Register(_)) {
                continue;
            }
            let class = (program.slots[target].varies, program.slots[target].size);
            // The register freed last is the warmest.
            let register = match free.iter().rposition(|&r| self.classes[r] == class) {
                Some(at) => free.remove(at),
                None => {
                    self.classes.push(class);
                    self.classes.len() - 1
                }
            };
            self.of.insert(target, register);
            if last_use.get(&target) == Some(&at) {
                free.push(register);
            }
        }
    }

    /// Bytes of one element in all registers that hold full tiles.
    fn full_bytes(&self) -> usize {
        self.classes.iter().filter(|(varies, _)| *varies == Varies::EVERYWHERE).map(|(_, size)| size).sum()
    }
}

/// Bytes of one element in the operands and results that vary everywhere: their lines pass through the cache too.
fn streamed_bytes(program: &Program) -> usize {
    let loads = program.loads.iter().filter(|l| l.access.varies == Varies::EVERYWHERE).map(|l| l.size);
    let stores = program.stores.iter().filter(|s| s.access.varies == Varies::EVERYWHERE).map(|s| s.size);
    loads.chain(stores).sum()
}

/// True if an operand's lines lie along the outer axis.
fn transposes(program: &Program) -> bool {
    let across = |steps: Option<[i64; 2]>| {
        steps.is_some_and(|steps| steps[OUTER].abs() == 1 && steps[LANES].abs() > 1)
    };
    program.loads.iter().any(|l| l.access.varies == Varies::EVERYWHERE && across(l.access.innermost_steps()))
        || program.stores.iter().any(|s| across(s.access.innermost_steps()))
}

/// Values that can be computed straight into memory: what is stored there, and what it is computed from, one value after
/// another in one place. So a store misses the cache while there is something to compute, and no register is needed.
///
/// An output may share its memory with an operand if every load of it is at the index of the store. All of a tile's
/// loads of an element must then come before its store. Stores at the end of a tile do; a value computed straight into
/// memory must have no later reader of memory at its index: neither a load, nor a kernel with an operand in place. The
/// kernel that computes it reads each element of its operands before it writes the same element, row by row.
fn direct(program: &Program) -> Vec<(SlotId, usize)> {
    let codes = match &program.schedule {
        Schedule::Whole(codes) => codes,
        Schedule::Chunked { passes, .. } => match passes.last() {
            Some(pass) => &pass.columns,
            None => return Vec::new(),
        },
    };
    let mut found: Vec<(SlotId, usize)> = Vec::new();
    let made = |slot: SlotId| codes.iter().position(|c| c.target() == Some(slot));
    let last_read = |slot: SlotId| codes.iter().rposition(|c| c.sources().contains(&slot));
    // Whether what the code at a position computes can lie where a store wants its value.
    let fits = |at: usize, slot: SlotId, target: &Store| {
        let Slot { size, varies, home } = program.slots[slot];
        let computed = !matches!(codes[at], Code::Load { .. } | Code::Coordinate { .. })
            && matches!(home, Home::Register(_))
            && (size, varies) == (target.size, target.access.varies);
        let same_place = |slot: SlotId| {
            codes.iter().any(|c| match c {
                Code::Load { load, target: loaded } if *loaded == slot => {
                    program.loads[*load].access.may_equal(&target.access)
                }
                _ => false,
            })
        };
        let read_later = || {
            codes[at + 1..].iter().any(|later| match later {
                Code::Load { target, .. } => same_place(*target),
                _ => later.sources().iter().any(|&slot| same_place(slot)),
            })
        };
        computed && !read_later()
    };
    for code in codes {
        let Code::Store { store, source } = *code else { continue };
        let target = &program.stores[store];
        if target.cast.is_some() {
            continue;
        }
        let mut next = Some(source);
        while let Some(slot) = next.take()
            && let Some(at) = made(slot)
            && found.iter().all(|(other, _)| *other != slot)
            && fits(at, slot, target)
        {
            found.push((slot, store));
            next = (codes[at].sources().iter().copied())
                .find(|&s| last_read(s) == Some(at) && made(s).is_some_and(|at| fits(at, s, target)));
        }
    }
    found
}

/// Offsets of everything, now that the sizes of tiles are known.
fn place(program: &mut Program, registers: &Registers) {
    let counts = [program.cuts[OUTER].longest, program.cuts[LANES].longest];
    let bytes = |varies: Varies, size: usize| (elements(varies, counts) * size).next_multiple_of(LINE);
    let mut end = 0;
    let mut offsets = Vec::with_capacity(registers.classes.len());
    for &(varies, size) in &registers.classes {
        offsets.push(end);
        end += bytes(varies, size);
    }
    program.register_bytes = end;
    program.staging_bytes = bytes(Varies::EVERYWHERE, 8);
    let partial_sums = program.partial_sums();
    let (mut state, mut partial) = (0, 0);
    for (at, slot) in program.slots.iter_mut().enumerate() {
        let (next, count) = match &mut slot.home {
            Home::Register(offset) => {
                *offset = registers.of.get(&at).map_or(0, |&register| offsets[register]);
                continue;
            }
            Home::Constant(_) => continue,
            Home::State(offset) => ((offset, &mut state), 1),
            Home::Partial(offset) => ((offset, &mut partial), partial_sums),
        };
        *next.0 = *next.1;
        *next.1 += count * bytes(slot.varies, slot.size);
    }
    (program.state_bytes, program.partial_bytes) = (state, partial);
}
