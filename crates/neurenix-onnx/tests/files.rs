//! Files that are not as they should be: every one gives an error, and none a panic.

use std::{collections::HashMap, fs, time::Instant};

use neurenix_onnx::{
    Error, Model, Value,
    proto::{
        AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        SparseTensorProto, StringStringEntryProto, TensorProto, TensorTypeProto, TypeKind, TypeProto,
        ValueInfoProto, attribute_type,
    },
};
use phynexus::{Device, Tensor, tensor::Generator};
use prost::Message;

#[path = "files/mutation.rs"]
mod mutation;

use mutation::{Random, Reached, mutate, try_file};

fn cpu() -> Device {
    phynexus_cpu::register();
    Device::find("cpu").expect("the CPU is registered")
}

fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeProto {
        op_type: operator.to_owned(),
        input: names(inputs),
        output: names(outputs),
        ..NodeProto::default()
    }
}

fn port(name: &str) -> ValueInfoProto {
    let tensor = TensorTypeProto { elem_type: 1, shape: None };
    let r#type = Some(TypeProto { value: Some(TypeKind::Tensor(tensor)) });
    ValueInfoProto { name: name.to_owned(), r#type }
}

fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        raw_data,
        ..TensorProto::default()
    }
}

fn model(nodes: Vec<NodeProto>, initializer: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        name: "test".to_owned(),
        initializer,
        input: vec![port("x")],
        output: vec![port("y")],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..ModelProto::default() }
}

fn parse(model: &ModelProto) -> Result<Model, Error> {
    Model::parse(&model.encode_to_vec(), None, cpu())
}

