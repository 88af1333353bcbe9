//! Sizes at which a device uses its largest tiles and longest rows. The values are small integers, so every sum is
//! exact and results must equal the CPU's bit for bit, in any order of summation.

use std::fmt;

use phynexus::{
    DType, Device, MatmulPrecision, Tensor, float32_matmul_precision, schedule::placement::observe,
    set_float32_matmul_precision, tensor::Generator,
};

use crate::Result;

/// The result of one large computation on a device.
#[derive(Clone, Debug)]
pub struct Large {
    /// The computation and its sizes.
    pub name: String,
    /// The number of result elements.
    pub elements: usize,
    /// The number of elements that differ from the CPU's.
    pub wrong: usize,
    /// The reason why the CPU did one of its steps, if it did.
    pub elsewhere: Option<String>,
}

impl Large {
    /// True if every element equals the CPU's and the device computed all of them.
    pub fn passed(&self) -> bool {
        self.wrong == 0 && self.elsewhere.is_none()
    }
}

impl fmt::Display for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Large { name, elements, wrong, elsewhere } = self;
        match (wrong, elsewhere) {
            (0, None) => write!(f, "{name}: {elements} elements, exact"),
            (0, Some(reason)) => write!(f, "{name}: exact, but on the CPU: {reason}"),
            (wrong, _) => write!(f, "{name}: {wrong} of {elements} elements WRONG"),
        }
    }
}

type Compute = fn(&[Tensor]) -> Result<Vec<Tensor>>;

struct Work {
    name: &'static str,
    /// The shapes of the operands.
    operands: &'static [&'static [usize]],
    compute: Compute,
    /// Whether to also try `float32` with factors that may be rounded to lower precision.
    multiplies: bool,
}

const WORK: &[Work] = &[
    Work {
        name: "product 2048x2048x2048",
        operands: &[&[2048, 2048], &[2048, 2048]],
        compute: |x| Ok(vec![x[0].matmul(&x[1])?]),
        multiplies: true,
    },
    Work {
        name: "product 4096x512x4096",
        operands: &[&[4096, 512], &[512, 4096]],
        compute: |x| Ok(vec![x[0].matmul(&x[1])?]),
        multiplies: true,
    },
    Work {
        name: "product 1999x1031x2111, of transposed factors",
        operands: &[&[1031, 1999], &[2111, 1031]],
        compute: |x| Ok(vec![x[0].transpose(0, 1)?.matmul(&x[1].transpose(0, 1)?)?]),
        multiplies: true,
    },
    Work {
        name: "product 384x16384x384, of a transposed factor",
        operands: &[&[16384, 384], &[16384, 384]],
        compute: |x| Ok(vec![x[0].transpose(0, 1)?.matmul(&x[1])?]),
        multiplies: true,
    },
    Work {
        name: "product 777x1031x529 of transposed bytes",
        operands: &[&[1031, 777], &[529, 1031]],
        compute: |x| {
            let [left, right] = [0, 1].map(|at| x[at].transpose(0, 1)?.to_dtype(DType::I8));
            Ok(vec![left?.matmul_as(&right?, DType::I32)?])
        },
        multiplies: false,
    },
    Work {
        name: "layer 2050x774x2306 with ReLU",
        operands: &[&[2050, 774], &[774, 2306], &[2306]],
        compute: |x| Ok(vec![x[0].matmul(&x[1])?.add(&x[2])?.relu()?]),
        multiplies: true,
    },
    Work {
        name: "batch of products 12x700x300x900",
        operands: &[&[12, 700, 300], &[12, 300, 900]],
        compute: |x| Ok(vec![x[0].matmul(&x[1])?]),
        multiplies: true,
    },
    Work {
        name: "product 8192x72x6144",
        operands: &[&[8192, 72], &[72, 6144]],
        compute: |x| Ok(vec![x[0].matmul(&x[1])?]),
        multiplies: true,
    },
    Work {
        name: "convolution 8x128x29x31 to 64 by steps of 2 with its gradients",
        operands: &[&[8, 128, 29, 31], &[64, 128, 3, 3], &[8, 64, 15, 16]],
        compute: |x| convolution(x, 2),
        multiplies: true,
    },
    Work {
        name: "convolution 16x64x56x56 to 128 with its gradients",
        operands: &[&[16, 64, 56, 56], &[128, 64, 3, 3], &[16, 128, 56, 56]],
        compute: |x| convolution(x, 1),
        multiplies: true,
    },
    Work {
        name: "sums of 4099x4097 over rows, columns and all, and running ones",
        operands: &[&[4099, 4097]],
        compute: |x| {
            let wide = x[0].to_dtype(DType::F32)?;
            let sums = [wide.sum(&[1], false)?, wide.sum(&[0], false)?, wide.sum(&[], false)?];
            Ok(sums.into_iter().chain([wide.cumsum(1)?, wide.cumsum(0)?, wide.max(&[0], true)?]).collect())
        },
        multiplies: false,
    },
    Work {
        name: "rows of 3x300007, sorted, with the indices",
        operands: &[&[3, 300_007]],
        compute: |x| {
            let (sorted, order) = x[0].sort(1, false)?;
            Ok(vec![sorted, order])
        },
        multiplies: false,
    },
    Work {
        name: "a transpose of 4099x4097 with elementwise operations",
        operands: &[&[4099, 4097], &[4097, 4099]],
        compute: |x| Ok(vec![x[0].transpose(0, 1)?.mul(&x[1])?.add(&x[1])?]),
        multiplies: false,
    },
];

