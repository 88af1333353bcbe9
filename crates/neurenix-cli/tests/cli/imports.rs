//! Tests of `neurenix import`.

use std::{collections::HashMap, path::Path, process::Command};

use neurenix::{
    onnx::{
        Element,
        edit::{Network, info, node, stored},
        proto::{
            DimensionKind, DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, TypeKind,
            ValueInfoProto,
        },
    },
    phynexus::{Device, Tensor},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn import(arguments: &[&str], folder: &Path) -> std::io::Result<(Option<i32>, String, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_neurenix"))
        .arg("import")
        .args(arguments)
        .current_dir(folder)
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// Rows of four numbers, as many as there are, times a matrix of four columns and three rows.
fn network() -> Result<Network, Box<dyn std::error::Error>> {
    neurenix::register_cpu();
    let weight = Tensor::from_slice(&[0.5f32; 12], &[4, 3], Device::find("cpu")?)?;
    let mut input = info("x", Element::Float, &[1, 4]);
    if let Some(TypeKind::Tensor(tensor)) = input.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        let rows = DimensionProto { value: Some(DimensionKind::Parameter("rows".to_owned())) };
        tensor.shape.get_or_insert_default().dim[0] = rows;
    }
    let graph = GraphProto {
        name: "network".to_owned(),
        node: vec![
            node("MatMul", "product", &["x", "weight"], &["h"], Vec::new()),
            node(
                "Concat",
                "joined",
                &["h", "h"],
                &["y"],
                vec![neurenix::onnx::edit::integer_attribute("axis", 0)],
            ),
        ],
        initializer: vec![stored("weight", &weight)?],
        input: vec![input],
        output: vec![ValueInfoProto { name: "y".to_owned(), r#type: None }],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    let proto = ModelProto { ir_version: 10, opset_import, graph: Some(graph), ..ModelProto::default() };
    Ok(Network::new(proto)?)
}

#[test]
fn a_file_is_described() -> Outcome {
    let folder = tempfile::tempdir()?;
    let network = network()?;
    neurenix::onnx::save(&network.to_proto(), &folder.path().join("network.onnx"))?;
    let (code, text, _) = import(&["network.onnx"], folder.path())?;
    assert_eq!(code, Some(0), "{text}");
    for expected in [
        "x: float [rows, 4]",
        "y: float [2*rows, 3]",
        "12 parameters in 1 tensors; all stored tensors have 48 bytes",
        "     1 MatMul",
        "ai.onnx 21",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (_, text, _) = import(&["network.onnx", "--json"], folder.path())?;
    let listing: serde_json::Value = serde_json::from_str(&text)?;
    assert_eq!(listing["outputs"][0]["shape"], serde_json::json!(["2*rows", 3]));
    assert_eq!(listing["operators"], serde_json::json!({"Concat": 1, "MatMul": 1}));
    let counts: HashMap<&str, u64> = ["parameters", "elements", "bytes"]
        .into_iter()
        .filter_map(|name| Some((name, listing[name].as_u64()?)))
        .collect();
    assert_eq!(counts, HashMap::from([("parameters", 1), ("elements", 12), ("bytes", 48)]));
    Ok(())
}

#[test]
fn what_cannot_be_loaded_is_named_with_exit_code_1() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut network = network()?;
    network.graph.node[0].op_type = "Nonsense".to_owned();
    network.graph.node[1].op_type = "Other".to_owned();
    neurenix::onnx::save(&network.to_proto(), &folder.path().join("network.onnx"))?;
    let (code, text, error) = import(&["network.onnx", "--json"], folder.path())?;
    let listing: serde_json::Value = serde_json::from_str(&text)?;
    assert_eq!(code, Some(1));
    assert!(error.contains("Nonsense") && error.contains("Other"), "{error}");
    assert_eq!(listing["unsupported"].as_array().map(Vec::len), Some(2), "{text}");
    std::fs::write(folder.path().join("text.onnx"), "no network")?;
    let (code, _, error) = import(&["text.onnx"], folder.path())?;
    assert!(code == Some(1) && error.contains("not an ONNX file"), "{error}");

    let mut network = self::network()?;
    network.graph.input[0] = info("x", Element::Float, &[2, 5]);
    neurenix::onnx::save(&network.to_proto(), &folder.path().join("shapes.onnx"))?;
    let (code, _, error) = import(&["shapes.onnx"], folder.path())?;
    assert!(code == Some(1) && error.contains("product") && error.contains("5 and 4"), "{error}");
    Ok(())
}
