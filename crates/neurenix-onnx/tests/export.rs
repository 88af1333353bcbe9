//! Networks that were written to ONNX's format and read back compute what they did.

use std::{collections::HashMap, fs};

use neurenix_onnx::{Error, Export, Model, Value, export, export_as, export_with, proto::ModelProto, save};
use phynexus::{
    DType, Device, Result, Scalar, Tensor,
    tensor::{GeluApproximation, Generator},
};
use prost::Message;

#[path = "export/networks.rs"]
mod networks;
#[path = "export/opsets.rs"]
mod opsets;

fn cpu() -> Device {
    phynexus_cpu::register()
}

/// Numbers without a pattern, between -2 and 2.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let count = shape.iter().product::<usize>();
    let number = |i: usize| ((i + 7 * seed + 1) * 7919 % 1009) as f32 / 252.0 - 2.0;
    Tensor::from_slice(&(0..count).map(number).collect::<Vec<f32>>(), shape, cpu()).unwrap()
}

fn integers(shape: &[usize], below: i64, seed: usize) -> Tensor {
    let count = shape.iter().product::<usize>();
    let number = |i: usize| ((i + 3 * seed + 1) * 7919 % 1009) as i64 % below;
    Tensor::from_slice(&(0..count).map(number).collect::<Vec<i64>>(), shape, cpu()).unwrap()
}

/// The same tensors, not computed yet.
fn pending(tensors: &[Tensor]) -> Vec<Tensor> {
    let pending = |x: &Tensor| if x.dtype() == DType::Bool { x.or(x) } else { x.mul_scalar(1) };
    tensors.iter().map(|tensor| pending(tensor).unwrap()).collect()
}

type Network<'a> = &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

fn named<'a>(prefix: &str, tensors: &'a [Tensor]) -> Vec<(String, &'a Tensor)> {
    tensors.iter().enumerate().map(|(at, tensor)| (format!("{prefix}{at}"), tensor)).collect()
}

/// That the network computes the same once it was read back.
fn compare(name: &str, model: &ModelProto, inputs: &[Tensor], expected: &[Tensor], tolerance: f64) {
    let read = Model::parse(&model.encode_to_vec(), None, cpu()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let given: HashMap<String, Value> =
        named("x", inputs).into_iter().map(|(name, tensor)| (name, Value::Tensor(tensor.clone()))).collect();
    let found = read.run(given, &Generator::new(0)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        let Value::Tensor(found) = found else { panic!("{name}: {found:?}") };
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{name}");
        let values = |tensor: &Tensor| tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
        for (at, (found, expected)) in values(found).into_iter().zip(values(expected)).enumerate() {
            let close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
            let same = found == expected || (found.is_nan() && expected.is_nan());
            assert!(close || same, "{name}: {found} rather than {expected} at {at}");
        }
    }
}

/// Exports, reads back and compares; returns how many nodes there are of each operator.
fn check(name: &str, inputs: &[Tensor], network: Network) -> HashMap<String, usize> {
    check_within(name, inputs, network, 2e-5)
}

fn check_within(name: &str, inputs: &[Tensor], network: Network, tolerance: f64) -> HashMap<String, usize> {
    let given = pending(inputs);
    let outputs = network(&given).unwrap_or_else(|e| panic!("{name}: {e}"));
    let described = Export { inputs: named("x", &given), outputs: named("y", &outputs), ..Export::default() };
    let model = export(&described).unwrap_or_else(|e| panic!("{name}: {e}"));
    // No older operators compute with bits.
    let lacks_bits = |what: &[String]| what.iter().all(|what| what.starts_with("Bitwise"));
    let others = [13, 28].map(|opset| match export_as(&described, &described, opset) {
        Err(Error::Unsupported(what)) if lacks_bits(&what) => None,
        result => Some((opset, result.unwrap_or_else(|e| panic!("{name}, opset {opset}: {e}")))),
    });
    compare(name, &model, inputs, &outputs, tolerance);
    for (opset, other) in others.iter().flatten() {
        compare(&format!("{name}, opset {opset}"), other, inputs, &outputs, tolerance);
    }
    operators(&model)
}

fn operators(model: &ModelProto) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for node in model.graph.iter().flat_map(|graph| &graph.node) {
        *counts.entry(node.op_type.clone()).or_default() += 1;
    }
    counts
}

