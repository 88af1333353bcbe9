//! Attention and its gradient, whose kernels hold no matrix of scores.

use phynexus::{
    DType, Scalar,
    op::{
        Composite, Op, Permute,
        composite::{Attention, AttentionGradient},
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    oracle::{Interval, Number},
};

use phynexus::kernel::lower::{Target, lower};

use super::{big, check_all, last_step, many, narrow, panels::panels, tensor, tiny, wide};

/// Attention, or its gradient: a batch of 2 with 2 heads, which lie side by side in memory if they are `beside`.
struct Call {
    dtype: DType,
    queries: usize,
    keys: usize,
    features: usize,
    values: usize,
    causal: bool,
    mask: Option<DType>,
    beside: bool,
    /// The scale times the number of features.
    scale: f64,
    dropout: u16,
}

const CALL: Call = Call {
    dtype: DType::F32,
    queries: 5,
    keys: 7,
    features: 4,
    values: 3,
    causal: false,
    mask: None,
    beside: false,
    scale: 1.0,
    dropout: 0,
};

impl Call {
    fn case(&self, is_gradient: bool) -> Case {
        let Call { dtype, queries, keys, features, values, causal, mask, beside, scale, dropout } = *self;
        let mut choice = Choice::new(47);
        let mut case = Case::new(format!(
            "attention {queries} {keys} {features} {values} of {dtype}, causal {causal}, mask {mask:?}, dropout \
             {dropout}, gradient {is_gradient}"
        ));
        let mut leaf = |case: &mut Case, dtype: DType, shape: &[usize]| {
            case.leaf(CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, dtype, shape)))
        };
        let mut matrix = |case: &mut Case, dtype: DType, rows: usize, columns: usize| {
            if !beside {
                return leaf(case, dtype, &[2, 2, rows, columns]);
            }
            let source = leaf(case, dtype, &[2, rows, 2, columns]);
            let heads = Op::Permute(Permute([0u8, 2, 1, 3].into_iter().collect()));
            case.ir.push(heads, dtype, [2, 2, rows, columns].as_slice().into(), [source])
        };
        let mut inputs = vec![
            matrix(&mut case, dtype, queries, features),
            matrix(&mut case, dtype, keys, features),
            matrix(&mut case, dtype, keys, values),
        ];
        // One mask for all heads, which is not repeated in memory.
        inputs.extend(mask.map(|mask| {
            let source = leaf(&mut case, mask, &[1, 1, queries, keys]);
            case.ir.push(Op::Expand, mask, [2, 2, queries, keys].as_slice().into(), [source])
        }));
        if dropout > 0 {
            let mut state = random_array(&mut Choice::new(3), Distribution::Tame, DType::U32, &[4]);
            for (word, number) in state.elements.iter_mut().zip([12_345, 67, u32::MAX - 40, 3]) {
                *word = Number::Integer(number.into());
            }
            inputs.push(case.leaf(CaseLeaf::contiguous(state)));
        }
        let packed = dtype.compute();
        let scale = Scalar::Float(scale / features.max(4) as f64);
        let attention = Attention { causal, scale, mask: mask.is_some(), dropout };
        let (composite, size): (Composite, usize) = match is_gradient {
            false => (attention.into(), queries * (values + 1)),
            true => {
                // Weights are at most about 1.
                let mut logarithms =
                    random_array(&mut Choice::new(7), Distribution::Tame, packed, &[2, 2, queries]);
                for number in &mut logarithms.elements {
                    *number = Number::Float(Interval::point(6.0));
                }
                inputs.push(case.leaf(CaseLeaf::contiguous(logarithms)));
                inputs.push(leaf(&mut case, dtype, &[2, 2, queries, values]));
                inputs.push(leaf(&mut case, packed, &[2, 2, queries]));
                (AttentionGradient(attention).into(), (queries + keys) * features + keys * values)
            }
        };
        let op = Op::Composite(composite);
        let result = if is_gradient { dtype } else { packed };
        let output = case.ir.push(op, result, [4 * size].as_slice().into(), inputs);
        case.ir.outputs.push(output);
        case
    }
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for (queries, keys, features, values) in [(5, 7, 4, 3), (2, 1, 1, 8), (19, 34, 18, 5)] {
        let call = Call { queries, keys, features, values, ..CALL };
        calls.push(Call { causal: true, ..call });
        calls.push(Call { beside: true, dtype: DType::F16, ..call });
        calls.push(Call { mask: Some(DType::Bool), dtype: DType::BF16, ..call });
        calls.push(Call { mask: Some(DType::F32), causal: true, beside: true, ..call });
        calls.push(call);
    }
    calls.push(Call { dtype: DType::F64, causal: true, ..CALL });
    // Several tiles, and several blocks of features.
    calls.push(Call { queries: 65, keys: 67, features: 2, values: 2, causal: true, ..CALL });
    calls.push(Call { queries: 2, keys: 3, features: 2, values: 70, ..CALL });
    // Weights are dropped.
    calls.push(Call { queries: 35, keys: 19, dropout: 20_000, ..CALL });
    calls.push(Call { queries: 3, dropout: 65_535, causal: true, mask: Some(DType::Bool), ..CALL });
    // All scores alike, and the least one the greatest.
    calls.push(Call { scale: 0.0, causal: true, ..CALL });
    calls.push(Call { scale: -1.0, causal: true, ..CALL });
    calls.push(Call { dtype: DType::BF16, scale: 1e-46, ..CALL });
    // Nothing to attend to, and no features.
    calls.push(Call { keys: 0, ..CALL });
    calls.push(Call { features: 0, ..CALL });
    calls.push(Call { values: 0, ..CALL });
    calls
}

