//! Convolutions, pools and products.

use super::{
    Size,
    elementwise::shape,
    fact::Known,
    site::{Rows, Site, one, product, shown, tensor},
};
use crate::{Element, Error, Result};

pub(super) const ROWS: Rows = &[
    ("AveragePool", pool),
    ("CausalConvWithState", causal_conv_with_state),
    ("Conv", |site| convolution(site, 0, 1, site.element(0))),
    ("ConvInteger", |site| convolution(site, 0, 1, Some(Element::Int32))),
    ("ConvTranspose", conv_transpose),
    ("DeformConv", |site| convolution(site, 0, 1, site.element(0))),
    ("Det", |site| {
        let outer = shape(site).map(|sizes| sizes[..sizes.len().saturating_sub(2)].to_vec());
        one(site.element(0), outer)
    }),
    ("Einsum", einsum),
    ("Gemm", gemm),
    ("GlobalAveragePool", global),
    ("GlobalLpPool", global),
    ("GlobalMaxPool", global),
    ("LpPool", pool),
    ("MatMul", |site| matmul(site, 0, 1, site.element(0))),
    ("MatMulInteger", |site| matmul(site, 0, 1, Some(Element::Int32))),
    ("MaxPool", |site| {
        let mut values = pool(site)?;
        let indices = values.first().and_then(Known::fact).and_then(|fact| fact.shape.clone());
        values.push(tensor(Some(Element::Int64), indices));
        Ok(values)
    }),
    ("MaxRoiPool", |site| regions(site, site.ints("pooled_shape").map(<[i64]>::to_vec))),
    ("MaxUnpool", max_unpool),
    ("QLinearConv", |site| convolution(site, 0, 3, site.element(7))),
    ("QLinearMatMul", |site| matmul(site, 0, 3, site.element(7))),
    ("RoiAlign", |site| {
        regions(site, Some(vec![site.int_or("output_height", 1), site.int_or("output_width", 1)]))
    }),
];

/// Numbers of an attribute for each spatial axis.
fn each(site: &Site<'_>, name: &str, count: usize, default: i64) -> Result<Vec<i64>> {
    match site.ints(name).filter(|all| !all.is_empty()) {
        None => Ok(vec![default; count]),
        Some(all) if all.len() == count => Ok(all.to_vec()),
        Some(all) => Err(Error::invalid(format!("{name} must be {count} numbers, got {all:?}"))),
    }
}

/// The extents that windows over these sizes give.
fn slid(site: &Site<'_>, sizes: &[Size], kernel: &[Size]) -> Result<Vec<Size>> {
    let count = sizes.len();
    if kernel.len() != count {
        return Err(Error::invalid(format!(
            "a kernel {} does not fit the spatial sizes {}",
            shown(kernel),
            shown(sizes)
        )));
    }
    let (strides, dilations) = (each(site, "strides", count, 1)?, each(site, "dilations", count, 1)?);
    let pads = each(site, "pads", 2 * count, 0)?;
    let mode = site.text_or("auto_pad", "NOTSET");
    let is_ceil = site.int_or("ceil_mode", 0) != 0;
    let window = |axis: usize| -> Result<Option<Size>> {
        let (size, stride) = (&sizes[axis], Size::number(strides[axis].max(1)));
        if matches!(mode, "SAME_UPPER" | "SAME_LOWER") {
            return Ok(size.over_up(&stride));
        }
        let (before, after) = if mode == "VALID" { (0, 0) } else { (pads[axis], pads[count + axis]) };
        let one = Size::number(1);
        let span = kernel[axis].minus(&one).and_then(|gaps| gaps.times(&Size::number(dilations[axis])));
        let Some(span) = span.and_then(|span| span.plus(&one)) else { return Ok(None) };
        let begun = size.plus(&Size::number(before));
        let padded = begun.as_ref().and_then(|begun| begun.plus(&Size::number(after)));
        let Some(rest) = padded.and_then(|padded| padded.minus(&span)) else { return Ok(None) };
        let steps = if is_ceil { rest.over_up(&stride) } else { rest.over(&stride) };
        let Some(outputs) = steps.and_then(|steps| steps.plus(&one)) else { return Ok(None) };
        // Windows that begin in the padding at the end are left out.
        let (Some(number), true) = (outputs.as_number(), is_ceil) else {
            let is_clear = !is_ceil || strides[axis] == 1;
            if outputs.as_number().is_some_and(|number| number < 1) {
                return Err(Error::invalid(format!(
                    "a window of {span} elements does not fit {size} elements padded by {before} and {after}"
                )));
            }
            return Ok(is_clear.then_some(outputs));
        };
        let begun = begun.and_then(|begun| begun.as_number()).unwrap_or(i64::MAX);
        let is_beyond = number > 0 && (number - 1).saturating_mul(strides[axis].max(1)) >= begun;
        Ok(Some(Size::number(number - i64::from(is_beyond))))
    };
    (0..count).map(|axis| window(axis).map(|size| site.or_fresh(size))).collect()
}