/// Exports from two sets of inputs, and compares for a third one. `symbols` are (input, axis, name).
fn check_varying(
    name: &str,
    inputs: &dyn Fn(usize) -> Vec<Tensor>,
    symbols: &[(usize, usize, &str)],
    weights: &[Tensor],
    network: Network,
) -> ModelProto {
    let model = vary(inputs, symbols, weights, network).unwrap_or_else(|e| panic!("{name}: {e}"));
    for size in 2..5 {
        let own = inputs(size);
        compare(name, &model, &own, &network(&own).unwrap(), 2e-5);
    }
    model
}

fn vary(
    inputs: &dyn Fn(usize) -> Vec<Tensor>,
    symbols: &[(usize, usize, &str)],
    weights: &[Tensor],
    network: Network,
) -> Result<ModelProto, Error> {
    let (first, second) = (pending(&inputs(0)), pending(&inputs(1)));
    let (of_first, of_second) = (network(&first)?, network(&second)?);
    let symbols = symbols.iter().map(|&(input, axis, name)| (input, axis, name.to_owned())).collect();
    let one = Export {
        inputs: named("x", &first),
        outputs: named("y", &of_first),
        names: named("w", weights),
        symbols,
    };
    let other = Export { inputs: named("x", &second), outputs: named("y", &of_second), ..Export::default() };
    export_with(&one, &other)
}

#[test]
fn functions_of_one_element() {
    let x = numbers(&[3, 5], 1);
    let positive = x.abs().unwrap().add_scalar(0.1).unwrap().to_dtype(DType::F32).unwrap();
    let positive = Tensor::from_slice(&positive.to_vec::<f32>().unwrap(), &[3, 5], cpu()).unwrap();
    type Function = fn(&Tensor) -> Result<Tensor>;
    let functions: [(&str, Function); 35] = [
        ("neg", |x| x.neg()),
        ("abs", Tensor::abs),
        ("sign", Tensor::sign),
        ("reciprocal", Tensor::reciprocal),
        ("exp", Tensor::exp),
        ("exp2", Tensor::exp2),
        ("expm1", Tensor::expm1),
        ("sin", Tensor::sin),
        ("cos", Tensor::cos),
        ("tan", |x| x.mul_scalar(0.5)?.tan()),
        ("asin", |x| x.mul_scalar(0.5)?.asin()),
        ("acos", |x| x.mul_scalar(0.5)?.acos()),
        ("atan", Tensor::atan),
        ("sinh", Tensor::sinh),
        ("cosh", Tensor::cosh),
        ("tanh", Tensor::tanh),
        ("asinh", Tensor::asinh),
        ("atanh", |x| x.mul_scalar(0.4)?.atanh()),
        ("log1p", |x| x.mul_scalar(0.49)?.log1p()),
        ("erf", Tensor::erf),
        ("sinc", Tensor::sinc),
        ("lgamma", |x| x.mul_scalar(4.7)?.lgamma()),
        ("digamma", |x| x.mul_scalar(4.7)?.digamma()),
        ("floor", Tensor::floor),
        ("ceil", Tensor::ceil),
        ("trunc", Tensor::trunc),
        ("round", Tensor::round),
        ("isnan", Tensor::isnan),
        ("isinf", Tensor::isinf),
        ("relu", Tensor::relu),
        ("sigmoid", Tensor::sigmoid),
        ("silu", Tensor::silu),
        ("mish", Tensor::mish),
        ("softplus", |x| x.softplus(2.0, 20.0)),
        ("gelu", |x| x.gelu(GeluApproximation::None)?.add(&x.gelu(GeluApproximation::Tanh)?)),
    ];
    for (name, function) in functions {
        check(&format!("unary_{name}"), std::slice::from_ref(&x), &|x| Ok(vec![function(&x[0])?]));
    }
    let functions: [(&str, Function); 5] = [
        ("sqrt", Tensor::sqrt),
        ("rsqrt", Tensor::rsqrt),
        ("log", Tensor::log),
        ("log2", Tensor::log2),
        ("acosh", |x| x.add_scalar(1.0)?.acosh()),
    ];
    for (name, function) in functions {
        check(&format!("unary_{name}"), std::slice::from_ref(&positive), &|x| Ok(vec![function(&x[0])?]));
    }
    let tiny = x.mul_scalar(1e-6).unwrap().to_vec::<f32>().unwrap();
    let tiny = Tensor::from_slice(&tiny, &[15], cpu()).unwrap();
    check_within(
        "unary_near_zero",
        &[tiny],
        &|x| Ok(vec![x[0].log1p()?.mul_scalar(1e6)?, x[0].expm1()?.mul_scalar(1e6)?]),
        1e-6,
    );
}

