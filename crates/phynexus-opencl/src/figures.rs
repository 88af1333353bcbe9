//! A device's properties, and the features that its kernels may use.

use opencl3::{
    device::{
        CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_EXTENSIONS, CL_DEVICE_GLOBAL_MEM_SIZE,
        CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
        CL_DEVICE_MAX_PARAMETER_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES,
        CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_NAME, CL_DEVICE_PROFILE, CL_DEVICE_SINGLE_FP_CONFIG,
        CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, CL_DEVICE_VERSION, CL_DRIVER_VERSION,
        CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, get_device_data,
    },
    types::{cl_device_id, cl_device_info},
};
use phynexus::{
    DType,
    device::{DeviceInfo, DeviceNature},
    kernel::{check::Limits, lower::Target},
};

/// Maximum number of groups of a launch along the first dimension: any driver can then count invocations in 32 bits.
const GROUPS: usize = 1 << 20;

/// Maximum number of invocations per group. With more, a driver may refuse a compiled kernel because of its registers.
const GROUP: usize = 256;

/// Maximum local memory per group on a CPU, where it is ordinary memory: this amount stays in the first-level cache.
const LOCAL_OF_PROCESSOR: usize = 32 << 10;

/// A device and the name of its platform.
#[derive(Clone)]
pub(crate) struct Figures {
    pub(crate) device: cl_device_id,
    pub(crate) platform: String,
}

// SAFETY: a device handle may be used from any thread.
unsafe impl Send for Figures {}
// SAFETY: as above.
unsafe impl Sync for Figures {}

/// A null-terminated string of OpenCL.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
}

impl Figures {
    fn data(&self, what: cl_device_info) -> Vec<u8> {
        get_device_data(self.device, what).unwrap_or_default()
    }

    pub(crate) fn text(&self, what: cl_device_info) -> String {
        text(&self.data(what))
    }

    /// A 4-byte or 8-byte number, if the device reports it.
    pub(crate) fn number(&self, what: cl_device_info) -> Option<u64> {
        let data = self.data(what);
        match data.len() {
            4 => Some(u32::from_ne_bytes(data.try_into().ok()?).into()),
            8 => Some(u64::from_ne_bytes(data.try_into().ok()?)),
            _ => None,
        }
    }

    fn size(&self, what: cl_device_info, otherwise: usize) -> usize {
        self.number(what).and_then(|number| usize::try_from(number).ok()).unwrap_or(otherwise)
    }

    /// The reason why the device cannot be used, if any.
    pub(crate) fn unusable(&self) -> Option<String> {
        let model = self.model();
        if self.number(CL_DEVICE_AVAILABLE) != Some(1) {
            return Some(format!("{model} reports that it is not available"));
        }
        if self.number(CL_DEVICE_COMPILER_AVAILABLE) != Some(1) {
            return Some(format!("{model} has no compiler for OpenCL C"));
        }
        if self.text(CL_DEVICE_PROFILE) != "FULL_PROFILE" {
            return Some(format!("{model} supports only OpenCL's embedded profile"));
        }
        // The format is "OpenCL 1.2 text".
        let version = self.text(CL_DEVICE_VERSION);
        let number = version.split(' ').nth(1).and_then(|number| number.parse::<f64>().ok());
        (number.unwrap_or(0.0) < 1.2).then(|| format!("{model} has {version}; OpenCL 1.2 is required"))
    }

    pub(crate) fn model(&self) -> String {
        format!("{} ({})", self.text(CL_DEVICE_NAME), self.platform)
    }

    /// Whether the driver keeps compiled kernels on disk. PoCL does; asked for a program's machine code, it compiles
    /// each kernel a second time, for groups of any size.
    pub(crate) fn keeps_kernels(&self) -> bool {
        self.platform == "Portable Computing Language"
    }

    /// Whether the device is the CPU itself.
    pub(crate) fn is_processor(&self) -> bool {
        self.number(CL_DEVICE_TYPE).unwrap_or(0) & CL_DEVICE_TYPE_CPU != 0
    }

    pub(crate) fn has(&self, extension: &str) -> bool {
        self.text(CL_DEVICE_EXTENSIONS).split(' ').any(|name| name == extension)
    }

    /// Whether division and square root of `float32` can be correctly rounded.
    pub(crate) fn divides_exactly(&self) -> bool {
        self.number(CL_DEVICE_SINGLE_FP_CONFIG).unwrap_or(0) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0
    }

    /// The largest supported memory block in bytes.
    pub(crate) fn greatest_block(&self) -> usize {
        self.size(CL_DEVICE_MAX_MEM_ALLOC_SIZE, 128 << 20)
    }

    /// The alignment of sub-buffers in bytes.
    pub(crate) fn part_alignment(&self) -> usize {
        // The device reports bits.
        self.size(CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024).div_ceil(8)
    }

    pub(crate) fn info(&self, name: &str) -> DeviceInfo {
        let mut features = vec![
            self.text(CL_DEVICE_VERSION),
            format!("driver {}", self.text(CL_DRIVER_VERSION)),
            format!("blocks of memory up to {} MiB", self.greatest_block() >> 20),
        ];
        if !self.has("cl_khr_fp64") {
            features.push("no float64".to_owned());
        }
        if !self.divides_exactly() {
            features.push("divisions of float32 are not correctly rounded".to_owned());
        }
        DeviceInfo {
            name: name.to_owned(),
            model: self.model(),
            nature: if self.is_processor() { DeviceNature::Emulator } else { DeviceNature::Hardware },
            compute_units: self.number(CL_DEVICE_MAX_COMPUTE_UNITS).and_then(|n| usize::try_from(n).ok()),
            total_memory: self.number(CL_DEVICE_GLOBAL_MEM_SIZE),
            features,
        }
    }

    /// The features that kernels may use. Limits that the device does not report default to OpenCL's minimum.
    pub(crate) fn target(&self, name: &str) -> Target {
        let sizes = self.data(CL_DEVICE_MAX_WORK_ITEM_SIZES);
        let size = |dimension: usize| {
            let (numbers, _) = sizes.as_chunks::<{ size_of::<usize>() }>();
            numbers.get(dimension).map_or(1, |bytes| usize::from_ne_bytes(*bytes))
        };
        let local = self.size(CL_DEVICE_LOCAL_MEM_SIZE, 32 << 10);
        let dtypes = DType::ALL.iter().copied();
        let limits = Limits {
            device: name.to_owned(),
            // A buffer and its start offset take two words.
            bindings: self.size(CL_DEVICE_MAX_PARAMETER_SIZE, 1024) / 16,
            shared_bytes: if self.is_processor() { local.min(LOCAL_OF_PROCESSOR) } else { local },
            block: [0, 1, 2].map(size),
            block_size: self.size(CL_DEVICE_MAX_WORK_GROUP_SIZE, 1).min(GROUP),
            grid: [GROUPS, 0xffff, 0xffff],
            // The subgroup width is known only after a kernel is compiled.
            subgroup: None,
            dtypes: dtypes.filter(|&dtype| dtype != DType::F64 || self.has("cl_khr_fp64")).collect(),
            matrices: Vec::new(),
            quads: false,
            async_copies: false,
            meeting_groups: 0,
        };
        // A CPU has few registers, which several invocations share.
        let sums = if self.is_processor() { 16 } else { 64 };
        Target { limits, vector_bytes: 16, processors: self.size(CL_DEVICE_MAX_COMPUTE_UNITS, 1), sums }
    }
}
