//! Operations that are not elementwise: sources, views, reductions, indexing, sorting, products and windows.

use phynexus::{
    DType, Scalar,
    op::{Axes, Combine, ConvKind, Geometry, IndexRange, Op, PoolKind, ScatterMode, composite::Tf32},
    oracle::generate::{Case, CaseLeaf, Choice, Values, random_array, random_index, random_sorted},
    shape::element_count,
};

use super::{Entry, elementwise::leaf};

/// All cases of operations that are not elementwise.
pub(super) fn entries() -> Vec<Entry> {
    let mut suite = Suite { entries: Vec::new(), choice: Choice::new(5) };
    for dtype in DType::ALL {
        suite.sources(dtype);
        suite.views(dtype);
        suite.reductions(dtype);
        suite.order(dtype);
        suite.rows(dtype);
        if dtype != DType::Bool {
            suite.products(dtype);
        }
        suite.windows(dtype);
    }
    suite.rounded();
    suite.random_bits();
    suite.entries
}

struct Suite {
    entries: Vec<Entry>,
    choice: Choice,
}

/// An operand's dtype and shape.
type Operand<'a> = (DType, &'a [usize]);

const COMBINES: [Combine; 4] = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];

impl Suite {
    fn add(&mut self, op: &Op, dtype: DType, mut case: Case, output: u32) {
        case.ir.outputs.push(output);
        self.entries.push(Entry::new(op.name(), dtype.name(), case));
    }

