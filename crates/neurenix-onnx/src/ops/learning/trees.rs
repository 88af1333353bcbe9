//! Ensembles of decision trees. All samples go down all trees at once: the place of each in each tree is a number.

use phynexus::{DType, Device, Tensor, op::Combine};

use super::classical::transformed;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    value::{floats, integers},
};

/// How a node compares a feature, with their numbers in ONNX's files.
const BRANCH_MEMBER: i64 = 6;

/// The greatest table of sets' members.
const MEMBERS: usize = 1 << 26;

pub(super) fn tree_ensemble(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let &[samples, features] = x.shape() else {
        return Err(Error::invalid(format!("expected (samples, features), got {:?}", x.shape())));
    };
    let trees = Trees::of(call, &x, features)?;
    let targets = call.int_or("n_targets", 0)?;
    let target_ids = ints(call, "leaf_targetids")?;
    let weights = tensor(call, "leaf_weights")?;
    if weights.len() != trees.leaves || target_ids.iter().any(|id| !(0..targets).contains(id)) {
        return Err(Error::invalid(format!("leaves must have a weight and a target from 0 to {targets}")));
    }
    let leaves = trees.leaves_of(&x)?;
    let weights = weights.to_dtype(x.dtype())?.reshape(&[trees.leaves])?.take(&leaves, Some(0))?;
    let ids = vector(&target_ids, call.device)?.take(&leaves, Some(0))?;
    let filled = |value: f64| Tensor::full(&[samples, targets as usize], value, x.dtype(), call.device);
    let greatest = match x.dtype() {
        DType::F16 => 65504.0,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let scores = match call.int_or("aggregate_function", 1)? {
        0 => filled(0.0)?.scatter_add(1, &ids, &weights)?.div_scalar(trees.roots.len().max(1) as f64)?,
        1 => filled(0.0)?.scatter_add(1, &ids, &weights)?,
        2 => filled(greatest)?.scatter_reduce(1, &ids, &weights, Combine::Min, true)?,
        3 => filled(-greatest)?.scatter_reduce(1, &ids, &weights, Combine::Max, true)?,
        other => return Err(Error::invalid(format!("there is no aggregate_function {other}"))),
    };
    let transforms = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let number = call.int_or("post_transform", 0)?;
    let transform = usize::try_from(number).ok().and_then(|number| transforms.get(number));
    let transform =
        transform.ok_or_else(|| Error::invalid(format!("there is no post_transform {number}")))?;
    one(transformed(&scores, transform)?)
}

fn ints(call: &Call<'_>, name: &str) -> Result<Vec<i64>> {
    call.ints(name)?.ok_or_else(|| Error::invalid(format!("attribute {name:?} is missing")))
}

fn tensor(call: &Call<'_>, name: &str) -> Result<Tensor> {
    let value = call
        .tensor_attribute(name)?
        .ok_or_else(|| Error::invalid(format!("attribute {name:?} is missing")))?;
    Ok(value.tensor()?.to_device(call.device)?)
}

fn vector(numbers: &[i64], device: Device) -> Result<Tensor> {
    Ok(Tensor::from_slice(numbers, &[numbers.len()], device)?)
}

/// The nodes, followed by the leaves. Each has a row in the tables; a leaf is its own child.
struct Trees {
    nodes: usize,
    leaves: usize,
    /// How many nodes a sample passes at most.
    depth: usize,
    roots: Vec<i64>,
    modes: Vec<i64>,
    mode: Tensor,
    feature: Tensor,
    split: Tensor,
    if_true: Tensor,
    if_false: Tensor,
    /// Whether a missing feature counts as true.
    missing: Option<Tensor>,
    /// For each node its row in the table of sets, and the table.
    sets: Option<(Tensor, Tensor)>,
}

impl Trees {
    fn of(call: &Call<'_>, x: &Tensor, features: usize) -> Result<Trees> {
        let (feature, roots) = (ints(call, "nodes_featureids")?, ints(call, "tree_roots")?);
        let (nodes, leaves) = (feature.len(), ints(call, "leaf_targetids")?.len());
        if feature.iter().any(|&feature| usize::try_from(feature).map_or(true, |feature| feature >= features))
        {
            return Err(Error::invalid(format!(
                "a node reads another feature than the {features} of the input"
            )));
        }
        let checked = |all: Vec<i64>, name: &str| match all.len() == nodes {
            true => Ok(all),
            false => Err(Error::invalid(format!(
                "attribute {name:?} must have {nodes} values, it has {}",
                all.len()
            ))),
        };
        let children = |ids: &str, is_leaf: &str| -> Result<Vec<i64>> {
            let (ids, is_leaf) = (checked(ints(call, ids)?, ids)?, checked(ints(call, is_leaf)?, is_leaf)?);
            let child = |(&id, &is_leaf): (&i64, &i64)| {
                let (first, count) = if is_leaf != 0 { (nodes, leaves) } else { (0, nodes) };
                let place = usize::try_from(id).ok().filter(|&id| id < count).map(|id| (first + id) as i64);
                place.ok_or_else(|| Error::invalid(format!("a node has the child {id}, there are {count}")))
            };
            ids.iter().zip(&is_leaf).map(child).collect()
        };
        let if_true = children("nodes_truenodeids", "nodes_trueleafs")?;
        let if_false = children("nodes_falsenodeids", "nodes_falseleafs")?;
        let depth = depth(&roots, &if_true, &if_false)?;
        let modes = checked(integers(&tensor(call, "nodes_modes")?)?, "nodes_modes")?;
        let split = tensor(call, "nodes_splits")?.to_dtype(x.dtype())?.reshape(&[nodes])?;
        let missing = match call.ints("nodes_missing_value_tracks_true")?.filter(|all| !all.is_empty()) {
            Some(all) => Some(
                table(checked(all, "nodes_missing_value_tracks_true")?, leaves, call.device)?.ne_scalar(0)?,
            ),
            None => None,
        };
        let own = |children: Vec<i64>| {
            let leaves = nodes as i64..(nodes + leaves) as i64;
            vector(&children.into_iter().chain(leaves).collect::<Vec<_>>(), call.device)
        };
        let mut distinct = modes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        Ok(Trees {
            nodes,
            leaves,
            depth,
            roots,
            sets: sets(call, &modes, leaves, x.dtype())?,
            mode: table(modes, leaves, call.device)?,
            modes: distinct,
            feature: table(feature, leaves, call.device)?,
            split: split.pad(&[(0, leaves)], 0)?,
            if_true: own(if_true)?,
            if_false: own(if_false)?,
            missing,
        })
    }

    /// The leaf that each sample reaches in each tree, `[samples, trees]`.
    fn leaves_of(&self, x: &Tensor) -> Result<Tensor> {
        let mut place = vector(&self.roots, x.device())?.expand(&[x.shape()[0], self.roots.len()])?;
        for _ in 0..self.depth {
            let of = |table: &Tensor| table.take(&place, Some(0));
            let value = x.gather(1, &of(&self.feature)?)?;
            let mut holds: Option<Tensor> = None;
            for &mode in &self.modes {
                let compared = self.compared(mode, &value, &place)?;
                holds = Some(match holds {
                    Some(other) => of(&self.mode)?.eq_scalar(mode)?.where_(&compared, &other)?,
                    None => compared,
                });
            }
            let Some(mut holds) = holds else { break };
            if let Some(missing) = &self.missing {
                holds = holds.logical_or(&value.isnan()?.logical_and(&of(missing)?)?)?;
            }
            place = holds.where_(&of(&self.if_true)?, &of(&self.if_false)?)?;
        }
        Ok(place.sub_scalar(self.nodes as i64)?)
    }

    /// Whether a mode's comparison holds for these features at these places.
    fn compared(&self, mode: i64, value: &Tensor, place: &Tensor) -> Result<Tensor> {
        let split = self.split.take(place, Some(0))?;
        Ok(match (mode, &self.sets) {
            (0, _) => value.le(&split)?,
            (1, _) => value.lt(&split)?,
            (2, _) => value.ge(&split)?,
            (3, _) => value.gt(&split)?,
            (4, _) => value.eq(&split)?,
            (5, _) => value.ne(&split)?,
            (BRANCH_MEMBER, Some((rows, members))) => {
                let members = members.take(&rows.take(place, Some(0))?, Some(0))?;
                value.unsqueeze(-1)?.eq(&members)?.any(&[-1], false)?
            }
            (BRANCH_MEMBER, None) => {
                return Err(Error::invalid("attribute \"membership_values\" is missing"));
            }
            _ => return Err(Error::invalid(format!("there is no mode {mode} of nodes"))),
        })
    }
}

/// The values of nodes as a table, with 0 for the leaves.
fn table(values: Vec<i64>, leaves: usize, device: Device) -> Result<Tensor> {
    Ok(vector(&values, device)?.pad(&[(0, leaves)], 0)?)
}

/// The number of nodes on the longest way down. Fails for graphs that are not trees.
fn depth(roots: &[i64], if_true: &[i64], if_false: &[i64]) -> Result<usize> {
    let mut seen = vec![false; if_true.len()];
    let mut level = roots.to_vec();
    level.sort_unstable();
    level.dedup();
    let mut depth = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        for node in level {
            let place = usize::try_from(node).ok().filter(|&place| place < seen.len());
            let place = place.ok_or_else(|| Error::invalid(format!("there is no root {node}")))?;
            if std::mem::replace(&mut seen[place], true) {
                return Err(Error::invalid(format!("the node {node} is the child of several nodes")));
            }
            let mut children = vec![if_true[place], if_false[place]];
            children.dedup();
            next.extend(children.into_iter().filter(|&child| child < seen.len() as i64));
        }
        level = next;
        depth += 1;
    }
    Ok(depth)
}

