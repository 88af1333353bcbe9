//! Networks on OpenVINO's CPU device.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use common::*;
use neurenix_onnx::Element;
use phynexus_npu::*;

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn explore() {
    let cpu = phynexus_cpu::register();
    let t = std::time::Instant::now();
    let found = openvino::find(&Search::default());
    println!("find {:?}", t.elapsed());
    for (kind, reason) in &found.missing {
        println!("missing {kind}: {reason}");
    }
    for runtime in &found.runtimes {
        println!("{:?}", runtime.properties());
        for (name, float, shape) in [("mlp", mlp(1), vec![1, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])] {
            for activation in
                [None, Some(Element::Uint8), Some(Element::Int8), Some(Element::Int16), Some(Element::Uint16)]
            {
                let x = sample(1, &shape);
                let net = match activation {
                    Some(a) => quantized(&float, &x, a),
                    None => float.clone(),
                };
                let (types, values) = net.observe(x.clone(), cpu, |n| n == "y").unwrap();
                let y: Vec<f32> = values["y"].to_vec().unwrap();
                println!("{name} {activation:?} cpu {:?}", &y[..6]);
                let t = std::time::Instant::now();
                for at in 0..net.graph.node.len() {
                    let a = runtime.accepts(&net, at, &types);
                    if a != Accepts::Yes {
                        println!("  {} {a:?}", net.graph.node[at].name);
                    }
                }
                println!("  accepts {:?}", t.elapsed());
                let t = std::time::Instant::now();
                match runtime.compile(&net, &Options::default()) {
                    Ok(mut program) => {
                        let c = t.elapsed();
                        let t = std::time::Instant::now();
                        let out = program.run(&[x["x"].tensor().unwrap().clone()]).unwrap();
                        let out: Vec<f32> = out[0].to_vec().unwrap();
                        let d = y.iter().zip(&out).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                        let on: usize =
                            program.placement().iter().filter(|p| p.place == Place::Device).count();
                        println!(
                            "  {:?} max {d} compile {c:?} run {:?} on device {on} of {}",
                            &out[..6],
                            t.elapsed(),
                            program.placement().len()
                        );
                    }
                    Err(error) => println!("  {:?} {error}", t.elapsed()),
                }
            }
        }
    }
}
