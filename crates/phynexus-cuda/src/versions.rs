//! Compatible versions of drivers, compilers and GPUs.

use std::fmt;

use cudarc::{
    driver::{self, DriverError},
    nvrtc::{result::NvrtcError, sys},
};

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: i32,
    minor: i32,
}

/// The oldest supported version. Its driver is the first with the kernel graph functions used here
/// (`cuGraphAddKernelNode_v2`, `cuGraphExecKernelNodeSetParams_v2`). All other functions are older, except the time
/// between two events, which is looked up where it is needed. Calling a function that a library lacks panics.
const OLDEST: Version = Version { major: 12, minor: 0 };

/// The first version of NVRTC with the option `--minimal`.
pub(crate) const MINIMAL: Version = Version { major: 12, minor: 4 };

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Converts the driver's version number: 12080 is 12.8.
    fn from_number(number: i32) -> Version {
        Version { major: number / 1000, minor: number % 1000 / 10 }
    }

    /// The newest CUDA version that the driver supports.
    pub(crate) fn of_driver() -> Result<Version, DriverError> {
        let mut number = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { driver::sys::cuDriverGetVersion(&mut number) }.result()?;
        Ok(Version::from_number(number))
    }

    /// The reason why a driver of this version is not supported, if it is not.
    pub(crate) fn driver_refusal(self) -> Option<String> {
        (self < OLDEST).then(|| {
            format!(
                "NVIDIA's driver supports CUDA {self}, but CUDA {OLDEST} or later is required: \
                 install driver 525 or a newer one"
            )
        })
    }

    /// How to install an NVRTC whose machine code a driver of this version loads.
    pub(crate) fn compiler(self) -> String {
        match self.major {
            ..=12 => LAST_FOR_VOLTA.to_owned(),
            major => format!("`pip install --upgrade \"nvidia-cuda-nvrtc=={major}.*\"`"),
        }
    }
}

/// How to install the NVRTC of CUDA 12, the last one that compiles for Maxwell, Pascal and Volta.
const LAST_FOR_VOLTA: &str = "`pip install --upgrade nvidia-cuda-nvrtc-cu12`";

/// The NVRTC that was found.
pub(crate) struct Nvrtc {
    pub(crate) version: Version,
    /// The architectures that it supports: 75, 80, 90.
    architectures: Vec<i32>,
}

impl Nvrtc {
    /// Queries NVRTC, which must be loaded, without compiling anything.
    ///
    /// # Errors
    /// If it is too old or the query fails.
    pub(crate) fn ask() -> Result<Nvrtc, String> {
        let failed = |error: NvrtcError| format!("NVRTC, which compiles kernels, does not start: {error}");
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(failed)?;
        let version = Version { major, minor };
        if version < OLDEST {
            // It may lack the functions used below.
            return Err(format!(
                "NVRTC {version} is too old: {OLDEST} or later is required, \
                 {LAST_FOR_VOLTA}"
            ));
        }
        // SAFETY: the pointer is valid for the call.
        unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(failed)?;
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the buffer has room for all of them.
        unsafe { sys::nvrtcGetSupportedArchs(architectures.as_mut_ptr()) }.result().map_err(failed)?;
        Ok(Nvrtc { version, architectures })
    }

    /// The reason why NVRTC cannot compile for an architecture, given by its number (70 for a V100), or why a driver of
    /// this version cannot load the result.
    pub(crate) fn refusal(&self, architecture: usize, driver: Option<Version>) -> Option<String> {
        let Nvrtc { version, architectures } = self;
        let place = "in an environment without the newer one";
        let known = || architectures.iter().filter_map(|&known| usize::try_from(known).ok());
        if !known().any(|known| known == architecture) {
            let remedy = match known().all(|known| known > architecture) {
                true if version.major > OLDEST.major => format!("{LAST_FOR_VOLTA} {place}"),
                true => "no other supported version does".to_owned(),
                false => driver.unwrap_or(*version).compiler(),
            };
            let of = driver.map_or(String::new(), |driver| format!(" (the driver supports CUDA {driver})"));
            return Some(format!("NVRTC {version} does not compile for sm_{architecture}{of}: {remedy}"));
        }
        // Within a major version, a driver loads the output of later compilers.
        let driver = driver.filter(|driver| driver.major < version.major)?;
        let older = driver.compiler();
        Some(format!(
            "NVRTC {version} produces code for sm_{architecture} that the driver, which supports CUDA {driver}, \
             cannot load: install a newer driver, or {older} {place}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    fn nvrtc(major: i32, minor: i32, architectures: &[i32]) -> Nvrtc {
        Nvrtc { version: Version { major, minor }, architectures: architectures.to_vec() }
    }

    fn driver(number: i32) -> Option<Version> {
        Some(Version::from_number(number))
    }

    fn contains(reason: Option<String>, parts: &[&str]) {
        let reason = reason.expect("a refusal");
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn nvrtc_tells_what_it_compiles_for() {
        assert!(library::has_compiler(), "NVRTC is not installed");
        let there = Nvrtc::ask().unwrap();
        assert!([75, 80, 90].iter().all(|&known| there.refusal(known, None).is_none()));
        let version = there.version.to_string();
        contains(there.refusal(35, None), &[version.as_str(), "sm_35"]);
    }

    #[test]
    fn old_drivers_are_refused_with_their_version() {
        let refusal = |number| Version::from_number(number).driver_refusal();
        for number in [12000, 12040, 12080, 13000, 13010] {
            assert_eq!(refusal(number), None, "{number}");
        }
        for (number, shown) in [(11080, "CUDA 11.8,"), (11040, "CUDA 11.4,"), (9020, "CUDA 9.2,")] {
            contains(refusal(number), &[shown, "12.0", "525"]);
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_remedy() {
        let newest = nvrtc(13, 0, &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121]);
        let older = nvrtc(12, 4, &[50, 52, 60, 61, 70, 75, 80, 86, 89, 90]);
        // An H200 and a V100 with drivers that support them.
        assert_eq!(newest.refusal(90, driver(13000)), None);
        assert_eq!(newest.refusal(90, driver(13020)), None);
        assert_eq!(newest.refusal(90, None), None);
        assert_eq!(older.refusal(70, driver(13000)), None);
        assert_eq!(older.refusal(70, driver(12000)), None);
        // A V100 and a GTX 1080, which newer NVRTC versions do not support.
        let package = "nvidia-cuda-nvrtc-cu12`";
        contains(newest.refusal(70, driver(13000)), &["NVRTC 13.0", "sm_70", "CUDA 13.0", package]);
        contains(newest.refusal(61, None), &["NVRTC 13.0", "sm_61", package]);
        // Here a newer driver would not help.
        let reason = newest.refusal(70, driver(12080)).expect("a refusal");
        assert!(reason.contains(package) && !reason.contains("newer driver"), "{reason}");
        // A driver that does not load a newer NVRTC's output.
        let parts = ["NVRTC 13.0", "sm_90", "CUDA 12.8", "newer driver", package];
        contains(newest.refusal(90, driver(12080)), &parts);
        // GPUs that are newer than NVRTC.
        contains(older.refusal(120, driver(12080)), &["NVRTC 12.4", "sm_120", "CUDA 12.8", package]);
        contains(older.refusal(120, driver(13000)), &["sm_120", "\"nvidia-cuda-nvrtc==13.*\""]);
        // An architecture that is too old for every version.
        contains(older.refusal(35, None), &["sm_35", "no other"]);
    }
}
