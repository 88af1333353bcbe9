//! Notes on matrix products that miss a device's matrix units, or use them less well than they could.

use crate::{
    DType,
    kernel::{loops::MatrixUnit, step::Library},
    op::{Composite, Op, composite::MatmulPrecision},
    shape::Layout,
};

/// What lies side by side in memory should have a multiple of so many bytes: units are fed by copies of so many.
const ALIGNMENT: usize = 16;
/// With fewer rows, terms or columns, a product multiplies little for the numbers that it moves.
const LEAST_EXTENT: usize = 256;

/// What to know about a step of a device with these matrix units. Nothing if it is not a product of matrices that they
/// multiply or could multiply. Products of vectors reuse nothing, so matrix units do not help them.
pub(super) fn notes(library: &Library, units: &[MatrixUnit]) -> Vec<String> {
    let precision = match &library.node.op {
        Op::Dot => MatmulPrecision::Highest,
        Op::Composite(Composite::InPrecision(product)) if *product.op == Op::Dot => product.precision,
        _ => return Vec::new(),
    };
    let [left, right] = &library.operands[..] else { return Vec::new() };
    let (&[.., rows, terms], &[.., columns]) = (&left.layout.shape[..], &right.layout.shape[..]) else {
        return Vec::new();
    };
    let factors = [left.dtype, right.dtype];
    let sum = library.node.dtype.compute();
    let is_multiplied = units.iter().any(|unit| unit.factors == factors && unit.sum == sum);
    // The parts of a split product are padded, and it is not split unless it is large.
    let is_split = precision == MatmulPrecision::Split;
    if !is_multiplied || is_split || rows.min(terms).min(columns) < 2 {
        return Vec::new();
    }
    let extents = [(rows, "rows"), (terms, "terms"), (columns, "columns")];
    // Units for `float32` round to TF32.
    if left.dtype == DType::F32 && precision == MatmulPrecision::Highest {
        let is_large = extents.iter().all(|&(extent, _)| extent >= LEAST_EXTENT);
        let note = "float32 is multiplied exactly, without matrix units; set_float32_matmul_precision(\"high\") or \
                    autocast would use them";
        return is_large.then(|| note.to_owned()).into_iter().collect();
    }
    let mut notes = Vec::new();
    let multiple = ALIGNMENT / left.dtype.size();
    let [is_along_left, is_along_right] = [(left, 1), (right, 0)].map(|(operand, terms)| {
        // What lies side by side in memory: terms, or the rows of the left factor or columns of the right one. Whatever
        // comes after it then begins between two multiples.
        let Layout { shape, strides, .. } = &operand.layout;
        let matrix = shape.len() - 2;
        let last = [terms, 1 - terms].into_iter().find(|d| strides[matrix + d] == 1);
        let other = |d: &usize| Some(*d) != last.map(|last| matrix + last) && shape[*d] > 1;
        let is_apart = (0..shape.len()).filter(other).any(|d| strides[d] % multiple as isize != 0);
        last.filter(|_| is_apart).map(|last| last == terms)
    });
    let is_misaligned = |name: &str| match name {
        "rows" => is_along_left == Some(false),
        "terms" => [is_along_left, is_along_right].contains(&Some(true)),
        _ => is_along_right == Some(false),
    };
    if let Some((those, one)) = listed(&extents, |(_, name)| is_misaligned(name)) {
        let multiples = if one { "a multiple" } else { "multiples" };
        notes.push(format!(
            "{those} are not {multiples} of {multiple}: matrix units are used better if they are"
        ));
    }
    if let Some((those, _)) = listed(&extents, |(extent, _)| extent < LEAST_EXTENT) {
        notes.push(format!("{those} are fewer than {LEAST_EXTENT}, too few to keep matrix units busy"));
    }
    notes
}

