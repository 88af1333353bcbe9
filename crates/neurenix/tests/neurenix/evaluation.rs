//! Evaluation order is not observable: whichever tensors are held or dropped, and in whatever order one or several
//! threads read them, the values are those of computing each operation at once. Random programs cover donated memory,
//! cached plans, views, evaluated tensors, and operations that fail on their data.

use std::sync::Arc;

use phynexus::{Device, Error, Result, Tensor, oracle::reference_device};

/// The expected contents of a tensor; `None` if computing it must fail.
#[derive(Clone)]
struct Expected {
    shape: Vec<usize>,
    values: Option<Vec<i64>>,
}

impl Expected {
    fn map(&self, f: impl Fn(&[i64]) -> Vec<i64>) -> Expected {
        Expected { shape: self.shape.clone(), values: self.values.as_deref().map(f) }
    }
}

/// A xorshift generator.
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

struct Program {
    device: Device,
    choice: Choice,
    held: Vec<(Tensor, Expected)>,
    /// Programs of one seed record the same structure twice, with other data.
    salt: i64,
}

const SHAPES: [&[usize]; 4] = [&[4, 6], &[24], &[2, 12], &[6, 4]];

impl Program {
    fn leaf(&mut self) -> Result<(Tensor, Expected)> {
        let shape = SHAPES[self.choice.below(SHAPES.len())].to_vec();
        let values: Vec<i64> = (0..24).map(|i| (i * 7 + self.salt) % 11 - 5).collect();
        Ok((Tensor::from_slice(&values, &shape, self.device)?, Expected { shape, values: Some(values) }))
    }

    fn pick(&mut self) -> (Tensor, Expected) {
        let at = self.choice.below(self.held.len());
        self.held[at].clone()
    }

    fn grow(&mut self) -> Result<()> {
        let (x, e) = self.pick();
        let made = match self.choice.below(11) {
            0 => self.leaf()?,
            1 => (x.neg()?, e.map(|v| v.iter().map(|a| -a).collect())),
            2 => (x.neg()?.neg()?, e),
            3 => (x.mul_scalar(1)?, e),
            4 => (x.add_scalar(3)?, e.map(|v| v.iter().map(|a| a.wrapping_add(3)).collect())),
            5 | 6 => {
                let (y, f) = self.pick();
                let y = y.reshape(&e.shape)?;
                let both = e.values.as_ref().zip(f.values.as_ref());
                let values =
                    both.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a.wrapping_mul(*b) % 1009).collect());
                let product = x.mul(&y)?;
                // The remainder has the sign of the divisor; Rust's has the sign of the dividend.
                let values = values.map(|v: Vec<i64>| v.into_iter().map(|a| a.rem_euclid(1009)).collect());
                (product.remainder_scalar(1009)?, Expected { shape: e.shape, values })
            }
            7 => {
                let shape = SHAPES[self.choice.below(SHAPES.len())].to_vec();
                (x.reshape(&shape)?, Expected { shape, ..e })
            }
            8 => {
                let (rows, columns) = (4, 6);
                let turned = e.map(|v| (0..24).map(|i| v[(i % rows) * columns + i / rows]).collect());
                (x.reshape(&[4, 6])?.t()?, Expected { shape: vec![6, 4], ..turned })
            }
            9 => {
                // Each of four row sums, in all columns of its row.
                let sums = e.map(|v| (0..24).map(|i| v[i / 6 * 6..i / 6 * 6 + 6].iter().sum()).collect());
                let rows = x.reshape(&[4, 6])?;
                (rows.sum(&[1], true)?.expand(&[4, 6])?, Expected { shape: vec![4, 6], ..sums })
            }
            _ => {
                let fails = self.choice.below(3) == 0;
                let last = if fails { 24 } else { 23 };
                let index: Vec<i64> =
                    (0..24).map(|i| if i == 5 { last } else { (i * 5 + self.salt) % 24 }).collect();
                let taken = e.map(|v| index.iter().map(|&i| v[i as usize % 24]).collect());
                // A computed index is checked where it is used.
                let index = Tensor::from_slice(&index, &[24], self.device)?.add_scalar(0)?;
                let values = taken.values.filter(|_| !fails);
                (x.reshape(&[24])?.take(&index, None)?, Expected { shape: vec![24], values })
            }
        };
        self.held.push(made);
        Ok(())
    }

    fn read(&mut self) {
        let at = self.choice.below(self.held.len());
        check(&self.held[at].0, &self.held[at].1);
    }

    fn drop_some(&mut self) {
        if self.held.len() > 2 {
            let at = self.choice.below(self.held.len());
            self.held.swap_remove(at);
        }
    }

    /// The same program for the same seed, with other data.
    fn new(device: Device, seed: u64, salt: i64, steps: usize) -> Result<Program> {
        let mut program =
            Program { device, choice: Choice(seed * 2 + 0x9e37_79b9_7f4a_7c15), held: Vec::new(), salt };
        let leaf = program.leaf()?;
        program.held.push(leaf);
        for _ in 0..steps {
            match program.choice.below(6) {
                0 => program.drop_some(),
                1 => program.read(),
                _ => program.grow()?,
            }
        }
        Ok(program)
    }
}

