//! The samples of primitives and composites, and products whose factors may be rounded.

use phynexus::{
    DType, Scalar,
    op::{
        Axes, Binary, Combine, Composite, Conv, ConvKind, Geometry, Op, Permute, Reduce, Sample, Slice,
        composite::{
            Attention, AttentionGradient, Cell, InPrecision, MatmulPrecision, RecurrentGradient,
            RecurrentSteps,
        },
        samples,
    },
    oracle::generate::{Case, CaseLeaf, Distribution, random_operand},
    shape::Dims,
};

use super::{
    Entry,
    elementwise::{choice, leaf},
};

/// All cases of operations that are not elementwise functions.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for sample in samples() {
        for dtype in sample.tested_dtypes() {
            match sample.op {
                // The body and a device's own kernel must agree with the definition on ordinary values.
                Op::Composite(_) => add(&sample, dtype, sample.to_string(), PLAIN, &mut entries),
                _ => add_variants(&sample, dtype, &mut entries),
            }
        }
    }
    rounded(&mut entries);
    large(&mut entries);
    attention(&mut entries);
    convolutions(&mut entries);
    recurrent(&mut entries);
    entries
}

/// Samples of the steps of an LSTM of 16-bit floats and of their gradient, with so many units that the weights of few of
/// them fit a group of invocations.
fn recurrent(entries: &mut Vec<Entry>) {
    for mut sample in samples() {
        let layer = match sample.op {
            Op::Composite(Composite::RecurrentSteps(RecurrentSteps(layer))) => layer,
            Op::Composite(Composite::RecurrentGradient(RecurrentGradient(layer))) => layer,
            _ => continue,
        };
        let units = sample.operands.iter().flat_map(|operand| operand.shape.last()).min();
        if layer.cell != Cell::Lstm || layer.reverse || units != Some(&40) {
            continue;
        }
        for extent in sample.operands.iter_mut().flat_map(|operand| &mut operand.shape) {
            *extent = match *extent {
                11 => 1,
                3 => 2,
                units => units / 40 * 840,
            };
        }
        for dtype in [DType::F16, DType::BF16] {
            add(&sample, dtype, sample.to_string(), PLAIN, entries);
        }
    }
}

/// The values of operands that may have any, and whether operands are scattered in memory.
type Variant = (Distribution, bool);
const PLAIN: Variant = (Distribution::Tame, false);
const VARIANTS: [Variant; 3] = [PLAIN, (Distribution::Tame, true), (Distribution::Special, false)];

fn add_variants(sample: &Sample, dtype: DType, entries: &mut Vec<Entry>) {
    if sample.operands.is_empty() {
        return add(sample, dtype, sample.to_string(), PLAIN, entries);
    }
    for (values, scattered) in VARIANTS {
        let name = format!("{sample}, {values:?} values, scattered {scattered}");
        add(sample, dtype, name, (values, scattered), entries);
    }
}

fn add(sample: &Sample, dtype: DType, name: String, (values, scattered): Variant, entries: &mut Vec<Entry>) {
    let sample = sample.clone();
    entries.push(Entry::new(sample.op.name(), dtype.name(), move || {
        let mut choice = choice(&name);
        let mut case = Case::new(name.clone());
        let mut operand = |operand| {
            let array = random_operand(&mut choice, operand, dtype, values);
            case.leaf(match scattered {
                true => CaseLeaf::scattered(array, &mut choice),
                false => CaseLeaf::contiguous(array),
            })
        };
        let inputs: Vec<u32> = sample.operands.iter().map(&mut operand).collect();
        match sample.result(dtype) {
            Ok((result, shape)) => {
                let output = case.ir.push(sample.op.clone(), result, shape, inputs);
                case.ir.outputs.push(output);
            }
            // Operands that do not fit are the sample's fault: the case without an output fails, with the reason.
            Err(error) => case.name = format!("{}: {error}", case.name),
        }
        case
    }));
}