/// A convolution of an input with a weight.
fn convolution(site: &Site<'_>, input: usize, weight: usize, element: Option<Element>) -> Result<Vec<Known>> {
    let (x, w) = (site.shape(input), site.shape(weight));
    let rank = x.or(w).map(<[Size]>::len);
    let Some(rank) = rank else { return one(element, None) };
    if rank < 3 {
        let given = shown(x.or(w).unwrap_or_default());
        return Err(Error::invalid(format!("expected a shape [N, C, spatial..], got {given}")));
    }
    if let (Some(x), Some(w)) = (x, w) {
        if x.len() != w.len() {
            return Err(Error::invalid(format!(
                "the weight {} does not fit the input {}",
                shown(w),
                shown(x)
            )));
        }
        let needed = w[1].times(&Size::number(site.int_or("group", 1)));
        if let Some(needed) = needed {
            site.same(&x[1], &needed, "the input's channels and those that the weight needs")?;
        }
    }
    let batch = x.map_or_else(|| site.fresh(), |x| x[0].clone());
    let filters = w.map_or_else(|| site.fresh(), |w| w[0].clone());
    let kernel = match (w, site.ints("kernel_shape").filter(|kernel| !kernel.is_empty())) {
        (Some(w), _) => Some(w[2..].to_vec()),
        (None, Some(kernel)) => Some(kernel.iter().map(|&size| Size::number(size)).collect()),
        (None, None) => None,
    };
    let spatial = match (x, kernel) {
        (Some(x), Some(kernel)) => slid(site, &x[2..], &kernel)?,
        _ => site.unknown(rank - 2),
    };
    one(element, Some([vec![batch, filters], spatial].concat()))
}

fn pool(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some([batch, channels, spatial @ ..]) = site.shape(0) else { return one(site.element(0), None) };
    let kernel: Vec<Size> =
        each(site, "kernel_shape", spatial.len(), 1)?.into_iter().map(Size::number).collect();
    let spatial = slid(site, spatial, &kernel)?;
    one(site.element(0), Some([vec![batch.clone(), channels.clone()], spatial].concat()))
}

fn global(site: &Site<'_>) -> Result<Vec<Known>> {
    let ones = |(axis, size): (usize, &Size)| if axis < 2 { size.clone() } else { Size::number(1) };
    one(site.element(0), site.shape(0).map(|sizes| sizes.iter().enumerate().map(ones).collect()))
}