fn check(tensor: &Tensor, expected: &Expected) {
    assert_eq!(tensor.shape(), &expected.shape[..]);
    match (tensor.to_vec::<i64>(), &expected.values) {
        (Ok(values), Some(expected)) => assert_eq!(&values, expected),
        (Err(Error::Index { .. } | Error::SomeIndex { .. }), None) => {}
        (found, expected) => panic!("{found:?} where {expected:?} was expected"),
    }
}

fn devices() -> Vec<Device> {
    neurenix::register_all();
    let mut devices = vec![reference_device()];
    devices.extend(Device::find("cpu"));
    devices
}

#[test]
fn values_do_not_depend_on_what_is_held_or_read_first() -> Result<()> {
    for device in devices() {
        for seed in 0..400 {
            for salt in [1, 2] {
                let program = Program::new(device, seed, salt, 40)?;
                program.held.iter().for_each(|(tensor, expected)| check(tensor, expected));
            }
        }
    }
    Ok(())
}

#[test]
fn threads_may_evaluate_one_graph_together() -> Result<()> {
    for device in devices() {
        for seed in 500..560 {
            let program = Arc::new(Program::new(device, seed, 3, 60)?.held);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let held = program.clone();
                    scope.spawn(move || {
                        for i in 0..held.len() {
                            let (tensor, expected) = &held[(i * (thread + 1) + thread) % held.len()];
                            check(tensor, expected);
                        }
                    });
                }
            });
        }
    }
    Ok(())
}

#[test]
fn a_pending_operation_is_not_taken_for_one_that_is_computed() -> Result<()> {
    for device in devices() {
        let [a, b] = [[0.5f32, 1.0], [2.0, 3.0]].map(|v| Tensor::from_slice(&v, &[2], device));
        let (a, b) = (a?, b?);
        let e = b.exp()?;
        let first = a.mul(&b)?.add(&e)?.to_vec::<f32>()?;
        assert_eq!(a.mul(&b)?.add(&e)?.to_vec::<f32>()?, first);
    }
    Ok(())
}

#[test]
fn a_leaf_that_is_also_a_result_is_not_overwritten() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0], &[3], device)?;
        let a = x.mul_scalar(1.0)?;
        drop(x);
        let c = a.add_scalar(1.0)?;
        assert_eq!(c.to_vec::<f32>()?, [2.0, 3.0, 4.0]);
        assert_eq!(a.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn what_fails_has_overwritten_nothing() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0], &[3], device)?;
        let y = x.add_scalar(1.0)?;
        drop(x);
        // A computed index is checked when the result is.
        let index = Tensor::from_slice(&[6i64], &[1], device)?.add_scalar(1)?;
        let z = y.take(&index, None)?;
        assert!(z.to_vec::<f32>().is_err());
        assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 4.0]);
    }
    Ok(())
}

#[test]
fn roots_on_two_devices_are_computed_each_on_its_own() -> Result<()> {
    let devices = devices();
    let ones: Vec<Tensor> = devices
        .iter()
        .map(|&d| Tensor::from_slice(&[1f32, 2.0], &[2], d)?.add_scalar(1.0))
        .collect::<Result<_>>()?;
    Tensor::evaluate_all(&ones.iter().collect::<Vec<_>>())?;
    for tensor in ones {
        assert_eq!(tensor.to_vec::<f32>()?, [2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn views_that_no_stride_can_express_do_not_grow() -> Result<()> {
    for device in devices() {
        let values: Vec<f32> = (0..30).map(|i| i as f32).collect();
        let mut x = Tensor::from_slice(&values, &[5, 6], device)?.add_scalar(1.0)?;
        let mut expected: Vec<f32> = values.iter().map(|v| v + 1.0).collect();
        for _ in 0..40 {
            x = x.t()?.reshape(&[5, 6])?;
            expected = (0..30).map(|i| expected[i % 5 * 6 + i / 5]).collect();
        }
        assert_eq!(x.to_vec::<f32>()?, expected);
    }
    Ok(())
}

#[test]
fn chains_of_views_are_as_long_as_they_like() -> Result<()> {
    for device in devices() {
        let mut x = Tensor::zeros(&[2100], phynexus::DType::F32, device)?.exp()?;
        for _ in 0..2000 {
            x = x.narrow(0, 1, x.len() - 1)?;
        }
        assert_eq!(x.sum(&[], false)?.item::<f32>()?, 100.0);
    }
    Ok(())
}
