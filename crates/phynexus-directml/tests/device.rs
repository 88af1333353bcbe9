//! Tests on the devices of this machine. Wine with a Vulkan driver suffices.

#[cfg(windows)]
mod windows {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use phynexus::{
        DType, Device, Error, Result, Tensor,
        device::DeviceNature,
        oracle::{Comparison, compare, evaluate, generate::random_case, reference_device},
        schedule::execute_ir,
    };

    fn device() -> Device {
        phynexus_directml::register();
        Device::find("directml:0").unwrap()
    }

    #[test]
    fn devices_describe_themselves() {
        let info = device().info();
        println!("{info:?}");
        assert!(!info.model.is_empty() && info.total_memory.is_some_and(|bytes| bytes > 0), "{info:?}");
        assert_ne!(info.nature, DeviceNature::HostCpu);
        for word in ["vendor 0x", "feature level 1", "shader model ", "DirectML "] {
            assert!(info.features.iter().any(|feature| feature.starts_with(word)), "{word}: {info:?}");
        }
    }

    /// Numbers in no regular order, some of them negative. Sums of products of a few hundred of them are exact.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| (at * 7919 % 1009 % 61) as f32 / 8.0 - 3.0).collect()
    }

    /// One test at a time: steps are counted for the whole process.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The results of the same computation on this device and by the definitions of its operations.
    fn both(compute: impl Fn(Device) -> Result<Tensor>) -> [Vec<f32>; 2] {
        [device(), reference_device()].map(|device| {
            let result = compute(device).unwrap();
            assert_eq!(result.device(), device);
            result.to_vec::<f32>().unwrap()
        })
    }

    #[test]
    fn elementwise_reductions_and_products_agree_with_their_definitions() {
        let _turn = turn();
        let [own, expected] = both(|device| {
            let x = Tensor::from_slice(&numbers(6000), &[60, 100], device)?;
            x.mul(&x)?.add(&x)?.relu()
        });
        assert_eq!(own, expected);
        let [own, expected] = both(|device| {
            let x = Tensor::from_slice(&numbers(6000), &[60, 100], device)?;
            x.sum(&[1], false)
        });
        assert_eq!(own, expected);
        let [own, expected] = both(|device| {
            let a = Tensor::from_slice(&numbers(33 * 70), &[33, 70], device)?;
            let b = Tensor::from_slice(&numbers(70 * 41), &[70, 41], device)?;
            a.matmul(&b)
        });
        assert_eq!(own, expected);
    }

    #[test]
    fn integers_have_64_bits() {
        let device = device();
        if !device.backend().target().unwrap().limits.dtypes.contains(&DType::I64) {
            return;
        }
        let values = [i64::MIN, -829013889236440285, -1, 0, 5343040954964182511, i64::MAX];
        let x = Tensor::from_slice(&values, &[6], device).unwrap();
        let sum = x.add(&Tensor::full(&[6], 5343040954964182511i64, DType::I64, device).unwrap()).unwrap();
        let expected = values.map(|value| value.wrapping_add(5343040954964182511));
        assert_eq!(sum.to_vec::<i64>().unwrap(), expected);
        assert_eq!(x.cummax(0).unwrap().0.to_vec::<i64>().unwrap(), values);
    }

    #[test]
    fn parts_of_any_size_are_copied_to_and_from_the_device() {
        for count in [1, 3, 1 << 10, (4 << 20) + 5] {
            let bytes: Vec<u8> = (0..count).map(|at| (at * 31 % 251) as u8).collect();
            let tensor = Tensor::from_slice(&bytes, &[count], device()).unwrap();
            assert!(tensor.to_vec::<u8>().unwrap() == bytes, "{count}");
        }
    }

    #[test]
    fn random_graphs_agree_with_the_oracle() {
        let (device, _turn) = (device(), turn());
        let (mut refused, mut wrong) = (0, Vec::new());
        for seed in 0..40 {
            let case = random_case(seed, 10);
            let run = || -> Result<Comparison> {
                let expected = evaluate(&case.ir, &case.values())?;
                let leaves =
                    case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
                let mut all = Comparison::default();
                for (expected, actual) in expected.iter().zip(&execute_ir(&case.ir, &leaves, device)?) {
                    all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
                }
                Ok(all)
            };
            match run() {
                Ok(comparison) if comparison.passed() => {}
                Ok(comparison) => wrong.push(format!("{case}\n{comparison}")),
                // Without the CPU, what the device or its compilers lack is an error with the reason.
                Err(Error::Unsupported { .. }) => refused += 1,
                Err(error) => panic!("{case}\n{error}"),
            }
        }
        assert!(wrong.is_empty(), "{}\n{} of 40 are wrong", wrong.join("\n"), wrong.len());
        assert!(refused < 20, "{refused} of 40 are refused");
    }

    #[test]
    fn memory_is_counted_and_freed() {
        let device = device();
        // More than all other tests have at once.
        let bytes = 64 << 20;
        let tensor = Tensor::from_slice(&vec![0u8; bytes], &[bytes], device).unwrap();
        assert!(device.memory().allocated >= bytes);
        drop(tensor);
        device.synchronize().unwrap();
        assert!(device.memory().allocated < bytes);
    }
}

#[cfg(not(windows))]
#[test]
fn elsewhere_the_reason_is_given() {
    phynexus_directml::register();
    let reason = phynexus::Device::find("dml").unwrap_err().to_string();
    assert!(reason.contains("DirectML is only available on Windows"), "{reason}");
}
