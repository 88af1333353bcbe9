//! Types and extents of values before a network runs.

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Error, Extent, Model, Type, Value,
    edit::{Network, integer_attribute, integers, node},
    infer,
    proto::{
        AttributeProto, DimensionKind, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        TensorProto, TensorShapeProto, TensorTypeProto, TypeKind, TypeProto, ValueInfoProto, attribute_type,
    },
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

fn cpu() -> Device {
    phynexus_cpu::register()
}

/// The declaration of a value; numbers are extents, other words are symbols, `?` is an extent that is not stated.
fn port(name: &str, element: Element, shape: &str) -> ValueInfoProto {
    let dim = |word: &str| DimensionProto {
        value: match word.parse::<i64>() {
            Ok(size) => Some(DimensionKind::Value(size)),
            Err(_) if word == "?" => None,
            Err(_) => Some(DimensionKind::Parameter(word.to_owned())),
        },
    };
    let shape = Some(TensorShapeProto { dim: shape.split_whitespace().map(dim).collect() });
    let tensor = TensorTypeProto { elem_type: element as i32, shape };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { value: Some(TypeKind::Tensor(tensor)) }),
    }
}

fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), r#type: None }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let (name, ints) = (name.to_owned(), values.to_vec());
    AttributeProto { name, ints, r#type: attribute_type::INTS, ..Default::default() }
}

fn body(name: &str, graph: GraphProto) -> AttributeProto {
    let (name, g) = (name.to_owned(), Some(Box::new(graph)));
    AttributeProto { name, g, r#type: attribute_type::GRAPH, ..Default::default() }
}

fn vector(name: &str, numbers: &[i64]) -> TensorProto {
    integers(name, Element::Int64, &[numbers.len()], numbers)
}

fn op(operator: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<AttributeProto>) -> NodeProto {
    node(operator, outputs.first().unwrap_or(&"node"), inputs, outputs, attributes)
}

fn file(
    inputs: Vec<ValueInfoProto>,
    stored: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
    outputs: Vec<ValueInfoProto>,
) -> ModelProto {
    cpu();
    let graph = GraphProto {
        node: nodes,
        name: "test".to_owned(),
        initializer: stored,
        input: inputs,
        output: outputs,
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() }
}

fn shown(known: &Type) -> String {
    let extent = |extent: &Extent| match extent {
        Extent::Fixed(size) => size.to_string(),
        Extent::Symbol(text) => text.clone(),
        Extent::Unknown => "?".to_owned(),
    };
    match known.extents() {
        Some(extents) => extents.iter().map(extent).collect::<Vec<_>>().join(", "),
        None => "unknown".to_owned(),
    }
}

/// The extents of the value `y`.
fn inferred(file: &ModelProto) -> String {
    let types = infer(file).unwrap_or_else(|error| panic!("{error}"));
    shown(&types["y"])
}

#[test]
fn strided_convolutions_are_expressions() {
    let weight = TensorProto { data_type: 1, ..integers("w", Element::Int32, &[8, 3, 3, 3], &[0; 216]) };
    let strided = |x: &str, y: &str, w: &str| {
        op("Conv", &[x, w], &[y], vec![ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])])
    };
    let second = TensorProto { data_type: 1, ..integers("v", Element::Int32, &[8, 8, 3, 3], &[0; 576]) };
    let graph = file(
        vec![port("x", Element::Float, "n 3 h 65")],
        vec![weight, second],
        vec![strided("x", "m", "w"), strided("m", "y", "v")],
        vec![untyped("y")],
    );
    assert_eq!(inferred(&graph), "n, 8, (h + 3)//4, 17");
    let types = infer(&graph).unwrap();
    assert_eq!(types["y"].element(), Some(Element::Float));
    let wrong = file(
        vec![port("x", Element::Float, "n 4 h 65")],
        vec![TensorProto { data_type: 1, ..integers("w", Element::Int32, &[8, 3, 3, 3], &[0; 216]) }],
        vec![strided("x", "y", "w")],
        vec![untyped("y")],
    );
    let error = infer(&wrong).unwrap_err();
    assert!(matches!(&error, Error::Node { node, .. } if node == "Conv \"y\""), "{error}");
    assert!(error.to_string().contains("4 and 3"), "{error}");
    // Such a file can be read: a run reports it, if it comes to the node.
    assert!(neurenix_onnx::Model::of(&wrong, None, cpu()).is_ok());
}

