use proptest::{prelude::*, test_runner::RngSeed};

use super::*;

/// An expression as written, before simplification.
#[derive(Clone, Debug)]
enum Written {
    Constant(i64),
    Range(usize),
    Add(Box<Written>, Box<Written>),
    Sub(Box<Written>, Box<Written>),
    Scale(Box<Written>, i64),
    Quotient(Box<Written>, i64),
    Remainder(Box<Written>, i64),
}

impl Written {
    fn build(&self, ranges: &Ranges) -> Index {
        match self {
            Written::Constant(c) => Index::constant(*c),
            Written::Range(r) => Index::range(r % ranges.len(), ranges),
            Written::Add(a, b) => a.build(ranges).add(&b.build(ranges)),
            Written::Sub(a, b) => a.build(ranges).sub(&b.build(ranges)),
            Written::Scale(a, k) => a.build(ranges).scale(*k),
            Written::Quotient(a, k) => a.build(ranges).quotient(*k, ranges),
            Written::Remainder(a, k) => a.build(ranges).remainder(*k, ranges),
        }
    }

    fn evaluate(&self, point: &[usize]) -> i64 {
        match self {
            Written::Constant(c) => *c,
            Written::Range(r) => point[r % point.len()] as i64,
            Written::Add(a, b) => a.evaluate(point) + b.evaluate(point),
            Written::Sub(a, b) => a.evaluate(point) - b.evaluate(point),
            Written::Scale(a, k) => a.evaluate(point) * k,
            Written::Quotient(a, k) => a.evaluate(point).div_euclid(*k),
            Written::Remainder(a, k) => a.evaluate(point).rem_euclid(*k),
        }
    }
}

fn written() -> impl Strategy<Value = Written> {
    let leaf = prop_oneof![(-20i64..40).prop_map(Written::Constant), (0usize..4).prop_map(Written::Range)];
    let divisor = || prop_oneof![1i64..13, prop::sample::select(vec![16i64, 24, 36, 60])];
    leaf.prop_recursive(6, 40, 2, move |inner| {
        let inner = inner.prop_map(Box::new);
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Written::Add(a, b)),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Written::Sub(a, b)),
            2 => (inner.clone(), -7i64..13).prop_map(|(a, k)| Written::Scale(a, k)),
            2 => (inner.clone(), divisor()).prop_map(|(a, k)| Written::Quotient(a, k)),
            2 => (inner, divisor()).prop_map(|(a, k)| Written::Remainder(a, k)),
        ]
    })
}

fn extents() -> impl Strategy<Value = Ranges> {
    prop::collection::vec(1usize..9, 1..4).prop_map(|extents| Ranges::of(&extents))
}

