//! The gradient of a convolution's input where the filter moves by several elements: an element belongs to windows at
//! every so many places only. Elements that have the same places are computed together, so that no product is with
//! nothing.

use super::{
    Lowered, Source, Target, Unsupported,
    contraction::{Contraction, Product},
    library::has_channels_last,
    lower_fused, lower_product,
    rebuild::Rebuild,
};
use crate::{
    Scalar,
    kernel::{fused::Fusion, step::Library},
    op::{Conv, ConvKind, Geometry, Op},
};

/// The most groups of elements: each is a launch.
const MOST: usize = 8;

/// The geometry of such a gradient.
pub(super) fn geometry(op: &Op) -> Option<&Geometry> {
    let Op::Conv(Conv(ConvKind::InputGradient, geometry)) = op else { return None };
    let groups: usize = geometry.stride.iter().product();
    (groups > 1 && groups <= MOST && geometry.dilation.iter().all(|&d| d == 1)).then_some(geometry)
}

/// Lowers the gradient: the operation, its specification and the product that this sums.
pub(super) fn lower(
    library: &Library,
    (fused, product): (&Fusion, Product),
    geometry: &Geometry,
    sources: &[Source],
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let taps = fused.rows.len() + usize::from(!has_channels_last(library));
    let groups = 0..geometry.stride.iter().product();
    let parts: Vec<_> = groups.map(|group| part(fused, product, geometry, sources, taps, group)).collect();
    // Tiles do not round products, other kernels do: all elements are computed in one way.
    let is_tiled = |(part, product): &(Rebuild, Option<Product>)| {
        let fused = &part.draft.fused;
        product.is_none_or(|product| fused.row_count() == 0 || Contraction::of(fused, product).is_some())
    };
    if !parts.iter().all(is_tiled) {
        return lower_product(fused, product, sources, target, true, lowered);
    }
    for (part, product) in parts {
        let (fused, sources) = (&part.draft.fused, &part.sources);
        match product {
            Some(product) => lower_product(fused, product, sources, target, true, lowered)?,
            None => lower_fused(fused, sources, target, lowered)?,
        }
    }
    Ok(())
}

/// The specification of a group of elements, and the product that it sums, if it has terms. `taps` is the first range of
/// the filter's extents.
fn part<'a>(
    fused: &'a Fusion,
    product: Product,
    geometry: &Geometry,
    sources: &'a [Source],
    taps: usize,
    group: usize,
) -> (Rebuild<'a>, Option<Product>) {
    let (rank, spatial) = (fused.rows.len(), geometry.stride.len());
    let (mut rows, mut columns) = (fused.rows.to_vec(), fused.columns.to_vec());
    let mut first = vec![0; rank + fused.columns.len()];
    let mut rest = group;
    for d in 0..spatial {
        let (stride, row, tap) = (geometry.stride[d], rank - spatial + d, taps + d);
        first[row] = rest % stride;
        first[tap] = (first[row] + geometry.padding[d].0) % stride;
        rest /= stride;
        let remaining = |extent: usize, first: usize| extent.saturating_sub(first).div_ceil(stride);
        rows[row] = remaining(rows[row], first[row]);
        columns[tap - rank] = remaining(columns[tap - rank], first[tap]);
    }
    let has_terms = columns.iter().all(|&extent| extent > 0);
    let mut part = Rebuild::new(fused, sources, &rows, if has_terms { &columns } else { &[] });
    for d in 0..spatial {
        for range in [rank - spatial + d, taps + d] {
            if let Some(at) = part.at.get_mut(range) {
                *at = at.scale(geometry.stride[d] as i64).shift(first[range] as i64);
            }
        }
    }
    if !has_terms {
        let dtype = fused.instructions[product.sum as usize].dtype;
        let nothing = part.draft.constant(dtype, Scalar::Int(0));
        part.values.insert(product.sum, nothing);
        part.add_stores(|_| true);
        return (part, None);
    }
    part.add_stores(|_| true);
    let [sum, left, right] =
        [product.sum, product.factors[0], product.factors[1]].map(|value| part.value(value));
    (part, Some(Product { sum, factors: [left, right], summed_steps: None, part: None }))
}