/// Heads of attention are split and joined by shapes that the file computes.
#[test]
fn computed_shapes_are_followed() {
    let graph = file(
        vec![port("x", Element::Float, "batch length 64")],
        vec![
            integers("first", Element::Int64, &[], &[0]),
            integers("second", Element::Int64, &[], &[1]),
            vector("axis", &[0]),
            vector("heads", &[8]),
            vector("size", &[8]),
            vector("all", &[-1]),
            vector("two", &[2]),
        ],
        vec![
            op("Shape", &["x"], &["shape"], vec![]),
            op("Gather", &["shape", "first"], &["b"], vec![]),
            op("Gather", &["shape", "second"], &["l"], vec![]),
            op("Unsqueeze", &["b", "axis"], &["b1"], vec![]),
            op("Unsqueeze", &["l", "axis"], &["l1"], vec![]),
            op("Concat", &["b1", "l1", "heads", "size"], &["split"], vec![integer_attribute("axis", 0)]),
            op("Reshape", &["x", "split"], &["h"], vec![]),
            op("Transpose", &["h"], &["t"], vec![ints("perm", &[0, 2, 1, 3])]),
            op("Mul", &["b1", "heads"], &["rows"], vec![]),
            op("Concat", &["rows", "all", "size"], &["joined"], vec![integer_attribute("axis", 0)]),
            op("Reshape", &["t", "joined"], &["r"], vec![]),
            op("Mul", &["l1", "two"], &["more"], vec![]),
            op("ConstantOfShape", &["more"], &["zeros"], vec![]),
            op("Concat", &["r", "r"], &["y"], vec![integer_attribute("axis", 1)]),
        ],
        vec![untyped("y"), untyped("zeros"), untyped("t")],
    );
    assert_eq!(inferred(&graph), "8*batch, 2*length, 8");
    let types = infer(&graph).unwrap();
    assert_eq!(
        (shown(&types["t"]).as_str(), shown(&types["zeros"]).as_str()),
        ("batch, 8, length, 8", "2*length")
    );
    let model = Model::of(&graph, None, cpu()).unwrap();
    assert_eq!(model.outputs()[0].shape.as_ref().unwrap()[0], Extent::Symbol("8*batch".to_owned()));
    assert_eq!(model.outputs()[0].element, Some(Element::Float));
    assert_eq!(model.value_types().unwrap()["r"], types["r"]);
    assert_eq!(Network::new(graph).unwrap().types().unwrap()["y"], types["y"]);
    // The inferred extents are those of a run.
    let x = Tensor::zeros(&[3, 5, 64], DType::F32, cpu()).unwrap();
    let results = model.run(HashMap::from([("x".to_owned(), Value::Tensor(x))]), &Generator::new(0)).unwrap();
    let sizes = HashMap::from([("batch".to_owned(), 3i64), ("length".to_owned(), 5)]);
    for (port, result) in model.outputs().iter().zip(&results) {
        let Type::Tensor { shape: Some(shape), .. } = &types[&port.name] else { panic!("{port:?}") };
        let expected: Vec<usize> =
            shape.iter().map(|size| size.as_ref().unwrap().evaluate(&sizes).unwrap() as usize).collect();
        assert_eq!(result.shape().unwrap(), expected, "{port:?}");
    }
}

#[test]
fn unknown_operators_give_unknown_types_and_declarations_help() {
    let mut graph = file(
        vec![port("x", Element::Float, "n ?")],
        vec![],
        vec![
            op("Relu", &["x"], &["a"], vec![]),
            op("Nonsense", &["a"], &["b"], vec![]),
            op("Neg", &["b"], &["c"], vec![]),
            op("MatMul", &["c", "a"], &["y"], vec![]),
        ],
        vec![untyped("y"), untyped("c"), untyped("a")],
    );
    let types = infer(&graph).unwrap();
    assert_eq!(
        (types["b"].clone(), shown(&types["y"]).as_str(), shown(&types["a"]).as_str()),
        (Type::Unknown, "unknown", "n, ?")
    );
    graph.graph.as_mut().unwrap().value_info.push(port("b", Element::Float, "7 n"));
    let types = infer(&graph).unwrap();
    assert_eq!((shown(&types["c"]).as_str(), shown(&types["y"]).as_str()), ("7, n", "7, ?"));
}