/// Lists the extents of which `has` is true, and tells whether it is one: `8 rows, 9 terms and 10 columns`. `None` if
/// there are none.
fn listed(extents: &[(usize, &str)], has: impl Fn((usize, &str)) -> bool) -> Option<(String, bool)> {
    let found: Vec<String> = extents
        .iter()
        .filter(|&&extent| has(extent))
        .map(|&(extent, name)| format!("{extent} {name}"))
        .collect();
    let (last, others) = found.split_last()?;
    Some(match others {
        [] => (last.clone(), true),
        _ => (format!("{} and {last}", others.join(", ")), false),
    })
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::{
        kernel::{
            loops::{MatrixShape, Panel},
            step::Operand,
        },
        op::{Unary, composite::InPrecision, ir::IrNode},
        shape::Dims,
    };

    const EXACT: &str = "float32 is multiplied exactly, without matrix units; \
                         set_float32_matmul_precision(\"high\") or autocast would use them";

    /// Matrix units like those of Hopper, without some.
    fn units() -> Vec<MatrixUnit> {
        let unit = |factors: [DType; 2], sum| {
            let shape = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 32 / factors[0].size() };
            MatrixUnit { shape, factors, sum }
        };
        vec![
            unit([DType::BF16; 2], DType::F32),
            unit([DType::F32; 2], DType::F32),
            unit([DType::I8; 2], DType::I32),
            unit([DType::F8E4M3, DType::F8E5M2], DType::F32),
        ]
    }

    /// A product of factors with these leading dimensions, and rows, terms and columns.
    fn product(
        op: Op,
        [left, right]: [DType; 2],
        batch: &[usize],
        [rows, terms, columns]: [usize; 3],
        dtype: DType,
    ) -> Library {
        let with = |a: usize, b: usize| -> Dims { batch.iter().copied().chain([a, b]).collect() };
        let operand = |dtype, shape: Dims| Operand { dtype, layout: Layout::contiguous(&shape) };
        Library {
            node: IrNode { op, dtype, shape: with(rows, columns), inputs: SmallVec::new() },
            operands: vec![operand(left, with(rows, terms)), operand(right, with(terms, columns))],
            epilogue: None,
        }
    }

    fn dot(factors: [DType; 2], extents: [usize; 3], dtype: DType) -> Vec<String> {
        notes(&product(Op::Dot, factors, &[], extents, dtype), &units())
    }

    fn brain(extents: [usize; 3]) -> Vec<String> {
        dot([DType::BF16; 2], extents, DType::BF16)
    }

    fn float32(precision: MatmulPrecision, extents: [usize; 3]) -> Vec<String> {
        let shape = Dims::from_slice(&[extents[0], extents[2]]);
        let op = match precision {
            MatmulPrecision::Highest => Op::Dot,
            _ => Op::Composite(InPrecision { op: Box::new(Op::Dot), shape, precision }.into()),
        };
        notes(&product(op, [DType::F32; 2], &[], extents, DType::F32), &units())
    }

    #[test]
    fn rows_terms_and_columns_are_counted() {
        assert!(brain([256, 264, 512]).is_empty());
        assert_eq!(
            brain([512, 1001, 512]),
            ["1001 terms are not a multiple of 8: matrix units are used better if they are"]
        );
        assert_eq!(
            brain([512, 512, 64]),
            ["64 columns are fewer than 256, too few to keep matrix units busy"]
        );
        assert_eq!(
            brain([257, 255, 1001]),
            [
                "255 terms and 1001 columns are not multiples of 8: matrix units are used better if they are",
                "255 terms are fewer than 256, too few to keep matrix units busy",
            ]
        );
        assert_eq!(
            brain([64, 1024, 128]),
            ["64 rows and 128 columns are fewer than 256, too few to keep matrix units busy"]
        );
        // Rows matter to a left factor that is stored transposed.
        assert!(brain([1001, 512, 512]).is_empty());
        let mut turned = product(Op::Dot, [DType::BF16; 2], &[], [1001, 512, 512], DType::BF16);
        turned.operands[0].layout.strides = [1, 1001].into_iter().collect();
        assert_eq!(
            notes(&turned, &units()),
            ["1001 rows are not a multiple of 8: matrix units are used better if they are"]
        );
        let batched = product(Op::Dot, [DType::BF16; 2], &[3, 5], [256, 1001, 512], DType::F32);
        assert_eq!(
            notes(&batched, &units()),
            ["1001 terms are not a multiple of 8: matrix units are used better if they are"]
        );
    }

    /// The multiple is 16 bytes.
    #[test]
    fn smaller_numbers_come_in_larger_multiples() {
        let aligned = |multiple: usize| {
            vec![format!(
                "520 terms are not a multiple of {multiple}: matrix units are used better if they are"
            )]
        };
        assert_eq!(dot([DType::I8; 2], [512, 520, 512], DType::I32), aligned(16));
        assert_eq!(dot([DType::F8E4M3, DType::F8E5M2], [512, 520, 512], DType::F32), aligned(16));
        assert!(brain([512, 520, 512]).is_empty());
        assert!(float32(MatmulPrecision::High, [512, 516, 512]).is_empty());
        assert_eq!(
            float32(MatmulPrecision::High, [512, 518, 512]),
            ["518 terms are not a multiple of 4: matrix units are used better if they are"]
        );
    }

    #[test]
    fn large_products_of_float32_may_be_rounded() {
        assert_eq!(float32(MatmulPrecision::Highest, [256, 256, 256]), [EXACT]);
        assert_eq!(float32(MatmulPrecision::Highest, [256, 1001, 256]), [EXACT]);
        assert!(float32(MatmulPrecision::Highest, [256, 256, 255]).is_empty());
        assert!(float32(MatmulPrecision::High, [256, 256, 256]).is_empty());
        assert!(float32(MatmulPrecision::Split, [256, 1001, 64]).is_empty());
    }

    #[test]
    fn what_no_unit_multiplies_has_no_note() {
        // Vectors, and nothing.
        for extents in [[1, 1001, 64], [64, 1001, 1], [0, 1001, 64]] {
            assert!(brain(extents).is_empty(), "{extents:?}");
        }
        // Types without units, and sums that units do not have.
        for (factors, dtype) in [
            (DType::F16, DType::F16),
            (DType::F64, DType::F64),
            (DType::BF16, DType::F64),
            (DType::I8, DType::I8),
            (DType::F8E4M3, DType::F32),
        ] {
            assert!(dot([factors; 2], [512, 1001, 64], dtype).is_empty(), "{factors}");
        }
        let library = product(Op::Dot, [DType::BF16; 2], &[], [512, 1001, 64], DType::BF16);
        assert!(notes(&library, &[]).is_empty());
        let other = product(Op::Unary(Unary::Exp), [DType::BF16; 2], &[], [512, 1001, 64], DType::BF16);
        assert!(notes(&other, &units()).is_empty());
    }
}
