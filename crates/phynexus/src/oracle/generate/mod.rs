//! Generated cases: a graph, the values of its leaves, and their memory layouts.

mod consistency;
mod graph;
mod random;
mod shrink;
mod variation;

use std::fmt::{self, Write};

pub use consistency::inconsistency;
pub use graph::{random_case, random_case_of};
pub use random::{Choice, Distribution, random_array, random_index, random_operand, random_sorted};
pub use shrink::shrink;

use crate::{
    Result, Tensor,
    device::{Device, Storage},
    op::{
        Composite, Op,
        ir::Ir,
        reference::{OracleArray, every_coordinate},
    },
    shape::Layout,
    text::show_shape,
};

/// A leaf's values and layout.
#[derive(Clone, Debug)]
pub struct CaseLeaf {
    /// The values.
    pub values: OracleArray,
    /// Their layout in a buffer.
    pub layout: Layout,
}

impl CaseLeaf {
    /// A leaf in row-major layout.
    pub fn contiguous(values: OracleArray) -> CaseLeaf {
        let layout = Layout::contiguous(&values.shape);
        CaseLeaf { values, layout }
    }

    /// A leaf with permuted axes, gaps, an offset, and some reversed axes.
    pub fn scattered(values: OracleArray, choice: &mut Choice) -> CaseLeaf {
        let rank = values.shape.len();
        let mut layout = Layout::contiguous(&values.shape);
        let mut axes: Vec<usize> = (0..rank).collect();
        (1..rank).for_each(|i| axes.swap(i, choice.below(i + 1)));
        let mut stride = 1 + choice.below(2) as isize;
        layout.offset = choice.below(4);
        for &axis in axes.iter().rev() {
            let extent = values.shape[axis].max(1) as isize;
            let backwards = choice.one_in(4);
            layout.strides[axis] = if backwards { -stride } else { stride };
            if backwards {
                layout.offset += ((extent - 1) * stride) as usize;
            }
            stride *= extent + choice.below(2) as isize;
        }
        CaseLeaf { values, layout }
    }

    /// Uploads the leaf to a device.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn upload(&self, device: Device) -> Result<Tensor> {
        let size = self.values.dtype.size();
        let place = |at: &[usize]| {
            let steps: isize = at.iter().zip(&self.layout.strides).map(|(&c, s)| c as isize * s).sum();
            self.layout.offset.wrapping_add_signed(steps)
        };
        let places: Vec<usize> = every_coordinate(&self.values.shape).map(|at| place(&at)).collect();
        let elements = places.iter().max().map_or(0, |last| last + 1).max(self.layout.offset);
        let mut bytes = vec![0; elements * size];
        for (&place, element) in places.iter().zip(self.values.to_bytes().chunks(size)) {
            bytes[place * size..(place + 1) * size].copy_from_slice(element);
        }
        let buffer = device.backend().allocate(bytes.len())?;
        device.backend().write(&buffer, 0, &bytes)?;
        Ok(Tensor::from_storage(device, self.values.dtype, Storage { buffer, layout: self.layout.clone() }))
    }
}

/// A graph with values for its leaves.
#[derive(Clone, Debug)]
pub struct Case {
    /// The subject of the test, or the seed.
    pub name: String,
    /// The graph.
    pub ir: Ir,
    /// The leaves in slot order.
    pub leaves: Vec<CaseLeaf>,
}

impl Case {
    /// An empty case.
    pub fn new(name: impl Into<String>) -> Case {
        Case { name: name.into(), ir: Ir::default(), leaves: Vec::new() }
    }

    /// Adds a leaf and returns its node.
    pub fn leaf(&mut self, leaf: CaseLeaf) -> u32 {
        let id = self.ir.push(Op::Buffer, leaf.values.dtype, leaf.values.shape.clone(), []);
        self.leaves.push(leaf);
        id
    }

    /// Adds a composite and returns its node.
    ///
    /// # Errors
    /// If the operands do not fit it.
    pub fn composite(&mut self, composite: Composite, inputs: &[u32]) -> Result<u32> {
        let operand = |&id: &u32| self.ir.node(id).tensor_type();
        let (dtype, shape) = composite.check(&inputs.iter().map(operand).collect::<Vec<_>>())?;
        Ok(self.ir.push(Op::Composite(composite), dtype, shape, inputs.iter().copied()))
    }

    /// The values of the leaves.
    pub fn values(&self) -> Vec<OracleArray> {
        self.leaves.iter().map(|leaf| leaf.values.clone()).collect()
    }

