//! Normalisations, attention, recurrent layers, losses, classical models and strings.

use super::{
    Size,
    elementwise::{same, shape},
    fact::Known,
    site::{Rows, Site, one, product, tensor},
};
use crate::{Element, Result};

pub(super) const ROWS: Rows = &[
    ("Attention", attention),
    ("BatchNormalization", batch_normalization),
    ("GRU", recurrent),
    ("GroupNormalization", same),
    ("InstanceNormalization", same),
    ("LRN", same),
    ("LSTM", recurrent),
    ("LayerNormalization", layer_normalization),
    ("LinearAttention", linear_attention),
    ("LpNormalization", same),
    ("MeanVarianceNormalization", same),
    ("NegativeLogLikelihoodLoss", loss),
    ("RMSNormalization", |site| one(site.element(1), shape(site))),
    ("RNN", recurrent),
    ("RegexFullMatch", |site| one(Some(Element::Bool), shape(site))),
    ("RotaryEmbedding", same),
    ("SoftmaxCrossEntropyLoss", |site| {
        let mut results = loss(site)?;
        results.push(tensor(site.element(0), shape(site)));
        Ok(results)
    }),
    ("StringConcat", |site| one(Some(Element::String), site.broadcast_inputs(0..2)?)),
    ("StringNormalizer", |site| {
        let outer = shape(site).filter(|sizes| !sizes.is_empty());
        let with_words = |mut sizes: Vec<Size>| {
            sizes.pop();
            sizes.push(site.fresh());
            sizes
        };
        one(Some(Element::String), outer.map(with_words))
    }),
    ("StringSplit", |site| {
        let parts = shape(site).map(|sizes| sizes.into_iter().chain([site.fresh()]).collect());
        Ok(vec![tensor(Some(Element::String), parts), tensor(Some(Element::Int64), shape(site))])
    }),
    ("TfIdfVectorizer", |site| {
        let width = site
            .ints("ngram_indexes")
            .and_then(|all| all.iter().max().copied())
            .map(|most| most.saturating_add(1));
        let outer = shape(site).map(|sizes| if sizes.len() == 2 { sizes[..1].to_vec() } else { Vec::new() });
        one(
            Some(Element::Float),
            outer.map(|outer| outer.into_iter().chain([Size::number(width.unwrap_or(0))]).collect()),
        )
    }),
    ("ai.onnx.ml.ArrayFeatureExtractor", |site| {
        let chosen = site.or_fresh(site.shape(1).and_then(product));
        let features = |sizes: Vec<Size>| match sizes.split_last() {
            Some((_, [])) | None => vec![Size::number(1), chosen.clone()],
            Some((_, outer)) => [outer, std::slice::from_ref(&chosen)].concat(),
        };
        one(site.element(0), shape(site).map(features))
    }),
    ("ai.onnx.ml.Binarizer", same),
    ("ai.onnx.ml.Imputer", same),
    ("ai.onnx.ml.LabelEncoder", |site| one(labels(site), shape(site))),
    ("ai.onnx.ml.LinearRegressor", |site| scores(site, Some(Element::Float), "targets", 1)),
    ("ai.onnx.ml.Normalizer", |site| one(Some(Element::Float), shape(site))),
    ("ai.onnx.ml.Scaler", |site| one(Some(Element::Float), shape(site))),
    ("ai.onnx.ml.TreeEnsemble", |site| scores(site, site.element(0), "n_targets", 0)),
    ("ai.onnx.preview.FlexAttention", |site| {
        let shape = match (site.of_rank(0, 4)?, site.of_rank(2, 4)?) {
            (Some(query), Some(value)) => Some([&query[..3], &value[3..]].concat()),
            _ => None,
        };
        one(site.element(0), shape)
    }),
    ("ai.onnx.preview.training.Adagrad", |site| optimised(site, 1)),
    ("ai.onnx.preview.training.Adam", |site| optimised(site, 2)),
    ("ai.onnx.preview.training.Momentum", |site| optimised(site, 1)),
];

fn attention(site: &Site<'_>) -> Result<Vec<Known>> {
    // As (batch, heads, positions, size).
    let with_heads = |input: usize, name: &str| {
        let sizes = site.shape(input)?;
        let heads = Size::number(site.int_or(name, 0));
        Some(match sizes {
            [batch, positions, features] => {
                vec![batch.clone(), heads.clone(), positions.clone(), site.or_fresh(features.over(&heads))]
            }
            [_, _, _, _] => sizes.to_vec(),
            _ => return None,
        })
    };
    let (query, key, value) =
        (with_heads(0, "q_num_heads"), with_heads(1, "kv_num_heads"), with_heads(2, "kv_num_heads"));
    // With the past before it.
    let present = |sizes: Option<Vec<Size>>, past: usize| {
        let mut sizes = sizes?;
        if site.has(past) {
            let before =
                site.shape(past).and_then(|past| past.get(2)).and_then(|before| before.plus(&sizes[2]));
            sizes[2] = site.or_fresh(before);
        }
        Some(sizes)
    };
    let (key, value) = (present(key, 4), present(value, 5));
    let output = match (&query, &value) {
        (Some(query), Some(value)) => Some(match site.rank(0) {
            Some(3) => {
                let features = query[1].times(&value[3]);
                vec![query[0].clone(), query[2].clone(), site.or_fresh(features)]
            }
            _ => vec![query[0].clone(), query[1].clone(), query[2].clone(), value[3].clone()],
        }),
        _ => None,
    };
    let products = match (&query, &key) {
        (Some(query), Some(key)) => Some([&query[..3], &key[2..3]].concat()),
        _ => None,
    };
    let element = |input: usize| site.element(input);
    Ok(vec![
        tensor(element(0), output),
        tensor(element(1), key),
        tensor(element(2), value),
        tensor(element(0), products),
    ])
}