#[test]
fn functions_of_two_elements() {
    let (x, y) = (numbers(&[3, 5], 1), numbers(&[5], 4));
    type Function = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let functions: [(&str, Function); 16] = [
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("div", Tensor::div),
        ("floor_divide", Tensor::floor_divide),
        ("remainder", Tensor::remainder),
        ("pow", |x, y| x.abs()?.pow(y)),
        ("maximum", Tensor::maximum),
        ("minimum", Tensor::minimum),
        ("atan2", Tensor::atan2),
        ("lt", Tensor::lt),
        ("le", Tensor::le),
        ("eq", Tensor::eq),
        ("ne", Tensor::ne),
        ("where", |x, y| x.lt(y)?.where_(x, y)),
        ("square", |x, y| x.pow_scalar(2.0)?.add(&y.pow_scalar(3.0)?)),
    ];
    for (name, function) in functions {
        check(&format!("binary_{name}"), &[x.clone(), y.clone()], &|x| Ok(vec![function(&x[0], &x[1])?]));
    }
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 2.5];
    let column = Tensor::from_slice(&special, &[8, 1], cpu()).unwrap();
    let row = Tensor::from_slice(&special, &[8], cpu()).unwrap();
    check("binary_special", &[column, row], &|x| {
        Ok(vec![x[0].atan2(&x[1])?, x[0].floor_divide(&x[1])?, x[0].remainder(&x[1])?, x[0].maximum(&x[1])?])
    });
}

#[test]
fn functions_of_integers() {
    for dtype in DType::INTEGERS {
        let x = integers(&[4, 6], 200, 1).sub_scalar(60).unwrap().to_dtype(dtype).unwrap();
        let y = integers(&[6], 9, 2).sub_scalar(4).unwrap().to_dtype(dtype).unwrap();
        let read = |t: &Tensor| Tensor::from_bytes(&t.to_bytes().unwrap(), dtype, t.shape(), cpu()).unwrap();
        check(&format!("integer_{dtype}"), &[read(&x), read(&y)], &|x| {
            let (x, y) = (&x[0], &x[1]);
            Ok(vec![
                x.add(y)?,
                x.mul(y)?,
                x.sub(y)?,
                x.neg()?,
                x.abs()?,
                x.sign()?,
                x.floor_divide(y)?,
                x.floor_divide_scalar(7)?,
                x.remainder(y)?,
                x.pow_scalar(3)?,
                x.maximum(y)?,
                x.and(y)?,
                x.or(y)?,
                x.xor(y)?,
                x.bitwise_not()?,
                x.shift_left(y)?,
                x.shift_right(y)?,
                x.shift_right_scalar(2)?,
                x.lt(y)?,
                x.eq(y)?,
                x.max(&[1], false)?,
                x.sum(&[0], true)?,
                x.argmax(Some(1), false)?,
            ])
        });
    }
    let flags = [true, false, true, true, false, false];
    let flags = Tensor::from_slice(&flags, &[2, 3], cpu()).unwrap();
    check("bools", &[flags], &|x| {
        let other = x[0].logical_not()?.flip(&[1])?;
        Ok(vec![
            x[0].and(&other)?,
            x[0].xor(&other)?,
            x[0].maximum(&other)?,
            x[0].lt(&other)?,
            x[0].eq(&other)?,
            x[0].where_(&other, &x[0])?,
            x[0].any(&[1], false)?,
            x[0].to_dtype(DType::F32)?,
        ])
    });
}

