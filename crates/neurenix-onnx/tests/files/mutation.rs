//! Mutated files: they are read, described, inferred and run, and must give results or errors.

use std::{
    cell::Cell,
    collections::HashMap,
    time::{Duration, Instant},
};

use neurenix_onnx::{Description, Element, Extent, Model, Port, Value, infer, proto::ModelProto};
use phynexus::{DType, Device, Tensor, interrupt, tensor::Generator};
use prost::Message;

/// The longest that a network may run: a mutation may have made a loop endless.
const LONGEST: Duration = Duration::from_millis(500);

thread_local! {
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Numbers for mutations: the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    /// Numbers of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))
    }

    /// A number below this one; 0 if it is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// A file that differs from another in a few bytes, is cut, or has a part twice.
pub(crate) fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(changed.len());
        if changed.is_empty() {
            break;
        }
        match random.below(5) {
            0 => changed[at] ^= 1 << random.below(8),
            1 => changed[at] = random.below(256) as u8,
            2 => changed.truncate(at.max(1)),
            3 => {
                let end = (at + random.below(32)).min(changed.len());
                let part = changed[at..end].to_vec();
                changed.splice(at..at, part);
            }
            _ => drop(changed.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x07])),
        }
    }
    changed
}

/// How far a file came.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Reached {
    /// It was refused.
    Refused,
    /// It could be read.
    Read,
    /// It has run, too.
    Run,
}

/// Reads a file, and runs it with inputs of the shapes that it declares. That it returns is all that matters here: an
/// error is as good as results.
pub(crate) fn try_file(bytes: &[u8], device: Device) -> Reached {
    if let Ok(proto) = ModelProto::decode(bytes) {
        drop(infer(&proto));
        drop(Description::of(&proto));
    }
    let Ok(model) = Model::parse(bytes, None, device) else { return Reached::Refused };
    let given: Option<HashMap<String, Value>> =
        model.inputs().iter().map(|port| Some((port.name.clone(), input(port, device)?))).collect();
    let Some(given) = given else { return Reached::Read };
    END.set(Some(Instant::now() + LONGEST));
    let _watch = interrupt::watch(|| END.get().is_some_and(|end| Instant::now() > end));
    let Ok(results) = model.run(given, &Generator::new(0)) else { return Reached::Read };
    for result in &results {
        drop(result.tensor().map(|tensor| tensor.clone().evaluated()));
    }
    Reached::Run
}

/// A small value for an input.
fn input(port: &Port, device: Device) -> Option<Value> {
    let extent = |extent: &Extent| match extent {
        Extent::Fixed(size) => *size,
        _ => 2,
    };
    let shape: Vec<usize> =
        port.shape.as_ref().map_or(vec![1, 3], |shape| shape.iter().map(extent).collect());
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let count = count.filter(|&count| count <= 100_000)?;
    let dtype = port.element.unwrap_or(Element::Float).dtype().unwrap_or(DType::F32);
    let numbers: Vec<f32> = (0..count).map(|at| (at % 7) as f32 / 2.0).collect();
    let tensor = Tensor::from_slice(&numbers, &shape, device).ok()?.to_dtype(dtype).ok()?;
    Some(Value::of_element(tensor, port.element.unwrap_or(Element::Float)))
}