fn conv_transpose(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let (Some([batch, channels, sizes @ ..]), Some([inputs, filters, kernel @ ..])) =
        (site.shape(0), site.shape(1))
    else {
        return one(element, None);
    };
    site.same(channels, inputs, "the input's channels and those of the weight")?;
    let count = sizes.len();
    if kernel.len() != count {
        return Err(Error::invalid(format!(
            "a kernel {} does not fit the spatial sizes {}",
            shown(kernel),
            shown(sizes)
        )));
    }
    let filters = site.or_fresh(filters.times(&Size::number(site.int_or("group", 1))));
    let (strides, dilations) = (each(site, "strides", count, 1)?, each(site, "dilations", count, 1)?);
    let (pads, extras) = (each(site, "pads", 2 * count, 0)?, each(site, "output_padding", count, 0)?);
    let mode = site.text_or("auto_pad", "NOTSET");
    let spatial: Vec<Size> = match site.ints("output_shape").filter(|all| !all.is_empty()) {
        Some(target) if target.len() == count => target.iter().map(|&size| Size::number(size)).collect(),
        Some(target) => {
            return Err(Error::invalid(format!("output_shape must be {count} numbers, got {target:?}")));
        }
        None => {
            let extent = |axis: usize| {
                let stride = Size::number(strides[axis]);
                if matches!(mode, "SAME_UPPER" | "SAME_LOWER") {
                    return sizes[axis].times(&stride);
                }
                let one = Size::number(1);
                let span = kernel[axis].minus(&one)?.times(&Size::number(dilations[axis]))?.plus(&one)?;
                let padding = if mode == "VALID" { 0 } else { pads[axis].checked_add(pads[count + axis])? };
                let full = sizes[axis].minus(&one)?.times(&stride)?.plus(&span)?;
                full.plus(&Size::number(extras[axis].checked_sub(padding)?))
            };
            (0..count).map(|axis| site.or_fresh(extent(axis))).collect()
        }
    };
    one(element, Some([vec![batch.clone(), filters], spatial].concat()))
}

fn causal_conv_with_state(site: &Site<'_>) -> Result<Vec<Known>> {
    let (x, weight) = (site.of_rank(0, 3)?, site.of_rank(1, 3)?);
    let kernel = weight.and_then(|weight| weight[2].minus(&Size::number(1)));
    let state = x.map(|x| vec![x[0].clone(), x[1].clone(), site.or_fresh(kernel)]);
    Ok(vec![tensor(site.element(0), shape(site)), tensor(site.element(0), state)])
}

fn gemm(site: &Site<'_>) -> Result<Vec<Known>> {
    let matrix = |input: usize, name: &str| -> Result<[Size; 2]> {
        Ok(match site.of_rank(input, 2)? {
            Some([rows, columns]) if site.int_or(name, 0) != 0 => [columns.clone(), rows.clone()],
            Some([rows, columns]) => [rows.clone(), columns.clone()],
            _ => [site.fresh(), site.fresh()],
        })
    };
    let ([rows, inner], [other, columns]) = (matrix(0, "transA")?, matrix(1, "transB")?);
    site.same(&inner, &other, "the columns of the first matrix and the rows of the second")?;
    let result = vec![rows, columns];
    if site.shape(2).is_some() {
        site.broadcast(&[Some(&result), site.shape(2)])?;
    }
    one(site.element(0), Some(result))
}

/// The product of two inputs, as NumPy's `matmul`.
fn matmul(site: &Site<'_>, a: usize, b: usize, element: Option<Element>) -> Result<Vec<Known>> {
    let (Some(a), Some(b)) = (site.shape(a), site.shape(b)) else { return one(element, None) };
    let (Some(inner), Some(_)) = (a.last(), b.last()) else {
        return Err(Error::invalid("a scalar cannot be multiplied as a matrix"));
    };
    let (other, columns) = match b {
        [only] => (only, None),
        [.., rows, columns] => (rows, Some(columns)),
        [] => (inner, None),
    };
    if inner.contradicts(other) {
        return Err(Error::invalid(format!(
            "the shapes {} and {} cannot be multiplied: {inner} and {other} differ",
            shown(a),
            shown(b)
        )));
    }
    let outer = |shape: &[Size]| shape[..shape.len().saturating_sub(2)].to_vec();
    let batch = site.broadcast(&[Some(&outer(a)), Some(&outer(b))])?;
    let rows = a.len().checked_sub(2).map(|place| a[place].clone());
    one(element, batch.map(|batch| batch.into_iter().chain(rows).chain(columns.cloned()).collect()))
}

