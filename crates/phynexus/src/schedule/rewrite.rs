//! Rewrites the graph before scheduling: expands composites, folds constants, applies algebraic rules and eliminates
//! common subexpressions.
//!
//! One pass in topological order builds a new graph and merges equal nodes. Every rule preserves NaN, infinities and
//! the sign of zero.

use std::hash::{Hash, Hasher};

use smallvec::{SmallVec, smallvec};

use crate::{
    DType, Result, Scalar,
    device::{Device, Support},
    hash::{FastHasher, FastMap},
    op::{
        Axes, Binary, Cat, Composite, Constant, Op, Permute, Reduce, Slice, TensorType, Unary,
        composite::InPrecision,
        ir::{Id, Ir, IrNode},
    },
};

/// Simplifies the graph for a device. Composites that the device does not support are replaced by their bodies.
pub(crate) fn rewrite(ir: Ir, device: Device) -> Result<Ir> {
    let known = FastMap::with_capacity_and_hasher(2 * ir.nodes.len(), <_>::default());
    let mut rewriter = Rewriter { device, out: Ir::default(), known };
    rewriter.out.outputs = rewriter.import(ir, None)?;
    Ok(without_dead_nodes(rewriter.out))
}

struct Rewriter {
    device: Device,
    out: Ir,
    /// The nodes of `out` by their hash. Of nodes with equal hashes, only the last one is found.
    known: FastMap<u64, Id>,
}

impl Rewriter {
    /// Adds the nodes of `ir`. Its leaves become `operands`, or new leaves if that is `None`. Returns the outputs.
    fn import(&mut self, ir: Ir, operands: Option<&[Id]>) -> Result<Vec<Id>> {
        let mut renamed: Vec<Id> = Vec::with_capacity(ir.nodes.len());
        let mut leaf = 0;
        let mut uses = vec![0u32; ir.nodes.len()];
        let inputs = ir.nodes.iter().flat_map(|n| &n.inputs);
        inputs.chain(&ir.outputs).for_each(|&i| uses[i as usize] += 1);
        // Whether a node has one reader, and if it is a cast, what it converts has no other either.
        let mut alone: Vec<bool> = uses.iter().map(|&uses| uses == 1).collect();
        for (id, node) in ir.nodes.iter().enumerate().filter(|(_, node)| node.op == Op::Cast) {
            alone[id] &= alone[node.inputs[0] as usize];
        }
        for mut node in ir.nodes {
            let is_only_use = node.inputs.first().is_some_and(|&input| alone[input as usize]);
            node.inputs.iter_mut().for_each(|input| *input = renamed[*input as usize]);
            renamed.push(match &node.op {
                Op::Buffer => {
                    leaf += 1;
                    match operands {
                        Some(operands) => operands[leaf - 1],
                        None => self.out.push(Op::Buffer, node.dtype, node.shape, []),
                    }
                }
                Op::Permute(Permute(p)) if is_only_use && swaps_last_two(p) => self.transpose(node)?,
                _ => self.add(node)?,
            });
        }
        Ok(ir.outputs.iter().map(|&output| renamed[output as usize]).collect())
    }

    fn add(&mut self, node: IrNode) -> Result<Id> {
        if let Op::Composite(composite) = &node.op {
            let types: Vec<TensorType> =
                node.inputs.iter().map(|&i| self.out.node(i).tensor_type()).collect();
            if self.device.backend().support(&node, &types) == Support::Body {
                let body = without_dead_nodes(composite.draft(&types)?);
                return Ok(self.import(body, Some(&node.inputs))?[0]);
            }
        }
        let node = match self.simplify(node)? {
            Simplified::Is(id) => return Ok(id),
            Simplified::Node(node) => node,
        };
        let hash = hash_of(&node);
        // What is sent twice arrives twice.
        let repeats = !matches!(node.op, Op::Collective(_));
        if let Some(id) = self.find(hash, &node).filter(|_| repeats) {
            return Ok(id);
        }
        let id = self.out.nodes.len() as Id;
        self.known.insert(hash, id);
        self.out.nodes.push(node);
        Ok(id)
    }

    /// Finds an equal node by its hash.
    fn find(&self, hash: u64, node: &IrNode) -> Option<Id> {
        self.known.get(&hash).copied().filter(|&id| self.out.node(id) == node)
    }

    fn constant(&self, id: Id) -> Option<Scalar> {
        match self.out.node(id).op {
            Op::Constant(Constant(scalar)) => Some(scalar),
            _ => None,
        }
    }

