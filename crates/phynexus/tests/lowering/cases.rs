//! Graphs for every kind of step that lowering distinguishes, and devices with very different capabilities.

use phynexus::{
    DType,
    kernel::{check::Limits, lower::Target},
    op::{
        ArgReduce, ArgSort, Axes, Binary, Cat, Combine, Conv, ConvKind, Gather, Geometry, IndexRange, Op,
        Permute, Reduce, Scan, Scatter, ScatterMode, SearchSorted, Unary,
        composite::{InPrecision, MatmulPrecision},
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
};

/// A GPU with minimum capabilities.
pub(crate) fn tiny() -> Target {
    Target {
        limits: Limits {
            device: "tiny".to_owned(),
            bindings: 64,
            shared_bytes: 4 << 10,
            block: [32, 32, 4],
            block_size: 32,
            grid: [60; 3],
            subgroup: None,
            dtypes: DType::ALL.to_vec(),
            matrices: Vec::new(),
            quads: false,
            async_copies: false,
            meeting_groups: 0,
        },
        vector_bytes: 0,
        processors: 1,
        sums: 64,
    }
}

/// A large GPU with few multiprocessors, so that even small shapes fill it.
pub(crate) fn big() -> Target {
    let limits = tiny().limits;
    Target {
        limits: Limits {
            device: "big".to_owned(),
            shared_bytes: 48 << 10,
            block: [1024, 1024, 64],
            block_size: 1024,
            grid: [65535; 3],
            subgroup: Some(32),
            ..limits
        },
        vector_bytes: 16,
        processors: 0,
        sums: 64,
    }
}

/// A medium GPU with narrow subgroups and vectors.
pub(crate) fn narrow() -> Target {
    let limits = big().limits;
    let limits = Limits { device: "narrow".to_owned(), block_size: 128, subgroup: Some(8), ..limits };
    Target { limits, vector_bytes: 8, processors: 2, sums: 64 }
}

/// A GPU with many multiprocessors, on which even a few rows are split.
pub(crate) fn many() -> Target {
    // Small groups, so that even short rows count as long.
    let limits = Limits { device: "many".to_owned(), block_size: 128, ..big().limits };
    Target { limits, processors: 100, ..big() }
}

/// One operation on random operands.
fn one(
    choice: &mut Choice,
    op: Op,
    result: (DType, &[usize]),
    operands: &[(DType, &[usize])],
    scattered: bool,
) -> Case {
    let mut case = Case::new(format!("{op:?}"));
    let inputs: Vec<u32> = operands
        .iter()
        .map(|&(dtype, shape)| {
            let values = random_array(choice, Distribution::Tame, dtype, shape);
            let contiguous = CaseLeaf::contiguous(values.clone());
            case.leaf(if scattered { CaseLeaf::scattered(values, choice) } else { contiguous })
        })
        .collect();
    let id = case.ir.push(op, result.0, result.1.into(), inputs);
    case.ir.outputs.push(id);
    case
}

/// Matrix products: dtypes, layouts, and sizes that do not fill a tile.
pub(crate) fn products() -> Vec<Case> {
    let mut choice = Choice::new(11);
    let mut cases = Vec::new();
    for (batch, m, k, n) in
        [(1, 130, 17, 132), (2, 70, 33, 50), (3, 8, 8, 8), (1, 33, 600, 20), (2, 17, 9, 36)]
    {
        for scattered in [false, true] {
            let operands = [(DType::F32, &[batch, m, k][..]), (DType::F32, &[batch, k, n][..])];
            cases.push(one(&mut choice, Op::Dot, (DType::F32, &[batch, m, n]), &operands, scattered));
        }
    }
    for (operand, result) in [
        (DType::F64, DType::F64),
        (DType::F16, DType::F16),
        (DType::BF16, DType::F32),
        (DType::I8, DType::I32),
        (DType::U8, DType::U8),
        (DType::I64, DType::I64),
    ] {
        // The last one is long enough for copies of later tiles to overwrite earlier ones.
        let shapes = [(40, 41, 36), (66, 40, 50), (24, 264, 16)];
        for (m, k, n) in shapes.into_iter().take(if operand == DType::F16 { 3 } else { 2 }) {
            let operands = [(operand, &[m, k][..]), (operand, &[k, n][..])];
            cases.push(one(&mut choice, Op::Dot, (result, &[m, n]), &operands, false));
            // A transposed factor on either side.
            let operands = [(operand, &[k, m][..]), (operand, &[n, k][..])];
            let mut case = one(&mut choice, Op::Dot, (result, &[m, n]), &operands, false);
            let turn = |case: &mut Case, of: u32, shape: &[usize]| {
                let op = Op::Permute(Permute([1u8, 0].into_iter().collect()));
                case.ir.push(op, operand, shape.into(), [of])
            };
            case.ir.outputs.clear();
            case.ir.nodes.pop();
            let (a, b) = (turn(&mut case, 0, &[m, k]), turn(&mut case, 1, &[k, n]));
            let id = case.ir.push(Op::Dot, result, [m, n].as_slice().into(), [a, b]);
            case.ir.outputs.push(id);
            cases.push(case);
        }
    }
    // Large enough for the largest tile of matrix instructions.
    let operands = [(DType::BF16, &[70, 40][..]), (DType::BF16, &[40, 140][..])];
    cases.push(one(&mut choice, Op::Dot, (DType::F32, &[70, 140]), &operands, false));
    cases
}

/// Products whose factors may be rounded, row-major and transposed.
pub(crate) fn rounded() -> Vec<Case> {
    let mut choice = Choice::new(21);
    let mut cases = Vec::new();
    for (m, k, n) in [(40, 41, 36), (66, 40, 50), (24, 264, 16), (130, 20, 140), (72, 1030, 68)] {
        let product = || {
            let shape = [m, n].as_slice().into();
            Op::Composite(
                InPrecision { op: Box::new(Op::Dot), shape, precision: MatmulPrecision::High }.into(),
            )
        };
        let f = DType::F32;
        cases.push(one(&mut choice, product(), (f, &[m, n]), &[(f, &[m, k]), (f, &[k, n])], false));
        let mut case = Case::new("transposed");
        let mut leaf = |case: &mut Case, shape: [usize; 2]| {
            let values = random_array(&mut choice, Distribution::Tame, f, &shape);
            let x = case.leaf(CaseLeaf::contiguous(values));
            let turn = Op::Permute(Permute([1, 0].as_slice().into()));
            case.ir.push(turn, f, [shape[1], shape[0]].as_slice().into(), [x])
        };
        let (a, b) = (leaf(&mut case, [k, m]), leaf(&mut case, [n, k]));
        let id = case.ir.push(product(), f, [m, n].as_slice().into(), [a, b]);
        case.ir.outputs.push(id);
        cases.push(case);
    }
    cases
}

/// Convolutions and their gradients.
pub(crate) fn convolutions() -> Vec<Case> {
    let mut choice = Choice::new(12);
    let mut cases = Vec::new();
    for (groups, stride, dilation, padding) in [(1, 1, 1, 1), (2, 2, 1, 0), (1, 2, 2, 2), (8, 1, 1, 1)] {
        let pair = |x: usize| [x, x].into_iter().collect();
        let geometry = Geometry {
            kernel: pair(3),
            stride: pair(stride),
            dilation: pair(dilation),
            padding: [(padding, padding); 2].into_iter().collect(),
            groups,
        };
        let x = [2, 8, 7, 8];
        let w = [16, 8 / groups, 3, 3];
        let size = |d: usize| geometry.output_size(d, x[2 + d]).unwrap();
        let y = [2, 16, size(0), size(1)];
        for dtype in [DType::F32, DType::F16] {
            // Every geometry in one type, two of them in the other.
            if dtype == DType::F16 && stride != dilation {
                continue;
            }
            for (kind, result, a, b) in [
                (ConvKind::Forward, y, x, w),
                (ConvKind::InputGradient, x, y, w),
                (ConvKind::FilterGradient, w, x, y),
            ] {
                let operands = [(dtype, &a[..]), (dtype, &b[..])];
                let op = Op::Conv(Conv(kind, geometry.clone()));
                cases.push(one(&mut choice, op, (dtype, &result), &operands, dtype == DType::F16));
            }
        }
    }
    // Filters whose rows are aligned for wide copies, but whose taps are not.
    let pair = |x: usize| [x, x].into_iter().collect();
    let padding = [(1, 1); 2].into_iter().collect();
    let geometry = Geometry { kernel: pair(3), stride: pair(1), dilation: pair(1), padding, groups: 1 };
    let (f, x, w) = (DType::F16, [1, 8, 6, 8], [16, 8, 3, 3]);
    let op = Op::Conv(Conv(ConvKind::Forward, geometry));
    cases.push(one(&mut choice, op, (f, &[1, 16, 6, 8]), &[(f, &x), (f, &w)], false));
    cases
}

/// Long reductions, sorts, scans; a softmax whose rows are split.
pub(crate) fn reductions_sorts_and_scans() -> Vec<Case> {
    let mut choice = Choice::new(13);
    let mut cases = Vec::new();
    let f = DType::F32;
    for (shape, axis) in [(vec![4099], 0), (vec![2, 2200], 1), (vec![1001, 3], 0), (vec![300, 40], 0)] {
        let mut small = shape.clone();
        small[axis] = 1;
        for combine in [Combine::Sum, Combine::Max] {
            let op = Op::Reduce(Reduce { combine, axes: Axes::of([axis]) });
            cases.push(one(&mut choice, op, (f, &small), &[(f, &shape)], false));
        }
        let op = Op::ArgReduce(ArgReduce { combine: Combine::Max, axis });
        cases.push(one(&mut choice, op, (DType::I64, &small), &[(DType::F16, &shape)], true));
        for reverse in [false, true] {
            let op = Op::Scan(Scan { combine: Combine::Sum, axis, reverse });
            cases.push(one(&mut choice, op, (f, &shape), &[(f, &shape)], reverse));
        }
    }
    // Neighbouring invocations reduce neighbouring columns, several of which share a word of memory.
    for (dtype, shape) in [(DType::BF16, [70, 40]), (DType::I8, [300, 12]), (DType::F16, [9, 21])] {
        for combine in [Combine::Sum, Combine::Max] {
            let op = Op::Reduce(Reduce { combine, axes: Axes::of([0]) });
            cases.push(one(&mut choice, op, (dtype, &[1, shape[1]]), &[(dtype, &shape)], false));
        }
    }
    for (shape, descending) in [([3, 1000], false), ([1, 2100], true), ([2, 129], true), ([4, 1], false)] {
        for dtype in [DType::F32, DType::I8, DType::BF16] {
            let op = Op::ArgSort(ArgSort { descending });
            cases.push(one(&mut choice, op, (DType::I64, &shape), &[(dtype, &shape)], dtype == DType::I8));
        }
    }
    // A softmax of few long rows: every reduction is split, and the last kernel has no reduction.
    let mut case = Case::new("softmax");
    let shape = [2, 4200];
    let x = case.leaf(CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, f, &shape)));
    let over = |case: &mut Case, combine, of| {
        let op = Op::Reduce(Reduce { combine, axes: Axes::of([1]) });
        let small = case.ir.push(op, f, [2, 1].as_slice().into(), [of]);
        (small, case.ir.push(Op::Expand, f, shape.as_slice().into(), [small]))
    };
    let (_, greatest) = over(&mut case, Combine::Max, x);
    let shifted = case.ir.push(Op::Binary(Binary::Sub), f, shape.as_slice().into(), [x, greatest]);
    let power = case.ir.push(Op::Unary(Unary::Exp), f, shape.as_slice().into(), [shifted]);
    let (sum, total) = over(&mut case, Combine::Sum, power);
    let share = case.ir.push(Op::Binary(Binary::Div), f, shape.as_slice().into(), [power, total]);
    case.ir.outputs.extend([share, sum]);
    cases.push(case);
    cases
}

