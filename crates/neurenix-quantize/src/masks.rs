//! Masks before `Softmax`: numbers far beyond those that they are added to or chosen instead of.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use neurenix_onnx::{
    Element,
    edit::{Links, Network, ValueType},
    proto::NodeProto,
};

use crate::{Result, Sample, calibrate::Probe, prepare::floats, scheme::Range};

/// Operators whose result has numbers of all operands.
const JOINS: [&str; 5] = ["Add", "Sub", "Where", "Min", "Max"];

/// Operators between a mask and `Softmax`, apart from [`JOINS`].
const PASSES: [&str; 14] = [
    "Mul",
    "Div",
    "Neg",
    "Clip",
    "Reshape",
    "Transpose",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Expand",
    "Gather",
    "Concat",
    "Identity",
];

/// An operand is a mask if it is this many times as large as another: of 255 steps, 16 would be left for that one.
const BEYOND: f64 = 16.0;

/// The nodes between masks and `Softmax` or `LogSoftmax`, both ends included, with reasons why they stay float: a
/// scheme that reaches to a mask of -10000 has no steps for what remains, and none reaches to an infinite one.
///
/// # Errors
/// If the network cannot compute a sample, or a stored tensor is not valid.
pub(crate) fn masked(
    network: &Network,
    types: &HashMap<String, ValueType>,
    samples: &[Sample],
) -> Result<Vec<(String, String)>> {
    let links = network.links();
    let is_float = |name: &String| match network.stored(name) {
        Some(tensor) => tensor.data_type == Element::Float as i32,
        None => types.get(name).is_some_and(|known| known.element == Element::Float),
    };
    let before = before_softmax(network, &links, &is_float);
    if !before.values().any(|node| JOINS.contains(&node.op_type.as_str())) {
        return Ok(Vec::new());
    }
    let values = before.values().flat_map(|node| node.input.iter().chain(&node.output));
    let values: BTreeSet<&String> = values.filter(|name| is_float(name)).collect();
    let extents = extents(network, values, samples)?;
    let mut kept: BTreeMap<usize, String> = BTreeMap::new();
    for (&at, node) in &before {
        kept.extend(reason(network, node, &extents).map(|reason| (at, reason)));
    }
    loop {
        let is_kept = |name: &String| links.maker.get(name).is_some_and(|maker| kept.contains_key(maker));
        let behind =
            |(at, node): &(&usize, &&NodeProto)| !kept.contains_key(at) && node.input.iter().any(&is_kept);
        let found: Vec<usize> = before.iter().filter(behind).map(|(&at, _)| at).collect();
        if found.is_empty() {
            break;
        }
        let reason =
            "it reads masked numbers, and a scheme that reaches to the mask has no steps for the others";
        kept.extend(found.into_iter().map(|at| (at, reason.to_owned())));
    }
    let named = |(at, reason): (usize, String)| Some((network.graph.node.get(at)?.name.clone(), reason));
    Ok(kept.into_iter().filter_map(named).collect())
}

/// The nodes that end in `Softmax` or `LogSoftmax`, by position, through operators that keep or shift numbers.
fn before_softmax<'n>(
    network: &'n Network,
    links: &Links,
    is_float: &dyn Fn(&String) -> bool,
) -> BTreeMap<usize, &'n NodeProto> {
    let is_own = |node: &NodeProto| node.domain.is_empty() || node.domain == "ai.onnx";
    let ends = network.graph.node.iter().enumerate();
    let ends = ends.filter(|(_, node)| is_own(node) && ["Softmax", "LogSoftmax"].contains(&&*node.op_type));
    let mut found: BTreeMap<usize, &NodeProto> = ends.collect();
    let mut next: Vec<&NodeProto> = found.values().copied().collect();
    while let Some(node) = next.pop() {
        for name in node.input.iter().filter(|name| is_float(name)) {
            let Some(&at) = links.maker.get(name) else { continue };
            let Some(maker) = network.graph.node.get(at).filter(|maker| is_own(maker)) else { continue };
            let operator = maker.op_type.as_str();
            let leads = JOINS.contains(&operator) || PASSES.contains(&operator);
            if leads && found.insert(at, maker).is_none() {
                next.push(maker);
            }
        }
    }
    found
}

/// How large the numbers of a value are.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// The greatest finite magnitude.
    magnitude: f64,
    is_infinite: bool,
}

impl Extent {
    fn add(&mut self, numbers: &[f32]) {
        let finite: Vec<f32> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
        self.magnitude = self.magnitude.max(Range::of(&finite).magnitude());
        self.is_infinite |= numbers.iter().any(|x| x.is_infinite());
    }
}

/// The extent of each of these values.
fn extents<'v>(
    network: &Network,
    values: BTreeSet<&'v String>,
    samples: &[Sample],
) -> Result<HashMap<&'v String, Extent>> {
    let mut extents: HashMap<&String, Extent> = HashMap::new();
    let mut computed = Vec::new();
    for name in values {
        match floats(network, Some(name))? {
            Some((_, numbers)) => extents.entry(name).or_default().add(&numbers),
            None => computed.push(name),
        }
    }
    let probe = Probe::new(network, &computed.iter().map(|&name| name.clone()).collect::<Vec<_>>())?;
    for sample in samples {
        for (name, numbers) in computed.iter().zip(probe.run(sample)?) {
            extents.entry(name).or_default().add(&numbers);
        }
    }
    Ok(extents)
}

/// Why a node that makes or applies a mask stays float; `None` for others.
fn reason(network: &Network, node: &NodeProto, extents: &HashMap<&String, Extent>) -> Option<String> {
    let known = |name: &String| extents.get(name).copied();
    if node.input.iter().chain(&node.output).filter_map(known).any(|extent| extent.is_infinite) {
        return Some("its numbers are infinite in places, as those of masks are".to_owned());
    }
    if !JOINS.contains(&node.op_type.as_str()) {
        return None;
    }
    // A stored number that is small, such as an epsilon, loses nothing that the samples tell.
    let computed = node.input.iter().filter(|name| network.stored(name).is_none()).filter_map(known);
    let least = computed.map(|extent| extent.magnitude).filter(|&magnitude| magnitude > 0.0);
    let least = least.min_by(f64::total_cmp)?;
    let greatest = node.input.iter().filter_map(known).map(|extent| extent.magnitude).fold(0.0, f64::max);
    let ratio = greatest / least;
    (ratio >= BEYOND).then(|| {
        format!(
            "an operand is {ratio:.0} times as large as another, as masks are, and would leave it no steps"
        )
    })
}
