#[allow(dead_code, unreachable_pub, reason = "x")]
mod common;
use common::*;
use neurenix_onnx::{
    Element,
    edit::{self, Network},
};
use phynexus_npu::*;

fn matmul(n: &mut Network, from: &str, to: &str, shape: [usize; 2]) {
    let seed = to.bytes().map(u32::from).sum();
    let w = format!("{to}_w");
    n.store(edit::floats(&w, &shape, &numbers(seed, shape[0] * shape[1], (shape[0] as f32).sqrt().recip())));
    add(n, "MatMul", &[from, &w], to, vec![]);
}
fn block() -> Network {
    let mut n = network(&[1, 8, 32], ("y", &[1, 8, 32]));
    for name in ["q", "k", "v"] {
        matmul(&mut n, "x", name, [32, 32]);
    }
    add(&mut n, "Transpose", &["k"], "kt", vec![integers_attribute("perm", &[0, 2, 1])]);
    add(&mut n, "MatMul", &["q", "kt"], "s", vec![]);
    add(&mut n, "Softmax", &["s"], "p", vec![]);
    add(&mut n, "MatMul", &["p", "v"], "o", vec![]);
    matmul(&mut n, "o", "proj", [32, 32]);
    add(&mut n, "Add", &["x", "proj"], "r", vec![]);
    n.store(edit::floats("g", &[32], &vec![1.0; 32]));
    n.store(edit::floats("h", &[32], &numbers(5, 32, 0.1)));
    add(&mut n, "LayerNormalization", &["r", "g", "h"], "ln", vec![]);
    matmul(&mut n, "ln", "up", [32, 64]);
    add(&mut n, "Gelu", &["up"], "act", vec![]);
    matmul(&mut n, "act", "down", [64, 32]);
    add(&mut n, "Add", &["r", "down"], "y", vec![]);
    n
}

#[test]
fn explore() {
    let _cpu = phynexus_cpu::register();
    let search = Search::default();
    let device = Device::find("npu-emulator:0", &search).unwrap();
    let x = sample(7, &[1, 8, 32]);
    for a in [None, Some(Element::Uint8), Some(Element::Uint16), Some(Element::Int16)] {
        let net = match a {
            None => block(),
            Some(a) => quantized(&block(), &x, a),
        };
        let t = std::time::Instant::now();
        match Compiled::compile(&net, &device, &[x.clone(), sample(8, &[1, 8, 32])], &Options::default()) {
            Ok(mut p) => {
                p.run(&x).unwrap();
                println!("{a:?} {:?} {}", t.elapsed(), p.placement_report())
            }
            Err(e) => println!("{a:?} {:?} {e}", t.elapsed()),
        }
    }
}