    /// The case without the nodes that no output needs.
    pub fn pruned(&self) -> Case {
        let mut needed = vec![false; self.ir.nodes.len()];
        self.ir.outputs.iter().for_each(|&o| needed[o as usize] = true);
        // Operands have smaller ids, so a single backward walk reaches all of them.
        for id in (0..needed.len()).rev() {
            if needed[id] {
                self.ir.nodes[id].inputs.iter().for_each(|&i| needed[i as usize] = true);
            }
        }
        let mut renumbered = vec![0; needed.len()];
        let mut pruned = Case::new(self.name.clone());
        for (id, node) in self.ir.nodes.iter().enumerate().filter(|(id, _)| needed[*id]) {
            let slot = self.ir.leaves.iter().position(|&leaf| leaf as usize == id);
            renumbered[id] = match slot {
                Some(slot) => pruned.leaf(self.leaves[slot].clone()),
                None => {
                    let inputs = node.inputs.iter().map(|&i| renumbered[i as usize]);
                    pruned.ir.push(node.op.clone(), node.dtype, node.shape.clone(), inputs)
                }
            };
        }
        pruned.ir.outputs = self.ir.outputs.iter().map(|&o| renumbered[o as usize]).collect();
        pruned
    }
}

impl fmt::Display for Case {
    /// The graph, one node per line, and the values of small leaves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let mut slots = self.leaves.iter();
        for (id, node) in self.ir.nodes.iter().enumerate() {
            let inputs: Vec<String> = node.inputs.iter().map(|i| format!("%{i}")).collect();
            let shape = show_shape(&node.shape);
            let op = if node.op == Op::Buffer { "leaf".to_owned() } else { format!("{:?}", node.op) };
            write!(f, "  %{id} = {op} {} {} {}", node.dtype, shape, inputs.join(" "))?;
            if node.op == Op::Buffer
                && let Some(leaf) = slots.next()
            {
                write!(f, "strides {:?} offset {}", leaf.layout.strides.as_slice(), leaf.layout.offset)?;
                if node.len() <= 12 {
                    let mut values = String::new();
                    leaf.values.elements.iter().try_for_each(|n| write!(values, " {n}"))?;
                    write!(f, " values{values}")?;
                }
            }
            f.write_char('\n')?;
        }
        let outputs: Vec<String> = self.ir.outputs.iter().map(|o| format!("%{o}")).collect();
        write!(f, "  -> {}", outputs.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{
        oracle::{Comparison, Number, compare, evaluate},
        schedule::execute_ir,
    };

    /// Runs the case and describes the failure, if any.
    fn run(case: &Case) -> Option<String> {
        let device = crate::oracle::reference_device();
        let work = || -> Result<Option<String>> {
            let expected = evaluate(&case.ir, &case.values())?;
            let leaves = case.leaves.iter().map(|l| l.upload(device)).collect::<Result<Vec<_>>>()?;
            let outputs = execute_ir(&case.ir, &leaves, device)?;
            let mut all = Comparison::default();
            for (expected, actual) in expected.iter().zip(&outputs) {
                all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
            }
            Ok((!all.passed()).then(|| all.to_string()))
        };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("a panic".to_owned()),
        }
    }

    /// Runs the oracle's own kernels as the scheduler groups them, which tests the scheduler.
    #[test]
    fn planned_random_graphs_mean_what_the_graph_means() {
        let mut failures = Vec::new();
        for seed in 0..300 {
            let case = random_case(seed, 12);
            if run(&case).is_some() {
                let small = shrink(&case, &mut |c| run(c).is_some());
                failures.push(format!("{small}\n{}", run(&small).unwrap_or_default()));
            }
        }
        assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    }

    #[test]
    fn random_cases_are_reproducible_and_mostly_determined() {
        let (mut elements, mut open) = (0, 0);
        for seed in 0..200 {
            let case = random_case(seed, 15);
            assert_eq!(case.ir, random_case(seed, 15).ir);
            for output in evaluate(&case.ir, &case.values()).unwrap() {
                elements += output.elements.len();
                open += output.elements.iter().filter(|n| matches!(n, Number::Undetermined)).count();
            }
        }
        assert!(elements > 20_000 && open * 4 < elements, "{open} of {elements} undetermined");
    }

    #[test]
    fn shrinking_finds_the_operation_to_blame() {
        use crate::op::Unary;
        let tan = |case: &Case| case.ir.nodes.iter().any(|n| n.op == Op::Unary(Unary::Tan));
        let case = (0..).map(|seed| random_case(seed, 20)).find(|c| tan(c)).unwrap();
        let small = shrink(&case, &mut |c| tan(c));
        assert!(small.ir.nodes.len() == 2 && tan(&small), "{small}");
    }

    #[test]
    fn scattered_leaves_hold_their_values() {
        let mut choice = Choice::new(3);
        for _ in 0..50 {
            let values = random_array(&mut choice, Distribution::Tame, crate::DType::I16, &[2, 3, 4]);
            let leaf = CaseLeaf::scattered(values.clone(), &mut choice);
            let read = leaf
                .upload(crate::oracle::reference_device())
                .unwrap()
                .contiguous()
                .unwrap()
                .to_bytes()
                .unwrap();
            assert_eq!(read, values.to_bytes());
        }
    }
}
