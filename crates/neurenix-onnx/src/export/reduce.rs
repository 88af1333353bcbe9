//! Reductions, scans, sorting, and updates of rows.

use phynexus::{
    DType,
    op::{ArgReduce, Combine, Reduce, Scan, ScatterMode},
};

use super::{
    emit::{Emitter, carrier, wide},
    graph::Node,
    symbols::varies,
    writer::{Value, integer, text},
};
use crate::{Error, Result};

/// The dtype of sums and products. Those of integers are right in their lower bits, whatever the sign.
fn summed(dtype: DType) -> DType {
    if dtype == DType::U64 { DType::I64 } else { wide(dtype) }
}

impl Emitter<'_> {
    pub(super) fn reduce(&mut self, node: &Node, reduce: &Reduce) -> Result<Value> {
        let axes: Vec<i64> = reduce.axes.iter().map(|axis| axis as i64).collect();
        if axes.is_empty() {
            return self.compact(node.inputs[0]);
        }
        let (operator, dtype) = match reduce.combine {
            Combine::Sum => ("ReduceSum", summed(node.dtype)),
            Combine::Prod => ("ReduceProd", summed(node.dtype)),
            Combine::Max => ("ReduceMax", carrier(node.dtype)),
            Combine::Min => ("ReduceMin", carrier(node.dtype)),
        };
        let x = self.operand(node.inputs[0], dtype)?;
        let axes = self.writer.vector(&axes);
        let reduced = self.writer.node(operator, &[&x, &axes], Vec::new(), dtype, node.shape.clone());
        Ok(self.writer.cast(&reduced, node.dtype))
    }

    pub(super) fn mean(&mut self, node: &Node, x: usize, axes: &[usize]) -> Result<Value> {
        let x = self.operand(x, wide(node.dtype))?;
        let mut shape = x.shape.clone();
        axes.iter().for_each(|&axis| shape[axis] = [1, 1]);
        let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
        let axes = self.writer.vector(&axes);
        let mean = self.writer.node("ReduceMean", &[&x, &axes], Vec::new(), x.dtype, shape);
        let mean = self.reshaped(&mean, &node.shape)?;
        Ok(self.writer.cast(&mean, node.dtype))
    }

    pub(super) fn arg_reduce(&mut self, node: &Node, reduce: &ArgReduce) -> Result<Value> {
        let x = self.full(node.inputs[0])?;
        let x = self.writer.cast(&x, wide(x.dtype));
        let operator = if reduce.combine == Combine::Min { "ArgMin" } else { "ArgMax" };
        let attributes = vec![integer("axis", reduce.axis as i64)];
        Ok(self.writer.node(operator, &[&x], attributes, DType::I64, node.shape.clone()))
    }

    pub(super) fn scan(&mut self, node: &Node, scan: &Scan) -> Result<Value> {
        let dtype = match scan.combine {
            Combine::Sum | Combine::Prod => summed(node.dtype),
            Combine::Max | Combine::Min => wide(node.dtype),
        };
        let x = self.operand(node.inputs[0], dtype)?;
        let result = match scan.combine {
            Combine::Sum => self.cumulated("CumSum", &x, node, scan),
            Combine::Prod if self.writer.has("CumProd") => self.cumulated("CumProd", &x, node, scan),
            Combine::Prod => self.doubled(x, node, scan, "Mul")?,
            Combine::Max => self.doubled(x, node, scan, "Max")?,
            Combine::Min => self.doubled(x, node, scan, "Min")?,
        };
        Ok(self.writer.cast(&result, node.dtype))
    }

    fn cumulated(&mut self, operator: &'static str, x: &Value, node: &Node, scan: &Scan) -> Value {
        let axis = self.writer.scalar(DType::I64, scan.axis as i64);
        let attributes = vec![integer("reverse", scan.reverse.into())];
        self.writer.node(operator, &[x, &axis], attributes, x.dtype, node.shape.clone())
    }

    /// A scan in steps, each of which combines twice as many elements as the one before.
    fn doubled(&mut self, mut x: Value, node: &Node, scan: &Scan, operator: &'static str) -> Result<Value> {
        let extent = node.shape[scan.axis];
        if varies(extent) {
            let remedy = if scan.combine == Combine::Prod { " before opset 26" } else { "" };
            return Err(Error::unsupported(format!(
                "cumulative {} along an axis that varies{remedy}",
                scan.combine.name()
            )));
        }
        let (size, none) = (extent[0], vec![[0, 0]; node.shape.len()]);
        let identity = scan.combine.identity(node.dtype);
        let mut distance = 1;
        while distance < size {
            let mut moved = none.clone();
            moved[scan.axis] = [distance; 2];
            let (before, after, start) =
                if scan.reverse { (&none, &moved, distance) } else { (&moved, &none, 0) };
            let padded = self.padded(&x, before, after, identity)?;
            let others = self.rows(&padded, scan.axis, start, start + size);
            x = self.writer.each(operator, &[&x, &others]);
            distance *= 2;
        }
        Ok(x)
    }

    pub(super) fn arg_sort(&mut self, node: &Node, descending: bool) -> Result<Value> {
        let x = self.full(node.inputs[0])?;
        let x = self.writer.cast(&x, wide(x.dtype));
        let Some(&size) = node.shape.last() else {
            return Err(Error::invalid("a scalar has no axis to sort"));
        };
        let count = self.writer.size(size, &[&x])?;
        let attributes = vec![integer("axis", -1), integer("largest", descending.into())];
        let outputs = vec![(x.dtype, x.shape.clone()), (DType::I64, node.shape.clone())];
        let mut sorted = self.writer.nodes("TopK", &[Some(&x), Some(&count)], attributes, outputs);
        sorted.pop().ok_or_else(|| Error::invalid("sorting has no result"))
    }

    /// How many of the sorted elements are less than each value, or not greater.
    pub(super) fn search_sorted(&mut self, node: &Node, right: bool) -> Result<Value> {
        let (sorted, values) = (self.full(node.inputs[0])?, self.full(node.inputs[1])?);
        let dtype = carrier(sorted.dtype);
        let (sorted, values) = (self.writer.cast(&sorted, dtype), self.writer.cast(&values, dtype));
        let column = [values.shape[0], [1, 1]];
        let values = self.reshaped(&values, &column)?;
        let before = match right {
            true => self.writer.each("LessOrEqual", &[&sorted, &values]),
            false => self.writer.each("Less", &[&sorted, &values]),
        };
        let ones = self.writer.cast(&before, DType::I64);
        let axes = self.writer.vector(&[1]);
        let attributes = vec![integer("keepdims", 0)];
        Ok(self.writer.node("ReduceSum", &[&ones, &axes], attributes, DType::I64, node.shape.clone()))
    }

    pub(super) fn scatter(&mut self, node: &Node, mode: ScatterMode) -> Result<Value> {
        let dtype = match mode {
            ScatterMode::Set => carrier(node.dtype),
            ScatterMode::Combine(_) => wide(node.dtype),
        };
        let reduction = match mode {
            ScatterMode::Set => None,
            ScatterMode::Combine(Combine::Sum) => Some("add"),
            ScatterMode::Combine(Combine::Prod) => Some("mul"),
            ScatterMode::Combine(Combine::Max) => Some("max"),
            ScatterMode::Combine(Combine::Min) => Some("min"),
        };
        let (x, updates) = (self.operand(node.inputs[0], dtype)?, self.operand(node.inputs[2], dtype)?);
        let index = self.index(node.inputs[1])?;
        let index = self.writer.cast(&index, DType::I64);
        let column = [index.shape[0], [1, 1]];
        let index = self.reshaped(&index, &column)?;
        let attributes = reduction.map(|reduction| text("reduction", reduction)).into_iter().collect();
        let updated =
            self.writer.node("ScatterND", &[&x, &index, &updates], attributes, dtype, node.shape.clone());
        Ok(self.writer.cast(&updated, node.dtype))
    }
}
