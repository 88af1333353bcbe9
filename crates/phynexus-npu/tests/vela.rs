//! Networks that Vela compiles for Ethos-U.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use common::*;
use neurenix::quantize::Format;
use neurenix_onnx::{
    Element,
    edit::{self, Network},
};
use phynexus_npu::{
    CompiledFile, Place, Search, compile_file, tflite,
    vela::{Accelerator, Vela},
};

const ALL: [Accelerator; 3] = [Accelerator::U55(128), Accelerator::U65(256), Accelerator::U85(256)];

fn compile(network: &Network, accelerator: Accelerator) -> CompiledFile {
    let vela = Vela::find(&Search::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network_vela.tflite");
    let compiled = vela.compile(network, accelerator, &path).unwrap();
    let bytes = std::fs::read(&compiled.path).unwrap();
    assert_eq!(&bytes[4..8], b"TFL3");
    println!("{accelerator:?}: {:?} {:?} cycles", compiled.memory, compiled.cycles);
    for placed in &compiled.placement {
        println!("  {} ({}): {:?}", placed.node, placed.operator, placed.place);
    }
    compiled
}

#[test]
#[ignore = "needs ethos-u-vela in RNN_NPU_PATH"]
fn networks_of_8_and_16_bits_go_to_the_npu_as_a_whole() {
    phynexus_cpu::register();
    let networks = [("mlp", mlp(1), vec![1, 64], 5), ("cnn", cnn(), vec![1, 3, 16, 16], 8)];
    for (name, float, shape, nodes) in networks {
        for activation in [Element::Uint8, Element::Int8, Element::Int16] {
            println!("{name}, {activation:?}");
            let network = quantized(&float, &sample(1, &shape), activation);
            for accelerator in ALL {
                let compiled = compile(&network, accelerator);
                assert_eq!(compiled.placement.len(), nodes);
                assert!(compiled.placement.iter().all(|placed| placed.place == Place::Device));
                assert!(compiled.cycles.unwrap() > 100);
                assert!(compiled.memory.sram > 0);
                assert!(compiled.memory.dram + compiled.memory.flash > 0);
            }
        }
    }
}

#[test]
#[ignore = "needs ethos-u-vela in RNN_NPU_PATH"]
fn what_the_npu_lacks_goes_to_the_cpu_with_velas_reason() {
    phynexus_cpu::register();
    let mut float = network(&[1, 3, 8, 8], ("y", &[1, 4, 8, 8]));
    let same = || integers_attribute("pads", &[1, 1, 1, 1]);
    layer(&mut float, "Conv", "x", "a", &[4, 3, 3, 3], vec![same()]);
    // Vela separates cells by commas, and quotes names.
    let name = "e, ofm: 'x'";
    add(&mut float, "Exp", &["a"], name, vec![]);
    layer(&mut float, "Conv", name, "b", &[4, 4, 1, 1], vec![]);
    add(&mut float, "Softmax", &["b"], "y", vec![edit::integer_attribute("axis", 1)]);
    let network = quantized(&float, &sample(1, &[1, 3, 8, 8]), Element::Int8);
    for accelerator in [Accelerator::U55(128), Accelerator::U85(256)] {
        let compiled = compile(&network, accelerator);
        for placed in &compiled.placement {
            match (placed.operator.as_str(), &placed.place) {
                ("Exp", Place::Cpu(reason)) => assert!(reason.contains("Float32"), "{reason}"),
                ("Conv" | "Softmax", place) => assert_eq!(*place, Place::Device, "{}", placed.node),
                ("QuantizeLinear", _) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(compiled.placement.iter().any(|placed| placed.operator == "Exp"));
    }
}

#[test]
#[ignore = "needs ethos-u-vela in RNN_NPU_PATH"]
fn files_are_compiled_by_the_name_of_their_target() {
    phynexus_cpu::register();
    let mut network = quantized(&mlp(1), &sample(1, &[1, 64]), Element::Int8);
    symbolic(&mut network, "batch");
    let folder = tempfile::tempdir().unwrap();
    for accelerator in ALL {
        let path = folder.path().join(accelerator.name());
        let file = compile_file(&accelerator.name(), &network, &path, &Search::default()).unwrap();
        assert_eq!(file.path, path);
        assert_eq!(&std::fs::read(&path).unwrap()[4..8], b"TFL3");
        assert!(file.placement.iter().all(|placed| placed.place == Place::Device));
        assert_eq!(file.placement.len(), 5);
    }
}

#[test]
#[ignore = "needs ethos-u-vela in RNN_NPU_PATH"]
fn trained_networks_go_to_the_npu_but_for_what_it_lacks() {
    const NORMAL: (&str, &str) = ("LayerNormalization", "unsupported DataType Float32");
    const GELU: (&str, &str) = ("Gelu", "unsupported DataType Float32");
    const PRODUCT: (&str, &str) = ("MatMul", "IFM precision must be Int8");
    for trained in &digits::trained() {
        for activations in [Format::Int8, Format::Int16] {
            let network = digits::of_one(trained.quantized(activations), &trained.image);
            if trained.name == "lstm" {
                let error = tflite::write(&network).unwrap_err().to_string();
                assert!(error.contains("lstm (LSTM): it has no form in TFLite"), "{error}");
                continue;
            }
            for accelerator in [Accelerator::U55(128), Accelerator::U85(256)] {
                let title = format!("{}, {activations}, {accelerator:?}", trained.name);
                println!("{title}");
                let compiled = compile(&network, accelerator);
                let left: &[_] = match (trained.name, activations, accelerator) {
                    ("transformer", Format::Int8, _) => &[NORMAL],
                    ("transformer", _, Accelerator::U55(_)) => &[NORMAL, GELU, PRODUCT],
                    ("transformer", ..) => &[NORMAL, GELU],
                    _ => &[],
                };
                digits::check_left(&title, &compiled.placement, left);
                assert!(compiled.placement.iter().any(|placed| placed.place == Place::Device), "{title}");
                assert!(compiled.cycles.unwrap() > 100 && compiled.memory.sram > 0, "{title}");
            }
        }
    }
}
