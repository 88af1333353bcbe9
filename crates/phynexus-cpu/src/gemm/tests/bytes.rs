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