/// The sets of the nodes that look for members: for each node its row, and a table of members, filled up with NaN.
fn sets(call: &Call<'_>, modes: &[i64], leaves: usize, dtype: DType) -> Result<Option<(Tensor, Tensor)>> {
    let Some(members) = call.tensor_attribute("membership_values")? else { return Ok(None) };
    let members = floats(members.tensor()?)?;
    let count = modes.iter().filter(|&&mode| mode == BRANCH_MEMBER).count();
    let sets: Vec<&[f64]> = members.split(|member| member.is_nan()).take(count).collect();
    if sets.len() < count {
        return Err(Error::invalid(format!("membership_values has {} sets for {count} nodes", sets.len())));
    }
    let longest = sets.iter().map(|set| set.len()).max().unwrap_or(0).max(1);
    if count.checked_mul(longest).is_none_or(|size| size > MEMBERS) {
        return Err(Error::unsupported(format!("{count} sets of up to {longest} members")));
    }
    let filled = |set: &&[f64]| {
        set.iter().copied().chain(std::iter::repeat(f64::NAN)).take(longest).collect::<Vec<_>>()
    };
    let values: Vec<f64> = sets.iter().flat_map(filled).collect();
    let mut rows = 0..count as i64;
    let row = |&mode: &i64| if mode == BRANCH_MEMBER { rows.next().unwrap_or(0) } else { 0 };
    let rows = table(modes.iter().map(row).collect(), leaves, call.device)?;
    let values = Tensor::from_slice(&values, &[count, longest], Device::find("cpu")?)?;
    Ok(Some((rows, values.to_dtype(dtype)?.to_device(call.device)?)))
}
