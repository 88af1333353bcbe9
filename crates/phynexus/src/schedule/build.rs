//! Builds the fused kernel specification of a group.

use std::rc::Rc;

use smallvec::SmallVec;

use super::group::{FusionGroup, FusionGroupId, Grouping, Home, reduce_coordinates};
use crate::{
    DType, Error, Result, Scalar,
    hash::FastMap,
    kernel::{
        fused::{FusedOp, Fusion, Instruction, InstructionId, Parameter, Store},
        index::{Index, Ranges},
        view::{self, Coordinates, Mask},
    },
    op::{
        Binary, Constant, Iota, Op, Pad, Reduce,
        ir::{Id, Ir},
    },
    shape::{Layout, contiguous_strides},
};

/// A kernel and the nodes whose buffers are its parameters, in order.
pub(super) struct Built {
    pub(super) kernel: Fusion,
    pub(super) parameters: Vec<Id>,
}

/// Builds the kernel of a group, or the epilogue of a library operation's group. `layouts` are those of the leaves.
pub(super) fn build(
    ir: &Ir,
    grouping: &Grouping,
    id: FusionGroupId,
    layouts: &FastMap<Id, Layout>,
) -> Result<Built> {
    let group = &grouping.groups[id as usize];
    let columns = group.columns.as_deref().unwrap_or(&[]);
    // A kernel's row ranges come before its columns. An epilogue runs over the ranges of its operation's result.
    let order: SmallVec<[usize; 6]> =
        (0..group.ranges.len()).filter(|r| !columns.contains(r)).chain(columns.iter().copied()).collect();
    let (ranges, replacements) = match &group.epilogue {
        Some(epilogue) => (epilogue.ranges.clone(), epilogue.replacements.clone()),
        None => {
            let ranges = Ranges(order.iter().map(|&r| group.ranges.0[r]).collect());
            let mut replacements = Coordinates::from_elem(Index::default(), order.len());
            for (new, &old) in order.iter().enumerate() {
                replacements[old] = Index::range(new, &ranges);
            }
            (ranges, replacements)
        }
    };
    let row_count = ranges.len() - columns.len();
    let mut builder = Builder {
        ir,
        homes: &grouping.homes,
        layouts,
        id,
        group,
        ranges,
        replacements,
        row_count,
        values: FastMap::default(),
        known: FastMap::default(),
        kernel: Fusion::default(),
        parameters: Vec::new(),
    };
    builder.kernel.rows = builder.ranges.0[..row_count].into();
    builder.kernel.columns = builder.ranges.0[row_count..].into();
    // An epilogue's first parameter is the result it works on.
    if let Some(node) = group.library {
        builder.parameter(node, ir.node(node).dtype, false);
    }
    // In topological order, so a root that another root needs is stored directly and not loaded.
    let mut roots: Vec<&(Id, Rc<Coordinates>)> = group.roots.iter().collect();
    roots.sort_unstable_by_key(|(root, _)| *root);
    for (root, coordinates) in roots {
        let value = builder.value(*root, coordinates, &Mask::default())?;
        let node = ir.node(*root);
        let index = builder.placed(&view::flat(coordinates, &contiguous_strides(&node.shape), 0));
        let parameter = builder.parameter(*root, node.dtype, true);
        // A per-row value stored into a tensor that spans the columns is stored once per column.
        let wide = (row_count..builder.ranges.len()).any(|r| index.depends_on(r));
        let value = if wide { builder.per_column(value) } else { value };
        builder.kernel.stores.push(Store { parameter, value, index, replaces: None });
    }
    let built = Built { kernel: builder.kernel, parameters: builder.parameters };
    Ok(if group.library.is_some() { reads_first(built) } else { built })
}

/// Reorders the kernel's parameters so that those it reads precede those it stores.
fn reads_first(built: Built) -> Built {
    let Built { mut kernel, parameters } = built;
    let mut order: Vec<usize> = (0..parameters.len()).collect();
    order.sort_by_key(|&at| kernel.parameters[at].written);
    let mut renamed = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| renamed[old] = new as u16);
    for instruction in &mut kernel.instructions {
        if let FusedOp::Load { parameter, .. } = &mut instruction.operation {
            *parameter = renamed[usize::from(*parameter)];
        }
    }
    kernel.stores.iter_mut().for_each(|store| store.parameter = renamed[usize::from(store.parameter)]);
    kernel.parameters = order.iter().map(|&at| kernel.parameters[at].clone()).collect();
    Built { kernel, parameters: order.iter().map(|&at| parameters[at]).collect() }
}