    /// A case whose values and layouts depend on its name only, so that adding a case leaves the others as they are.
    fn case(&mut self, name: String) -> Case {
        self.choice =
            Choice::new(name.bytes().fold(5u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into())));
        Case::new(name)
    }

    /// Adds one operation on random operands: row-major, scattered, and with special values.
    fn one(&mut self, op: Op, result: DType, shape: &[usize], operands: &[Operand]) {
        for (values, scattered) in [(Values::Tame, false), (Values::Tame, true), (Values::Special, false)] {
            let shapes: Vec<&[usize]> = operands.iter().map(|(_, shape)| *shape).collect();
            let mut case =
                self.case(format!("{op:?} of {shapes:?}, {values:?} values, scattered {scattered}"));
            let inputs: Vec<u32> = operands
                .iter()
                .map(|(dtype, shape)| leaf(&mut case, &mut self.choice, values, *dtype, shape, scattered))
                .collect();
            let output = case.ir.push(op.clone(), result, shape.into(), inputs);
            self.add(&op, operands.first().map_or(result, |o| o.0), case, output);
        }
    }

    fn sources(&mut self, dtype: DType) {
        let value = if dtype.is_float() { Scalar::Float(-2.5) } else { Scalar::Int(100) };
        for shape in [&[][..], &[0], &[5], &[3, 300]] {
            let mut case = self.case(format!("shape {shape:?}"));
            let op = Op::Constant(value.cast(dtype));
            let output = case.ir.push(op.clone(), dtype, shape.into(), []);
            self.add(&op, dtype, case, output);
        }
        for (shape, axis) in [(&[0][..], 0), (&[5], 0), (&[3, 300], 0), (&[3, 300], 1), (&[2, 3, 4], 1)] {
            if dtype == DType::Bool {
                continue;
            }
            let mut case = self.case(format!("shape {shape:?}, axis {axis}"));
            let op = Op::Iota { axis };
            let output = case.ir.push(op.clone(), dtype, shape.into(), []);
            self.add(&op, dtype, case, output);
        }
    }

    fn views(&mut self, dtype: DType) {
        let fill = Scalar::Int(1).cast(dtype);
        let pad = |padding: &[(usize, usize)]| Op::Pad { padding: padding.into(), value: fill };
        let slice = |start: &[usize], step: &[isize]| Op::Slice { start: start.into(), step: step.into() };
        let views: [(Op, &[usize], &[usize]); 18] = [
            (Op::Reshape, &[4, 6], &[2, 12]),
            (Op::Reshape, &[6], &[1, 6, 1]),
            (Op::Reshape, &[], &[1, 1]),
            (Op::Reshape, &[0, 3], &[3, 0, 5]),
            (Op::Permute([1u8, 0].as_slice().into()), &[31, 47], &[47, 31]),
            (Op::Permute([2u8, 0, 1].as_slice().into()), &[2, 3, 5], &[5, 2, 3]),
            (Op::Permute([0u8].as_slice().into()), &[4], &[4]),
            (Op::Expand, &[3, 1, 4], &[3, 5, 4]),
            (Op::Expand, &[1, 1], &[0, 7]),
            (pad(&[(1, 2)]), &[5], &[8]),
            (pad(&[(0, 0), (2, 1)]), &[3, 300], &[3, 303]),
            (pad(&[(1, 1)]), &[0], &[2]),
            (slice(&[1], &[2]), &[9], &[4]),
            (slice(&[8], &[-3]), &[9], &[3]),
            (slice(&[2, 5], &[1, -1]), &[6, 6], &[3, 4]),
            (slice(&[0, 0], &[1, 1]), &[6, 6], &[0, 4]),
            (Op::Copy, &[3, 5], &[3, 5]),
            (Op::Contiguous, &[3, 5], &[3, 5]),
        ];
        for (op, from, to) in views {
            self.one(op, dtype, to, &[(dtype, from)]);
        }
        let cat = |axis| Op::Cat { axis };
        self.one(cat(0), dtype, &[5], &[(dtype, &[2]), (dtype, &[0]), (dtype, &[3])]);
        self.one(cat(1), dtype, &[3, 303], &[(dtype, &[3, 300]), (dtype, &[3, 3])]);
        self.one(cat(1), dtype, &[2, 4, 5], &[(dtype, &[2, 1, 5]), (dtype, &[2, 3, 5])]);
        self.one(cat(0), dtype, &[4, 2], &[(dtype, &[4, 2])]);
    }

    fn reductions(&mut self, dtype: DType) {
        let shapes: [(&[usize], Axes); 11] = [
            (&[7], Axes(1)),
            (&[1], Axes(1)),
            (&[0], Axes(1)),
            (&[3, 0], Axes(1)),
            (&[3, 0], Axes(2)),
            (&[5, 300], Axes(2)),
            (&[300, 5], Axes(1)),
            (&[4, 5, 6], Axes(0b101)),
            (&[4, 5, 6], Axes(0b010)),
            (&[4, 5, 6], Axes(0)),
            (&[2, 5000], Axes(3)),
        ];
        for combine in COMBINES.into_iter().filter(|c| c.binary().accepts(dtype)) {
            for (shape, axes) in shapes {
                let small: Vec<usize> =
                    shape.iter().enumerate().map(|(a, &d)| if axes.contains(a) { 1 } else { d }).collect();
                self.one(Op::Reduce { combine, axes }, dtype, &small, &[(dtype, shape)]);
            }
            for (shape, axis) in
                [(&[300][..], 0), (&[4, 50], 1), (&[50, 4], 0), (&[3, 4, 5], 1), (&[2, 0], 1)]
            {
                for reverse in [false, true] {
                    self.one(Op::Scan { combine, axis, reverse }, dtype, shape, &[(dtype, shape)]);
                }
            }
        }
    }

    fn order(&mut self, dtype: DType) {
        let shapes: [(&[usize], usize); 5] =
            [(&[1], 0), (&[300], 0), (&[4, 50], 1), (&[50, 4], 0), (&[3, 4, 5], 1)];
        for (shape, axis) in shapes {
            for combine in [Combine::Max, Combine::Min] {
                let mut small = shape.to_vec();
                small[axis] = 1;
                self.one(Op::ArgReduce { combine, axis }, DType::I64, &small, &[(dtype, shape)]);
            }
        }
        for shape in [&[1][..], &[0], &[257], &[3, 40], &[2, 3, 5]] {
            for descending in [false, true] {
                self.one(Op::ArgSort { descending }, DType::I64, shape, &[(dtype, shape)]);
            }
        }
        for (count, values) in [(0, 3), (1, 4), (40, 70)] {
            for right in [false, true] {
                let op = Op::SearchSorted { right };
                let mut case = self.case(format!("{values} values in {count}, right {right}"));
                let sorted = case.leaf(CaseLeaf::contiguous(random_sorted(&mut self.choice, dtype, count)));
                let wanted = leaf(&mut case, &mut self.choice, Values::Tame, dtype, &[values], true);
                let output =
                    case.ir.push(op.clone(), DType::I64, [values].as_slice().into(), [sorted, wanted]);
                self.add(&op, dtype, case, output);
            }
        }
    }

    fn rows(&mut self, dtype: DType) {
        let modes = COMBINES.into_iter().filter(|c| c.binary().accepts(dtype)).map(ScatterMode::Combine);
        let modes: Vec<ScatterMode> = std::iter::once(ScatterMode::Set).chain(modes).collect();
        // The last shape has many updates of few rows, whose runs GPUs combine first.
        for (rows, width, count) in [(1, 1, 1), (5, 3, 8), (5, 3, 0), (40, 70, 25), (6, 0, 2), (2, 3, 300)] {
            for index_dtype in DType::INTEGERS {
                let index = random_index(&mut self.choice, rows, count, index_dtype);
                let gather = Op::Gather(IndexRange::Unknown);
                let mut case = self.case(format!("{count} of {rows} rows of {width}, index {index_dtype}"));
                let table = leaf(&mut case, &mut self.choice, Values::Special, dtype, &[rows, width], true);
                let place = case.leaf(CaseLeaf::contiguous(index.clone()));
                let output =
                    case.ir.push(gather.clone(), dtype, [count, width].as_slice().into(), [table, place]);
                self.add(&gather, dtype, case, output);
            }
            for &mode in &modes {
                let op = Op::Scatter(mode, IndexRange::Unknown);
                let index_dtype = self.choice.of(&DType::INTEGERS);
                let index = random_index(&mut self.choice, rows, count, index_dtype);
                let mut case = self.case(format!("{mode:?}, {count} updates of {rows} rows of {width}"));
                let table = leaf(&mut case, &mut self.choice, Values::Tame, dtype, &[rows, width], false);
                let place = case.leaf(CaseLeaf::contiguous(index));
                let updates = leaf(&mut case, &mut self.choice, Values::Tame, dtype, &[count, width], true);
                let shape = [rows, width];
                let output =
                    case.ir.push(op.clone(), dtype, shape.as_slice().into(), [table, place, updates]);
                self.add(&op, dtype, case, output);
            }
        }
    }

    fn products(&mut self, dtype: DType) {
        // Batch, rows, inner dimension, columns.
        let sizes = [(None, 1, 1, 1), (None, 3, 5, 7), (None, 33, 65, 17), (None, 2, 0, 3), (None, 0, 4, 3)];
        let batched = [
            (Some(3), 4, 5, 6),
            (Some(2), 1, 40, 1),
            (Some(0), 2, 2, 2),
            (None, 1, 70, 19),
            (None, 19, 70, 1),
        ];
        for (batch, m, k, n) in sizes.into_iter().chain(batched) {
            let with = |a: usize, b: usize| -> Vec<usize> { batch.into_iter().chain([a, b]).collect() };
            let operands = [(dtype, &*with(m, k)), (dtype, &*with(k, n))];
            self.one(Op::Dot, dtype, &with(m, n), &operands);
            if matches!(dtype, DType::I8 | DType::U8) {
                self.one(Op::Dot, DType::I32, &with(m, n), &operands);
            }
        }
    }

    fn windows(&mut self, dtype: DType) {
        for (geometry, x) in geometries() {
            let spatial = x.len() - 2;
            let Some(out) =
                (0..spatial).map(|d| geometry.output_size(d, x[d + 2])).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let y = [&[x[0], 3 * geometry.groups], out.as_slice()].concat();
            let w = [&[3 * geometry.groups, x[1] / geometry.groups], geometry.kernel.as_slice()].concat();
            // A sum may be wider than its terms; bool has no sums.
            let sums: &[DType] = match dtype {
                DType::Bool => &[],
                DType::I8 | DType::U8 => &[dtype, DType::I32],
                DType::F16 | DType::BF16 => &[dtype, DType::F32],
                _ => &[dtype],
            };
            let conv = |kind| Op::Conv(kind, geometry.clone());
            for &sum in sums {
                self.one(conv(ConvKind::Forward), sum, &y, &[(dtype, &x), (dtype, &w)]);
                self.one(conv(ConvKind::InputGradient), sum, &x, &[(dtype, &y), (dtype, &w)]);
                self.one(conv(ConvKind::FilterGradient), sum, &w, &[(dtype, &x), (dtype, &y)]);
            }
            if geometry.groups == 1 {
                let pooled = [&x[..2], out.as_slice()].concat();
                let pool = |kind| Op::Pool(kind, geometry.clone());
                self.one(pool(PoolKind::Max), dtype, &pooled, &[(dtype, &x)]);
                self.one(pool(PoolKind::ArgMax), DType::I64, &pooled, &[(dtype, &x)]);
                if dtype != DType::Bool {
                    self.one(pool(PoolKind::Sum), dtype, &pooled, &[(dtype, &x)]);
                    self.one(pool(PoolKind::Spread), dtype, &x, &[(dtype, &pooled)]);
                }
            }
        }
    }

    /// Products and convolutions whose factors may be rounded: with sizes that fill tiles and sizes that do not, and
    /// with transposed factors.
    fn rounded(&mut self) {
        let f = DType::F32;
        let may_round =
            |op: Op, shape: &[usize]| Op::Composite(Tf32 { op: Box::new(op), shape: shape.into() }.into());
        let sizes =
            [(40, 41, 36), (66, 40, 50), (24, 264, 16), (130, 72, 260), (9, 8, 8), (3, 1, 4), (2, 0, 3)];
        for (m, k, n) in sizes {
            let product = may_round(Op::Dot, &[m, n]);
            self.one(product.clone(), f, &[m, n], &[(f, &[m, k]), (f, &[k, n])]);
            let mut case = self.case(format!("transposed {m} by {k} by {n}"));
            let [a, b] = [[m, k], [k, n]].map(|[rows, columns]| {
                let x = leaf(&mut case, &mut self.choice, Values::Tame, f, &[columns, rows], false);
                case.ir.push(Op::Permute([1, 0].as_slice().into()), f, [rows, columns].as_slice().into(), [x])
            });
            let output = case.ir.push(product.clone(), f, [m, n].as_slice().into(), [a, b]);
            self.add(&product, f, case, output);
        }
        let shape = [3, 40, 36];
        self.one(may_round(Op::Dot, &shape), f, &shape, &[(f, &[3, 40, 24]), (f, &[3, 24, 36])]);
        let pair = |x: usize| [x, x].into_iter().collect();
        let padding = [(1, 1); 2].into_iter().collect();
        let geometry = Geometry { kernel: pair(3), stride: pair(1), dilation: pair(1), padding, groups: 1 };
        let [x, w, y] = [[2, 8, 7, 8], [16, 8, 3, 3], [2, 16, 7, 8]];
        for (kind, result, a, b) in [
            (ConvKind::Forward, &y, &x, &w),
            (ConvKind::InputGradient, &x, &y, &w),
            (ConvKind::FilterGradient, &w, &x, &y),
        ] {
            let conv = may_round(Op::Conv(kind, geometry.clone()), result);
            self.one(conv, f, result, &[(f, a), (f, b)]);
        }
    }

    fn random_bits(&mut self) {
        for (shape, scattered) in [(&[0][..], false), (&[1], false), (&[7], true), (&[3, 301], false)] {
            for values in [Values::Tame, Values::Special] {
                let op = Op::RandomBits;
                let mut case = self.case(format!("{} words", element_count(shape)));
                let state = random_array(&mut self.choice, values, DType::U32, &[4]);
                let state = if scattered {
                    CaseLeaf::scattered(state, &mut self.choice)
                } else {
                    CaseLeaf::contiguous(state)
                };
                let state = case.leaf(state);
                let output = case.ir.push(op.clone(), DType::U32, shape.into(), [state]);
                self.add(&op, DType::U32, case, output);
            }
        }
    }
}