fn message(model: &ModelProto) -> String {
    parse(model).err().map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

/// A network with a loop, a branch, a weight and integers for shapes.
fn network() -> ModelProto {
    let mut branch = node("If", &["flag"], &["b"]);
    let inner = |operator: &str| GraphProto {
        node: vec![node(operator, &["h"], &["z"])],
        output: vec![port("z")],
        ..GraphProto::default()
    };
    for (name, operator) in [("then_branch", "Relu"), ("else_branch", "Neg")] {
        branch.attribute.push(AttributeProto {
            name: name.to_owned(),
            r#type: attribute_type::GRAPH,
            g: Some(Box::new(inner(operator))),
            ..AttributeProto::default()
        });
    }
    let mut softmax = node("Softmax", &["r"], &["y"]);
    softmax.attribute.push(AttributeProto {
        name: "axis".to_owned(),
        r#type: attribute_type::INT,
        i: Some(-1),
        ..AttributeProto::default()
    });
    let flag =
        TensorProto { name: "flag".to_owned(), data_type: 9, raw_data: vec![1], ..TensorProto::default() };
    let shape = TensorProto {
        name: "shape".to_owned(),
        dims: vec![2],
        data_type: 7,
        int64_data: vec![-1, 2],
        ..TensorProto::default()
    };
    let nodes =
        vec![node("MatMul", &["x", "w"], &["h"]), branch, node("Reshape", &["b", "shape"], &["r"]), softmax];
    model(nodes, vec![floats("w", &[3, 2], &[1.0, -1.0, 0.5, 2.0, 0.0, 1.0]), flag, shape])
}

#[test]
fn a_network_runs() -> Result<(), Error> {
    let model = parse(&network())?;
    let x = Tensor::from_slice(&[1f32, 0.0, 0.0], &[1, 3], cpu())?;
    let results = model.run(HashMap::from([("x".to_owned(), Value::Tensor(x))]), &Generator::new(0))?;
    let y = results[0].tensor()?.to_vec::<f32>()?;
    // The softmax of (1, 0): the second product is negative.
    let e = 1f32.exp();
    assert!((y[0] - e / (e + 1.0)).abs() < 1e-6 && (y[1] - 1.0 / (e + 1.0)).abs() < 1e-6, "{y:?}");
    Ok(())
}

#[test]
fn graphs_that_cannot_run_are_errors() {
    let cycle = model(
        vec![node("Add", &["x", "b"], &["a"]), node("Relu", &["a"], &["b"]), node("Relu", &["a"], &["y"])],
        vec![],
    );
    assert!(message(&cycle).contains("cycle"), "{}", message(&cycle));
    let missing = model(vec![node("Add", &["x", "w"], &["y"])], vec![]);
    assert!(message(&missing).contains("nothing makes the value \"w\""), "{}", message(&missing));
    let twice = model(vec![node("Relu", &["x"], &["y"]), node("Neg", &["x"], &["y"])], vec![]);
    assert!(message(&twice).contains("\"y\""), "{}", message(&twice));
    let constant = |value: f32| {
        let mut constant = node("Constant", &[], &["a"]);
        let (name, r#type) = ("value_float".to_owned(), attribute_type::FLOAT);
        constant.attribute.push(AttributeProto { name, r#type, f: Some(value), ..AttributeProto::default() });
        constant
    };
    let reader = || node("Add", &["x", "a"], &["y"]);
    for (nodes, tensors) in [
        (vec![constant(1.0), constant(2.0), reader()], vec![]),
        (vec![constant(1.0), node("Neg", &["x"], &["a"]), reader()], vec![]),
        (vec![node("Neg", &["x"], &["a"]), reader()], vec![floats("a", &[1], &[1.0])]),
        (vec![reader()], vec![floats("a", &[1], &[1.0]), floats("a", &[1], &[2.0])]),
    ] {
        let said = message(&model(nodes, tensors));
        assert!(said.contains("the value \"a\" is made twice"), "{said}");
    }
    let mut later = model(vec![node("Relu", &["x"], &["y"])], vec![]);
    later.opset_import[0].version = 99;
    assert!(message(&later).contains("opset 99"), "{}", message(&later));
    let both = model(vec![node("Nonsense", &["x"], &["h"]), node("Other", &["h"], &["y"])], vec![]);
    let said = message(&both);
    assert!(matches!(parse(&both), Err(Error::Unsupported(all)) if all.len() == 2), "{said}");
    assert!(said.contains("Nonsense") && said.contains("Other"), "{said}");
    assert!(matches!(Model::parse(b"no protobuf at all", None, cpu()), Err(Error::Invalid(_))));
}

/// Each function calls the next one twice: the bodies would be more than all memory holds.
#[test]
fn functions_that_multiply_are_refused() {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    let function = |level: usize| {
        let call = |input: &str, output: &str| match level {
            40 => node("Neg", &[input], &[output]),
            _ => NodeProto {
                domain: "own".to_owned(),
                ..node(&format!("f{}", level + 1), &[input], &[output])
            },
        };
        FunctionProto {
            name: format!("f{level}"),
            domain: "own".to_owned(),
            input: vec!["a".to_owned()],
            output: vec!["c".to_owned()],
            node: vec![call("a", "b"), call("b", "c")],
            opset_import: opset_import.clone(),
            ..FunctionProto::default()
        }
    };
    let call = NodeProto { domain: "own".to_owned(), ..node("f0", &["x"], &["y"]) };
    let file = ModelProto { functions: (0..=40).map(function).collect(), ..model(vec![call], vec![]) };
    assert!(message(&file).contains("more than 1000000 nodes"), "{}", message(&file));
}

#[test]
fn tensors_that_do_not_fit_their_data_are_errors() {
    let with = |tensor: TensorProto| model(vec![node("Add", &["x", "w"], &["y"])], vec![tensor]);
    let short = with(floats("w", &[4], &[1.0]));
    assert!(message(&short).contains("4 bytes of data"), "{}", message(&short));
    for dims in [[i64::MAX, 2].as_slice(), &[-1], &[1 << 40, 1 << 40]] {
        let huge = with(floats("w", dims, &[1.0]));
        assert!(matches!(parse(&huge), Err(Error::Invalid(_))), "{dims:?}: {}", message(&huge));
    }
    let unknown = with(TensorProto { data_type: 99, ..floats("w", &[1], &[1.0]) });
    assert!(message(&unknown).contains("99"), "{}", message(&unknown));
    let complex = with(TensorProto { data_type: 14, ..floats("w", &[1], &[1.0, 2.0]) });
    assert!(matches!(parse(&complex), Err(Error::Unsupported(_))));
}

#[test]
fn a_sparse_tensor_that_is_too_large_is_refused() {
    let sparse = |size: i64| {
        let mut file = model(vec![node("Add", &["x", "w"], &["y"])], Vec::new());
        let indices =
            TensorProto { dims: vec![1], data_type: 7, int64_data: vec![2], ..TensorProto::default() };
        let values = Some(floats("w", &[1], &[1.5]));
        let stored = SparseTensorProto { values, indices: Some(indices), dims: vec![size] };
        file.graph.as_mut().expect("a graph").sparse_initializer.push(stored);
        file
    };
    parse(&sparse(4)).expect("a small one is read");
    let error = parse(&sparse(1 << 36)).expect_err("256 GiB");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("\"w\" of 68719476736 elements: at most 2^26"), "{error}");
}

#[test]
fn data_outside_the_folder_or_the_file_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let inner = folder.path().join("inner");
    fs::create_dir(&inner)?;
    fs::write(folder.path().join("secret"), [0u8; 64])?;
    fs::write(inner.join("data"), 7f32.to_le_bytes())?;
    let outside = |location: &str, offset: &str, length: &str| {
        let entry =
            |key: &str, value: &str| StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
        let external_data =
            vec![entry("location", location), entry("offset", offset), entry("length", length)];
        let tensor = TensorProto { external_data, data_location: 1, ..floats("w", &[1], &[]) };
        model(vec![node("Add", &["x", "w"], &["y"])], vec![tensor])
    };
    let load = |model: &ModelProto| -> Result<Model, Error> {
        let path = inner.join("model.onnx");
        fs::write(&path, model.encode_to_vec())
            .map_err(|source| Error::File { path: path.clone(), source })?;
        Model::load(&path, cpu())
    };
    let good = load(&outside("data", "0", "4"))?;
    let weights: Vec<Vec<f32>> =
        good.parameters().map(|(_, w, _)| w.to_vec()).collect::<phynexus::Result<_>>()?;
    assert_eq!(weights, [[7.0]]);
    let secret = folder.path().join("secret");
    for location in ["../secret", "inner/../../secret", &secret.to_string_lossy()] {
        assert!(matches!(load(&outside(location, "0", "4")), Err(Error::Invalid(_))), "{location}");
    }
    for (offset, length) in
        [("1", "4"), ("0", "8"), ("-1", "4"), ("18446744073709551615", "4"), ("0", "9999999999999")]
    {
        assert!(
            matches!(load(&outside("data", offset, length)), Err(Error::Invalid(_))),
            "{offset} {length}"
        );
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, inner.join("link"))?;
        assert!(matches!(load(&outside("link", "0", "4")), Err(Error::Invalid(_))));
        // A pipe would block.
        assert!(std::process::Command::new("mkfifo").arg(inner.join("pipe")).status()?.success());
        assert!(matches!(load(&outside("pipe", "0", "4")), Err(Error::Invalid(_))));
    }
    // Without a file there is no folder.
    assert!(matches!(parse(&outside("data", "0", "4")), Err(Error::Invalid(_))));
    Ok(())
}

/// Mutations of the networks of these tests.
fn mutated(files: usize, seed: u64) {
    let corpus = [network(), loops()].map(|model| model.encode_to_vec());
    let mut random = Random::new(seed);
    let (start, mut read) = (Instant::now(), 0);
    for _ in 0..files {
        let changed = mutate(&corpus[random.below(corpus.len())], &mut random);
        read += usize::from(try_file(&changed, cpu()) >= Reached::Read);
    }
    println!("{files} files of seed {seed}, {:.0} a second", files as f64 / start.elapsed().as_secs_f64());
    assert!(read > files / 50, "of {files} files, {read} could be read");
}

/// A loop whose state grows, and shapes that are computed.
fn loops() -> ModelProto {
    let body = GraphProto {
        node: vec![
            node("Identity", &["cond"], &["on"]),
            node("Add", &["state", "x"], &["next"]),
            node("Shape", &["next"], &["sizes"]),
            node("ConstantOfShape", &["sizes"], &["zeros"]),
        ],
        input: ["i", "cond", "state"].map(port).to_vec(),
        output: ["on", "next", "zeros"].map(port).to_vec(),
        ..GraphProto::default()
    };
    let mut steps = node("Loop", &["trips", "", "x"], &["last", "all"]);
    steps.attribute.push(AttributeProto {
        name: "body".to_owned(),
        r#type: attribute_type::GRAPH,
        g: Some(Box::new(body)),
        ..AttributeProto::default()
    });
    let trips =
        TensorProto { name: "trips".to_owned(), data_type: 7, int64_data: vec![3], ..TensorProto::default() };
    let mut reduced = node("ReduceSum", &["all"], &["sum"]);
    reduced.attribute.push(AttributeProto {
        name: "keepdims".to_owned(),
        r#type: attribute_type::INT,
        ..AttributeProto::default()
    });
    model(vec![steps, reduced, node("Add", &["last", "sum"], &["y"])], vec![trips])
}

#[test]
fn a_loop_runs() -> Result<(), Error> {
    let x = Tensor::from_slice(&[1f32, 2.0], &[1, 2], cpu())?;
    let given = HashMap::from([("x".to_owned(), Value::Tensor(x))]);
    let results = parse(&loops())?.run(given, &Generator::new(0))?;
    assert_eq!(results[0].tensor()?.to_vec::<f32>()?, [4.0, 8.0]);
    Ok(())
}

#[test]
fn mutated_files_are_read_or_refused() {
    mutated(5_000, 1);
}

/// `cargo test --release -p neurenix-onnx --test files -- --ignored --nocapture`. The example `fuzz` mutates files of
/// folders.
#[test]
#[ignore = "takes minutes; run by hand"]
fn ten_million_mutated_files_are_read_or_refused() {
    for seed in 0..100 {
        mutated(100_000, seed);
    }
}
