//! Convolutions of 8-bit integers, on every instruction set.

use super::*;

const BYTES: [DType; 2] = [DType::I8, DType::U8];

/// All signedness mixes on all instruction sets.
fn check_bytes(case: &Case) {
    for set in available() {
        for left in BYTES {
            for right in BYTES {
                check_integers(case, [left, right], DType::I32, set);
            }
        }
    }
}

#[test]
fn bytes_of_every_geometry() {
    let padded = |case: Case, by: usize| {
        let rank = case.input.len();
        case.padding(&vec![(by, by); rank])
    };
    let cases = [
        // First layers, with words along taps; and one image of several panels.
        padded(Case::new(1, [3, 16], 1, &[20, 23], &[7, 7]).stride(&[2, 2]), 3),
        padded(Case::new(2, [1, 5], 1, &[12, 70], &[3, 3]), 1),
        Case::new(1, [1, 3], 1, &[9, 40], &[3, 5])
            .dilation(&[2, 3])
            .stride(&[1, 3])
            .padding(&[(1, 0), (4, 2)]),
        // Channels that are no whole words, and several tiles of rows.
        padded(Case::new(1, [6, 33], 1, &[14, 14], &[3, 3]), 1),
        padded(Case::new(1, [17, 30], 1, &[7, 7], &[3, 3]).stride(&[2, 2]), 1),
        padded(Case::new(9, [5, 2], 1, &[5, 9], &[3, 2]).dilation(&[2, 2]), 2),
        Case::new(1, [13, 15], 1, &[9, 11], &[1, 1]),
        Case::new(2, [8, 64], 1, &[8, 36], &[1, 1]),
        padded(Case::new(1, [8, 20], 1, &[9, 11], &[1, 1]).stride(&[2, 2]), 0),
        padded(Case::new(1, [8, 4], 1, &[4, 5], &[1, 1]), 1),
        // Groups, and one channel each.
        padded(Case::new(1, [12, 10], 2, &[9, 10], &[3, 3]), 1),
        padded(Case::new(2, [5, 5], 5, &[12, 70], &[3, 3]), 1),
        padded(Case::new(1, [4, 4], 4, &[11, 9], &[5, 5]).stride(&[2, 2]), 2),
        padded(Case::new(1, [3, 6], 3, &[7, 8], &[3, 3]).dilation(&[1, 2]), 2),
        padded(Case::new(1, [9, 1], 1, &[6, 35], &[3, 3]), 1),
        // One and three dimensions.
        Case::new(2, [4, 6], 2, &[50], &[5]).stride(&[3]).padding(&[(2, 4)]),
        Case::new(1, [3, 15], 1, &[300], &[4]).dilation(&[2]),
        Case::new(1, [2, 3], 1, &[4, 5, 6], &[2, 1, 3]).dilation(&[1, 1, 2]).stride(&[2, 1, 1]),
        padded(Case::new(1, [5, 4], 1, &[4, 4, 9], &[3, 2, 3]), 1),
        // Windows that miss the image, and nothing.
        Case::new(1, [1, 1], 1, &[2], &[2]).stride(&[5]).padding(&[(7, 7)]),
        Case::new(2, [3, 4], 1, &[4, 3], &[2, 3]).padding(&[(3, 5), (4, 4)]),
        Case::new(1, [2, 3], 1, &[3, 3], &[3, 3]).stride(&[7, 7]),
        Case::new(0, [3, 4], 1, &[8, 8], &[3, 3]),
        Case::new(2, [0, 4], 1, &[8, 8], &[3, 3]),
        Case::new(2, [3, 0], 1, &[8, 8], &[3, 3]),
        Case::new(2, [3, 2], 1, &[0, 4], &[2, 2]).padding(&[(1, 2), (0, 0)]),
    ];
    for case in &cases {
        check_bytes(case);
    }
}

/// Sums of the products of greatest magnitude, which 16-bit sums would not hold.
#[test]
fn bytes_of_extreme_values() {
    let case = Case::new(1, [70, 14], 1, &[6, 6], &[3, 3]).padding(&[(1, 1), (1, 1)]);
    let output = case.output().unwrap();
    let (shape, [x, w, _]) = (case.shape(&output), case.sizes());
    let ends = |dtype: DType| match dtype {
        DType::I8 => [-128, 127],
        _ => [0, 255],
    };
    for set in available() {
        for (left, right) in BYTES.into_iter().flat_map(|left| BYTES.map(|right| (left, right))) {
            for (a, b) in ends(left).into_iter().flat_map(|a| ends(right).map(|b| (a, b))) {
                let operands = [vec![Scalar::Int(a).cast(left); x], vec![Scalar::Int(b).cast(right); w]];
                let (dtypes, kind) = ([left, right], ConvKind::Forward);
                check_sums(
                    &case,
                    kind,
                    &shape,
                    dtypes,
                    DType::I32,
                    [&operands[0], &operands[1]],
                    [0, 1, 2],
                    set,
                );
            }
        }
    }
}

/// Padding and strides that make a padded image far larger than the image, or than any memory.
#[test]
fn huge_padding_and_strides() {
    let strides = [1670107206, 690327842, 4];
    let padding = strides.map(|stride| (stride, stride));
    let cubes = |batch: usize, channels: [usize; 2]| {
        Case::new(batch, channels, 1, &[2, 2, 2], &[2, 1, 1]).stride(&strides).padding(&padding)
    };
    let cases = [
        cubes(1, [1, 1]),
        cubes(2, [5, 3]),
        // More images than tasks are wanted.
        cubes(4 * crate::pool::threads() + 1, [1, 2]),
        // The last axis, whose elements are stored by the residues of the stride.
        Case::new(1, [3, 5], 1, &[3, 5], &[2, 3])
            .stride(&[1, 1 << 40])
            .padding(&[(0, 0), (1 << 40, 1 << 40)]),
    ];
    for case in &cases {
        assert!(case.output().unwrap().ends_with(&[3]));
        check_bytes(case);
        check_all(case);
    }
}

/// Distances between taps that no memory can hold are refused.
#[test]
fn huge_dilation_is_refused() {
    let far = 1 << 60;
    let case = Case::new(1, [1, 2], 1, &[2], &[2]).stride(&[far]).dilation(&[far]).padding(&[(far, far)]);
    let output = case.output().unwrap();
    let (x, w) = ([1u8; 2], [1i8; 4]);
    let mut y = vec![0i32; 2 * output[0]];
    // SAFETY: the arrays hold the tensors.
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe {
        let (x, w, y) = (x.as_ptr(), w.as_ptr().cast(), y.as_mut_ptr().cast());
        let (set, shape) = (InstructionSet::best(), case.shape(&output));
        let destination = Destination::Memory(y, None);
        convolution_with(
            set,
            ConvKind::Forward,
            [DType::U8, DType::I8],
            DType::I32,
            &shape,
            x,
            w,
            destination,
        )
    }));
    // Kernels are left by unwinding with a payload that is not a message.
    let payload = run.expect_err("no memory holds the padded row");
    assert!(!payload.is::<&str>() && !payload.is::<String>(), "a panic");
}