fn einsum(site: &Site<'_>) -> Result<Vec<Known>> {
    let equation: String = site.text_or("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result.to_owned())),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = terms.split(',').collect();
    let mut sizes: Vec<(char, Size)> = Vec::new();
    let mut outer: Vec<Vec<Size>> = Vec::new();
    for (input, term) in terms.iter().enumerate() {
        let Some(shape) = site.shape(input) else { return one(site.element(0), None) };
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let (before, after): (Vec<char>, Vec<char>) = (before.chars().collect(), after.chars().collect());
        let middle = shape.len().checked_sub(before.len() + after.len());
        let Some(middle) = middle.filter(|&middle| middle == 0 || term.contains("...")) else {
            return Err(Error::invalid(format!("{term:?} does not fit the shape {}", shown(shape))));
        };
        let (front, rest) = shape.split_at(before.len());
        let (inner, back) = rest.split_at(middle);
        outer.push(inner.to_vec());
        for (&letter, size) in before.iter().zip(front).chain(after.iter().zip(back)) {
            match sizes.iter_mut().find(|(known, _)| *known == letter) {
                Some((_, known)) if known.as_number() == Some(1) => *known = size.clone(),
                Some(_) if size.as_number() == Some(1) => {}
                Some((_, known)) => *known = site.same(known, size, &format!("the sizes of {letter:?}"))?,
                None => sizes.push((letter, size.clone())),
            }
        }
    }
    let outer =
        site.broadcast(&outer.iter().map(|shape| Some(&shape[..])).collect::<Vec<_>>())?.unwrap_or_default();
    let result = result.unwrap_or_else(|| {
        let all: String = terms.concat().replace("...", "");
        let mut once: Vec<char> = all.chars().filter(|c| all.matches(*c).count() == 1).collect();
        once.sort_unstable();
        let dots = if terms.iter().any(|term| term.contains("...")) { "..." } else { "" };
        dots.to_owned() + &once.into_iter().collect::<String>()
    });
    let mut shape = Vec::new();
    let mut dots = 0;
    for letter in result.chars() {
        match letter {
            '.' => {
                if dots == 0 {
                    shape.extend(outer.iter().cloned());
                }
                dots += 1;
            }
            letter => match sizes.iter().find(|(known, _)| *known == letter) {
                Some((_, size)) => shape.push(size.clone()),
                None => {
                    return Err(Error::invalid(format!(
                        "no input has the letter {letter:?} of the equation"
                    )));
                }
            },
        }
    }
    one(site.element(0), Some(shape))
}

/// Pools over regions: one image of this size for each.
fn regions(site: &Site<'_>, size: Option<Vec<i64>>) -> Result<Vec<Known>> {
    let count = site.shape(1).and_then(|shape| shape.first()).cloned();
    let channels = site.shape(0).and_then(|shape| shape.get(1)).cloned();
    let size = size.map(|all| all.into_iter().map(Size::number).collect());
    let size: Vec<Size> = size.unwrap_or_else(|| site.unknown(2));
    one(site.element(0), Some([vec![site.or_fresh(count), site.or_fresh(channels)], size].concat()))
}

fn max_unpool(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some([batch, channels, sizes @ ..]) = site.shape(0) else { return one(site.element(0), None) };
    let count = sizes.len();
    if site.has(2) {
        let target = site.numbers(2).filter(|target| target.len() == count + 2);
        return one(site.element(0), Some(target.unwrap_or_else(|| site.unknown(count + 2))));
    }
    let (kernel, strides) = (each(site, "kernel_shape", count, 1)?, each(site, "strides", count, 1)?);
    let pads = each(site, "pads", 2 * count, 0)?;
    let extent = |axis: usize| {
        let full = sizes[axis].minus(&Size::number(1))?.times(&Size::number(strides[axis]))?;
        let more = kernel[axis].checked_sub(pads[axis])?.checked_sub(pads[count + axis])?;
        full.plus(&Size::number(more))
    };
    let spatial: Vec<Size> = (0..count).map(|axis| site.or_fresh(extent(axis))).collect();
    one(site.element(0), Some([vec![batch.clone(), channels.clone()], spatial].concat()))
}

/// The number of elements of some axes.
pub(super) fn merged(site: &Site<'_>, sizes: &[Size]) -> Size {
    site.or_fresh(product(sizes))
}