/// The gradients of an image and a filter, and the convolution.
fn convolution(x: &[Tensor], stride: usize) -> Result<Vec<Tensor>> {
    let (image, filter) = (x[0].with_grad()?, x[1].with_grad()?);
    let result = image.conv2d(&filter, None, [stride; 2], [1, 1], [1, 1], 1)?;
    let mut all = result.vector_jacobian_product(&x[2], &[&image, &filter], false)?;
    all.push(result.detach()?);
    Ok(all)
}

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// Runs every computation on the device and on the CPU.
///
/// # Errors
/// Errors of the device, and [`Error::Device`](crate::Error) if there is no CPU device.
pub fn large(device: Device) -> Result<Vec<Large>> {
    let mut all = Vec::new();
    for (number, work) in WORK.iter().enumerate() {
        for dtype in DTYPES {
            for precision in precisions(work, dtype) {
                all.push(compare(work, number as u64, dtype, precision, device)?);
            }
        }
    }
    Ok(all)
}

/// Runs every computation on a device without checking results.
pub(super) fn run_unchecked(device: Device) {
    for work in WORK {
        for dtype in DTYPES {
            for precision in precisions(work, dtype) {
                // An operation that the device rejects has no kernels.
                let _: Result<()> = (|| {
                    let shape = |shape: &&[usize]| Ok(Tensor::zeros(shape, dtype, device)?.evaluated()?);
                    let operands = work.operands.iter().map(shape).collect::<Result<Vec<_>>>()?;
                    record(work, &operands, precision)?.iter().try_for_each(|result| Ok(result.evaluate()?))
                })();
            }
        }
    }
}

/// The precisions in which work of this dtype differs.
fn precisions(work: &Work, dtype: DType) -> impl Iterator<Item = MatmulPrecision> {
    let own = if work.multiplies && dtype == DType::F32 { MatmulPrecision::ALL.len() } else { 1 };
    MatmulPrecision::ALL.into_iter().take(own)
}

/// Records the work's results without evaluating them.
fn record(work: &Work, operands: &[Tensor], precision: MatmulPrecision) -> Result<Vec<Tensor>> {
    let before = float32_matmul_precision();
    set_float32_matmul_precision(precision);
    let recorded = (work.compute)(operands);
    set_float32_matmul_precision(before);
    recorded
}

fn compare(
    work: &Work,
    seed: u64,
    dtype: DType,
    precision: MatmulPrecision,
    device: Device,
) -> Result<Large> {
    let host = Device::find("cpu")?;
    let generator = Generator::new(seed);
    let operand = |shape: &&[usize]| Ok(generator.randint(-1, 2, shape, dtype, host)?.evaluated()?);
    let operands = work.operands.iter().map(operand).collect::<Result<Vec<_>>>()?;
    let moved = operands.iter().map(|x| Ok(x.to_device(device)?)).collect::<Result<Vec<_>>>()?;

    let (expected, actual) = (record(work, &operands, precision)?, record(work, &moved, precision)?);
    let (computed, placements) =
        observe(|| -> Result<()> { actual.iter().try_for_each(|result| Ok(result.evaluate()?)) });
    computed?;
    let (mut elements, mut wrong) = (0, 0);
    for (expected, actual) in expected.iter().zip(&actual) {
        let [expected, actual] = [expected, actual].map(|result| numbers(result, host));
        let (expected, actual) = (expected?, actual?);
        elements += expected.len();
        wrong += expected.iter().zip(&actual).filter(|(expected, actual)| expected != actual).count();
    }
    let rounded = match precision {
        MatmulPrecision::Highest => "",
        MatmulPrecision::High => " that may be rounded",
        MatmulPrecision::Split => " that may be split",
    };
    let elsewhere = placements.into_iter().next().map(|placement| placement.reason);
    Ok(Large { name: format!("{}, {dtype}{rounded}", work.name), elements, wrong, elsewhere })
}

/// The elements as `f64`, which represents them exactly.
fn numbers(tensor: &Tensor, host: Device) -> Result<Vec<f64>> {
    Ok(tensor.to_device(host)?.to_dtype(DType::F64)?.to_vec()?)
}
