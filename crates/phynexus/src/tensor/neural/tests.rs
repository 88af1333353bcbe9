//! Compares neural functions with PyTorch's values and with finite differences, in `f64` on the oracle.

use serde_json::Value;

use crate::{
    DType, Error, Tensor,
    gradient::tests::harness::{Fixed, Program, check_with, fixed, placeholder, variable, weighted},
    oracle::OracleArray,
};

#[path = "../../../tests/golden/cases.rs"]
mod cases;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../tests/golden/neural.json")).unwrap()
}

fn shape(of: &Value) -> Vec<usize> {
    of["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect()
}

fn floats(of: &Value) -> Vec<f64> {
    let number = |v: &Value| v.as_str().map_or_else(|| v.as_f64().unwrap(), |text| text.parse().unwrap());
    of["values"].as_array().unwrap().iter().map(number).collect()
}

/// An input as a leaf of the graph, and its data.
fn input(of: &Value) -> Fixed {
    match of["dtype"].as_str().unwrap() {
        "float64" => fixed(&floats(of), &shape(of)),
        "int64" => fixed(&floats(of).iter().map(|&x| x as i64).collect::<Vec<_>>(), &shape(of)),
        "bool" => {
            let bools: Vec<bool> =
                of["values"].as_array().unwrap().iter().map(|v| v.as_bool().unwrap()).collect();
            fixed(&bools, &shape(of))
        }
        other => panic!("{other}"),
    }
}

/// Reports differences that exceed rounding.
fn differences(what: &str, found: &[f64], expected: &[f64]) -> Vec<String> {
    // PyTorch's gradient of hardsigmoid uses 1/6 in single precision.
    let tolerance = if what.contains("hardsigmoid") { 1e-7 } else { 1e-10 };
    let close = |found: f64, expected: f64| (found - expected).abs() <= tolerance * (1.0 + expected.abs());
    assert_eq!(found.len(), expected.len(), "{what}");
    let differs = |(place, (&found, &expected)): (usize, (&f64, &f64))| {
        let same = found == expected || close(found, expected);
        (!same).then(|| format!("{what}, element {place}: {found} is not {expected}"))
    };
    found.iter().zip(expected).enumerate().filter_map(differs).collect()
}

#[test]
fn every_case_is_tested() {
    let golden = golden();
    let mut known: Vec<&str> = golden.as_object().unwrap().keys().map(String::as_str).collect();
    let mut tested: Vec<&str> = cases::CASES.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    tested.sort_unstable();
    assert_eq!(known, tested);
}

#[test]
fn results_and_gradients_are_those_of_pytorch() {
    let golden = golden();
    let mut wrong = Vec::new();
    for (name, function) in cases::CASES {
        let case = &golden[*name];
        let inputs: Vec<Fixed> = case["inputs"].as_array().unwrap().iter().map(input).collect();
        let data: Vec<OracleArray> = inputs.iter().map(Fixed::array).collect();
        let gradients = case["gradients"].as_object().unwrap();
        let differentiated = |place: usize| gradients.contains_key(&place.to_string());
        let leaf = |(place, input): (usize, &Fixed)| {
            if differentiated(place) { variable(&input.shape) } else { input.placeholder() }
        };
        let leaves: Vec<Tensor> = inputs.iter().enumerate().map(leaf).collect();
        let output = function(&leaves).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(output.shape(), shape(&case["output"]), "{name}");
        wrong.extend(differences(name, &Program::new(&leaves, &output).run(&data), &floats(&case["output"])));
        if !output.requires_grad() {
            continue;
        }
        let loss = weighted(&output).tensor().unwrap();
        for (place, expected) in gradients {
            let wanted = &leaves[place.parse::<usize>().unwrap()];
            let found = loss.gradients(&[wanted]).unwrap().remove(0);
            let found = Program::new(&leaves, &found).run(&data);
            wrong.extend(differences(&format!("gradient {place} of {name}"), &found, &floats(expected)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Cases that finite differences cannot check: an input at a kink or a bound, strong curvature within a difference's
/// step, or an input that does not affect the result.
const NOT_SMOOTH: [&str; 15] = [
    "binary_cross_entropy_ends",
    "binary_cross_entropy_missed",
    "cosine_embedding_loss_short",
    "relu",
    "relu6",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "threshold",
    "clamp",
    "leaky_relu",
    "max_pool2d_with_indices",
    "running_statistics",
];

#[test]
fn gradients_equal_finite_differences() {
    let golden = golden();
    for (name, function) in cases::CASES.iter().filter(|(name, _)| !NOT_SMOOTH.contains(name)) {
        let case = &golden[*name];
        let gradients = case["gradients"].as_object().unwrap();
        let inputs = case["inputs"].as_array().unwrap();
        let is_variable = |place: &usize| gradients.contains_key(&place.to_string());
        // The embedding's padding row affects the result but has no gradient. Far-out values leave no digits to
        // differences.
        let is_wild = |of: &Value| floats(of).iter().any(|x| x.abs() > 60.0);
        if *name == "embedding" || (0..inputs.len()).any(|p| is_variable(&p) && is_wild(&inputs[p])) {
            continue;
        }
        let (variables, others): (Vec<usize>, Vec<usize>) = (0..inputs.len()).partition(is_variable);
        let order: Vec<usize> = variables.iter().chain(&others).copied().collect();
        let values: Vec<_> = variables.iter().map(|&p| (floats(&inputs[p]), shape(&inputs[p]))).collect();
        let others: Vec<Fixed> = others.iter().map(|&p| input(&inputs[p])).collect();
        println!("{name}");
        check_with(&values, &others, 1, &|given| {
            let place = |p: usize| given[order.iter().position(|&o| o == p).unwrap()].clone();
            function(&(0..given.len()).map(place).collect::<Vec<_>>())
        });
    }
}

fn leaf(shape: &[usize], dtype: DType) -> Tensor {
    placeholder(dtype, shape)
}

#[test]
fn bad_arguments_are_typed_errors() {
    let x = leaf(&[2, 3, 5, 5], DType::F32);
    let integers = leaf(&[2, 3], DType::I64);
    let shape = |result: crate::Result<Tensor>| assert!(matches!(result, Err(Error::Shape { .. })));
    let dtype = |result: crate::Result<Tensor>| assert!(matches!(result, Err(Error::DType { .. })));
    let argument = |result: crate::Result<Tensor>| assert!(matches!(result, Err(Error::Argument { .. })));
    assert!(matches!(x.softmax(4), Err(Error::Axis { axis: 4, .. })));
    dtype(integers.softmax(0));
    dtype(integers.gelu(Default::default()));
    shape(x.layer_norm(&[5, 4], None, None, 1e-5));
    shape(x.layer_norm(&[], None, None, 1e-5));
    shape(x.group_norm(2, None, None, 1e-5));
    shape(leaf(&[1, 3], DType::F32).batch_norm(None, None, None, None, true, 1e-5));
    argument(x.batch_norm(Some(&leaf(&[3], DType::F32)), None, None, None, false, 1e-5));
    let w = leaf(&[4, 3, 3, 3], DType::F32);
    shape(x.conv2d(&leaf(&[4, 2, 3, 3], DType::F32), None, [1; 2], [0; 2], [1; 2], 1));
    shape(x.conv2d(&leaf(&[4, 3, 7, 3], DType::F32), None, [1; 2], [0; 2], [1; 2], 1));
    shape(x.conv2d(&w, Some(&leaf(&[3], DType::F32)), [1; 2], [0; 2], [1; 2], 1));
    argument(x.conv2d(&w, None, [0, 1], [0; 2], [1; 2], 1));
    argument(x.conv2d(&w, None, [1; 2], [0; 2], [1; 2], 0));
    argument(x.conv_transpose2d(&leaf(&[3, 4, 3, 3], DType::F32), None, [1; 2], [0; 2], [1; 2], 1, [1; 2]));
    let bools = leaf(&[1, 1, 3], DType::Bool);
    dtype(bools.conv1d(&bools, None, [1], [0], [1], 1));
    dtype(leaf(&[1, 1, 3], DType::I32).avg_pool1d([2], None, [0], false, true));
    dtype(leaf(&[1, 1, 3], DType::I32).adaptive_max_pool1d([2]));
    shape(leaf(&[1, 1, 1], DType::F32).conv_transpose1d(
        &leaf(&[1, 1, 2], DType::F32),
        None,
        [1],
        [1],
        [0],
        1,
        [1],
    ));
    argument(x.max_pool2d([2; 2], None, [2; 2], [1; 2], false));
    shape(x.max_pool2d([6; 2], None, [0; 2], [1; 2], false));
    shape(x.adaptive_avg_pool2d([0, 1]));
    shape(x.scaled_dot_product_attention(&leaf(&[2, 3, 5, 4], DType::F32), &x, None, Default::default()));
    dtype(x.scaled_dot_product_attention(&leaf(&[2, 3, 5, 5], DType::F64), &x, None, Default::default()));
    shape(x.scaled_dot_product_attention(&leaf(&[2, 2, 5, 5], DType::F32), &x, None, Default::default()));
    let mask = |mask: &Tensor| x.scaled_dot_product_attention(&x, &x, Some(mask), Default::default());
    shape(mask(&leaf(&[5, 6], DType::Bool)));
    dtype(mask(&leaf(&[5, 5], DType::U8)));
    shape(leaf(&[3, 2], DType::F32).cross_entropy(&leaf(&[2], DType::I64), None, 0.0));
    dtype(leaf(&[3, 2], DType::F32).cross_entropy(&leaf(&[3], DType::Bool), None, 0.0));
    argument(leaf(&[3, 2], DType::F32).cross_entropy(&leaf(&[3], DType::I64), None, 1.5));
    shape(x.mse_loss(&w, crate::tensor::Reduction::Mean));
    dtype(leaf(&[3], DType::F32).embedding(&w.reshape(&[4, 27]).unwrap(), None));
    argument(x.dropout(1.5, true));
    shape(x.interpolate(&[3], crate::tensor::Interpolation::Nearest));
}

#[test]
fn integers_have_convolutions_and_greatest_elements() {
    let x = fixed(&[100i8, 100, -128, 3, 5], &[1, 1, 5]);
    let w = fixed(&[1i8, 2], &[1, 1, 2]);
    let operands = [leaf(&[1, 1, 5], DType::I8), leaf(&[1, 1, 2], DType::I8)];
    let run = |result: &Tensor| Program::new(&operands, result).run(&[x.array(), w.array()]);
    let convolved = operands[0].conv1d(&operands[1], None, [1], [0], [1], 1).unwrap();
    assert_eq!(convolved.dtype(), DType::I8);
    assert_eq!(run(&convolved), [44.0, 100.0, -122.0, 13.0]);
    assert_eq!(run(&operands[0].max_pool1d([2], None, [0], [1], false).unwrap()), [100.0, 3.0]);
    let wide = operands[0].conv1d_as(&operands[1], None, [1], [0], [1], 1, DType::I32).unwrap();
    assert_eq!(run(&wide), [300.0, -156.0, -122.0, 13.0]);
    let narrow = operands[0].conv1d_as(&operands[1], None, [1], [0], [1], 1, DType::F32);
    assert!(matches!(narrow, Err(crate::Error::DType { .. })));
}

/// `uint8` and `int8` are multiplied as they are.
#[test]
fn mixed_bytes_have_exact_convolutions() {
    let x = fixed(&[255u8, 0, 200], &[1, 1, 3]);
    let w = fixed(&[-128i8, 127], &[1, 1, 2]);
    let operands = [leaf(&[1, 1, 3], DType::U8), leaf(&[1, 1, 2], DType::I8)];
    let run = |result: &Tensor| Program::new(&operands, result).run(&[x.array(), w.array()]);
    let convolved = operands[0].conv1d_as(&operands[1], None, [1], [0], [1], 1, DType::I32).unwrap();
    assert_eq!(run(&convolved), [-32640.0, 25400.0]);
    let transposed =
        operands[0].conv_transpose1d_as(&operands[1], None, [1], [0], [0], 1, [1], DType::I32).unwrap();
    assert_eq!(run(&transposed), [-32640.0, 32385.0, -25600.0, 25400.0]);
}

#[test]
fn targets_that_are_no_class_are_errors_when_computed() {
    use crate::tensor::{CrossEntropyOptions, Reduction};
    let device = crate::oracle::reference_device();
    let options = CrossEntropyOptions { reduction: Reduction::None, ..Default::default() };
    let logits = Tensor::from_slice(&[0.0f64; 6], &[2, 3], device).unwrap();
    for (target, fits) in [([2, -100], true), ([0, 3], false), ([-1, 0], false), ([-3, 0], false)] {
        let target = Tensor::from_slice::<i32>(&target, &[2], device).unwrap();
        for losses in [logits.cross_entropy_with(&target, &options), logits.nll_loss(&target, &options)] {
            let found = losses.unwrap().to_vec::<f64>();
            assert_eq!(found.is_ok(), fits, "{target} {found:?}");
            assert!(fits || matches!(found, Err(Error::Index { .. })), "{found:?}");
            assert!(found.is_err() || found.unwrap()[1] == 0.0);
        }
    }
}
