//! The rules of a well-formed graph: the requirements of every op on its operands and its result.

use super::{
    Combine, ConvKind, Geometry, Op, PoolKind, ScatterMode,
    ir::{Id, Ir, IrNode},
};
use crate::{DType, Error, Result, text::show_shape};

/// Checks that inputs precede their users, and that the shape and dtype of every node match its op.
pub fn check(ir: &Ir) -> Result<()> {
    for (id, node) in ir.nodes.iter().enumerate() {
        let broken = |what: &str| {
            let message = format!(
                "node {id}, {} giving {} {}: {what}",
                node.op.name(),
                node.dtype,
                show_shape(&node.shape)
            );
            Error::internal("graph", message)
        };
        if node.inputs.iter().any(|&input| input as usize >= id) {
            return Err(broken("its inputs do not precede it"));
        }
        let inputs: Vec<&IrNode> = node.inputs.iter().map(|&input| ir.node(input)).collect();
        check_node(node, &inputs).map_err(broken)?;
    }
    let exists = |id: &Id| (*id as usize) < ir.nodes.len();
    if !ir.outputs.iter().chain(&ir.leaves).all(exists) {
        return Err(Error::internal("graph", "an output or a leaf is not a node"));
    }
    let leaf = |&id: &Id| ir.node(id).op == Op::Buffer;
    if !ir.leaves.iter().all(leaf)
        || ir.nodes.iter().filter(|n| n.op == Op::Buffer).count() != ir.leaves.len()
    {
        return Err(Error::internal("graph", "the leaves are not the buffers"));
    }
    Ok(())
}

type Check = Result<(), &'static str>;

fn need(condition: bool, message: &'static str) -> Check {
    if condition { Ok(()) } else { Err(message) }
}

/// The number of inputs an op takes; `None` if it varies.
fn arity(op: &Op) -> Option<usize> {
    Some(match op {
        Op::Constant(_) | Op::Buffer | Op::Iota { .. } => 0,
        Op::Binary(_) | Op::Gather(_) | Op::SearchSorted { .. } | Op::Dot | Op::Conv(..) => 2,
        Op::Where | Op::Scatter(..) => 3,
        Op::Cat { .. } | Op::Composite(_) | Op::Custom(_) => return None,
        _ => 1,
    })
}

