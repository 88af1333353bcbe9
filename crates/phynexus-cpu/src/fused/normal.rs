//! The normal form of a kernel's ranges: divisions are split away, single-value ranges dropped, and ranges that
//! continue one another joined, so that a contiguous elementwise kernel is one flat loop.

use phynexus::{
    kernel::{
        Index, Ranges,
        fused::{FusedOp, Fusion},
        index::Atom,
        view,
    },
    shape::Dims,
};

/// The same kernel over as few ranges as possible. Column ranges remain only if a row has several columns. The kernel
/// must have at least one row. Rows may be reordered unless `in_order`.
pub(super) fn normalise(kernel: &Fusion, in_order: bool) -> Fusion {
    let mut kernel = without_trivial_columns(kernel);
    // A split may expose a quotient of a new range; each round at least halves the remaining quotients.
    for _ in 0..4 {
        if !split(&mut kernel) {
            break;
        }
    }
    if !in_order {
        order_rows(&mut kernel);
    }
    drop_single(&mut kernel);
    while join(&mut kernel) {}
    kernel
}

/// All ranges of a kernel, rows first.
pub(super) fn ranges(kernel: &Fusion) -> Ranges {
    Ranges(kernel.rows.iter().chain(&kernel.columns).copied().collect())
}

/// Without columns a reduction is its identity; with one column it is its operand.
fn without_trivial_columns(kernel: &Fusion) -> Fusion {
    let mut kernel = kernel.clone();
    let count = kernel.column_count();
    if count > 1 {
        return kernel;
    }
    for at in 0..kernel.instructions.len() {
        let dtype = kernel.instructions[at].dtype;
        let operation = match kernel.instructions[at].operation {
            FusedOp::Reduce(combine, _) if count == 0 => FusedOp::Constant(combine.identity(dtype)),
            // A cast to the same dtype is the value itself.
            FusedOp::Reduce(_, value) => FusedOp::Cast(value),
            // The remaining column instructions are never read.
            _ if count == 0 && kernel.instructions[at].per_column => {
                FusedOp::Constant(phynexus::Scalar::Int(0))
            }
            _ => continue,
        };
        kernel.instructions[at].operation = operation;
    }
    if count == 0 {
        let instructions = &kernel.instructions;
        kernel.stores.retain(|s| instructions.get(s.value as usize).is_some_and(|i| !i.per_column));
    }
    // The only value of each column range is 0.
    let rows = Ranges::of(&kernel.rows);
    let replacements: Vec<Index> = (0..kernel.rows.len() + kernel.columns.len())
        .map(|range| if range < kernel.rows.len() { Index::range(range, &rows) } else { Index::default() })
        .collect();
    kernel.columns.clear();
    substitute(&mut kernel, &replacements, &rows);
    kernel
}

/// All indices of a kernel.
fn indices(kernel: &Fusion) -> Vec<&Index> {
    let mut all: Vec<&Index> = kernel.stores.iter().map(|s| &s.index).collect();
    for instruction in &kernel.instructions {
        match &instruction.operation {
            FusedOp::Load { index, mask, .. } => {
                all.push(index);
                all.extend(mask.iter().flat_map(|m| m.conditions()).map(|c| &c.index));
            }
            FusedOp::Coordinate(index) => all.push(index),
            _ => {}
        }
    }
    all
}

fn substitute(kernel: &mut Fusion, replacements: &[Index], ranges: &Ranges) {
    for store in &mut kernel.stores {
        store.index = store.index.substitute(replacements, ranges);
    }
    for instruction in &mut kernel.instructions {
        match &mut instruction.operation {
            FusedOp::Load { index, mask, fill, .. } => {
                *index = index.substitute(replacements, ranges);
                *mask = mask.as_ref().map(|m| m.substitute(replacements, ranges)).filter(|m| !m.is_always());
                if mask.as_ref().is_some_and(|m| m.is_never()) {
                    instruction.operation = FusedOp::Constant(*fill);
                }
            }
            FusedOp::Coordinate(index) => *index = index.substitute(replacements, ranges),
            _ => {}
        }
    }
}