/// Every point of the ranges, in row-major order.
pub(crate) fn points(ranges: &Ranges) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = ranges.0.iter().product();
    (0..count).map(|mut flat| {
        let mut point = vec![0; ranges.len()];
        for (p, &extent) in point.iter_mut().zip(&ranges.0).rev() {
            *p = flat % extent;
            flat /= extent;
        }
        point
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(6000) })]

    #[test]
    fn simplified_expressions_have_the_value_as_written(expression in written(), ranges in extents()) {
        let index = expression.build(&ranges);
        let (low, high) = index.bounds(&ranges);
        for point in points(&ranges) {
            let value = index.evaluate(&point);
            prop_assert_eq!(value, expression.evaluate(&point), "{} at {:?}", index, point);
            prop_assert!(low <= value && value <= high, "{} = {} outside {:?}", index, value, (low, high));
        }
    }

    #[test]
    fn terms_are_in_normal_form(expression in written(), ranges in extents()) {
        let index = expression.build(&ranges);
        prop_assert!(index.terms.windows(2).all(|t| t[0].atom < t[1].atom), "{}", index);
        prop_assert!(index.terms.iter().all(|t| t.factor != 0), "{}", index);
        prop_assert_eq!(&index.add(&Index::default()), &index);
        prop_assert_eq!(&index.sub(&index), &Index::default());
        let identity = ranges.coordinates();
        prop_assert_eq!(index.substitute(&identity, &ranges), index);
    }

    #[test]
    fn division_and_remainder_recombine(expression in written(), k in 1i64..30, ranges in extents()) {
        let x = expression.build(&ranges);
        let (quotient, remainder) = (x.quotient(k, &ranges), x.remainder(k, &ranges));
        let (low, high) = remainder.bounds(&ranges);
        prop_assert!(0 <= low && high < k);
        for point in points(&ranges) {
            prop_assert_eq!(
                quotient.scale(k).add(&remainder).evaluate(&point),
                x.evaluate(&point),
                "{} from {} and {}", x, quotient, remainder
            );
        }
    }

    #[test]
    fn substitution_is_composition(
        expression in written(),
        inner in prop::collection::vec(written(), 3),
        outer in extents(),
        ranges in extents(),
    ) {
        // Ranges are replaced by expressions with values in the range they replace.
        let replacements: Vec<Index> = (0..outer.len())
            .map(|i| inner[i].build(&ranges).remainder(outer.0[i] as i64, &ranges))
            .collect();
        let index = expression.build(&outer);
        let substituted = index.substitute(&replacements, &ranges);
        for point in points(&ranges) {
            let mapped: Vec<usize> = replacements.iter().map(|r| r.evaluate(&point) as usize).collect();
            prop_assert_eq!(substituted.evaluate(&point), index.evaluate(&mapped));
        }
    }

    /// Flattening after unflattening by a factorisation of a row-major tensor's size gives the original range, and
    /// unflattening a flattened index gives the original coordinates.
    #[test]
    fn flattening_undoes_unflattening(
        primes in prop::collection::vec(prop::sample::select(vec![2usize, 2, 3, 3, 5]), 0..6),
        cuts in prop::collection::vec(any::<bool>(), 5),
        other_cuts in prop::collection::vec(any::<bool>(), 5),
    ) {
        let group = |cuts: &[bool]| {
            let mut shape = vec![1usize];
            for (i, p) in primes.iter().enumerate() {
                if i > 0 && cuts[i - 1] { shape.push(1) }
                if let Some(last) = shape.last_mut() { *last *= p }
            }
            shape
        };
        let flatten = |shape: &[usize], coordinates: &[Index]| {
            shape.iter().zip(coordinates).fold(Index::default(), |f, (&n, c)| f.scale(n as i64).add(c))
        };
        let unflatten = |shape: &[usize], flat: &Index, ranges: &Ranges| -> Vec<Index> {
            let strides = crate::shape::contiguous_strides(shape);
            let one = |(&s, &n): (&isize, &usize)| flat.quotient(s as i64, ranges).remainder(n as i64, ranges);
            strides.iter().zip(shape).map(one).collect()
        };
        let (shape, other) = (group(&cuts), group(&other_cuts));
        let line = Ranges::of(&[primes.iter().product()]);
        let range = Index::range(0, &line);
        prop_assert_eq!(&flatten(&shape, &unflatten(&shape, &range, &line)), &range);

        let space = Ranges::of(&shape);
        let coordinates = space.coordinates();
        let flat = flatten(&shape, &coordinates);
        prop_assert_eq!(&unflatten(&shape, &flat, &space)[..], &coordinates[..]);
        // Through another shape and back.
        let through = unflatten(&other, &flat, &space);
        prop_assert_eq!(&flatten(&other, &through), &flat);
        prop_assert_eq!(&unflatten(&shape, &flatten(&other, &through), &space)[..], &coordinates[..]);
    }
}

fn shown(index: Index) -> String {
    index.to_string()
}

#[test]
fn divisions_by_a_factor_vanish() {
    let ranges = Ranges::of(&[4, 8, 1]);
    let (a, b) = (Index::range(0, &ranges), Index::range(1, &ranges));
    let flat = a.scale(8).add(&b);
    assert_eq!(flat.quotient(8, &ranges), a);
    assert_eq!(flat.remainder(8, &ranges), b);
    assert_eq!(Index::range(2, &ranges), Index::default());
    assert_eq!(shown(flat.quotient(16, &ranges)), "(r0)/2");
    assert_eq!(shown(flat.remainder(16, &ranges)), "r1 + (r0)%2*8");
    assert_eq!(shown(flat.quotient(4, &ranges)), "r0*2 + (r1)/4");
    assert_eq!(shown(b.quotient(2, &ranges).quotient(2, &ranges)), "(r1)/4");
    assert_eq!(shown(b.remainder(6, &ranges).quotient(2, &ranges)), "((r1)/2)%3");
    assert_eq!(shown(b.scale(6).shift(3).quotient(4, &ranges)), "r1 + (r1 + 1)/2");
}

#[test]
fn reversed_ranges_keep_their_sign() {
    let ranges = Ranges::of(&[8]);
    let reversed = Index::range(0, &ranges).scale(-1).shift(7);
    assert_eq!(reversed.quotient(8, &ranges), Index::default());
    assert_eq!(reversed.remainder(8, &ranges), reversed);
    // 7x + 7 is -(x + 1) modulo 8.
    assert_eq!(Index::range(0, &ranges).scale(7).shift(7).remainder(8, &ranges), reversed);
    assert_eq!(shown(reversed), "-r0 + 7");
}

#[test]
fn affine_expressions_have_strides() {
    let ranges = Ranges::of(&[4, 8]);
    let (a, b) = (Index::range(0, &ranges), Index::range(1, &ranges));
    let affine = a.scale(3).sub(&b).shift(5);
    assert_eq!(affine.strides(2), Some((5, SmallVec::from_slice(&[3, -1]))));
    assert_eq!(affine.strides(1), None);
    assert_eq!(b.quotient(2, &ranges).strides(2), None);
    assert!(b.quotient(2, &ranges).depends_on(1) && !b.quotient(2, &ranges).depends_on(0));
}