fn check_node(node: &IrNode, inputs: &[&IrNode]) -> Check {
    let rank = node.shape.len();
    if let Some(arity) = arity(&node.op) {
        need(inputs.len() == arity, "wrong number of inputs")?;
    }
    let same_dtype = || need(inputs.iter().all(|i| i.dtype == node.dtype), "operands have another dtype");
    let same_shape = || need(inputs.iter().all(|i| i.shape == node.shape), "operands have another shape");
    match &node.op {
        Op::Constant(_) | Op::Buffer | Op::Composite(_) => Ok(()),
        Op::Custom(call) => {
            call.check(node.dtype, node.len(), &inputs.iter().map(|input| input.dtype).collect::<Vec<_>>())
        }
        Op::Iota { axis } => {
            need(*axis < rank, "no such axis")?;
            need(node.dtype != DType::Bool, "bool cannot count")
        }
        Op::RandomBits => {
            let state = inputs[0];
            need(state.dtype == DType::U32 && state.shape.as_slice() == [4], "the state is uint32 (4,)")?;
            need(node.dtype == DType::U32, "random bits are uint32")
        }
        Op::Reshape => {
            same_dtype()?;
            need(inputs[0].len() == node.len(), "another number of elements")
        }
        Op::Copy | Op::Contiguous => same_dtype().and(same_shape()),
        Op::Permute(permutation) => {
            same_dtype()?;
            need(
                permutation.len() == rank && inputs[0].shape.len() == rank,
                "not a permutation of the axes",
            )?;
            let mut seen = vec![false; rank];
            permutation.iter().for_each(|&p| {
                if let Some(seen) = seen.get_mut(usize::from(p)) {
                    *seen = true;
                }
            });
            need(seen.iter().all(|s| *s), "not a permutation of the axes")?;
            let moved = (0..rank).all(|i| inputs[0].shape[usize::from(permutation[i])] == node.shape[i]);
            need(moved, "the shape is not the permuted one")
        }
        Op::Expand => {
            same_dtype()?;
            let fits = inputs[0].shape.len() == rank
                && inputs[0].shape.iter().zip(&node.shape).all(|(&from, &to)| from == to || from == 1);
            need(fits, "only axes of size 1 are repeated")
        }
        Op::Pad { padding, .. } => {
            same_dtype()?;
            let grown = |(&(before, after), (&from, &to)): (&(usize, usize), (&usize, &usize))| {
                before + from + after == to
            };
            need(padding.len() == rank && inputs[0].shape.len() == rank, "expected one padding per axis")?;
            need(
                padding.iter().zip(inputs[0].shape.iter().zip(&node.shape)).all(grown),
                "not the padded shape",
            )
        }
        Op::Slice { start, step } => {
            same_dtype()?;
            need(
                start.len() == rank && step.len() == rank && inputs[0].shape.len() == rank,
                "expected one start and step per axis",
            )?;
            let inside = |axis: usize| {
                let last = start[axis] as i128 + step[axis] as i128 * (node.shape[axis] as i128 - 1);
                let size = inputs[0].shape[axis] as i128;
                node.shape[axis] == 0 || ((start[axis] as i128) < size && last >= 0 && last < size)
            };
            need(step.iter().all(|s| *s != 0), "a step of 0")?;
            need(node.is_empty() || (0..rank).all(inside), "the slice leaves the operand")
        }
        Op::Cat { axis } => {
            same_dtype()?;
            need(!inputs.is_empty() && *axis < rank, "nothing to concatenate")?;
            let fits = |i: &&IrNode| {
                i.shape.len() == rank && (0..rank).all(|a| a == *axis || i.shape[a] == node.shape[a])
            };
            need(inputs.iter().all(fits), "other axes differ")?;
            need(
                inputs.iter().map(|i| i.shape[*axis]).sum::<usize>() == node.shape[*axis],
                "sizes do not add up",
            )
        }
        Op::Unary(op) => {
            same_shape()?;
            need(op.accepts(inputs[0].dtype), "not a dtype this function takes")?;
            need(op.result(inputs[0].dtype) == node.dtype, "not the dtype this function gives")
        }
        Op::Binary(op) => {
            same_shape()?;
            need(inputs[0].dtype == inputs[1].dtype, "operands of two dtypes")?;
            need(op.accepts(inputs[0].dtype), "not a dtype this function takes")?;
            need(op.result(inputs[0].dtype) == node.dtype, "not the dtype this function gives")
        }
        Op::Where => {
            same_shape()?;
            need(inputs[0].dtype == DType::Bool, "the condition is bool")?;
            need(inputs[1..].iter().all(|i| i.dtype == node.dtype), "operands have another dtype")
        }
        Op::Cast => same_shape(),
        Op::Bitcast => {
            same_shape()?;
            need(inputs[0].dtype.size() == node.dtype.size(), "another size of element")
        }
        Op::Reduce { combine, axes } => {
            same_dtype()?;
            need(combine.binary().accepts(node.dtype), "not a dtype this reduction takes")?;
            need(reduced(&inputs[0].shape, &node.shape, |axis| axes.contains(axis)), "not the reduced shape")
        }
        Op::ArgReduce { combine, axis } => {
            need(matches!(combine, Combine::Max | Combine::Min), "only extremes have a place")?;
            need(node.dtype == DType::I64, "places are int64")?;
            need(reduced(&inputs[0].shape, &node.shape, |a| a == *axis), "not the reduced shape")?;
            need(node.is_empty() || !inputs[0].is_empty(), "an empty axis has no maximum or minimum")
        }
        Op::Scan { combine, axis, .. } => {
            same_dtype()?;
            same_shape()?;
            need(combine.binary().accepts(node.dtype), "not a dtype this scan takes")?;
            need(*axis < rank, "no such axis")
        }
        Op::Gather(_) => {
            let (table, index) = (inputs[0], inputs[1]);
            need(
                table.shape.len() == 2 && index.shape.len() == 1 && rank == 2,
                "rows of a matrix by a vector",
            )?;
            need(index.dtype.is_integer() && table.dtype == node.dtype, "wrong dtypes")?;
            need(node.shape[0] == index.shape[0] && node.shape[1] == table.shape[1], "wrong shape")?;
            need(node.is_empty() || table.shape[0] > 0, "no row to take")
        }
        Op::Scatter(mode, _) => {
            let (table, index, updates) = (inputs[0], inputs[1], inputs[2]);
            need(table.shape.len() == 2 && index.shape.len() == 1, "rows of a matrix by a vector")?;
            need(updates.shape.as_slice() == [index.shape[0], table.shape[1]], "updates have another shape")?;
            need(table.shape == node.shape, "the result has another shape")?;
            need(index.dtype.is_integer(), "the index is not of integers")?;
            need(table.dtype == node.dtype && updates.dtype == node.dtype, "wrong dtypes")?;
            need(updates.is_empty() || table.shape[0] > 0, "no row to update")?;
            need(
                !matches!(mode, ScatterMode::Combine(c) if !c.binary().accepts(node.dtype)),
                "not a dtype this combination takes",
            )
        }
        Op::ArgSort { .. } => {
            same_shape()?;
            need(rank > 0 && node.dtype == DType::I64, "positions along the last axis, int64")
        }
        Op::SearchSorted { .. } => {
            need(inputs[0].shape.len() == 1 && inputs[1].shape.len() == 1, "vectors only")?;
            need(inputs[0].dtype == inputs[1].dtype && node.dtype == DType::I64, "wrong dtypes")?;
            need(inputs[1].shape == node.shape, "expected one position per value")
        }
        Op::Dot => {
            let (a, b) = (inputs[0], inputs[1]);
            need(rank >= 2 && a.shape.len() == rank && b.shape.len() == rank, "operands of another rank")?;
            let batch = rank - 2;
            let leading = a.shape[..batch] == node.shape[..batch] && b.shape[..batch] == node.shape[..batch];
            let inner = a.shape[rank - 1] == b.shape[batch];
            let outer = a.shape[batch] == node.shape[batch] && b.shape[rank - 1] == node.shape[rank - 1];
            need(leading && inner && outer, "shapes do not fit")?;
            let one_kind = a.dtype.is_float() == node.dtype.is_float() && node.dtype != DType::Bool;
            need(a.dtype == b.dtype && one_kind && a.dtype != DType::Bool, "wrong dtypes")
        }
        Op::Conv(kind, geometry) => {
            let (a, b) = (inputs[0], inputs[1]);
            let (x, w, y) = match kind {
                ConvKind::Forward => (a, b, node),
                ConvKind::InputGradient => (node, b, a),
                ConvKind::FilterGradient => (a, node, b),
            };
            let one_kind = a.dtype.is_float() == node.dtype.is_float() && node.dtype != DType::Bool;
            need(a.dtype == b.dtype && one_kind && a.dtype != DType::Bool, "wrong dtypes")?;
            let spatial = check_geometry(geometry, &x.shape, &y.shape)?;
            need(w.shape.len() == spatial + 2, "a filter of another rank")?;
            need(w.shape[2..] == geometry.kernel[..], "a filter of another extent")?;
            need(x.shape[1] == w.shape[1] * geometry.groups, "the filter takes another number of channels")?;
            need(
                y.shape[1] == w.shape[0] && w.shape[0] % geometry.groups == 0,
                "the filter gives other channels",
            )
        }
        Op::Pool(kind, geometry) => {
            let (x, y) = if *kind == PoolKind::Spread { (node, inputs[0]) } else { (inputs[0], node) };
            let dtype = if *kind == PoolKind::ArgMax { DType::I64 } else { inputs[0].dtype };
            need(node.dtype == dtype, "not the dtype this pooling gives")?;
            let sums = matches!(kind, PoolKind::Sum | PoolKind::Spread);
            need(!(sums && node.dtype == DType::Bool), "bool cannot be summed")?;
            check_geometry(geometry, &x.shape, &y.shape)?;
            need(x.shape[1] == y.shape[1], "pooling keeps channels")
        }
    }
}

fn reduced(from: &[usize], to: &[usize], is_reduced: impl Fn(usize) -> bool) -> bool {
    from.len() == to.len() && (0..to.len()).all(|a| to[a] == if is_reduced(a) { 1 } else { from[a] })
}

/// Checks a geometry, and returns the number of spatial dimensions.
fn check_geometry(geometry: &Geometry, x: &[usize], y: &[usize]) -> Result<usize, &'static str> {
    let spatial = geometry.kernel.len();
    need(
        x.len() == spatial + 2 && y.len() == spatial + 2 && x[0] == y[0],
        "not (batch, channels, spatial..)",
    )?;
    need(
        geometry.stride.len() == spatial
            && geometry.dilation.len() == spatial
            && geometry.padding.len() == spatial,
        "a geometry of another rank",
    )?;
    need(
        geometry.groups > 0 && !geometry.stride.contains(&0) && !geometry.dilation.contains(&0),
        "a stride of 0",
    )?;
    let fits = (0..spatial).all(|d| geometry.output_size(d, x[d + 2]) == Some(y[d + 2]));
    need(fits, "the window gives another extent")?;
    Ok(spatial)
}
