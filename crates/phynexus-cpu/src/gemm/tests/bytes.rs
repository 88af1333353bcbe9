//! Products of 8-bit integers.

use super::*;

#[test]
fn bytes_exactly() {
    let bytes = [DType::I8, DType::U8];
    for set in available() {
        for a in bytes {
            for b in bytes {
                for (m, n, k) in
                    [(1, 1, 1), (14, 32, 64), (15, 33, 65), (3, 100, 7), (100, 3, 130), (40, 70, 1000)]
                {
                    for arrangement in
                        [Arrangement::Rows, Arrangement::Columns, Arrangement::Gaps, Arrangement::Backwards]
                    {
                        let arrangements = [arrangement, arrangement, Arrangement::Rows];
                        check(&Case {
                            set,
                            dtypes: [a, b, DType::I32],
                            arrangements,
                            ..case(m, n, k, DType::I32)
                        });
                    }
                }
            }
        }
    }
}

/// Few rows or columns, whose products are dot products if the other operand is contiguous along k.
#[test]
fn few_rows_of_bytes() {
    use Arrangement::{Columns, Gaps, Rows};
    let bytes = [DType::I8, DType::U8];
    for (a, b) in bytes.into_iter().flat_map(|a| bytes.map(|b| (a, b))) {
        for few in 1..=5 {
            for (many, k) in [(1, 1), (5, 64), (37, 129), (70, 515)] {
                for (m, n) in [(few, many), (many, few)] {
                    for arrangements in [
                        [Rows, Columns, Rows],
                        [Columns, Columns, Columns],
                        [Rows, Gaps, Gaps],
                        [Rows, Rows, Columns],
                    ] {
                        let dtypes = [a, b, DType::I32];
                        check(&Case { dtypes, arrangements, ..case(m, n, k, DType::I32) });
                    }
                }
            }
        }
    }
}

/// Rows of `uint8` and a matrix of `int8` that is contiguous along k and read where it lies.
#[test]
fn rows_of_bytes_and_columns_in_place() {
    use Arrangement::{Columns, Gaps, Rows};
    for (m, n, k) in [
        (5, 47, 3),
        (16, 48, 4),
        (17, 49, 130),
        (64, 100, 999),
        (65, 6, 64),
        (130, 55, 1),
        (200, 300, 515),
        (256, 97, 70),
        (257, 48, 70),
    ] {
        for arrangements in [[Rows, Columns, Rows], [Columns, Columns, Rows], [Gaps, Columns, Gaps]] {
            let dtypes = [DType::U8, DType::I8, DType::I32];
            check(&Case { dtypes, arrangements, ..case(m, n, k, DType::I32) });
        }
    }
}
