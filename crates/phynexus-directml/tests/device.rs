//! Tests on the devices of this machine. Wine with a Vulkan driver suffices.

#[cfg(windows)]
mod windows {
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

    /// Features that WGSL or the device lacks are refused with the reason, and so is what the driver cannot compile.
    fn is_refusal(error: &Error) -> bool {
        let text = error.to_string();
        ["WGSL has no", "which the device does not support", "making a pipeline: "]
            .iter()
            .any(|w| text.contains(w))
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
    fn parts_of_any_size_are_copied_to_and_from_the_device() {
        for count in [1, 3, 1 << 10, (4 << 20) + 5] {
            let bytes: Vec<u8> = (0..count).map(|at| (at * 31 % 251) as u8).collect();
            let tensor = Tensor::from_slice(&bytes, &[count], device()).unwrap();
            assert!(tensor.to_vec::<u8>().unwrap() == bytes, "{count}");
        }
    }

    #[test]
    fn random_graphs_agree_with_the_oracle() {
        let device = device();
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
                Err(error) => {
                    assert!(is_refusal(&error), "{case}\n{error}");
                    refused += 1;
                }
            }
        }
        assert!(wrong.is_empty(), "{}\n{} of 40 are wrong", wrong.join("\n"), wrong.len());
        assert!(refused < 20, "{refused} of 40 are refused");
    }

    #[test]
    fn memory_is_counted_and_freed() {
        let device = device();
        let before = device.memory().allocated;
        let tensor = Tensor::zeros(&[1 << 20], DType::F32, device).unwrap();
        tensor.to_vec::<f32>().unwrap();
        assert!(device.memory().allocated >= before + (4 << 20));
        drop(tensor);
        device.synchronize().unwrap();
        assert!(device.memory().allocated <= before + (1 << 20));
    }
}

#[cfg(not(windows))]
#[test]
fn elsewhere_the_reason_is_given() {
    phynexus_directml::register();
    let reason = phynexus::Device::find("dml").unwrap_err().to_string();
    assert!(reason.contains("DirectML is only available on Windows"), "{reason}");
}
