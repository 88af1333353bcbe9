//! Networks on LiteRT: its CPU kernels, and the path of vendors' plug-ins.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use common::*;
use neurenix_onnx::Element;
use phynexus_npu::*;

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn explore() {
    let cpu = phynexus_cpu::register();
    let t = std::time::Instant::now();
    let found = litert::find(&Search::default());
    println!("find {:?}", t.elapsed());
    for (kind, reason) in &found.missing {
        println!("missing {kind}: {reason}");
    }
    for runtime in &found.runtimes {
        println!("{:?}", runtime.properties());
        for (name, float, shape) in [("mlp", mlp(1), vec![1, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])] {
            for activation in [None, Some(Element::Uint8), Some(Element::Int8), Some(Element::Int16)] {
                let x = sample(1, &shape);
                let net = match activation {
                    Some(a) => quantized(&float, &x, a),
                    None => float.clone(),
                };
                let y: Vec<f32> = net.observe(x.clone(), cpu, |n| n == "y").unwrap().1["y"].to_vec().unwrap();
                println!("{name} {activation:?} cpu {:?}", &y[..6]);
                if runtime.properties().model == "CPU" && runtime.properties().runtime == "LiteRT" {
                    match tflite::write(&net) {
                        Ok(f) => {
                            for o in &f.operators {
                                print!("{}<{}> ", o.operator, o.node);
                            }
                            println!();
                        }
                        Err(e) => println!("write: {e}"),
                    }
                }
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