#[test]
fn branches_and_loops() {
    let branch = |operator: &str, shared: &[&str]| GraphProto {
        node: vec![op(operator, shared, &["z"], vec![integer_attribute("axis", 0)])],
        output: vec![untyped("z")],
        ..Default::default()
    };
    let if_ = |stored: Vec<TensorProto>, inputs: Vec<ValueInfoProto>| {
        let branches = vec![
            body("then_branch", branch("Concat", &["x", "x"])),
            body("else_branch", branch("Concat", &["x"])),
        ];
        file(inputs, stored, vec![op("If", &["flag"], &["y"], branches)], vec![untyped("y")])
    };
    let x = || port("x", Element::Float, "n 4");
    assert_eq!(inferred(&if_(vec![], vec![x(), port("flag", Element::Bool, "")])), "?, 4");
    let truth = |raw| TensorProto { raw_data: vec![raw], ..integers("flag", Element::Bool, &[], &[]) };
    assert_eq!(inferred(&if_(vec![truth(1)], vec![x()])), "2*n, 4");
    assert_eq!(inferred(&if_(vec![truth(0)], vec![x()])), "n, 4");

    // The state grows with each step; a scan output has a row for each.
    let steps = GraphProto {
        node: vec![
            op("Identity", &["cond"], &["on"], vec![]),
            op("Concat", &["state", "x"], &["next"], vec![integer_attribute("axis", 0)]),
            op("Relu", &["x"], &["row"], vec![]),
        ],
        input: vec![untyped("i"), untyped("cond"), untyped("state")],
        output: vec![untyped("on"), untyped("next"), untyped("row")],
        ..Default::default()
    };
    let graph = file(
        vec![x()],
        vec![integers("trips", Element::Int64, &[], &[3])],
        vec![op("Loop", &["trips", "", "x"], &["y", "rows"], vec![body("body", steps)])],
        vec![untyped("y"), untyped("rows")],
    );
    let types = infer(&graph).unwrap();
    assert_eq!((shown(&types["y"]).as_str(), shown(&types["rows"]).as_str()), ("?, 4", "3, n, 4"));
}

/// A step takes the first row of a matrix that has none: it could not even be recorded.
#[test]
fn a_loop_without_steps_has_the_declared_types() {
    let taken = |name: &str, declared: Option<&str>| GraphProto {
        node: vec![op("Identity", &["cond"], &["on"], vec![]), op("Gather", &["x", "i"], &[name], vec![])],
        input: vec![port("i", Element::Int64, ""), port("cond", Element::Bool, "")],
        output: vec![
            port("on", Element::Bool, ""),
            declared.map_or_else(|| untyped(name), |shape| port(name, Element::Float, shape)),
        ],
        ..Default::default()
    };
    let run = |body_graph: GraphProto, inputs: &str, nodes: Vec<NodeProto>| {
        let graph = file(
            vec![port("x", Element::Float, inputs)],
            vec![integers("trips", Element::Int64, &[], &[0])],
            [nodes, vec![op("Loop", &["trips", ""], &["y"], vec![body("body", body_graph)])]].concat(),
            vec![untyped("y")],
        );
        let x = Tensor::zeros(&[0, 4], DType::F32, cpu()).unwrap();
        let model = Model::of(&graph, None, cpu()).unwrap();
        let result = model.run(HashMap::from([("x".to_owned(), Value::Tensor(x))]), &Generator::new(0));
        result.map(|mut all| all.remove(0))
    };
    for declared in [None, Some("4"), Some("width")] {
        let result = run(taken("row", declared), "n 4", vec![]).unwrap();
        assert_eq!((result.shape().unwrap(), result.element()), (&[0, 4][..], Some(Element::Float)));
    }
    let mut unknown = taken("row", None);
    unknown.node[1] = op("ai.onnx.ml.Unknown", &["x", "i"], &["row"], vec![]);
    unknown.node[1] = op("SequenceAt", &["x", "i"], &["row"], vec![]);
    let error = run(unknown, "n 4", vec![]).unwrap_err();
    assert!(error.to_string().contains("must declare"), "{error}");
}

