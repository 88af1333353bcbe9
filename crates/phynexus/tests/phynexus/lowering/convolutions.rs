//! Convolutions of images that are channels last in memory, by products of panels.

use phynexus::{
    DType,
    kernel::{
        loops::{BulkPart, BulkTensor, Kernel},
        lower::lower,
        step::{Library, Operand, Step},
    },
    op::{
        Axes, Binary, Cat, Combine, Conv, ConvKind, Geometry, Op, Pool, PoolKind, Reduce, Unary,
        ir::{Id, IrNode},
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    shape::{Dims, Layout},
};

use super::{check_all, panels::panels};

const DTYPE: DType = DType::BF16;

/// A convolution: images, channels, extents and outputs; kernel, stride, padding and dilation of both dimensions.
struct Sizes {
    x: [usize; 4],
    outputs: usize,
    geometry: Geometry,
}

impl Sizes {
    fn new(x: [usize; 4], outputs: usize, kernel: usize, stride: usize, padding: usize) -> Sizes {
        let both = |extent: usize| Dims::from_slice(&[extent; 2]);
        let padding = [(padding, padding); 2].into_iter().collect();
        let (kernel, stride, dilation) = (both(kernel), both(stride), both(1));
        Sizes { x, outputs, geometry: Geometry { kernel, stride, dilation, padding, groups: 1 } }
    }

    fn w(&self) -> [usize; 4] {
        [self.outputs, self.x[1], self.geometry.kernel[0], self.geometry.kernel[1]]
    }

    fn y(&self) -> [usize; 4] {
        let extent = |d: usize| self.geometry.output_size(d, self.x[2 + d]).unwrap();
        [self.x[0], self.outputs, extent(0), extent(1)]
    }

    /// The shapes of the operands and the result.
    fn shapes(&self, kind: ConvKind) -> ([[usize; 4]; 2], [usize; 4]) {
        match kind {
            ConvKind::Forward => ([self.x, self.w()], self.y()),
            ConvKind::InputGradient => ([self.y(), self.w()], self.x),
            ConvKind::FilterGradient => ([self.x, self.y()], self.w()),
        }
    }
}

const KINDS: [ConvKind; 3] = [ConvKind::Forward, ConvKind::InputGradient, ConvKind::FilterGradient];

fn sizes() -> Vec<Sizes> {
    vec![
        Sizes::new([2, 64, 6, 6], 72, 3, 1, 1),
        Sizes::new([1, 72, 17, 15], 64, 3, 2, 1),
        Sizes::new([2, 136, 9, 8], 72, 1, 1, 0),
    ]
}

fn kernels(sizes: &Sizes, kind: ConvKind) -> Vec<Kernel> {
    let (operands, result) = sizes.shapes(kind);
    let operand = |shape: &[usize; 4]| {
        let [_, channels, height, width] = shape.map(|extent| extent as isize);
        let mut layout = Layout::contiguous(shape);
        layout.strides = [height * width * channels, 1, width * channels, channels].into_iter().collect();
        Operand { dtype: DTYPE, layout }
    };
    let op = Op::Conv(Conv(kind, sizes.geometry.clone()));
    let node = IrNode { op, dtype: DTYPE, shape: result.as_slice().into(), inputs: Default::default() };
    let step =
        Step::Library(Library { node, operands: operands.iter().map(operand).collect(), epilogue: None });
    lower(&step, &panels(5)).unwrap().launches.into_iter().map(|launch| launch.kernel).collect()
}

/// Whether each launch multiplies panels.
fn launches(sizes: &Sizes, kind: ConvKind) -> Vec<bool> {
    kernels(sizes, kind).iter().map(Kernel::has_panels).collect()
}

/// Images are copied as windows if a copy's terms, or channels, belong to one place of the windows; filters, and images
/// that are matrices of pixels, as boxes.
#[test]
fn images_are_copied_in_bulk() {
    use ConvKind::{FilterGradient, Forward, InputGradient};
    let small = Sizes::new([2, 64, 6, 6], 64, 3, 1, 1);
    let strided = Sizes::new([2, 64, 12, 12], 128, 3, 2, 1);
    let single = Sizes::new([2, 128, 12, 12], 64, 1, 2, 0);
    let pixels = Sizes::new([2, 64, 12, 12], 64, 1, 1, 0);
    let uneven = Sizes::new([2, 72, 12, 12], 64, 3, 1, 1);
    for (sizes, kind, expected) in [
        (&small, Forward, "box windows"),
        (&small, InputGradient, "box windows"),
        (&small, FilterGradient, "box windows"),
        (&strided, Forward, "box windows"),
        (&single, Forward, "box windows"),
        (&single, FilterGradient, "box windows"),
        (&pixels, Forward, "box box"),
        (&pixels, FilterGradient, "box box"),
        (&uneven, Forward, ""),
    ] {
        let kernel = &kernels(sizes, kind)[0];
        let part = |tensor: &BulkTensor| match tensor.part {
            BulkPart::Box(_) => "box",
            BulkPart::Windows { .. } => "windows",
        };
        let mut parts: Vec<&str> = kernel.tensors.iter().map(part).collect();
        parts.sort_unstable();
        assert_eq!(parts.join(" "), expected, "{kind:?} of {:?}", sizes.x);
    }
}

/// Sums over 27 panels of terms, which few parts do not share equally: a copy beyond the last term would take a pixel
/// that exists, so such parts are copied by invocations.
#[test]
fn parts_of_windows_are_whole() {
    let sizes = Sizes::new([2, 192, 6, 6], 64, 3, 1, 1);
    let mut choice = Choice::new(44);
    for kind in [ConvKind::Forward, ConvKind::FilterGradient] {
        assert!(launches(&sizes, kind)[0], "{kind:?}");
        let (operands, result) = sizes.shapes(kind);
        let mut case = Case::new(format!("parts of {kind:?}"));
        let [a, b] = operands.map(|shape| leaf(&mut case, &mut choice, &shape));
        let op = Op::Conv(Conv(kind, sizes.geometry.clone()));
        let y = case.ir.push(op, DTYPE, result.as_slice().into(), [a, b]);
        case.ir.outputs.push(y);
        check_all([case], &[panels(5)]);
    }
    let gradient = Sizes::new([2, 64, 6, 6], 192, 3, 1, 1);
    let kernel = &kernels(&gradient, ConvKind::InputGradient)[0];
    assert!(kernel.has_panels() && kernel.tensors.is_empty());
}

#[test]
fn channels_are_copied_to_panels() {
    for sizes in sizes() {
        for kind in KINDS {
            let launches = launches(&sizes, kind);
            assert!(launches[0], "{kind:?} of {:?}: {launches:?}", sizes.x);
        }
    }
}

/// Adds a leaf with values of one size.
fn leaf(case: &mut Case, choice: &mut Choice, shape: &[usize]) -> Id {
    case.leaf(CaseLeaf::contiguous(random_array(choice, Distribution::Tame, DTYPE, shape)))
}

#[test]
fn convolutions_of_panels() {
    let mut choice = Choice::new(41);
    let stem = Sizes::new([2, 3, 16, 18], 64, 7, 2, 3);
    let strided = Sizes::new([2, 64, 12, 13], 64, 3, 2, 1);
    let single = Sizes::new([3, 64, 11, 12], 64, 1, 2, 0);
    let unpadded = Sizes::new([1, 64, 11, 12], 64, 3, 1, 0);
    for sizes in sizes().into_iter().chain([stem, strided, single, unpadded]) {
        for kind in KINDS {
            let (operands, result) = sizes.shapes(kind);
            let mut case = Case::new(format!("{kind:?} of {:?}", sizes.x));
            let [a, b] = operands.map(|shape| leaf(&mut case, &mut choice, &shape));
            let op = Op::Conv(Conv(kind, sizes.geometry.clone()));
            let y = case.ir.push(op, DTYPE, result.as_slice().into(), [a, b]);
            case.ir.outputs.push(y);
            check_all([case], &[panels(5)]);
        }
    }
}

/// Elements between strides have launches of their own, some of which have no terms, if all are computed by tiles.
#[test]
fn gradients_of_strided_convolutions() {
    let mut choice = Choice::new(43);
    for (sizes, parts) in [
        (Sizes::new([1, 72, 17, 15], 64, 3, 2, 1), 4),
        (Sizes::new([2, 64, 11, 10], 64, 1, 2, 0), 4),
        (Sizes::new([1, 3, 10, 11], 64, 3, 2, 1), 1),
        (Sizes::new([1, 64, 10, 11], 64, 5, 3, 2), 1),
    ] {
        let kind = ConvKind::InputGradient;
        assert_eq!(launches(&sizes, kind).len(), parts, "{:?}", sizes.x);
        let (operands, result) = sizes.shapes(kind);
        let mut case = Case::new(format!("strided {:?}", sizes.x));
        let [a, b] = operands.map(|shape| leaf(&mut case, &mut choice, &shape));
        let y = case.ir.push(
            Op::Conv(Conv(kind, sizes.geometry.clone())),
            DTYPE,
            result.as_slice().into(),
            [a, b],
        );
        let positive = case.ir.push(Op::Unary(Unary::Abs), DTYPE, result.as_slice().into(), [y]);
        case.ir.outputs.push(positive);
        check_all([case], &[panels(5)]);
    }
}

/// What surrounds convolutions: elementwise operations with several readers, sums over all but channels, pooling,
/// concatenation, results in the usual order.
#[test]
fn networks_of_convolutions() {
    let mut choice = Choice::new(42);
    let mut case = Case::new("network");
    let first = Sizes::new([2, 64, 6, 8], 64, 3, 1, 1);
    let second = Sizes::new([2, 128, 3, 4], 72, 3, 1, 1);
    let (x, w) = (leaf(&mut case, &mut choice, &first.x), leaf(&mut case, &mut choice, &first.w()));
    let ir = &mut case.ir;
    let square: Dims = first.x.as_slice().into();
    let positive = ir.push(Op::Unary(Unary::Abs), DTYPE, square.clone(), [x]);
    let conv = |sizes: &Sizes| Op::Conv(Conv(ConvKind::Forward, sizes.geometry.clone()));
    let y = ir.push(conv(&first), DTYPE, square.clone(), [positive, w]);
    let wide = ir.push(Op::Cast, DType::F32, square.clone(), [y]);
    let channels: Dims = [1, 64, 1, 1].as_slice().into();
    let sums = Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes::of([0, 2, 3]) });
    let sum = ir.push(sums, DType::F32, channels.clone(), [wide]);
    let spread = ir.push(Op::Expand, DType::F32, square.clone(), [sum]);
    let centred = ir.push(Op::Binary(Binary::Sub), DType::F32, square.clone(), [wide, spread]);
    let centred = ir.push(Op::Cast, DTYPE, square.clone(), [centred]);
    let both = ir.push(Op::Binary(Binary::Max), DTYPE, square.clone(), [centred, x]);
    let half: Dims = [2, 64, 3, 4].as_slice().into();
    let window = |kind| {
        let geometry =
            Geometry { stride: Dims::from_slice(&[2, 2]), ..Sizes::new(first.x, 64, 2, 2, 0).geometry };
        Op::Pool(Pool(kind, geometry))
    };
    let most = ir.push(window(PoolKind::Max), DTYPE, half.clone(), [both]);
    let where_ = ir.push(window(PoolKind::ArgMax), DType::I64, half.clone(), [both]);
    let joined: Dims = [2, 128, 3, 4].as_slice().into();
    let all = ir.push(Op::Cat(Cat { axis: 1 }), DTYPE, joined, [most, most]);
    let v = leaf(&mut case, &mut choice, &second.w());
    let last = case.ir.push(conv(&second), DTYPE, second.y().as_slice().into(), [all, v]);
    case.ir.outputs.extend([y, sum, where_, last]);
    check_all([case], &[panels(5)]);
}