/// Attention of 16-bit floats and its gradient, with features that matrix units multiply: several tiles and steps.
fn attention(entries: &mut Vec<Entry>) {
    for dtype in [DType::F16, DType::BF16] {
        for (features, causal, mask, dropout) in [
            (64, true, None, 0),
            (128, false, None, 0),
            (64, false, Some(DType::Bool), 0),
            (128, true, Some(dtype), 0),
            (64, true, None, 6_554),
            (128, false, Some(DType::Bool), 6_554),
            // More than panels take.
            (192, true, None, 6_554),
            (256, false, Some(dtype), 0),
        ] {
            let [batch, heads, queries, keys] = [1, 2, 130, 150];
            let name = format!(
                "attention of {queries} x {keys}, {features} features, causal {causal}, mask {mask:?}, \
                 dropout {dropout}"
            );
            entries.push(Entry::new("attention_gradient", dtype.name(), move || {
                let mut choice = choice(&name);
                let mut case = Case::new(name.clone());
                let mut leaf = |case: &mut Case, dtype: DType, shape: &[usize]| {
                    leaf(case, &mut choice, Distribution::Tame, dtype, shape, false)
                };
                let [q, k, v] =
                    [queries, keys, keys].map(|rows| leaf(&mut case, dtype, &[batch, heads, rows, features]));
                let mask = mask.map(|dtype| leaf(&mut case, dtype, &[batch, heads, queries, keys]));
                let state = (dropout > 0).then(|| leaf(&mut case, DType::U32, &[4]));
                let g = leaf(&mut case, dtype, &[batch, heads, queries, features]);
                let delta = leaf(&mut case, DType::F32, &[batch, heads, queries]);
                let scale = Scalar::Float(1.0 / features as f64);
                let of = Attention { causal, scale, mask: mask.is_some(), dropout };
                let (rows, all) = (batch * heads * queries, batch * heads * (queries + 2 * keys));
                let shared = [q, k, v].into_iter().chain(mask).chain(state);
                let size = [rows * (features + 1)];
                let packed = case.ir.push(
                    Op::Composite(of.into()),
                    DType::F32,
                    size.as_slice().into(),
                    shared.clone(),
                );
                let slice = Op::Slice(Slice {
                    start: [rows * features].as_slice().into(),
                    step: [1].as_slice().into(),
                });
                let logarithms = case.ir.push(slice, DType::F32, [rows].as_slice().into(), [packed]);
                let shape = [batch, heads, queries];
                let logarithms = case.ir.push(Op::Reshape, DType::F32, shape.as_slice().into(), [logarithms]);
                let gradients = case.ir.push(
                    Op::Composite(AttentionGradient(of).into()),
                    dtype,
                    [all * features].as_slice().into(),
                    shared.chain([logarithms, g, delta]),
                );
                case.ir.outputs.extend([packed, gradients]);
                case
            }));
        }
    }
}

/// Products of 16-bit floats that are large enough for the tiles of every matrix instruction, with either factor
/// transposed, and added to a row.
fn large(entries: &mut Vec<Entry>) {
    for dtype in [DType::F16, DType::BF16] {
        for (size, turned) in [
            ([1, 136, 136, 264], [false, false]),
            ([1, 136, 136, 264], [true, true]),
            ([2, 128, 72, 136], [true, false]),
            ([2, 128, 72, 136], [false, true]),
            ([2, 264, 72, 64], [false, false]),
            ([2, 264, 72, 64], [true, true]),
        ] {
            let [batch, m, k, n] = size;
            let name = format!("product of {batch}x{m}x{k}x{n}, transposed {turned:?}, plus a row");
            entries.push(Entry::new(Op::Dot.name(), dtype.name(), move || {
                let mut choice = choice(&name);
                let mut case = Case::new(name.clone());
                let mut factor = |case: &mut Case, [rows, columns]: [usize; 2], turned: bool| {
                    let shape = if turned { [batch, columns, rows] } else { [batch, rows, columns] };
                    let x = leaf(case, &mut choice, Distribution::Tame, dtype, &shape, false);
                    let turn = Op::Permute(Permute([0, 2, 1].as_slice().into()));
                    match turned {
                        true => case.ir.push(turn, dtype, [batch, rows, columns].as_slice().into(), [x]),
                        false => x,
                    }
                };
                let (left, right) =
                    (factor(&mut case, [m, k], turned[0]), factor(&mut case, [k, n], turned[1]));
                let shape = [batch, m, n];
                let product = case.ir.push(Op::Dot, dtype, shape.as_slice().into(), [left, right]);
                let row = leaf(&mut case, &mut choice, Distribution::Tame, dtype, &[1, 1, n], false);
                let row = case.ir.push(Op::Expand, dtype, shape.as_slice().into(), [row]);
                let add = Op::Binary(Binary::Add);
                let sum = case.ir.push(add, dtype, shape.as_slice().into(), [product, row]);
                case.ir.outputs.push(sum);
                case
            }));
        }
    }
}