#[test]
fn dtypes() {
    for dtype in DType::FLOATS {
        let x = numbers(&[4, 6], 1).to_dtype(dtype).unwrap();
        let x = Tensor::from_bytes(&x.to_bytes().unwrap(), dtype, &[4, 6], cpu()).unwrap();
        let tolerance = if dtype.size() == 2 { 2e-2 } else { 2e-5 };
        let network = |x: &[Tensor]| {
            let x = &x[0];
            Ok(vec![
                x.sin()?,
                x.exp()?.add(x)?,
                x.softmax(1)?,
                x.matmul(&x.t()?)?,
                x.sum(&[1], false)?,
                x.cumsum(0)?,
                x.silu()?,
                x.layer_norm(&[6], None, None, 1e-5)?,
                x.maximum_scalar(0.5)?,
                x.to_dtype(DType::I32)?,
                x.round()?,
                x.where_nonzero()?,
            ])
        };
        check_within(&format!("dtype_{dtype}"), &[x], &network, tolerance);
    }
}

trait Nonzero {
    fn where_nonzero(&self) -> Result<Tensor>;
}
impl Nonzero for Tensor {
    fn where_nonzero(&self) -> Result<Tensor> {
        self.ne_scalar(0)?.where_(self, &self.full_like(3)?)
    }
}

#[test]
fn movement() {
    let x = numbers(&[3, 4, 5], 1);
    let counts = check("movement", std::slice::from_ref(&x), &|x| {
        let x = &x[0];
        Ok(vec![
            x.reshape(&[12, 5])?,
            x.permute(&[2, 0, 1])?,
            x.unsqueeze(1)?.expand(&[3, 2, 4, 5])?,
            x.narrow(1, 1, 2)?,
            x.slice(2, Some(4), Some(0), -2)?,
            x.slice(2, None, None, -1)?,
            x.flip(&[0, 2])?,
            x.pad(&[(0, 1), (2, 0), (0, 0)], 1.5)?,
            Tensor::cat(&[x, &x.narrow(1, 0, 1)?], 1)?,
            Tensor::stack(&[x, &x.mul_scalar(2)?], 0)?,
            x.narrow(0, 0, 0)?,
            x.reshape(&[60])?.reshape(&[5, 12])?.contiguous()?,
            x.roll(&[1], &[2])?,
            x.tile(&[2, 1, 1])?,
            x.clone(),
            x.tril(0)?,
            x.diagonal(0, 1, 2)?,
            x.repeat_interleave(2, 1)?,
        ])
    });
    assert!(!counts.contains_key("Cast"), "{counts:?}");
    check("counting", &[x], &|x| {
        let size = Scalar::Int(5);
        let row = Tensor::arange(Scalar::Int(0), size, Scalar::Int(1), DType::I64, x[0].device())?;
        Ok(vec![x[0].add(&row)?, Tensor::full(&[2, 3], 2.5, DType::F32, x[0].device())?, row.unsqueeze(1)?])
    });
}

#[test]
fn selection() {
    let (x, index, wide) = (numbers(&[6, 4], 1), integers(&[2, 3], 6, 1), integers(&[6, 2], 4, 2));
    let counts = check("selection", &[x, index, wide], &|x| {
        let (x, index, wide) = (&x[0], &x[1], &x[2]);
        let flat = index.reshape(&[6])?;
        let (sorted, order) = x.sort(1, true)?;
        let (top, places) = x.topk(2, 0, true)?;
        Ok(vec![
            x.take(index, Some(0))?,
            x.index_select(1, &wide.narrow(1, 0, 1)?.reshape(&[6])?)?,
            x.gather(1, wide)?,
            x.take_along_dim(wide, 1)?,
            x.index_add(0, &flat, x)?,
            x.scatter_add(1, wide, &x.narrow(1, 0, 2)?)?,
            sorted,
            order,
            top,
            places,
            x.argmax(Some(1), true)?,
            x.argmin(None, false)?,
            x.cumsum(1)?,
            x.cumprod(0)?,
            x.flip(&[0])?.cumsum(0)?,
            x.cummax(0)?.0,
            index.embedding(x, None)?,
        ])
    });
    assert!(counts.contains_key("TopK") && counts.contains_key("CumSum"), "{counts:?}");
    let counts = check("embedding", &[integers(&[2, 3], 6, 1), numbers(&[6, 4], 1)], &|x| {
        Ok(vec![x[0].embedding(&x[1], None)?])
    });
    assert_eq!((counts.len(), counts["Gather"]), (1, 1), "{counts:?}");
    let (sorted, values) = ([-1.0f32, 0.0, 0.5, 0.5, 2.0], numbers(&[7], 2));
    let sorted = Tensor::from_slice(&sorted, &[5], cpu()).unwrap();
    check("searchsorted", &[sorted, values], &|x| {
        Ok(vec![x[0].searchsorted(&x[1], false)?, x[0].searchsorted(&x[1], true)?])
    });
}