/// Operands without elements.
pub(crate) fn empty() -> Vec<Case> {
    let mut choice = Choice::new(14);
    let (f, i) = (DType::F32, DType::I64);
    let mut case = |op, result: (DType, &[usize]), operands: &[(DType, &[usize])]| {
        one(&mut choice, op, result, operands, false)
    };
    let cases = [
        case(Op::Dot, (f, &[3, 4]), &[(f, &[3, 0]), (f, &[0, 4])]),
        case(Op::SearchSorted(SearchSorted { right: true }), (i, &[3]), &[(f, &[0]), (f, &[3])]),
        case(
            Op::Reduce(Reduce { combine: Combine::Max, axes: Axes::of([0]) }),
            (f, &[1, 2]),
            &[(f, &[0, 2])],
        ),
        case(Op::Gather(Gather(IndexRange::Unknown)), (f, &[0, 2]), &[(f, &[3, 2]), (i, &[0])]),
        case(
            Op::Scatter(Scatter(ScatterMode::Set, IndexRange::Unknown)),
            (f, &[3, 2]),
            &[(f, &[3, 2]), (i, &[0]), (f, &[0, 2])],
        ),
        case(Op::Cat(Cat { axis: 0 }), (f, &[2, 2]), &[(f, &[0, 2]), (f, &[2, 2])]),
    ];
    cases.into()
}
