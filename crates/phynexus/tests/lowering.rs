//! Lowered steps against the oracle: random graphs, and steps of every kind, on devices of very different capabilities.
//! The interpreter detects races, accesses out of bounds and reads of what nobody wrote.

use phynexus::{
    DType, Device,
    kernel::{check::Limits, lower::Target},
    oracle::{
        Comparison, compare, evaluate,
        generate::{Case, random_case, shrink},
        lowered_device,
    },
    schedule::execute_ir,
};

/// The least that a GPU can do.
fn tiny() -> Target {
    Target {
        limits: Limits {
            device: "tiny".to_owned(),
            bindings: 64,
            shared_bytes: 4 << 10,
            block: [32, 32, 4],
            block_size: 32,
            grid: [50; 3],
            subgroup: None,
            dtypes: DType::ALL.to_vec(),
            matrices: Vec::new(),
        },
        vector_bytes: 0,
        processors: 1,
    }
}

/// A large one, with so few multiprocessors that small shapes are already large.
fn big() -> Target {
    let limits = tiny().limits;
    Target {
        limits: Limits {
            device: "big".to_owned(),
            shared_bytes: 48 << 10,
            block: [1024, 1024, 64],
            block_size: 1024,
            grid: [65535; 3],
            subgroup: Some(32),
            ..limits
        },
        vector_bytes: 16,
        processors: 0,
    }
}

/// In between: narrow subgroups and vectors.
fn narrow() -> Target {
    let limits = big().limits;
    let limits = Limits { device: "narrow".to_owned(), block_size: 128, subgroup: Some(8), ..limits };
    Target { limits, vector_bytes: 8, processors: 2 }
}

fn devices() -> Vec<Device> {
    [tiny(), big(), narrow()].into_iter().map(|t| lowered_device(&t.limits.device.clone(), t)).collect()
}

/// What is wrong with a device's results, if anything is.
fn fault(case: &Case, device: Device) -> Option<String> {
    let work = || {
        let expected = evaluate(&case.ir, &case.values())?;
        let leaves = case.leaves.iter().map(|l| l.upload(device)).collect::<phynexus::Result<Vec<_>>>()?;
        let outputs = execute_ir(&case.ir, &leaves, device)?;
        let mut all = Comparison::default();
        for (expected, actual) in expected.iter().zip(&outputs) {
            all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
        }
        Ok::<_, phynexus::Error>((!all.passed()).then(|| all.to_string()))
    };
    match work() {
        Ok(message) => message,
        Err(error) if error.to_string().contains("has no kernel for GPUs") => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn random_graphs() {
    let mut failures = Vec::new();
    for device in devices() {
        for seed in 0..250 {
            let case = random_case(seed, 12);
            if fault(&case, device).is_some() {
                let small = shrink(&case, &mut |c| fault(c, device).is_some());
                failures.push(format!("{device}: {small}\n{}", fault(&small, device).unwrap_or_default()));
                if failures.len() > 4 {
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
