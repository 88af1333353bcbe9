//! Places the values of a program: registers shared by values that are not live at the same time, tiles small enough
//! for the registers to stay in cache, and values computed directly into memory.

use std::collections::HashMap;

use super::{
    access::Varies,
    axis::{LANES, OUTER},
    plan::{self, Plan},
    program::{Code, Home, Program, Schedule, Slot, SlotId, Store, elements},
};

/// Minimum distance of registers in bytes: a cache line.
const LINE: usize = 64;

/// Cuts the axes of a program and gives every slot its home.
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

/// Registers by class. Values of a class have exactly the same size, so a kernel may overwrite an operand that is not
/// read again with its result.
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
        // Each list starts fresh: no register value outlives it.
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
            // The most recently freed register is most likely in cache.
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

    /// Bytes per element of all registers that hold full tiles.
    fn full_bytes(&self) -> usize {
        self.classes.iter().filter(|(varies, _)| *varies == Varies::EVERYWHERE).map(|(_, size)| size).sum()
    }
}

/// Bytes per element of the operands and results that vary everywhere: their cache lines pass through the cache too.
fn streamed_bytes(program: &Program) -> usize {
    let loads = program.loads.iter().filter(|l| l.access.varies == Varies::EVERYWHERE).map(|l| l.size);
    let stores = program.stores.iter().filter(|s| s.access.varies == Varies::EVERYWHERE).map(|s| s.size);
    loads.chain(stores).sum()
}

/// True if an operand's cache lines run along the outer axis.
fn transposes(program: &Program) -> bool {
    let across = |steps: Option<[i64; 2]>| {
        steps.is_some_and(|steps| steps[OUTER].abs() == 1 && steps[LANES].abs() > 1)
    };
    program.loads.iter().any(|l| l.access.varies == Varies::EVERYWHERE && across(l.access.innermost_steps()))
        || program.stores.iter().any(|s| across(s.access.innermost_steps()))
}

/// Values that can be computed directly into memory: stored values and the chain of values they are computed from, each
/// replacing the previous one in place. Store misses then overlap with computation, and no register is needed.
///
/// An output may share its memory with an operand if every load of it is at the index of the store. All of a tile's
/// loads of an element must then precede its store. This holds for stores at the end of a tile. After a value is
/// computed directly into memory, nothing may read memory at its index: neither a load, nor a kernel with an operand in
/// place. The kernel that computes it reads each element of its operands before it writes the same element, row by row.
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
    // Whether the value computed at a position can be placed at the destination of a store.
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

/// Assigns all offsets, now that tile sizes are known.
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
