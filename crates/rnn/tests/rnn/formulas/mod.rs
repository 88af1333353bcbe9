//! What has a formula against that formula, in plain `f64`; calls and settings that other tests leave at their defaults.

mod environment;
mod gpu_operations;
mod initialization;
mod metrics;
mod network_calls;
mod optimizers;
mod schedules;
mod training;
mod versions;

use rnn::{
    ActivationFunction, Array2, LayerBuilder, Network, NetworkBuilder, Result, TrainingConfig,
    gpu::RecurrentKind,
};

/// Numbers between -1 and 1 without a pattern.
pub(crate) fn numbers(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    })
}

/// The elements row by row.
fn flat(array: &Array2<f64>) -> Vec<f64> {
    array.iter().copied().collect()
}

/// Asserts that numbers are those expected, but for this share of 1 and their size.
pub(crate) fn close(found: &[f64], expected: &[f64], near: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        assert!(off <= near * (1.0 + expected.abs()), "{what}: number {place} is {found}, not {expected}");
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A network of one layer without activation, on the CPU.
fn linear(inputs: usize, outputs: usize) -> Result<NetworkBuilder> {
    let layer = LayerBuilder::dense(outputs).activation(ActivationFunction::Linear);
    Ok(Network::with_input_size(inputs)?.add_layer(layer).device("cpu").seed(5))
}

/// What such a layer makes of rows: `x wᵀ + b`.
fn dense(x: &Array2<f64>, weight: &Array2<f64>, bias: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), weight.nrows()), |(row, unit)| {
        let sum: f64 = (0..x.ncols()).map(|i| x[[row, i]] * weight[[unit, i]]).sum();
        sum + bias[[0, unit]]
    })
}

/// The derivatives of such a layer's mean squared error by weight and bias.
fn dense_gradients(
    x: &Array2<f64>,
    weight: &Array2<f64>,
    bias: &Array2<f64>,
    targets: &Array2<f64>,
) -> [Array2<f64>; 2] {
    let y = dense(x, weight, bias);
    let derivative = |row: usize, unit: usize| 2.0 * (y[[row, unit]] - targets[[row, unit]]) / y.len() as f64;
    let rows = || 0..x.nrows();
    [
        Array2::from_shape_fn(weight.dim(), |(unit, i)| {
            rows().map(|row| derivative(row, unit) * x[[row, i]]).sum::<f64>()
        }),
        Array2::from_shape_fn(bias.dim(), |(_, unit)| rows().map(|row| derivative(row, unit)).sum::<f64>()),
    ]
}

/// The states of a recurrence after all steps, row by row. Rows of `x` are steps of so many sequences: those of the first
/// step, of the second, and so on. Weights and gates are in PyTorch's order.
fn recurrence(
    kind: RecurrentKind,
    x: &Array2<f64>,
    sequences: usize,
    [weight_ih, weight_hh]: [&Array2<f64>; 2],
    [bias_ih, bias_hh]: [&Array2<f64>; 2],
) -> Vec<f64> {
    let units = weight_hh.ncols();
    let (mut states, mut cells) = (vec![vec![0.0; units]; sequences], vec![vec![0.0; units]; sequences]);
    let mut all = Vec::new();
    let product = |weight: &Array2<f64>, row: usize, by: &[f64]| -> f64 {
        by.iter().enumerate().map(|(i, x)| weight[[row, i]] * x).sum()
    };
    for (place, step) in x.rows().into_iter().enumerate() {
        let (state, cell) = (&mut states[place % sequences], &mut cells[place % sequences]);
        let from_input = |row: usize| product(weight_ih, row, &step.to_vec()) + bias_ih[[0, row]];
        let before = state.clone();
        let from_state = |row: usize| product(weight_hh, row, &before) + bias_hh[[0, row]];
        for unit in 0..units {
            let gate = |number: usize| {
                let row = number * units + unit;
                from_input(row) + from_state(row)
            };
            state[unit] = match kind {
                RecurrentKind::Rnn => gate(0).tanh(),
                RecurrentKind::Lstm => {
                    cell[unit] = sigmoid(gate(1)) * cell[unit] + sigmoid(gate(0)) * gate(2).tanh();
                    sigmoid(gate(3)) * cell[unit].tanh()
                }
                RecurrentKind::Gru => {
                    let (reset, update, row) = (sigmoid(gate(0)), sigmoid(gate(1)), 2 * units + unit);
                    let candidate = (from_input(row) + reset * from_state(row)).tanh();
                    (1.0 - update) * candidate + update * before[unit]
                }
            };
        }
        all.extend_from_slice(state);
    }
    all
}

/// So many epochs of one batch each, in order.
fn epochs(count: usize) -> TrainingConfig {
    TrainingConfig {
        max_epochs: count,
        batch_size: 1024,
        validation_split: 0.0,
        shuffle: false,
        early_stopping_patience: None,
        seed: Some(1),
        verbose: false,
        ..TrainingConfig::default()
    }
}
