//! Products of panels.

use phynexus::{
    DType,
    kernel::{
        check::Limits,
        loops::{MatrixShape, Panel},
        lower::{Target, lower},
        step::{Library, Operand, Step},
    },
    op::{Op, Permute, ir::IrNode},
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    shape::Layout,
};

use super::{big, cases, check_all, tensor};

/// A device with products of panels.
fn panels() -> Target {
    let Target { mut limits, .. } = tensor();
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 16 };
    limits.matrices.extend([DType::F16, DType::BF16].map(|dtype| (product, dtype, DType::F32)));
    let limits = Limits { device: "panels".to_owned(), shared_bytes: 227 << 10, ..limits };
    Target { limits, processors: 2, ..big() }
}

/// Products of 16-bit floats that fill panels: edges, several tiles, all transpositions, a batch, and a sum that is split.
fn large_products() -> Vec<Case> {
    let mut choice = Choice::new(31);
    let mut cases = Vec::new();
    for (dtype, [batch, m, k, n]) in [
        (DType::BF16, [1, 128, 64, 128]),
        (DType::F16, [1, 144, 328, 256]),
        (DType::BF16, [3, 128, 72, 136]),
        (DType::BF16, [1, 136, 1024, 160]),
    ] {
        for turned in 0..4 {
            let mut case = Case::new(format!("product {turned} of {dtype}"));
            let mut factor = |case: &mut Case, rows: usize, columns: usize, is_turned: bool| {
                let shape = if is_turned { [batch, columns, rows] } else { [batch, rows, columns] };
                let leaf = CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, dtype, &shape));
                let leaf = case.leaf(leaf);
                let swap = Op::Permute(Permute([0u8, 2, 1].into_iter().collect()));
                let shape = [batch, rows, columns].as_slice().into();
                if is_turned { case.ir.push(swap, dtype, shape, [leaf]) } else { leaf }
            };
            let left = factor(&mut case, m, k, turned & 1 != 0);
            let right = factor(&mut case, k, n, turned & 2 != 0);
            let product = case.ir.push(Op::Dot, DType::F32, [batch, m, n].as_slice().into(), [left, right]);
            case.ir.outputs.push(product);
            cases.push(case);
        }
    }
    cases
}

#[test]
fn products_of_panels() {
    check_all(cases::products().into_iter().chain(large_products()), &[panels()]);
    let multiplies_panels = |case: &Case| {
        let [left, right] = [0, 1].map(|input| case.ir.node(case.ir.node(case.ir.outputs[0]).inputs[input]));
        let operand = |node: &IrNode| {
            let mut layout = Layout::contiguous(&node.shape);
            if matches!(node.op, Op::Permute(_)) {
                let rank = layout.strides.len();
                (layout.strides[rank - 2], layout.strides[rank - 1]) = (1, node.shape[rank - 2] as isize);
            }
            Operand { dtype: node.dtype, layout }
        };
        let mut node = case.ir.node(case.ir.outputs[0]).clone();
        node.inputs.clear();
        let operands = vec![operand(left), operand(right)];
        let step = Step::Library(Library { node, operands, epilogue: None });
        lower(&step, &panels())
            .unwrap()
            .launches
            .iter()
            .any(|launch| launch.kernel.shared.iter().any(|a| a.panels))
    };
    let others: Vec<Case> = large_products().into_iter().filter(|c| !multiplies_panels(c)).collect();
    let names: Vec<String> = others
        .iter()
        .map(|case| format!("{} {:?}", case.name, case.ir.nodes.last().map(|n| n.shape.clone())))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}