struct Builder<'a> {
    ir: &'a Ir,
    homes: &'a [Home],
    layouts: &'a FastMap<Id, Layout>,
    id: FusionGroupId,
    /// Node coordinates stay in terms of this group's ranges as they were when the group was formed. Otherwise equal
    /// positions could have unequal coordinates.
    group: &'a FusionGroup,
    /// The kernel's ranges. Its indices and masks are in terms of these.
    ranges: Ranges,
    /// Each of the group's ranges in terms of the kernel's ranges.
    replacements: Coordinates,
    row_count: usize,
    values: FastMap<(Id, Rc<Coordinates>, Mask), InstructionId>,
    known: FastMap<Instruction, InstructionId>,
    kernel: Fusion,
    parameters: Vec<Id>,
}

impl Builder<'_> {
    fn parameter(&mut self, node: Id, dtype: DType, written: bool) -> u16 {
        let parameters = self.parameters.iter().zip(&self.kernel.parameters);
        if let Some(found) = parameters.enumerate().find(|(_, (n, p))| **n == node && p.written == written) {
            return found.0 as u16;
        }
        self.parameters.push(node);
        self.kernel.parameters.push(Parameter { dtype, written });
        self.parameters.len() as u16 - 1
    }

    fn emit(&mut self, operation: FusedOp, dtype: DType) -> InstructionId {
        let varies = |index: &Index| (self.row_count..self.ranges.len()).any(|r| index.depends_on(r));
        let per_column = match &operation {
            FusedOp::Constant(_) | FusedOp::Reduce(..) => false,
            FusedOp::Coordinate(index) => varies(index),
            FusedOp::Load { index, mask, .. } => {
                varies(index) || mask.iter().flat_map(|m| m.conditions()).any(|c| varies(&c.index))
            }
            other => other.operands().iter().any(|&v| self.kernel.instructions[v as usize].per_column),
        };
        let instruction = Instruction { operation, dtype, per_column };
        if let Some(&known) = self.known.get(&instruction) {
            return known;
        }
        let value = self.kernel.instructions.len() as InstructionId;
        self.kernel.instructions.push(instruction.clone());
        self.known.insert(instruction, value);
        value
    }

    /// Returns the value of a node at `coordinates`. The value is unspecified where `mask` is false.
    fn value(&mut self, id: Id, coordinates: &Rc<Coordinates>, mask: &Mask) -> Result<InstructionId> {
        let key = (id, coordinates.clone(), mask.clone());
        if let Some(&value) = self.values.get(&key) {
            return Ok(value);
        }
        let value = match self.stored(id, coordinates)? {
            true => self.load(id, coordinates, mask, Scalar::Int(0)),
            false => self.compute(id, coordinates, mask)?,
        };
        self.values.insert(key, value);
        Ok(value)
    }

    /// Converts an index over the group's ranges to one over the kernel's ranges.
    fn placed(&self, index: &Index) -> Index {
        index.substitute(&self.replacements, &self.ranges)
    }

    /// Returns whether the node's value at these coordinates comes from a buffer.
    ///
    /// # Errors
    /// If this kernel itself stores the node at other coordinates: it would read elements before storing them.
    fn stored(&self, id: Id, coordinates: &Rc<Coordinates>) -> Result<bool> {
        match self.homes[id as usize] {
            _ if matches!(self.ir.node(id).op, Op::Constant(_) | Op::Iota(_)) => Ok(false),
            Home::Leaf => Ok(true),
            Home::Stored(group) if group == self.id => {
                let result = self.group.epilogue.as_ref().filter(|_| self.group.library == Some(id));
                let own = match result {
                    Some(epilogue) => Some(&epilogue.coordinates),
                    None => self.group.roots.iter().find(|(root, _)| *root == id).map(|(_, at)| at),
                };
                if own != Some(coordinates) {
                    let message =
                        format!("a kernel reads {} where it does not compute it", self.ir.node(id).op.name());
                    return Err(Error::internal("schedule::build", message));
                }
                Ok(result.is_some())
            }
            Home::Stored(_) => Ok(true),
            Home::Inline | Home::View(..) => Ok(false),
        }
    }

    fn load(&mut self, id: Id, coordinates: &Rc<Coordinates>, mask: &Mask, fill: Scalar) -> InstructionId {
        let node = self.ir.node(id);
        let index = match self.layouts.get(&id) {
            _ if self.group.library == Some(id) => {
                view::flat(&self.ranges.coordinates(), &contiguous_strides(&node.shape), 0)
            }
            Some(layout) => self.placed(&view::flat(coordinates, &layout.strides, 0)),
            None => self.placed(&view::flat(coordinates, &contiguous_strides(&node.shape), 0)),
        };
        let mask = mask.substitute(&self.replacements, &self.ranges);
        let mask = (!mask.is_always()).then_some(mask);
        let parameter = self.parameter(id, node.dtype, false);
        let load = FusedOp::Load { parameter, index, mask, fill: fill.cast(node.dtype) };
        let loaded = self.emit(load, node.dtype);
        if self.group.library != Some(id) || node.dtype.compute() == node.dtype {
            return loaded;
        }
        // An operation passes its result to the epilogue unrounded.
        let wide = self.widened(loaded);
        self.emit(FusedOp::Cast(wide), node.dtype)
    }

    fn compute(&mut self, id: Id, coordinates: &Rc<Coordinates>, mask: &Mask) -> Result<InstructionId> {
        let node = self.ir.node(id);
        let operand = |builder: &mut Self, n: usize| builder.value(node.inputs[n], coordinates, mask);
        let operation = match &node.op {
            Op::Constant(Constant(scalar)) => FusedOp::Constant(*scalar),
            Op::Iota(Iota { axis }) => {
                let coordinate = FusedOp::Coordinate(self.placed(&coordinates[*axis]));
                let wide = self.emit(coordinate, node.dtype.compute());
                return Ok(if node.dtype.compute() == node.dtype {
                    wide
                } else {
                    self.emit(FusedOp::Cast(wide), node.dtype)
                });
            }
            Op::Contiguous | Op::Copy => return operand(self, 0),
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice(_) => {
                let input = node.inputs[0];
                let shape = &self.ir.node(input).shape;
                let (inner, _) =
                    view::through(&node.op, shape, &node.shape, coordinates, &self.group.ranges)?;
                return self.value(input, &inner.into(), mask);
            }
            Op::Pad(Pad { value, .. }) => return self.pad(id, *value, coordinates, mask),
            Op::Unary(op) => FusedOp::Unary(*op, operand(self, 0)?),
            Op::Binary(op) => FusedOp::Binary(*op, operand(self, 0)?, operand(self, 1)?),
            Op::Where => FusedOp::Select(operand(self, 0)?, operand(self, 1)?, operand(self, 2)?),
            Op::Cast => FusedOp::Cast(operand(self, 0)?),
            Op::Composite(composite) if composite.is_elementwise() => {
                FusedOp::Call(composite.clone(), operand(self, 0)?)
            }
            Op::Bitcast => FusedOp::Bitcast(operand(self, 0)?),
            Op::Reduce(Reduce { combine, axes }) => {
                let input = node.inputs[0];
                let inner = reduce_coordinates(coordinates, *axes, &self.ir.node(input).shape, self.group);
                let value = self.value(input, &inner.into(), mask)?;
                let value = self.per_column(value);
                FusedOp::Reduce(*combine, value)
            }
            other => {
                return Err(Error::internal(
                    "schedule::build",
                    format!("{} in a fused kernel", other.name()),
                ));
            }
        };
        Ok(self.emit_rounded(operation, node.dtype))
    }

    /// Emits a node's operation. If a 16-bit float cannot hold the result exactly, it is computed in `f32` and rounded
    /// at once. A value is thus the same whether it is stored and loaded or used directly.
    fn emit_rounded(&mut self, operation: FusedOp, dtype: DType) -> InstructionId {
        let is_exact = match &operation {
            FusedOp::Unary(op, _) => op.is_exact(),
            FusedOp::Binary(op, ..) => op.is_exact(),
            FusedOp::Reduce(combine, _) => combine.binary().is_exact(),
            FusedOp::Call(..) => false,
            _ => true,
        };
        if is_exact || dtype.compute() == dtype {
            return self.emit(operation, dtype);
        }
        let operation = operation.mapped(|operand| self.widened(operand));
        let exact = self.emit(operation, dtype.compute());
        self.emit(FusedOp::Cast(exact), dtype)
    }

    /// Widens a 16-bit float to `f32`.
    fn widened(&mut self, value: InstructionId) -> InstructionId {
        let Instruction { operation, dtype, .. } = &self.kernel.instructions[value as usize];
        let wide = dtype.compute();
        let operation = match operation {
            FusedOp::Constant(scalar) => FusedOp::Constant(scalar.cast(*dtype).cast(wide)),
            _ => FusedOp::Cast(value),
        };
        self.emit(operation, wide)
    }

    /// Makes a value that is the same in every column count once per column when it is reduced.
    fn per_column(&mut self, value: InstructionId) -> InstructionId {
        let instruction = &self.kernel.instructions[value as usize];
        if instruction.per_column || self.kernel.columns.iter().all(|&d| d == 1) {
            return value;
        }
        let widened = Instruction { per_column: true, ..instruction.clone() };
        if let Some(&known) = self.known.get(&widened) {
            return known;
        }
        // Selecting on a per-column condition that is always true makes the value per-column without changing it.
        let column = (self.row_count..self.ranges.len()).find(|&r| self.ranges.0[r] > 1);
        let column = Index::range(column.unwrap_or(self.row_count), &self.ranges);
        let dtype = instruction.dtype;
        let coordinate = self.emit(FusedOp::Coordinate(column), DType::I64);
        let zero = self.emit(FusedOp::Constant(Scalar::Int(0)), DType::I64);
        let always = self.emit(FusedOp::Binary(Binary::Le, zero, coordinate), DType::Bool);
        self.emit(FusedOp::Select(always, value, value), dtype)
    }

    fn pad(
        &mut self,
        id: Id,
        fill: Scalar,
        coordinates: &Rc<Coordinates>,
        outer: &Mask,
    ) -> Result<InstructionId> {
        let node = self.ir.node(id);
        let (mut input, op) = (node.inputs[0], &node.op);
        let ranges = &self.group.ranges;
        let (inner, mask) = view::through(op, &self.ir.node(input).shape, &node.shape, coordinates, ranges)?;
        let mut inner = Rc::new(inner);
        let Some(mask) = mask.filter(|m| !m.is_always()) else { return self.value(input, &inner, outer) };
        let both = outer.and(&mask);
        // If the padding's input is a buffer, the load itself supplies the fill value.
        loop {
            if self.stored(input, &inner)? {
                return Ok(self.load(input, &inner, &both, fill));
            }
            let behind = self.ir.node(input);
            if !behind.op.is_view() {
                break;
            }
            let shape = &self.ir.node(behind.inputs[0]).shape;
            inner = view::through(&behind.op, shape, &behind.shape, &inner, &self.group.ranges)?.0.into();
            input = behind.inputs[0];
        }
        let value = self.value(input, &inner, &both)?;
        let mut holds: Option<InstructionId> = None;
        for condition in mask.substitute(&self.replacements, &self.ranges).conditions() {
            let at = self.emit(FusedOp::Coordinate(condition.index.clone()), DType::I64);
            let low = self.emit(FusedOp::Constant(Scalar::Int(condition.low)), DType::I64);
            let high = self.emit(FusedOp::Constant(Scalar::Int(condition.high)), DType::I64);
            let above = self.emit(FusedOp::Binary(Binary::Le, low, at), DType::Bool);
            let below = self.emit(FusedOp::Binary(Binary::Lt, at, high), DType::Bool);
            let within = self.emit(FusedOp::Binary(Binary::And, above, below), DType::Bool);
            holds = Some(match holds {
                Some(holds) => self.emit(FusedOp::Binary(Binary::And, holds, within), DType::Bool),
                None => within,
            });
        }
        let fill = self.emit(FusedOp::Constant(fill.cast(node.dtype)), node.dtype);
        match holds {
            Some(holds) => Ok(self.emit(FusedOp::Select(holds, value, fill), node.dtype)),
            None => Ok(value),
        }
    }
}