fn linear_attention(site: &Site<'_>) -> Result<Vec<Known>> {
    let (query_heads, heads) = (site.int_or("q_num_heads", 0), site.int_or("kv_num_heads", 0));
    let (query_heads, heads) = (Size::number(query_heads), Size::number(heads));
    let (Some([batch, steps, features]), Some([_, _, values])) = (site.of_rank(0, 3)?, site.of_rank(2, 3)?)
    else {
        return Ok(vec![tensor(site.element(0), None), tensor(site.element(0), None)]);
    };
    let (size, value_size) = (site.or_fresh(features.over(&query_heads)), site.or_fresh(values.over(&heads)));
    let output = vec![batch.clone(), steps.clone(), site.or_fresh(query_heads.times(&value_size))];
    let state = vec![batch.clone(), heads, size, value_size];
    let element = if site.has(3) { site.element(3) } else { site.element(0) };
    Ok(vec![tensor(site.element(0), Some(output)), tensor(element, Some(state))])
}

fn batch_normalization(site: &Site<'_>) -> Result<Vec<Known>> {
    if let (Some([_, channels, ..]), Some([scale])) = (site.shape(0), site.shape(1))
        && site.int_or("spatial", 1) != 0
    {
        site.same(channels, scale, "the channels and the scales")?;
    }
    let like = |input: usize| tensor(site.element(input), site.shape(input).map(<[Size]>::to_vec));
    Ok(vec![tensor(site.element(0), shape(site)), like(3), like(4), like(3), like(4)])
}

fn layer_normalization(site: &Site<'_>) -> Result<Vec<Known>> {
    let statistics = match site.shape(0) {
        None => None,
        Some(sizes) => {
            let axis = site.axis(site.int_or("axis", -1), sizes.len())?;
            let size = |(at, size): (usize, &Size)| if at < axis { size.clone() } else { Size::number(1) };
            Some(sizes.iter().enumerate().map(size).collect::<Vec<_>>())
        }
    };
    let stash = Some(site.element_attribute("stash_type").unwrap_or(Element::Float));
    Ok(vec![
        tensor(site.element(0), shape(site)),
        tensor(stash, statistics.clone()),
        tensor(stash, statistics),
    ])
}

fn recurrent(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let batch_first = site.int_or("layout", 0) != 0;
    let (steps, batch) = match site.of_rank(0, 3)? {
        Some([batch, steps, _]) if batch_first => (steps.clone(), batch.clone()),
        Some([steps, batch, _]) => (steps.clone(), batch.clone()),
        _ => (site.fresh(), site.fresh()),
    };
    let declared = site.int("hidden_size").map(Size::number);
    let units = site.of_rank(2, 3)?.map(|recurrence| recurrence[2].clone()).or(declared);
    let units = site.or_fresh(units);
    let directions =
        Size::number(if site.text_or("direction", "forward") == "bidirectional" { 2 } else { 1 });
    let (output, state) = match batch_first {
        true => {
            (vec![batch.clone(), steps, directions.clone(), units.clone()], vec![batch, directions, units])
        }
        false => {
            (vec![steps, directions.clone(), batch.clone(), units.clone()], vec![directions, batch, units])
        }
    };
    Ok(vec![
        tensor(element, Some(output)),
        tensor(element, Some(state.clone())),
        tensor(element, Some(state)),
    ])
}

fn loss(site: &Site<'_>) -> Result<Vec<Known>> {
    let shape = match site.text_or("reduction", "mean") {
        "none" => site.shape(1).map(<[Size]>::to_vec),
        _ => Some(Vec::new()),
    };
    one(site.element(0), shape)
}

/// The element type of labels.
fn labels(site: &Site<'_>) -> Option<Element> {
    if site.texts("classes_strings").is_some() {
        let from_text = site.element(0)? == Element::String;
        return Some(if from_text { Element::Int64 } else { Element::String });
    }
    if let Some(values) = site.tensor_attribute("values_tensor") {
        return values.element();
    }
    let is_given = |given: Option<usize>| given.is_some_and(|count| count > 0);
    if is_given(site.texts("values_strings").map(<[String]>::len)) {
        Some(Element::String)
    } else if is_given(site.ints("values_int64s").map(<[i64]>::len)) {
        Some(Element::Int64)
    } else {
        Some(Element::Float)
    }
}

/// A number for each sample and target.
fn scores(site: &Site<'_>, element: Option<Element>, targets: &str, usual: i64) -> Result<Vec<Known>> {
    let samples = site.shape(0).and_then(<[Size]>::first).cloned();
    one(element, Some(vec![site.or_fresh(samples), Size::number(site.int_or(targets, usual))]))
}

/// Updated tensors have the types of the old ones: the weights, and lists of as many states after their gradients.
fn optimised(site: &Site<'_>, states: usize) -> Result<Vec<Known>> {
    let weights = site.count().saturating_sub(2) / (states + 2);
    let like = |input: usize| tensor(site.element(input), site.shape(input).map(<[Size]>::to_vec));
    let updated = (0..weights).map(|at| 2 + at);
    let kept = (0..states * weights).map(|at| 2 + 2 * weights + at);
    Ok(updated.chain(kept).map(like).collect())
}