#[test]
fn contradictions_name_the_node() {
    let cases = [
        ("Add", "2 3", "4 3", "do not broadcast"),
        ("MatMul", "n 3", "4 n", "3 and 4 differ"),
        ("MatMul", "a n+0", "b c", ""),
        ("Concat", "n 3", "n 4", "extents of axis 1"),
    ];
    for (operator, a, b, expected) in cases {
        let graph = file(
            vec![port("a", Element::Float, a), port("b", Element::Float, b)],
            vec![],
            vec![op(operator, &["a", "b"], &["y"], vec![integer_attribute("axis", 0)])],
            vec![untyped("y")],
        );
        match infer(&graph) {
            Ok(_) => assert!(expected.is_empty(), "{operator}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!expected.is_empty() && said.contains(expected) && said.contains(operator), "{said}");
            }
        }
    }
    let reshaped = |target: &[i64]| {
        file(
            vec![port("x", Element::Float, "2 3 n")],
            vec![vector("target", target)],
            vec![op("Reshape", &["x", "target"], &["y"], vec![])],
            vec![untyped("y")],
        )
    };
    assert_eq!(inferred(&reshaped(&[-1, 3])), "2*n, 3");
    assert_eq!(inferred(&reshaped(&[0, -1])), "2, 3*n");
    assert_eq!(inferred(&reshaped(&[4, -1])), "4, n + n//2");
}

#[test]
fn sums_and_products_of_sizes_are_expressions() {
    let joined = |operands: &[&str], target: &[i64]| {
        file(
            vec![
                port("u", Element::Float, "a 4"),
                port("v", Element::Float, "b 4"),
                port("w", Element::Float, "a b 4"),
            ],
            vec![vector("target", target)],
            vec![
                op("Concat", operands, &["joined"], vec![integer_attribute("axis", 0)]),
                op("Reshape", &["joined", "target"], &["y"], vec![]),
                op("Reshape", &["w", "target"], &["z"], vec![]),
            ],
            vec![untyped("joined"), untyped("y"), untyped("z")],
        )
    };
    let cases: [(&[&str], &[i64], [&str; 3]); 4] = [
        (&["u", "v"], &[-1], ["a + b, 4", "4*a + 4*b", "4*a*b"]),
        (&["v", "u"], &[-1, 2], ["a + b, 4", "2*a + 2*b, 2", "2*a*b, 2"]),
        (&["u", "v", "u"], &[2, -1], ["2*a + b, 4", "2, 4*a + 2*b", "2, 2*a*b"]),
        // What is not a multiple is rounded down.
        (&["u", "v"], &[-1, 8], ["a + b, 4", "(a + b)//2, 8", "(a*b)//2, 8"]),
    ];
    for (operands, target, expected) in cases {
        let graph = joined(operands, target);
        let types = infer(&graph).unwrap();
        assert_eq!(["joined", "y", "z"].map(|name| shown(&types[name])), expected);
        // The inferred extents are those of a run.
        let zeros = |shape: &[usize]| Value::Tensor(Tensor::zeros(shape, DType::F32, cpu()).unwrap());
        let given = [("u", zeros(&[6, 4])), ("v", zeros(&[2, 4])), ("w", zeros(&[6, 2, 4]))];
        let given = given.map(|(name, value)| (name.to_owned(), value));
        let model = Model::of(&graph, None, cpu()).unwrap();
        let results = model.run(HashMap::from(given), &Generator::new(0)).unwrap();
        let symbols = HashMap::from([("a".to_owned(), 6), ("b".to_owned(), 2)]);
        for (name, result) in ["joined", "y", "z"].into_iter().zip(&results) {
            let (Type::Tensor { shape: Some(shape), .. }, Value::Tensor(result)) = (&types[name], result)
            else {
                panic!("{name} is no tensor");
            };
            let sizes = shape.iter().map(|size| size.as_ref().unwrap().evaluate(&symbols).unwrap() as usize);
            assert_eq!(sizes.collect::<Vec<_>>(), result.shape());
        }
    }
}

/// Sizes multiply with each node: expressions must not.
#[test]
fn expressions_stay_small() {
    let mut nodes = vec![op("Shape", &["x"], &["v0"], vec![])];
    for at in 0..200 {
        let (from, to) = (format!("v{at}"), format!("v{}", at + 1));
        nodes.push(op("Mul", &[&from, &from], &[&to], vec![]));
    }
    nodes.push(op("ConstantOfShape", &["v200"], &["y"], vec![]));
    let graph = file(vec![port("x", Element::Float, "n m")], vec![], nodes, vec![untyped("y")]);
    assert_eq!(inferred(&graph), "?, ?");
}

