//! Functions that the engine composes and ONNX has an operator for.

use phynexus::op::{Binary, Op, Unary};

use super::graph::{Graph, Task};

impl Graph {
    /// Whether all elements of the node are this number.
    fn is_number(&self, id: usize, number: f64) -> bool {
        self.number(id).is_some_and(|numbers| numbers.iter().all(|n| n.as_f64() == number))
    }

    /// The operands of such a function.
    fn operands(&self, id: usize, function: Binary) -> Option<[usize; 2]> {
        match self.own(id)? {
            (Op::Binary(own), node) if *own == function => node.inputs[..].try_into().ok(),
            _ => None,
        }
    }

    fn choice(&self, id: usize) -> Option<[usize; 3]> {
        match self.own(id)? {
            (Op::Where, node) => node.inputs[..].try_into().ok(),
            _ => None,
        }
    }

    fn operand(&self, id: usize, function: Unary) -> Option<usize> {
        match self.own(id)? {
            (Op::Unary(own), node) if *own == function => node.inputs.first().copied(),
            _ => None,
        }
    }

    /// `x <= 0 ? 0 : x`.
    pub(super) fn relu(&self, id: usize) -> Option<Task> {
        let [condition, zero, x] = self.choice(id)?;
        let [compared, bound] = self.operands(condition, Binary::Le)?;
        let is_relu = compared == x && self.is_number(bound, 0.0) && self.is_number(zero, 0.0);
        (is_relu && self.nodes[id].dtype.is_float()).then_some(Task::Function { operator: "Relu", x })
    }

    /// `(x < 0 ? e : 1) / (e + 1)` with `e = exp(x < 0 ? x : -x)`.
    pub(super) fn sigmoid(&self, id: usize) -> Option<Task> {
        let [numerator, denominator] = self.operands(id, Binary::Div)?;
        let [negative, e, one] = self.choice(numerator)?;
        let [same, other_one] = self.operands(denominator, Binary::Add)?;
        let [negative_too, x, opposite] = self.choice(self.operand(e, Unary::Exp)?)?;
        let [compared, zero] = self.operands(negative, Binary::Lt)?;
        let numbers = self.is_number(one, 1.0) && self.is_number(other_one, 1.0) && self.is_number(zero, 0.0);
        let names = same == e && negative_too == negative && compared == x;
        let is_sigmoid = numbers && names && self.operand(opposite, Unary::Neg) == Some(x);
        is_sigmoid.then_some(Task::Function { operator: "Sigmoid", x })
    }
}