/// Splits ranges so that quotients and remainders become affine. Returns false if there is nothing to split.
fn split(kernel: &mut Fusion) -> bool {
    let Some(split) = view::splits(indices(kernel), &ranges(kernel)) else { return false };
    let rows: usize = split.parts.iter().take(kernel.rows.len()).map(|&n| usize::from(n)).sum();
    substitute(kernel, &split.replacements, &split.ranges);
    kernel.rows = split.ranges.0[..rows].into();
    kernel.columns = split.ranges.0[rows..].into();
    true
}

/// Orders the row ranges as the first store walks through memory.
fn order_rows(kernel: &mut Fusion) {
    let count = kernel.rows.len();
    let all = ranges(kernel);
    let Some((_, strides)) = kernel.stores.first().and_then(|s| s.index.strides(all.len())) else { return };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&range| std::cmp::Reverse(strides[range].unsigned_abs()));
    if order.is_sorted() {
        return;
    }
    let mut replacements: Vec<Index> = vec![Index::default(); all.len()];
    let extents: Dims = order.iter().map(|&range| kernel.rows[range]).collect();
    let ordered = Ranges(extents.iter().chain(&kernel.columns).copied().collect());
    for (new, &old) in order.iter().enumerate() {
        replacements[old] = Index::range(new, &ordered);
    }
    for (column, replacement) in replacements.iter_mut().enumerate().skip(count) {
        *replacement = Index::range(column, &ordered);
    }
    kernel.rows = extents;
    substitute(kernel, &replacements, &ordered);
}

/// Drops single-value ranges.
fn drop_single(kernel: &mut Fusion) {
    let all = ranges(kernel);
    if !all.0.contains(&1) {
        return;
    }
    kernel.rows.retain(|extent| *extent != 1);
    kernel.columns.retain(|extent| *extent != 1);
    let kept = ranges(kernel);
    let mut next = 0;
    let replacements: Vec<Index> = (all.0.iter())
        .map(|&extent| {
            if extent == 1 {
                return Index::default();
            }
            next += 1;
            Index::range(next - 1, &kept)
        })
        .collect();
    substitute(kernel, &replacements, &kept);
}

/// Joins the first two adjacent ranges that every index continues over. Returns false if there are none.
fn join(kernel: &mut Fusion) -> bool {
    let all = ranges(kernel);
    let rows = kernel.rows.len();
    let joined = (1..all.len()).find(|&inner| {
        let (outer, extent) = (inner - 1, all.0[inner] as i64);
        inner != rows && indices(kernel).into_iter().all(|index| runs_on(index, outer, extent))
    });
    let Some(inner) = joined else { return false };
    let both = all.0[inner] * all.0[inner - 1];
    let (list, at) =
        if inner < rows { (&mut kernel.rows, inner) } else { (&mut kernel.columns, inner - rows) };
    list[at] = both;
    list.remove(at - 1);
    let kept = ranges(kernel);
    let replacements: Vec<Index> = (0..all.len())
        .map(|range| match range {
            _ if range == inner - 1 => Index::default(),
            _ if range >= inner => Index::range(range - 1, &kept),
            _ => Index::range(range, &kept),
        })
        .collect();
    substitute(kernel, &replacements, &kept);
    true
}

/// True if the index, and every index within it, depends on `outer` and the range after it only through
/// `extent * outer + inner`.
fn runs_on(index: &Index, outer: usize, extent: i64) -> bool {
    let factor = |range: usize| {
        let found = index.terms().iter().find(|t| t.atom == Atom::Range(range as u8));
        found.map_or(0, |t| t.factor)
    };
    factor(outer) == extent * factor(outer + 1)
        && index.terms().iter().all(|t| match &t.atom {
            Atom::Range(_) => true,
            Atom::Quotient(x, _) | Atom::Remainder(x, _) => runs_on(x, outer, extent),
        })
}