/// A run may be given another tensor than the default of an input.
#[test]
fn defaults_of_inputs_are_not_constants() {
    let graph = |inputs| {
        let nodes = vec![op("Expand", &["x", "t"], &["y"], vec![])];
        file(inputs, vec![vector("t", &[4])], nodes, vec![untyped("y")])
    };
    let (x, t) = (port("x", Element::Float, "1"), port("t", Element::Int64, "1"));
    assert_eq!(inferred(&graph(vec![x.clone()])), "4");
    let graph = graph(vec![x, t]);
    assert_eq!(inferred(&graph), "?");
    let model = Model::of(&graph, None, cpu()).unwrap();
    assert_eq!(shown(&model.value_types().unwrap()["y"]), "?");
}

/// `y` is `x[start:end]`, for an `x` of `N` elements; bounds may be results of `nodes`.
fn slice_of(start: &str, end: &str, stored: &[(&str, i64)], mut nodes: Vec<NodeProto>) -> ModelProto {
    let stored = stored.iter().map(|(name, number)| vector(name, &[*number])).collect();
    nodes.insert(0, op("Shape", &["x"], &["N"], vec![]));
    nodes.push(op("Slice", &["x", start, end], &["y"], vec![]));
    file(vec![port("x", Element::Float, "N")], stored, nodes, vec![untyped("y")])
}

#[test]
fn lengths_are_never_negative() {
    let numeric = |start, end| inferred(&slice_of("a", "b", &[("a", start), ("b", end)], vec![]));
    assert_eq!(numeric(-1, 0), "0");
    assert_eq!(numeric(-3, i64::MAX), "3");
    assert_eq!(numeric(2, i64::MAX), "N - 2");
    assert_eq!(numeric(0, -1), "N - 1");
    let less = |other: &[&str]| vec![op("Sub", other, &["bound"], vec![])];
    let one = [("one", 1), ("zero", 0), ("end", i64::MAX)];
    assert_eq!(inferred(&slice_of("bound", "zero", &one, less(&["N", "one"]))), "0");
    assert_eq!(inferred(&slice_of("bound", "end", &one, less(&["N", "one"]))), "1");
    // 1 - N counts from the end.
    assert_eq!(inferred(&slice_of("bound", "end", &one, less(&["one", "N"]))), "?");

    let range = |start: i64, delta: i64| {
        let scalar = |name: &str, number| integers(name, Element::Int64, &[], &[number]);
        let graph = file(
            vec![port("x", Element::Float, "N")],
            vec![scalar("start", start), scalar("delta", delta)],
            vec![op("Size", &["x"], &["N"], vec![]), op("Range", &["start", "N", "delta"], &["y"], vec![])],
            vec![untyped("y")],
        );
        inferred(&graph)
    };
    let found = [range(0, 1), range(3, 1), range(2, -1), range(0, -1), range(0, 2)];
    assert_eq!(found, ["N", "N - 3", "?", "0", "(N + 1)//2"]);
}

/// The last three of `x` and two others can be added if `x` has two elements only.
#[test]
fn contradictions_do_not_assume_that_sizes_are_large() {
    let graph = |count: usize| {
        let mut graph = slice_of("a", "b", &[("a", -3), ("b", i64::MAX)], vec![]);
        let inner = graph.graph.as_mut().unwrap();
        inner.node.last_mut().unwrap().output = vec!["last".to_owned()];
        inner.node.push(op("Add", &["last", "other"], &["y"], vec![]));
        let other = integers("other", Element::Int32, &[count], &vec![0; count]);
        inner.initializer.push(TensorProto { data_type: 1, ..other });
        graph
    };
    assert_eq!(inferred(&graph(3)), "3");
    let small = graph(2);
    assert_eq!(inferred(&small), "2");
    let described = neurenix_onnx::Description::of(&small).unwrap();
    assert_eq!(described.contradiction, None);
    let model = Model::of(&small, None, cpu()).unwrap();
    let x = Tensor::zeros(&[2], DType::F32, cpu()).unwrap();
    let results = model.run(HashMap::from([("x".to_owned(), Value::Tensor(x))]), &Generator::new(0)).unwrap();
    assert_eq!(results[0].shape().unwrap(), [2]);
    // Of numbers, it is one.
    let mut fixed = small;
    fixed.graph.as_mut().unwrap().input = vec![port("x", Element::Float, "5")];
    assert!(neurenix_onnx::Description::of(&fixed).unwrap().contradiction.is_some());
}