    fn simplify(&mut self, mut node: IrNode) -> Result<Simplified> {
        use Simplified::{Is, Node};
        let constant_like = |node: &IrNode, scalar: Scalar| {
            Node(IrNode {
                op: Op::Constant(Constant(scalar.cast(node.dtype))),
                inputs: SmallVec::new(),
                ..node.clone()
            })
        };
        let Some(&first) = node.inputs.first() else { return Ok(Node(node)) };
        let operand = self.out.node(first);
        match &node.op {
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice(_) => {
                if let Op::Constant(Constant(scalar)) = operand.op {
                    return Ok(constant_like(&node, scalar));
                }
                let unchanged = match &node.op {
                    Op::Permute(Permute(p)) => p.iter().enumerate().all(|(i, &p)| i == usize::from(p)),
                    Op::Slice(Slice { step, .. }) => {
                        node.shape == operand.shape && (step.iter().all(|&s| s == 1) || node.is_empty())
                    }
                    _ => node.shape == operand.shape,
                };
                if unchanged {
                    return Ok(Is(first));
                }
                match (&node.op, &operand.op) {
                    (Op::Reshape, Op::Reshape) | (Op::Expand, Op::Expand) => {
                        node.inputs = operand.inputs.clone();
                        return self.simplify(node);
                    }
                    (Op::Permute(Permute(outer)), Op::Permute(Permute(inner))) => {
                        node.op =
                            Op::Permute(Permute(outer.iter().map(|&i| inner[usize::from(i)]).collect()));
                        node.inputs = operand.inputs.clone();
                        return self.simplify(node);
                    }
                    (Op::Slice(slice), Op::Cat(cat)) => {
                        if let Some((part, slice)) = self.slice_of_part(&node, slice, cat, &operand.inputs) {
                            node.op = Op::Slice(slice);
                            node.inputs = smallvec![part];
                            return self.simplify(node);
                        }
                    }
                    _ => {}
                }
            }
            Op::Cast => {
                if operand.dtype == node.dtype {
                    return Ok(Is(first));
                }
                if let Op::Constant(Constant(scalar)) = operand.op {
                    return Ok(constant_like(&node, scalar));
                }
                if let Some(narrow) = self.without_widening(&node)? {
                    return Ok(Is(narrow));
                }
            }
            Op::Unary(Unary::Neg) => {
                if let Op::Unary(Unary::Neg) = operand.op {
                    return Ok(Is(operand.inputs[0]));
                }
                if let Op::Constant(Constant(Scalar::Float(x))) = operand.op {
                    return Ok(constant_like(&node, Scalar::Float(-x)));
                }
            }
            Op::Unary(Unary::Not) if matches!(operand.op, Op::Unary(Unary::Not)) => {
                return Ok(Is(operand.inputs[0]));
            }
            &Op::Binary(binary) => return self.simplify_binary(binary, node),
            Op::Where => {
                let (then, otherwise) = (node.inputs[1], node.inputs[2]);
                if then == otherwise {
                    return Ok(Is(then));
                }
                if let Op::Constant(Constant(condition)) = operand.op {
                    return Ok(Is(if condition.as_bool() { then } else { otherwise }));
                }
                if let Some(condition) = self.sign_of_rectified(first, otherwise)? {
                    node.inputs[0] = condition;
                }
            }
            Op::Reduce(Reduce { combine, .. }) if operand.is_empty() && !node.is_empty() => {
                return Ok(constant_like(&node, combine.identity(node.dtype)));
            }
            Op::Reduce(Reduce { axes, .. }) => {
                let kept = Axes::of(axes.iter().filter(|&a| operand.shape[a] != 1));
                if kept == Axes::default() {
                    return Ok(Is(first));
                }
                if let Op::Reduce(Reduce { axes, .. }) = &mut node.op {
                    *axes = kept;
                }
            }
            op if *op.exact() == Op::Dot => return self.outer_product(node),
            _ => {}
        }
        Ok(Node(node))
    }

    /// Finds the part of a concatenation that contains a slice, and the slice of that part. Composites with several
    /// results pack them into one, and their users read each result from there.
    fn slice_of_part(&self, node: &IrNode, slice: &Slice, cat: &Cat, parts: &[Id]) -> Option<(Id, Slice)> {
        let axis = cat.axis;
        let steps = isize::try_from(node.shape[axis]).ok()?.checked_sub(1).filter(|_| !node.is_empty())?;
        let first = slice.start[axis];
        let last = first.checked_add_signed(slice.step[axis] * steps)?;
        let mut before = 0;
        for &part in parts {
            let extent = self.out.node(part).shape[axis];
            if before <= first.min(last) && first.max(last) < before + extent {
                let mut slice = slice.clone();
                slice.start[axis] -= before;
                return Some((part, slice));
            }
            before += extent;
        }
        None
    }

