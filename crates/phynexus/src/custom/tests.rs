//! Custom kernels on the device `reference`, which runs their CPU functions.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    DType, Error, Result, Scalar, Tensor, oracle::reference_device, schedule::capture::Captured,
    tensor::null_device,
};

const SOURCE: &str = "extern \"C\" __global__ void cube(const double* x, double* y) {}";

const C: SourceLanguage = language("C", false, false);
const OTHER_C: SourceLanguage = language("other C", false, false);
const SHADER: SourceLanguage = language("shader", false, true);
const BINARY: SourceLanguage = language("binary shader", true, true);
const OTHER_SHADER: SourceLanguage = language("other shader", false, true);

const fn language(name: &'static str, is_binary: bool, has_scalar_structure: bool) -> SourceLanguage {
    SourceLanguage { name, short_name: name, is_binary, has_scalar_structure }
}

/// `y = x^3` for `float64`.
fn cube() -> CustomKernelBuilder {
    CustomKernel::builder("cube")
        .input("x", DType::F64, "shape..")
        .output("y", DType::F64, "shape..")
        .source(C, SOURCE)
        .cpu(|mut call| {
            let x = call.inputs[0].values::<f64>()?;
            let y = call.outputs[0].values::<f64>()?;
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x * x);
            Ok(())
        })
}

/// The gradient of [`cube`] as a kernel whose own gradient is tensor code.
fn cube_gradient() -> Result<CustomKernel> {
    CustomKernel::builder("cube_gradient")
        .input("x", DType::F64, "shape..")
        .input("y", DType::F64, "shape..")
        .input("gy", DType::F64, "shape..")
        .output("gx", DType::F64, "shape..")
        .cpu(|mut call| {
            let (x, gy) = (call.inputs[0].values::<f64>()?, call.inputs[2].values::<f64>()?);
            let gx = call.outputs[0].values::<f64>()?;
            gx.iter_mut().zip(x.iter().zip(gy)).for_each(|(gx, (x, gy))| *gx = 3.0 * x * x * gy);
            Ok(())
        })
        .gradient(|call| {
            let (x, gy, g) = (&call.inputs[0], &call.inputs[2], &call.gradients[0]);
            let by_x = x.mul(gy)?.mul(g)?.mul_scalar(6.0)?;
            Ok(vec![Some(by_x), None, Some(x.square()?.mul(g)?.mul_scalar(3.0)?)])
        })
        .build()
}

/// The gradient of [`cube`] as a kernel that overwrites the output's gradient.
fn gradient_in_place() -> CustomKernelBuilder {
    CustomKernel::builder("cube_gradient_in_place")
        .input("x", DType::F64, "shape..")
        .input("y", DType::F64, "shape..")
        .copied_output("gx", DType::F64, "shape..")
        .cpu(|mut call| {
            let x = call.inputs[0].values::<f64>()?;
            let gradients = call.outputs[0].values::<f64>()?;
            gradients.iter_mut().zip(x).for_each(|(gradient, x)| *gradient *= 3.0 * x * x);
            Ok(())
        })
}

/// `[m, k] x [k, n]`: the row sums of x times a factor, `[m]`, and those of y, `[k]`; tests packed results.
fn sums(scale: DType) -> CustomKernelBuilder {
    CustomKernel::builder("sums")
        .input("x", DType::F64, "m k")
        .scalar("scale", scale)
        .input("y", DType::F64, "k n")
        .output("rows_of_x", DType::F64, "m")
        .output("rows_of_y", DType::F64, OutputShape::function(|shapes| Ok(vec![shapes[1][0]])))
        .cpu(|mut call| {
            let scale = call.scalars[0].as_f64();
            for at in 0..2 {
                let width = call.inputs[at].shape[1];
                let rows = call.inputs[at].values::<f64>()?.chunks(width.max(1));
                let factor = if at == 0 { scale } else { 1.0 };
                let sums = call.outputs[at].values::<f64>()?;
                sums.iter_mut().zip(rows).for_each(|(s, row)| *s = factor * row.iter().sum::<f64>());
            }
            Ok(())
        })
}

fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, reference_device()).unwrap()
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| (i as f64 * 0.77).sin() * 2.0).collect()
}

fn argument_error(result: Result<impl Sized>) -> (String, String) {
    match result.map(drop).unwrap_err() {
        Error::KernelArgument { argument, expected, given, .. } => {
            (argument, format!("{expected} | {given}"))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_launch_is_a_node_like_any_other() -> Result<()> {
    let kernel = cube().build()?;
    let x = tensor(&numbers(6), &[2, 3]);
    // A transposed operand is copied to row-major order; later operations fuse.
    let turned = x.t()?;
    let y = kernel.call(&[&turned], &[])?.add_scalar(1.0)?;
    assert!(!y.is_evaluated());
    let plan = y.explain()?.expect("pending").to_string();
    assert!(plan.contains("custom cube") && plan.contains("(3, 2) -> (3, 2)"), "{plan}");
    let expected: Vec<f64> = turned.to_vec::<f64>()?.iter().map(|x| x * x * x + 1.0).collect();
    assert_eq!(y.to_vec::<f64>()?, expected);
    // Launches of equal kernels on the same operands are merged, even if the kernels were created separately.
    let source_only = || CustomKernel::builder("k").input("x", DType::F64, "n").output("y", DType::F64, "n");
    let [a, b] = [source_only(), source_only()].map(|k| k.source(C, SOURCE).build().unwrap());
    assert_eq!(a, b);
    assert_ne!(a, source_only().source(OTHER_C, SOURCE).build()?);
    assert_ne!(cube().build()?, cube().build()?, "functions are equal only to themselves");
    let twice = kernel.call(&[&x], &[])?.add(&kernel.call(&[&x], &[])?)?;
    let plan = twice.explain()?.expect("pending").to_string();
    assert_eq!(plan.matches("custom cube").count(), 1, "{plan}");
    Ok(())
}

#[test]
fn several_outputs_scalars_and_shapes() -> Result<()> {
    let kernel = sums(DType::F64).build()?;
    let (x, y) = (tensor(&numbers(6), &[2, 3]), tensor(&numbers(12), &[3, 4]));
    let results = kernel.launch(&[&x, &y], &[Scalar::Float(0.5)])?;
    assert_eq!([results[0].shape(), results[1].shape()], [&[2][..], &[3][..]]);
    let rows = |values: &[f64], width, by: f64| -> Vec<f64> {
        values.chunks(width).map(|row| by * row.iter().sum::<f64>()).collect()
    };
    assert_eq!(results[0].to_vec::<f64>()?, rows(&numbers(6), 3, 0.5));
    assert_eq!(results[1].to_vec::<f64>()?, rows(&numbers(12), 4, 1.0));
    assert_eq!(argument_error(kernel.call(&[&x, &y], &[Scalar::Float(0.5)])).0, "outputs");
    // One of the outputs is empty.
    let results = kernel.launch(&[&tensor(&[], &[0, 3]), &y], &[Scalar::Float(0.5)])?;
    assert_eq!(results[0].to_vec::<f64>()?, [0.0; 0]);
    assert_eq!(results[1].to_vec::<f64>()?, rows(&numbers(12), 4, 1.0));
    Ok(())
}

#[test]
fn nothing_is_launched_for_nothing() -> Result<()> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let kernel = CustomKernel::builder("counted")
        .input("x", DType::F64, "a 3")
        .output("y", DType::F64, "3 a")
        .cpu(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .build()?;
    let y = kernel.call(&[&tensor(&[], &[0, 3])], &[])?;
    assert_eq!((y.shape(), y.to_vec::<f64>()?.len()), (&[3, 0][..], 0));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    kernel.call(&[&tensor(&numbers(3), &[1, 3])], &[])?.evaluate()?;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn arguments_are_compared_with_the_signature() -> Result<()> {
    let kernel = sums(DType::I32).build()?;
    let (x, y) = (tensor(&numbers(6), &[2, 3]), tensor(&numbers(12), &[3, 4]));
    let one = [Scalar::Int(1)];
    assert_eq!(argument_error(kernel.launch(&[&x], &one)), ("inputs".into(), "2 tensors | 1".into()));
    assert_eq!(argument_error(kernel.launch(&[&x, &y], &[])), ("scalars".into(), "1 number | 0".into()));
    let single = x.to_dtype(DType::F32)?;
    let text = kernel.launch(&[&single, &y], &one).unwrap_err().to_string();
    assert!(text.ends_with("x: expected float64, given float32: convert with .to_dtype(float64)"), "{text}");
    let (argument, text) = argument_error(kernel.launch(&[&x, &x], &one));
    assert_eq!((argument.as_str(), text.as_str()), ("y", "shape (k = 3, n) | (2, 3)"));
    assert_eq!(argument_error(kernel.launch(&[&x.flatten(0, -1)?, &y], &one)).0, "x");
    for bad in [Scalar::Float(1.0), Scalar::Bool(true), Scalar::Int(1 << 40), Scalar::UInt(u64::MAX)] {
        assert_eq!(argument_error(kernel.launch(&[&x, &y], &[bad])).0, "scale", "{bad}");
    }
    let elsewhere = Tensor::from_slice(&numbers(12), &[3, 4], null_device())?;
    let mismatch = kernel.launch(&[&x, &elsewhere], &one).unwrap_err();
    assert!(matches!(mismatch, Error::DeviceMismatch { .. }), "{mismatch}");
    let huge = CustomKernel::builder("huge")
        .input("x", DType::F64, "..")
        .output("y", DType::F64, OutputShape::function(|_| Ok(vec![usize::MAX, 3])))
        .cpu(|_| Ok(()))
        .build()?;
    assert_eq!(argument_error(huge.call(&[&x], &[])).0, "y");
    let none = cube().groups([0, 1, 1]).build()?;
    assert_eq!(argument_error(none.call(&[&x], &[])).0, "groups");
    Ok(())
}

#[test]
fn the_function_gets_what_the_signature_says_and_may_fail() -> Result<()> {
    let kernel = CustomKernel::builder("wrong")
        .input("x", DType::F64, "n")
        .output("y", DType::F64, "n")
        .cpu(|mut call| call.outputs[0].values::<f32>().map(drop))
        .build()?;
    let error = kernel.call(&[&tensor(&[1.0], &[1])], &[])?.evaluate().unwrap_err();
    assert!(matches!(&error, Error::DType { dtypes, .. } if dtypes == &[DType::F64, DType::F32]), "{error}");
    Ok(())
}

#[test]
fn a_kernel_without_anything_for_the_device_says_what_it_has() -> Result<()> {
    let kernel = CustomKernel::builder("k")
        .input("x", DType::F64, "n")
        .output("y", DType::F64, "n")
        .source(C, SOURCE)
        .source(SHADER, "fn k() {}")
        .build()?;
    let x = tensor(&[1.0], &[1]);
    for error in [kernel.compile(x.device()), kernel.call(&[&x], &[]).map(drop)].map(Result::unwrap_err) {
        assert!(
            matches!(&error, Error::KernelLanguage { available, .. } if available == "C, shader"),
            "{error}"
        );
    }
    cube().build()?.compile(x.device())
}

fn in_language(language: SourceLanguage) -> CustomKernelBuilder {
    CustomKernel::builder("k").input("x", DType::F32, "n").output("y", DType::F32, "n").source(language, "k")
}

/// A kernel with the signature of the gradient of [`in_language`].
fn gradient_in(language: SourceLanguage) -> CustomKernel {
    let inputs = ["x", "y", "gy"];
    let builder = inputs.iter().fold(CustomKernel::builder("g"), |k, name| k.input(name, DType::F32, "n"));
    builder.output("gx", DType::F32, "n").source(language, "g").build().unwrap()
}

#[test]
fn a_gradient_that_the_device_does_not_run_is_refused_before_the_backward_pass() -> Result<()> {
    let gradient = CustomKernel::builder("cube_gradient")
        .input("x", DType::F64, "shape..")
        .input("y", DType::F64, "shape..")
        .input("gy", DType::F64, "shape..")
        .output("gx", DType::F64, "shape..")
        .source(C, SOURCE);
    let kernel = cube().gradient_kernel(gradient.build()?).build()?;
    let x = tensor(&[2.0], &[1]);
    let variable = x.with_grad()?;
    for error in
        [kernel.compile(x.device()), kernel.call(&[&variable], &[]).map(drop)].map(Result::unwrap_err)
    {
        assert!(matches!(error, Error::KernelGradient { .. }), "{error}");
        let told = error.to_string();
        for part in
            ["custom kernel cube runs on reference", "its gradient cube_gradient does not", "has C", "give "]
        {
            assert!(told.contains(part), "{told}");
        }
    }
    // Without gradients, no gradient kernel is needed.
    assert_eq!(kernel.call(&[&x], &[])?.to_vec::<f64>()?, [8.0]);
    let _guard = crate::op::gradient::no_grad();
    kernel.compile(x.device())?;
    assert_eq!(kernel.call(&[&variable], &[])?.to_vec::<f64>()?, [8.0]);
    // Languages that share devices can be combined.
    in_language(SHADER).gradient_kernel(gradient_in(OTHER_SHADER)).build()?;
    Ok(())
}

#[test]
fn what_makes_no_kernel_is_refused() {
    let base = || {
        CustomKernel::builder("k").input("x", DType::F32, "n").output("y", DType::F32, "n").cpu(|_| Ok(()))
    };
    assert!(base().build().is_ok());
    let cases: Vec<(CustomKernelBuilder, &str)> = vec![
        (
            CustomKernel::builder("k").input("x", DType::F32, "n").output("y", DType::F32, "n"),
            "neither a source",
        ),
        (CustomKernel::builder("k").output("y", DType::F32, "3").cpu(|_| Ok(())), "an input and an output"),
        (CustomKernel::builder("k").input("y", DType::F32, "3").cpu(|_| Ok(())), "an input and an output"),
        (CustomKernel::builder(""), "needs a name"),
        (CustomKernel::builder("a b"), "not a valid function name"),
        (base().input("x", DType::F32, "n"), "two parameters"),
        (base().input("z", DType::F32, "n-1"), "neither a number"),
        (base().output("z", DType::F32, "m"), "defines m"),
        (base().output("z", DType::F32, "_"), "defines _"),
        (base().output("z", DType::I32, "n"), "the same dtype"),
        (base().scalar("s", DType::F16), "a scalar cannot be float16"),
        (base().scalar("s", DType::F64).source(SHADER, "x"), "shader do not support float64 scalars"),
        (base().scalar("s", DType::I64).binary(BINARY, &[0]), "binary shader do not support int64 scalars"),
        (base().source(BINARY, "x"), "pass it with binary()"),
        (base().binary(OTHER_SHADER, b"x"), "pass it with source()"),
        (base().source(C, "a").source(C, "b"), "two sources in C"),
        (base().source(C, "a\0b"), "zero byte"),
        (base().work_group_size([0, 1, 1]), "work group"),
        (base().work_group_size([usize::MAX, 2, 1]), "work group"),
        (base().gradient_kernel(base().build().unwrap()), "must have the inputs [float32, float32, float32]"),
        (
            // Its copied output adds an operand.
            cube().gradient_kernel(gradient_in_place().input("more", DType::F64, "shape..").build().unwrap()),
            "must have the inputs [float64, float64, float64], it has [float64, float64, float64, float64]",
        ),
        (
            in_language(OTHER_C).gradient_kernel(gradient_in(C)),
            "no device runs both it and its gradient g: it has other C, g has C",
        ),
    ];
    for (builder, expected) in cases {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should tell of: {expected}");
    }
}

/// Compares the gradients of `sum(function(inputs) * weights)` with central differences.
fn check_gradients(inputs: &[Tensor], function: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let loss = |inputs: &[Tensor]| -> Result<Tensor> {
        let y = function(inputs)?;
        y.mul(&tensor(&numbers(y.len()), y.shape()))?.sum(&[], false)
    };
    let variables: Vec<Tensor> = inputs.iter().map(Tensor::with_grad).collect::<Result<_>>()?;
    let gradients = loss(&variables)?.gradients(&variables.iter().collect::<Vec<_>>())?;
    let step = 1e-5;
    for (at, gradient) in gradients.iter().enumerate() {
        let values = inputs[at].to_vec::<f64>()?;
        for (i, found) in gradient.to_vec::<f64>()?.into_iter().enumerate() {
            let moved = |by: f64| -> Result<f64> {
                let mut values = values.clone();
                values[i] += by;
                let mut all = inputs.to_vec();
                all[at] = tensor(&values, inputs[at].shape());
                loss(&all)?.item::<f64>()
            };
            let expected = (moved(step)? - moved(-step)?) / (2.0 * step);
            assert!(
                (found - expected).abs() < 1e-7 * expected.abs().max(1.0),
                "{at} {i}: {found} {expected}"
            );
        }
    }
    Ok(())
}

#[test]
fn gradients_by_a_kernel_and_of_second_order() -> Result<()> {
    let kernel = cube().gradient_kernel(cube_gradient()?).build()?;
    assert!(kernel.is_differentiable());
    let x = tensor(&numbers(6), &[2, 3]);
    check_gradients(std::slice::from_ref(&x), |x| kernel.call(&[&x[0].t()?], &[]))?;
    let x = x.with_grad()?;
    let first = kernel.call(&[&x], &[])?.sum(&[], false)?.gradients_create_graph(&[&x])?.remove(0);
    let second = first.sum(&[], false)?.gradients(&[&x])?.remove(0);
    for (found, x) in second.to_vec::<f64>()?.iter().zip(numbers(6)) {
        assert!((found - 6.0 * x).abs() < 1e-12);
    }
    Ok(())
}

#[test]
fn gradients_by_a_kernel_that_works_in_place() -> Result<()> {
    let kernel = cube().gradient_kernel(gradient_in_place().build()?).build()?;
    check_gradients(&[tensor(&numbers(6), &[2, 3])], |x| kernel.call(&[&x[0]], &[]))
}

#[test]
fn gradients_by_tensor_code_with_several_outputs() -> Result<()> {
    let kernel = sums(DType::F64)
        .gradient(|call| {
            let by = |at: usize, factor: f64| {
                let (input, gradient) = (&call.inputs[at], &call.gradients[at]);
                gradient.reshape(&[input.shape()[0], 1])?.expand(input.shape())?.mul_scalar(factor).map(Some)
            };
            Ok(vec![by(0, call.scalars[0].as_f64())?, by(1, 1.0)?])
        })
        .build()?;
    let inputs = [tensor(&numbers(6), &[2, 3]), tensor(&numbers(12), &[3, 4])];
    check_gradients(&inputs, |x| {
        let results = kernel.launch(&[&x[0], &x[1]], &[Scalar::Float(2.5)])?;
        results[0].sum(&[], false)?.mul(&results[1].exp()?)
    })?;
    // A single one of the outputs.
    check_gradients(&inputs, |x| Ok(kernel.launch(&[&x[0], &x[1]], &[Scalar::Float(2.5)])?.remove(1)))
}

#[test]
fn gradients_that_are_not_there_or_wrong_are_errors() -> Result<()> {
    let x = tensor(&numbers(3), &[3]).with_grad()?;
    let error = cube().build()?.call(&[&x], &[])?.sum(&[], false)?.backward().unwrap_err();
    assert!(matches!(error, Error::NoGradient { .. }) && error.to_string().contains("cube"), "{error}");
    let cases: [(CustomKernelBuilder, &str); 3] = [
        (cube().gradient(|_| Ok(vec![])), "gradients"),
        (cube().gradient(|call| Ok(vec![Some(call.gradients[0].sum(&[], false)?)])), "gradient of x"),
        (cube().gradient(|call| Ok(vec![Some(call.inputs[0].to_dtype(DType::F32)?)])), "gradient of x"),
    ];
    for (builder, expected) in cases {
        let loss = builder.build()?.call(&[&x], &[])?.sum(&[], false)?;
        assert_eq!(argument_error(loss.backward()).0, expected);
    }
    // Without gradients, no derivative is needed.
    let plain = cube().build()?.call(&[&x.detach()?], &[])?;
    assert!(!plain.requires_grad());
    plain.evaluate()
}

#[test]
fn captured_functions_replay_launches() -> Result<()> {
    let kernel = cube().gradient_kernel(cube_gradient()?).build()?;
    let step = Captured::new(|given: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        let x = given[0].with_grad()?;
        let gradient = kernel.call(&[&x], &[])?.sum(&[], false)?.gradients(&[&x])?.remove(0);
        Ok(vec![given[0].sub(&gradient.mul_scalar(0.1)?)?])
    });
    let mut found = vec![tensor(&[1.0, -0.5], &[2])];
    let mut expected = [1.0, -0.5];
    for _ in 0..3 {
        found = step.call(&mut found, &[])?;
        expected = expected.map(|x: f64| x - 3.0 * x * x * 0.1);
    }
    for (found, expected) in found[0].to_vec::<f64>()?.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12);
    }
    Ok(())
}

/// Doubles the first elements of its copied output and leaves the others.
fn partly_doubled() -> Result<CustomKernel> {
    CustomKernel::builder("partly_doubled")
        .copied_output("x", DType::F64, "n")
        .scalar("count", DType::I32)
        .cpu(|mut call| {
            let count = call.scalars[0].as_i64() as usize;
            call.outputs[0].values::<f64>()?[..count].iter_mut().for_each(|x| *x *= 2.0);
            Ok(())
        })
        .gradient(|call| Ok(vec![Some(call.gradients[0].mul_scalar(2.0)?)]))
        .build()
}

#[test]
fn outputs_begin_as_copies() -> Result<()> {
    let x = tensor(&[1.0, 2.0, 3.0], &[3]).with_grad()?;
    let y = partly_doubled()?.call(&[&x], &[Scalar::Int(2)])?;
    assert_eq!(y.to_vec::<f64>()?, [2.0, 4.0, 3.0]);
    assert_eq!(x.to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    assert_eq!(y.sum(&[], false)?.gradients(&[&x])?[0].to_vec::<f64>()?, [2.0; 3]);
    // Copied operands follow all inputs, regardless of the order of parameters; shapes share names.
    let kernel = CustomKernel::builder("add")
        .copied_output("sum", DType::F64, "n")
        .input("x", DType::F64, "n")
        .output("count", DType::F64, "1")
        .cpu(|mut call| {
            let x = call.inputs[0].values::<f64>()?;
            call.outputs[0].values::<f64>()?.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
            call.outputs[1].values::<f64>()?[0] = x.len() as f64;
            Ok(())
        })
        .build()?;
    let (x, ten) = (tensor(&[1.0, 2.0], &[2]), tensor(&[10.0, 20.0], &[2]));
    let results = kernel.launch(&[&x, &ten], &[])?;
    assert_eq!(results[0].to_vec::<f64>()?, [11.0, 22.0]);
    assert_eq!(results[1].to_vec::<f64>()?, [2.0]);
    let (argument, _) = argument_error(kernel.launch(&[&x, &tensor(&[1.0; 3], &[3])], &[]));
    assert_eq!(argument, "sum");
    let (argument, message) = argument_error(kernel.launch(&[&x], &[]));
    assert!(argument == "inputs" && message.contains("2 tensors"), "{message}");
    Ok(())
}