#[test]
fn reductions() {
    let counts = check("reductions", &[numbers(&[3, 4, 5], 1)], &|x| {
        let x = &x[0];
        Ok(vec![
            x.sum(&[1], false)?,
            x.sum(&[], false)?,
            x.mean(&[0, 2], true)?,
            x.mean(&[1], false)?,
            x.max(&[2], false)?,
            x.min(&[0], true)?,
            x.prod(&[1], false)?,
            x.var(&[2], 1.0, false)?,
            x.logsumexp(&[1], false)?,
            x.norm(2.0, &[2], false)?,
        ])
    });
    assert!(counts["ReduceMean"] >= 2, "{counts:?}");
}

#[test]
fn products() {
    let shapes: [(&[usize], &[usize]); 7] = [
        (&[3, 4], &[4, 5]),
        (&[4], &[4, 5]),
        (&[3, 4], &[4]),
        (&[2, 3, 4], &[4, 5]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[3, 4], &[2, 4, 5]),
        (&[2, 1, 3, 4], &[6, 4, 5]),
    ];
    for (at, (a, b)) in shapes.into_iter().enumerate() {
        let counts = check(&format!("product_{at}"), &[numbers(a, 1), numbers(b, 2)], &|x| {
            Ok(vec![x[0].matmul(&x[1])?])
        });
        assert!(!counts.contains_key("Expand"), "{counts:?}");
        if at >= 3 {
            assert_eq!(counts["MatMul"], 1, "{counts:?}");
        }
    }
    let counts =
        check("product_linear", &[numbers(&[2, 3, 4], 1), numbers(&[5, 4], 2), numbers(&[5], 3)], &|x| {
            Ok(vec![x[0].matmul(&x[1].t()?)?.add(&x[2])?])
        });
    assert_eq!(counts.values().sum::<usize>(), 3, "{counts:?}");
}

#[test]
fn names_and_errors() {
    let (x, weight) = (numbers(&[2, 3], 1), numbers(&[3, 4], 2));
    let y = x.matmul(&weight).unwrap();
    let network = Export {
        inputs: vec![("image".to_owned(), &x)],
        outputs: vec![("scores".to_owned(), &y), ("same".to_owned(), &y), ("copy".to_owned(), &x)],
        names: vec![("layer.weight".to_owned(), &weight)],
        symbols: Vec::new(),
    };
    let model = export(&network).unwrap();
    let graph = model.graph.as_ref().unwrap();
    assert_eq!(graph.initializer[0].name, "layer.weight");
    assert_eq!(graph.node[0].input, ["image", "layer.weight"]);
    assert_eq!(graph.node[0].name, "MatMul_0");
    assert_eq!(export(&network).unwrap(), model, "the same every time");
    let path = std::env::temp_dir().join(format!("neurenix_export_{}.onnx", std::process::id()));
    save(&model, &path).unwrap();
    let read = Model::load(&path, cpu()).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(
        read.outputs().iter().map(|port| port.name.as_str()).collect::<Vec<_>>(),
        ["scores", "same", "copy"]
    );
    let twice = Export { names: vec![("image".to_owned(), &weight)], ..network.clone() };
    assert!(export(&twice).unwrap_err().to_string().contains("names"));

    let random = x.add(&Tensor::rand(&[2, 3], DType::F32, cpu()).unwrap()).unwrap();
    let bits = x.bitcast(DType::I32).unwrap();
    let outputs = vec![("a".to_owned(), &random), ("b".to_owned(), &bits)];
    let error = export(&Export { outputs, names: Vec::new(), ..network.clone() }).unwrap_err();
    let Error::Unsupported(what) = &error else { panic!("{error}") };
    assert!(what.len() >= 2 && error.to_string().contains("random"), "{error}");
}