/// Convolutions of 16-bit images that are large enough to be multiplied channels last, and their gradients (of colours,
/// those of images are computed as usual), each with an addition and a sum over all but channels.
fn convolutions(entries: &mut Vec<Entry>) {
    for dtype in [DType::F16, DType::BF16] {
        for (x, outputs, kernel, stride) in [
            ([2, 64, 6, 6], 72, 3, 1),
            ([1, 72, 17, 15], 64, 3, 2),
            ([2, 136, 9, 8], 72, 1, 1),
            ([2, 3, 16, 18], 64, 7, 2),
        ] {
            let both = |extent: usize| Dims::from_slice(&[extent; 2]);
            let padding = [(kernel / 2, kernel / 2); 2].into_iter().collect();
            let geometry = Geometry {
                kernel: both(kernel),
                stride: both(stride),
                dilation: both(1),
                padding,
                groups: 1,
            };
            let extent = |d: usize| geometry.output_size(d, x[2 + d]).unwrap_or_default();
            let (w, y) = ([outputs, x[1], kernel, kernel], [x[0], outputs, extent(0), extent(1)]);
            for (kind, result, operands) in [
                (ConvKind::Forward, y, [x, w]),
                (ConvKind::InputGradient, x, [y, w]),
                (ConvKind::FilterGradient, w, [x, y]),
            ] {
                let conv = Op::Conv(Conv(kind, geometry.clone()));
                let name = format!("{conv:?} of {operands:?}, channels last");
                entries.push(Entry::new(conv.name(), dtype.name(), move || {
                    let mut choice = choice(&name);
                    let mut case = Case::new(name.clone());
                    let mut operand = |shape: [usize; 4]| {
                        leaf(&mut case, &mut choice, Distribution::Tame, dtype, &shape, false)
                    };
                    let [a, b, more] = [operands[0], operands[1], result].map(&mut operand);
                    let ir = &mut case.ir;
                    let y = ir.push(conv.clone(), dtype, result.as_slice().into(), [a, b]);
                    let sum = ir.push(Op::Binary(Binary::Add), dtype, result.as_slice().into(), [y, more]);
                    let wide = ir.push(Op::Cast, DType::F32, result.as_slice().into(), [sum]);
                    let channels = Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes::of([0, 2, 3]) });
                    let of_channels = [1, result[1], 1, 1].as_slice().into();
                    let channels = ir.push(channels, DType::F32, of_channels, [wide]);
                    ir.outputs.extend([sum, channels]);
                    case
                }));
            }
        }
    }
}

/// Products and convolutions whose factors may be rounded or split: with sizes that fill tiles and sizes that do not,
/// and with transposed factors.
fn rounded(entries: &mut Vec<Entry>) {
    use MatmulPrecision::{High, Split};
    let mut one = |precision, op: Op, shape: &[usize], operands: [&[usize]; 2], transposed: bool| {
        let product = Op::Composite(InPrecision { op: Box::new(op), shape: shape.into(), precision }.into());
        for (values, scattered) in VARIANTS.into_iter().take(if transposed { 1 } else { 3 }) {
            let turned = if transposed { "transposed " } else { "" };
            let name =
                format!("{product:?} of {turned}{operands:?}, {values:?} values, scattered {scattered}");
            let (product, shape, operands) =
                (product.clone(), shape.to_vec(), operands.map(<[usize]>::to_vec));
            entries.push(Entry::new(product.name(), DType::F32.name(), move || {
                let mut choice = choice(&name);
                let mut case = Case::new(name.clone());
                let mut operand = |shape: &Vec<usize>| {
                    if !transposed {
                        return leaf(&mut case, &mut choice, values, DType::F32, shape, scattered);
                    }
                    let x = [shape[1], shape[0]];
                    let x = leaf(&mut case, &mut choice, values, DType::F32, &x, scattered);
                    let turn = Op::Permute(Permute([1, 0].as_slice().into()));
                    case.ir.push(turn, DType::F32, shape.as_slice().into(), [x])
                };
                let inputs: Vec<u32> = operands.iter().map(&mut operand).collect();
                let output = case.ir.push(product.clone(), DType::F32, shape.as_slice().into(), inputs);
                case.ir.outputs.push(output);
                case
            }));
        }
    };
    let sizes = [(40, 41, 36), (66, 40, 50), (24, 264, 16), (130, 72, 260), (9, 8, 8), (3, 1, 4), (2, 0, 3)];
    for (m, k, n) in sizes {
        one(High, Op::Dot, &[m, n], [&[m, k], &[k, n]], false);
        one(High, Op::Dot, &[m, n], [&[m, k], &[k, n]], true);
    }
    one(High, Op::Dot, &[3, 40, 36], [&[3, 40, 24], &[3, 24, 36]], false);
    // With and without panels.
    for (m, k, n) in [(130, 264, 200), (64, 129, 72), (40, 41, 36)] {
        one(Split, Op::Dot, &[m, n], [&[m, k], &[k, n]], false);
        one(Split, Op::Dot, &[m, n], [&[m, k], &[k, n]], true);
    }
    one(Split, Op::Dot, &[3, 72, 64], [&[3, 72, 136], &[3, 136, 64]], false);
    let pair = |x: usize| [x, x].into_iter().collect();
    let padding = [(1, 1); 2].into_iter().collect();
    let geometry = Geometry { kernel: pair(3), stride: pair(1), dilation: pair(1), padding, groups: 1 };
    let [x, w, y]: [&[usize]; 3] = [&[2, 8, 7, 8], &[16, 8, 3, 3], &[2, 16, 7, 8]];
    for (kind, result, operands) in [
        (ConvKind::Forward, y, [x, w]),
        (ConvKind::InputGradient, x, [y, w]),
        (ConvKind::FilterGradient, w, [x, y]),
    ] {
        one(High, Op::Conv(Conv(kind, geometry.clone())), result, operands, false);
    }
}