    fn simplify_binary(&mut self, binary: Binary, mut node: IrNode) -> Result<Simplified> {
        use Simplified::{Is, Node};
        // Move constants to the right, so each rule is written once.
        if binary.is_commutative()
            && self.constant(node.inputs[0]).is_some()
            && self.constant(node.inputs[1]).is_none()
        {
            node.inputs.swap(0, 1);
        }
        let (a, b) = (node.inputs[0], node.inputs[1]);
        if let (Some(x), Some(y)) = (self.constant(a), self.constant(b))
            && let Some(scalar) = fold(binary, x, y, node.dtype)
        {
            return Ok(Node(IrNode { op: Op::Constant(Constant(scalar)), inputs: SmallVec::new(), ..node }));
        }
        let Some(constant) = self.constant(b) else { return Ok(Node(node)) };
        let float = node.dtype.is_float();
        let neutral = match binary {
            Binary::Mul | Binary::Div | Binary::Pow => constant.as_f64() == 1.0,
            Binary::Add if float => constant.as_f64() == 0.0 && constant.as_f64().is_sign_negative(),
            Binary::Sub if float => constant.as_f64() == 0.0 && constant.as_f64().is_sign_positive(),
            Binary::Add | Binary::Sub | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
                !constant.as_bool() && node.dtype != DType::Bool
            }
            _ => false,
        };
        if neutral {
            return Ok(Is(a));
        }
        // The CPU and every generated kernel compute this power as a product when the exponent is data, so the result
        // is the same.
        if binary == Binary::Pow && float && constant.as_f64() == 2.0 {
            node.op = Op::Binary(Binary::Mul);
            node.inputs = smallvec![a, a];
        }
        Ok(Node(node))
    }

    /// What a cast gives that narrows a float again which was widened before some views: these views of the float.
    fn without_widening(&mut self, node: &IrNode) -> Result<Option<Id>> {
        let mut views: SmallVec<[Id; 4]> = SmallVec::new();
        let mut below = node.inputs[0];
        while self.out.node(below).op.is_view() {
            views.push(below);
            below = self.out.node(below).inputs[0];
        }
        let widened = self.out.node(below);
        let Some(&source) = widened.inputs.first() else { return Ok(None) };
        let (from, to) = (self.out.node(source).dtype, widened.dtype);
        let is_exact = from.is_float() && to.is_float() && from.size() < to.size();
        if widened.op != Op::Cast || from != node.dtype || !is_exact {
            return Ok(None);
        }
        let view = |source, view: Id| {
            let view = self.out.node(view).clone();
            self.add(IrNode { dtype: from, inputs: smallvec![source], ..view })
        };
        views.into_iter().rev().try_fold(source, view).map(Some)
    }

    /// Replaces the condition `x <= 0` by `max(x, 0) <= 0` if `max(x, 0)` is already in the graph, except inside
    /// `max(x, 0)` itself. The mask of a ReLU gradient then reads what the next layer keeps, and `x` need not be
    /// stored.
    fn sign_of_rectified(&mut self, condition: Id, otherwise: Id) -> Result<Option<Id>> {
        let node = self.out.node(condition).clone();
        let Op::Binary(Binary::Le) = node.op else { return Ok(None) };
        let (x, zero) = (node.inputs[0], node.inputs[1]);
        if x == otherwise || self.constant(zero).is_none_or(|zero| zero.as_f64() != 0.0) {
            return Ok(None);
        }
        let (dtype, shape) = (self.out.node(x).dtype, self.out.node(x).shape.clone());
        let rectified = IrNode { op: Op::Where, dtype, shape, inputs: smallvec![condition, zero, x] };
        match self.find(hash_of(&rectified), &rectified) {
            Some(rectified) => self.add(IrNode { inputs: smallvec![rectified, zero], ..node }).map(Some),
            None => Ok(None),
        }
    }

    /// Replaces the transpose of a product, or of what one is converted to, by the product of the transposes in reverse
    /// order. This is free: products read operands in any layout, while a reader of a transposed result would have to
    /// gather it.
    fn transpose(&mut self, mut node: IrNode) -> Result<Id> {
        let input = self.out.node(node.inputs[0]).clone();
        if input.op == Op::Cast {
            let dtype = self.out.node(input.inputs[0]).dtype;
            let transposed =
                self.transpose(IrNode { dtype, inputs: input.inputs.clone(), ..node.clone() })?;
            if !matches!(self.out.node(transposed).op, Op::Permute(_)) {
                node.inputs = smallvec![transposed];
                return self.add(IrNode { op: Op::Cast, ..node });
            }
            return self.add(node);
        }
        let product = input;
        let op = match product.op {
            Op::Dot => Op::Dot,
            Op::Composite(Composite::InPrecision(InPrecision { op, precision, .. })) if *op == Op::Dot => {
                Op::Composite(InPrecision { op, shape: node.shape.clone(), precision }.into())
            }
            _ => return self.add(node),
        };
        let mut operands: SmallVec<[Id; 3]> = SmallVec::new();
        for &input in product.inputs.iter().rev() {
            let operand = self.out.node(input);
            let (dtype, mut shape) = (operand.dtype, operand.shape.clone());
            let last = shape.len() - 1;
            shape.swap(last - 1, last);
            operands.push(self.add(IrNode {
                op: node.op.clone(),
                dtype,
                shape,
                inputs: smallvec![input],
            })?);
        }
        self.add(IrNode { op, inputs: operands, ..node })
    }

    /// Replaces a product with inner dimension 1 by a broadcast multiplication, which fuses with its neighbours.
    fn outer_product(&mut self, node: IrNode) -> Result<Simplified> {
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let (left, right) = (self.out.node(a), self.out.node(b));
        let terms = left.shape[left.shape.len() - 1];
        if terms != 1 || left.dtype != node.dtype || right.dtype != node.dtype {
            return Ok(Simplified::Node(node));
        }
        let expand = |rewriter: &mut Rewriter, input: Id| {
            let inputs = smallvec![input];
            rewriter.add(IrNode { op: Op::Expand, dtype: node.dtype, shape: node.shape.clone(), inputs })
        };
        let inputs = smallvec![expand(self, a)?, expand(self, b)?];
        Ok(Simplified::Node(IrNode { op: Op::Binary(Binary::Mul), inputs, ..node }))
    }
}

