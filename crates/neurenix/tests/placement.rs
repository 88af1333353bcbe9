//! Steps that a device does not support run on the CPU with the same results and a reported reason. In strict mode they
//! are errors.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use phynexus::kernel::step::Step;
use phynexus::{
    DType, Device, Error, Result, Tensor,
    device::{Backend, Buffer, DeviceInfo, DeviceNature, Executable, MemoryStatistics, Support, register},
    op::{Op, TensorType, ir::IrNode},
    oracle::reference_device,
    schedule::{
        explain,
        placement::{on_fallback, set_strict},
    },
    shape::Layout,
    tensor::{Generator, Reduction},
};

/// A device without matrix products, sorting, and kernels that compute exponentials.
struct Picky;

fn reference() -> &'static dyn Backend {
    reference_device().backend()
}

impl Backend for Picky {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "picky:0".to_owned(), nature: DeviceNature::Emulator, ..reference().info() }
    }
    fn name(&self) -> &str {
        "picky:0"
    }
    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support {
        match node.op {
            Op::Dot if node.dtype != DType::U16 => Support::Unsupported("it has no multipliers".to_owned()),
            _ => reference().support(node, operands),
        }
    }
    fn reads_layout(&self, node: &IrNode, _: usize, _: &Layout) -> bool {
        node.op == Op::Dot
    }
    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        let refuse = |message: &str| {
            Err(Error::Unsupported { device: "picky:0".to_owned(), message: message.to_owned() })
        };
        match step {
            Step::Library(library) if matches!(library.node.op, Op::ArgSort(_) | Op::Gather(_)) => {
                refuse("it cannot sort or gather")
            }
            Step::Library(library) if library.node.op == Op::Dot && library.node.dtype == DType::U16 => {
                refuse("it has no 16-bit multipliers")
            }
            Step::Fused(kernel) if kernel.to_string().contains("exp(") => refuse("exponentials are too hard"),
            _ => reference().compile(step),
        }
    }
    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        reference().allocate(bytes)
    }
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        reference().write(target, offset, bytes)
    }
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        reference().read(source, offset, bytes)
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> MemoryStatistics {
        reference().memory()
    }
    fn reset_peak_memory(&self) {}
    fn set_memory_limit(&self, _: Option<usize>) {}
    fn empty_cache(&self) {}
}

fn picky() -> Device {
    neurenix::register_all();
    register(Box::new(Picky))
}

/// A computation with every kind of step, over strided and reversed operands.
fn compute(device: Device) -> Result<Vec<Vec<f32>>> {
    let g = Generator::new(4);
    let a = g.randn(&[6, 5], DType::F32, device)?.evaluated()?;
    let b = g.randn(&[7, 6], DType::F32, device)?.evaluated()?;
    let product = a.t()?.matmul(&b.t()?)?;
    let reversed = a.flip(&[0, 1])?.narrow(0, 1, 4)?.evaluated()?;
    let sorted = reversed.sort(1, false)?.0;
    let soft = reversed.softmax(1)?;
    let taken = a.take(&Tensor::from_slice(&[5i64, 0, 3], &[3], device)?, Some(0))?;
    let padded = reversed.exp()?.pad(&[(1, 2), (0, 1)], 0.5)?;
    [product, sorted, soft, taken, padded].iter().map(Tensor::to_vec).collect()
}

/// One test, because strict mode and the callback are process-wide.
#[test]
fn what_is_refused_runs_on_the_cpu_and_says_so() -> Result<()> {
    let device = picky();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = told.clone();
    on_fallback(Some(Arc::new(move |placement| {
        notes
            .lock()
            .unwrap()
            .push(format!("{} on {}: {}", placement.step, placement.device, placement.reason));
    })));
    let (found, expected) = (compute(device)?, compute(Device::find("cpu")?)?);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0)));
    }
    on_fallback(None);
    let told = told.lock().unwrap().join("\n");
    for reason in ["dot on cpu: it has no multipliers", "cannot sort or gather", "exponentials are too hard"]
    {
        assert!(told.contains(reason), "{told}");
    }

    // The callback may read a tensor of the graph whose plan was just made.
    let x = Tensor::from_slice(&[0.0f32, 1.0], &[2], device)?;
    let (y, read) = (x.exp()?.mul_scalar(3.0)?, Arc::<Mutex<Vec<Vec<f32>>>>::default());
    let (own, notes) = (y.clone(), read.clone());
    on_fallback(Some(Arc::new(move |_| notes.lock().unwrap().push(own.to_vec::<f32>().unwrap()))));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(y.to_vec::<f32>()));
    let values = receiver.recv_timeout(Duration::from_secs(60)).expect("the callback waits for ever")?;
    on_fallback(None);
    assert!((values[0] - 3.0).abs() < 1e-5 && (values[1] - 3.0 * 1f32.exp()).abs() < 1e-5, "{values:?}");
    assert_eq!(*read.lock().unwrap(), [values]);

    // A training step with an in-place update.
    let x = Tensor::ones(&[3, 4], DType::F32, device)?;
    let w = Tensor::full(&[4, 2], 0.5, DType::F32, device)?.with_grad()?;
    let loss =
        x.matmul(&w)?.exp()?.mse_loss(&Tensor::zeros(&[3, 2], DType::F32, device)?, Reduction::Mean)?;
    let gradient = loss.leaf_gradients()?.take(&w).expect("the loss depends on w");
    let plan = explain(&gradient)?.map(|plan| plan.to_string()).unwrap_or_default();
    assert!(plan.contains("on cpu: it has no multipliers"), "{plan}");
    let expected = (2f32.exp() * 2f32.exp()) * 3.0 * 2.0 / 6.0;
    assert!(gradient.to_vec::<f32>()?.iter().all(|g| (g - expected).abs() < 1e-3 * expected));

    // The CPU does not read the layout of this operand, for which the plan was made before the device refused.
    let a = Tensor::from_slice(&[1u16, 2, 3, 4], &[4, 1], device)?.expand(&[4, 3])?;
    let b = Tensor::from_slice(&[1u16, 2, 3, 4, 5, 6], &[2, 3], device)?.t()?.flip(&[0, 1])?.evaluated()?;
    assert_eq!(a.matmul(&b)?.to_vec::<u16>()?, [15, 6, 30, 12, 45, 18, 60, 24]);

    set_strict(true);
    let strict = compute(device).unwrap_err().to_string();
    set_strict(false);
    assert!(strict.contains("it has no multipliers") && strict.contains("strict mode"), "{strict}");
    compute(device)?;
    Ok(())
}