/// Matrices whose features can be copied to panels: several tiles, several steps, and two groups of features.
fn calls_of_panels() -> Vec<Call> {
    let mut calls = Vec::new();
    for (queries, keys, features, values) in [(70, 130, 64, 64), (130, 65, 72, 8), (33, 64, 16, 72)] {
        let call = Call { queries, keys, features, values, dtype: DType::BF16, ..CALL };
        calls.push(Call { causal: true, beside: true, ..call });
        calls.push(Call { dtype: DType::F16, mask: Some(DType::Bool), ..call });
        calls.push(Call { mask: Some(DType::BF16), causal: true, ..call });
        calls.push(Call { dropout: 6_554, causal: true, ..call });
        calls.push(call);
    }
    calls
}

/// Whether each launch of a call multiplies panels.
fn launches(call: &Call, is_gradient: bool, target: &Target) -> Vec<bool> {
    let step = last_step(&call.case(is_gradient));
    lower(&step, target).unwrap().launches.iter().map(|launch| launch.kernel.has_panels()).collect()
}

#[test]
fn panels_are_used_where_addresses_are_aligned() {
    for call in calls_of_panels() {
        for (is_gradient, count) in [(false, 1), (true, 2)] {
            assert_eq!(launches(&call, is_gradient, &panels(2)), vec![true; count]);
            assert_eq!(launches(&call, is_gradient, &panels(2).unaligned()), vec![false; count]);
        }
    }
}

/// Matrices of so many features that sums for keys and values are computed one after the other.
fn wide_calls() -> Vec<Call> {
    let call = Call { queries: 20, keys: 36, features: 136, values: 200, dtype: DType::BF16, ..CALL };
    vec![
        Call { causal: true, dropout: 6_554, ..call },
        Call { features: 256, values: 256, beside: true, mask: Some(DType::Bool), ..call },
    ]
}

#[test]
fn sums_that_do_not_fit_registers_are_computed_in_parts() {
    let [narrow, wide] = &wide_calls()[..] else { panic!() };
    assert_eq!(launches(narrow, false, &panels(2)), [true]);
    assert_eq!(launches(narrow, true, &panels(2)), [true, true, true]);
    // Panels of gradients by queries and keys exceed shared memory.
    assert_eq!(launches(wide, false, &panels(2)), [true]);
    assert_eq!(launches(wide, true, &panels(2)), [false, false, true]);
    assert_eq!(multiplies_fragments(wide, false, &tensor()), [true]);
    assert_eq!(multiplies_fragments(wide, true, &tensor()), [true, true, true]);
    for (call, target) in [(narrow, panels(2)), (wide, tensor())] {
        check_all([false, true].map(|is_gradient| call.case(is_gradient)), &[target]);
    }
}

/// Whether each launch of a call multiplies fragments.
fn multiplies_fragments(call: &Call, is_gradient: bool, target: &Target) -> Vec<bool> {
    let step = last_step(&call.case(is_gradient));
    let launches = lower(&step, target).unwrap().launches;
    launches.iter().map(|launch| !launch.kernel.fragments.is_empty()).collect()
}

#[test]
fn fragments_are_used_where_there_are_no_panels() {
    for call in calls_of_panels() {
        for (is_gradient, count) in [(false, 1), (true, 2)] {
            assert_eq!(multiplies_fragments(&call, is_gradient, &tensor()), vec![true; count]);
            // Where it is not known which elements invocations hold, no scores are stored either.
            assert_eq!(multiplies_fragments(&call, is_gradient, &wide()), vec![false; count]);
        }
    }
}

/// One of each kind, and a causal one with more queries than keys.
fn calls_of_fragments() -> Vec<Call> {
    let chosen = |(number, call)| [0, 3, 5, 6, 9, 12].contains(&number).then_some(call);
    calls_of_panels().into_iter().enumerate().filter_map(chosen).collect()
}

#[test]
fn attention_by_fragments() {
    check_all(calls_of_fragments().iter().map(|call| call.case(false)), &[tensor()]);
}

#[test]
fn gradients_of_attention_by_fragments() {
    check_all(calls_of_fragments().iter().map(|call| call.case(true)), &[tensor()]);
}

#[test]
fn attention_by_panels() {
    check_all(calls_of_panels().iter().map(|call| call.case(false)), &[panels(2)]);
}

#[test]
fn gradients_of_attention_by_panels() {
    check_all(calls_of_panels().iter().map(|call| call.case(true)), &[panels(2)]);
}

#[test]
fn attention() {
    check_all(calls().iter().map(|call| call.case(false)), &[big(), many(), narrow(), tiny()]);
    check_all(calls()[..5].iter().map(|call| call.case(false)), &[big().unaligned()]);
}

#[test]
fn gradients_of_attention() {
    check_all(calls().iter().map(|call| call.case(true)), &[big(), many(), narrow(), tiny()]);
}