/// Windows with and without stride, dilation, uneven padding and groups, in one to three dimensions, with input shapes.
fn geometries() -> Vec<(Geometry, Vec<usize>)> {
    let geometry =
        |kernel: &[usize], stride: &[usize], dilation: &[usize], padding: &[(usize, usize)], groups| {
            Geometry {
                kernel: kernel.into(),
                stride: stride.into(),
                dilation: dilation.into(),
                padding: padding.into(),
                groups,
            }
        };
    vec![
        (geometry(&[1], &[1], &[1], &[(0, 0)], 1), vec![1, 1, 1]),
        (geometry(&[3], &[1], &[1], &[(1, 1)], 1), vec![2, 3, 19]),
        (geometry(&[3], &[2], &[2], &[(0, 1)], 2), vec![1, 4, 9]),
        (geometry(&[3, 3], &[1, 1], &[1, 1], &[(1, 1), (1, 1)], 1), vec![2, 3, 8, 9]),
        (geometry(&[2, 3], &[2, 1], &[1, 2], &[(1, 0), (0, 2)], 1), vec![1, 2, 7, 6]),
        (geometry(&[3, 3], &[1, 1], &[1, 1], &[(1, 1), (1, 1)], 4), vec![1, 4, 5, 5]),
        (geometry(&[1, 1], &[2, 2], &[1, 1], &[(0, 0), (0, 0)], 1), vec![1, 5, 4, 4]),
        (geometry(&[2, 2], &[2, 2], &[1, 1], &[(0, 0), (0, 0)], 1), vec![0, 3, 4, 4]),
        (geometry(&[2, 2, 2], &[1, 2, 1], &[1, 1, 1], &[(0, 0), (1, 1), (0, 1)], 1), vec![1, 2, 3, 4, 3]),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::verify::{custom, elementwise, fusion};

    /// The row of an op. The match has no wildcard, so that a new op must be given a row.
    fn row(op: &Op) -> usize {
        match op {
            Op::Constant(_) => 0,
            Op::Buffer => 1,
            Op::Iota { .. } => 2,
            Op::RandomBits => 3,
            Op::Reshape => 4,
            Op::Permute(_) => 5,
            Op::Expand => 6,
            Op::Pad { .. } => 7,
            Op::Slice { .. } => 8,
            Op::Cat { .. } => 9,
            Op::Unary(_) => 10,
            Op::Binary(_) => 11,
            Op::Where => 12,
            Op::Cast => 13,
            Op::Bitcast => 14,
            Op::Reduce { .. } => 15,
            Op::ArgReduce { .. } => 16,
            Op::Scan { .. } => 17,
            Op::Gather(_) => 18,
            Op::Scatter(..) => 19,
            Op::ArgSort { .. } => 20,
            Op::SearchSorted { .. } => 21,
            Op::Dot => 22,
            Op::Conv(..) => 23,
            Op::Pool(..) => 24,
            Op::Composite(_) => 25,
            Op::Copy => 26,
            Op::Contiguous => 27,
            Op::Custom(_) => 28,
        }
    }
    const ROWS: usize = 29;

    #[test]
    fn every_op_has_cases() {
        let all: Vec<Entry> = elementwise::entries()
            .into_iter()
            .chain(entries())
            .chain(fusion::entries())
            .chain(custom::entries())
            .collect();
        let seen: HashSet<usize> = all.iter().flat_map(|e| &e.case.ir.nodes).map(|n| row(&n.op)).collect();
        assert_eq!((0..ROWS).filter(|r| !seen.contains(r)).collect::<Vec<_>>(), Vec::<usize>::new());
        assert!(seen.len() == ROWS, "a row beyond the last");
    }
}
