//! Operations that move elements.

use phynexus::{DType, Scalar, op::Op};

use super::{
    emit::{Emitter, is_number, movable},
    graph::{Extent, Node},
    symbols::varies,
    writer::{Value, integer, integers},
};
use crate::{Error, Result};

impl Emitter<'_> {
    pub(super) fn permute(&mut self, node: &Node, order: &[u8]) -> Result<Value> {
        let value = self.compact(node.inputs[0])?;
        if is_number(&value) {
            return Ok(value);
        }
        let value = self.with_rank(&value, order.len());
        let order: Vec<i64> = order.iter().map(|&axis| axis.into()).collect();
        Ok(self.transposed(&value, &order))
    }

    /// The value with its axes in this order.
    pub(super) fn transposed(&mut self, value: &Value, order: &[i64]) -> Value {
        let shape = order.iter().map(|&axis| value.shape[axis as usize]).collect();
        self.writer.node("Transpose", &[value], vec![integers("perm", order.to_vec())], value.dtype, shape)
    }

    pub(super) fn slice(&mut self, node: &Node) -> Result<Value> {
        let [Op::Slice(first), Op::Slice(second)] = &node.op else {
            return Err(Error::invalid("slices are compared with slices"));
        };
        let from = &self.graph.nodes[node.inputs[0]].shape;
        let value = self.compact(node.inputs[0])?;
        let is_empty = node.shape.iter().any(|extent| extent.contains(&0));
        if is_number(&value) && !is_empty {
            return Ok(value);
        }
        let value = if is_empty { self.stretched(&value, from)? } else { self.with_rank(&value, from.len()) };
        let (mut axes, mut steps, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut shape = node.shape.clone();
        for axis in 0..from.len() {
            let (size, count, step) = (from[axis], node.shape[axis], first.step[axis] as i64);
            if value.shape[axis] != size {
                // It stretches, whatever part is taken.
                shape[axis] = [1, 1];
                continue;
            }
            if size == count && step == 1 {
                continue;
            }
            let start = [first.start[axis] as i64, second.start[axis] as i64];
            let last = [start[0] + (count[0] - 1) * step, start[1] + (count[1] - 1) * step];
            axes.push(axis as i64);
            steps.push(step);
            starts.push(from_end(start, size));
            ends.push(match step {
                _ if count == [0, 0] => from_end(start, size),
                1.. if last.map(|n| n + 1) == size => [i64::MAX; 2],
                1.. => from_end(last.map(|n| n + 1), size),
                _ if last.iter().all(|n| *n < -step) => [i64::MIN + 1; 2],
                _ => from_end(last.map(|n| n - 1), size),
            });
        }
        if axes.is_empty() {
            return Ok(value);
        }
        let moved = self.writer.cast(&value, movable(value.dtype));
        let (starts, ends) = (self.writer.shape(&starts, &[])?, self.writer.shape(&ends, &[])?);
        let (axes, steps) = (self.writer.vector(&axes), self.writer.vector(&steps));
        let sliced = self.writer.node(
            "Slice",
            &[&moved, &starts, &ends, &axes, &steps],
            Vec::new(),
            moved.dtype,
            shape,
        );
        Ok(self.writer.cast(&sliced, node.dtype))
    }

    /// Rows `start` to `end` along an axis.
    pub(super) fn rows(&mut self, value: &Value, axis: usize, start: i64, end: i64) -> Value {
        let bounds = [start, end, axis as i64].map(|number| self.writer.vector(&[number]));
        let mut shape = value.shape.clone();
        shape[axis] = [end - start; 2];
        let [start, end, axes] = &bounds;
        self.writer.node("Slice", &[value, start, end, axes], Vec::new(), value.dtype, shape)
    }

    pub(super) fn pad(&mut self, node: &Node) -> Result<Value> {
        let [Op::Pad(first), Op::Pad(second)] = &node.op else {
            return Err(Error::invalid("paddings are compared with paddings"));
        };
        let sides = first.padding.iter().zip(&second.padding);
        let (before, after): (Vec<Extent>, Vec<Extent>) =
            sides.map(|(a, b)| ([a.0 as i64, b.0 as i64], [a.1 as i64, b.1 as i64])).unzip();
        let value = self.full(node.inputs[0])?;
        self.padded(&value, &before, &after, first.value)
    }

    /// The value with a border.
    pub(super) fn padded(
        &mut self,
        value: &Value,
        before: &[Extent],
        after: &[Extent],
        number: Scalar,
    ) -> Result<Value> {
        let dtype = match value.dtype {
            DType::I16 | DType::U16 => DType::I32,
            other => movable(other),
        };
        let moved = self.writer.cast(value, dtype);
        let pads = self.writer.shape(&[before, after].concat(), &[])?;
        let number = self.writer.scalar(dtype, number.cast(value.dtype));
        let grown = |(size, (before, after)): (&Extent, (&Extent, &Extent))| {
            [size[0] + before[0] + after[0], size[1] + before[1] + after[1]]
        };
        let shape = value.shape.iter().zip(before.iter().zip(after)).map(grown).collect();
        let padded = self.writer.node("Pad", &[&moved, &pads, &number], Vec::new(), dtype, shape);
        Ok(self.writer.cast(&padded, value.dtype))
    }

    pub(super) fn cat(&mut self, node: &Node, axis: usize) -> Result<Value> {
        let dtype = movable(node.dtype);
        let parts = node.inputs.iter().map(|&id| self.operand(id, dtype)).collect::<Result<Vec<Value>>>()?;
        let parts: Vec<&Value> = parts.iter().collect();
        let attributes = vec![integer("axis", axis as i64)];
        let whole = self.writer.node("Concat", &parts, attributes, dtype, node.shape.clone());
        Ok(self.writer.cast(&whole, node.dtype))
    }

    pub(super) fn take(&mut self, node: &Node, table: usize, index: usize) -> Result<Value> {
        let table = self.full(table)?;
        let table = self.writer.cast(&table, movable(table.dtype));
        let index = self.index(index)?;
        let attributes = vec![integer("axis", 0)];
        let rows = self.writer.node("Gather", &[&table, &index], attributes, table.dtype, node.shape.clone());
        Ok(self.writer.cast(&rows, node.dtype))
    }

    /// Indices in a dtype that ONNX has for them.
    pub(super) fn index(&mut self, id: usize) -> Result<Value> {
        let index = self.full(id)?;
        Ok(if index.dtype == DType::I32 { index } else { self.writer.cast(&index, DType::I64) })
    }
}

/// A place along an axis of this size, counted from the end if it varies but its distance from there does not.
fn from_end(place: Extent, size: Extent) -> Extent {
    let back = [place[0] - size[0], place[1] - size[1]];
    if varies(place) && !varies(back) && back[0] < 0 { back } else { place }
}