/// Returns whether the permutation only swaps the last two axes.
fn swaps_last_two(permutation: &[u8]) -> bool {
    let rank = permutation.len();
    rank >= 2
        && permutation.iter().enumerate().all(|(axis, &from)| {
            let other = if axis + 1 == rank { axis - 1 } else { axis + 1 };
            usize::from(from) == if axis + 2 < rank { axis } else { other }
        })
}

#[expect(clippy::large_enum_variant, reason = "lives on the stack between two calls")]
enum Simplified {
    Is(Id),
    Node(IrNode),
}

fn hash_of(node: &IrNode) -> u64 {
    let mut hasher = FastHasher::default();
    node.hash(&mut hasher);
    hasher.finish()
}

/// Folds an operation on two constants, if the result is the same on every device.
fn fold(binary: Binary, x: Scalar, y: Scalar, dtype: DType) -> Option<Scalar> {
    let scalar = if dtype.is_float() {
        // Computed in f64 and rounded once. For f32 and shorter types this is correctly rounded (Figueroa, 1995).
        let (x, y) = (x.as_f64(), y.as_f64());
        Scalar::Float(match binary {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            _ => return None,
        })
    } else {
        let (x, y) = (x.as_i64(), y.as_i64());
        Scalar::Int(match binary {
            Binary::Add => x.wrapping_add(y),
            Binary::Sub => x.wrapping_sub(y),
            Binary::Mul => x.wrapping_mul(y),
            _ => return None,
        })
    };
    (dtype != DType::Bool).then(|| scalar.cast(dtype))
}

/// Removes nodes that the outputs do not need. Leaves stay, because the caller depends on their order.
fn without_dead_nodes(mut ir: Ir) -> Ir {
    let mut live = vec![false; ir.nodes.len()];
    ir.outputs.iter().chain(&ir.leaves).for_each(|&o| live[o as usize] = true);
    for id in (0..ir.nodes.len()).rev().filter(|&i| ir.nodes[i].op != Op::Buffer) {
        if live[id] {
            ir.nodes[id].inputs.iter().for_each(|&i| live[i as usize] = true);
        }
    }
    let mut renamed = vec![Id::MAX; ir.nodes.len()];
    for (next, (id, node)) in ir.nodes.iter_mut().enumerate().filter(|(id, _)| live[*id]).enumerate() {
        node.inputs.iter_mut().for_each(|input| *input = renamed[*input as usize]);
        renamed[id] = next as Id;
    }
    let mut live = live.into_iter();
    ir.nodes.retain(|_| live.next() == Some(true));
    ir.outputs.iter_mut().chain(&mut ir.leaves).for_each(|id| *id = renamed[*id as usize]);
    ir
}

#[cfg(test)]
mod tests;
