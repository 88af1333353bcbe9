//! Which drivers, compilers and GPUs go together.

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

/// The oldest that is used. Its driver is the first with the functions for graphs of kernels that are called here
/// (`cuGraphAddKernelNode_v2`, `cuGraphExecKernelNodeSetParams_v2`); the others are older, but for the time between two
/// events, which is looked for where it is needed. A call of a function that a library does not have panics.
const OLDEST: Version = Version { major: 12, minor: 0 };

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// From the number by which NVIDIA's driver tells it: 12080 is 12.8.
    fn from_number(number: i32) -> Version {
        Version { major: number / 1000, minor: number % 1000 / 10 }
    }

    /// The newest CUDA that the driver knows.
    pub(crate) fn of_driver() -> Result<Version, DriverError> {
        let mut number = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { driver::sys::cuDriverGetVersion(&mut number) }.result()?;
        Ok(Version::from_number(number))
    }

    /// Why a driver of this version is not used, if it is not.
    pub(crate) fn driver_refusal(self) -> Option<String> {
        (self < OLDEST).then(|| {
            format!(
                "NVIDIA's driver is one for CUDA {self}, and one for CUDA {OLDEST} or later is needed: \
                 install driver 525 or a newer one"
            )
        })
    }

    /// How an NVRTC is had whose machine code a driver of this version loads.
    pub(crate) fn compiler(self) -> String {
        match self.major {
            ..=12 => LAST_FOR_VOLTA.to_owned(),
            major => format!("`pip install --upgrade \"nvidia-cuda-nvrtc=={major}.*\"`"),
        }
    }
}

/// How the NVRTC of CUDA 12 is had, the last that compiles for Maxwell, Pascal and Volta.
const LAST_FOR_VOLTA: &str = "`pip install --upgrade nvidia-cuda-nvrtc-cu12`";

/// NVRTC, as it was found.
pub(crate) struct Nvrtc {
    pub(crate) version: Version,
    /// The architectures that it compiles for: 75, 80, 90.
    architectures: Vec<i32>,
}

impl Nvrtc {
    /// Asks NVRTC, which must be there, what it can do; nothing is compiled for that.
    ///
    /// # Errors
    /// If it is too old or fails, in words.
    pub(crate) fn ask() -> Result<Nvrtc, String> {
        let failed = |error: NvrtcError| format!("NVRTC, which compiles kernels, does not start: {error}");
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(failed)?;
        let version = Version { major, minor };
        if version < OLDEST {
            // It may lack the functions that follow.
            return Err(format!(
                "NVRTC {version}, which was found, is too old: {OLDEST} or a later one is needed, \
                 {LAST_FOR_VOLTA}"
            ));
        }
        // SAFETY: the pointer is valid for the call.
        unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(failed)?;
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as there are.
        unsafe { sys::nvrtcGetSupportedArchs(architectures.as_mut_ptr()) }.result().map_err(failed)?;
        Ok(Nvrtc { version, architectures })
    }

    /// Why there is no machine code for an architecture, by its number (70 is a V100), or none that a driver of this version
    /// loads.
    pub(crate) fn refusal(&self, architecture: usize, driver: Option<Version>) -> Option<String> {
        let Nvrtc { version, architectures } = self;
        let place = "in an environment without the newer one";
        let known = || architectures.iter().filter_map(|&known| usize::try_from(known).ok());
        if !known().any(|known| known == architecture) {
            let remedy = match known().all(|known| known > architecture) {
                true if version.major > OLDEST.major => format!("{LAST_FOR_VOLTA} {place}"),
                true => "no other that is used here does".to_owned(),
                false => driver.unwrap_or(*version).compiler(),
            };
            let of = driver.map_or(String::new(), |driver| format!(" (the driver is one for CUDA {driver})"));
            return Some(format!("NVRTC {version} does not compile for sm_{architecture}{of}: {remedy}"));
        }
        // Within a major version a driver loads what later compilers make.
        let driver = driver.filter(|driver| driver.major < version.major)?;
        let older = driver.compiler();
        Some(format!(
            "NVRTC {version} compiles for sm_{architecture} what the driver, which is one for CUDA {driver}, \
             does not load: install a newer driver, or {older} {place}"
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
        // An H200 and a V100, with the drivers that they can have.
        assert_eq!(newest.refusal(90, driver(13000)), None);
        assert_eq!(newest.refusal(90, driver(13020)), None);
        assert_eq!(newest.refusal(90, None), None);
        assert_eq!(older.refusal(70, driver(13000)), None);
        assert_eq!(older.refusal(70, driver(12000)), None);
        // A V100 and a GTX 1080 of which a newer NVRTC knows nothing.
        let package = "nvidia-cuda-nvrtc-cu12`";
        contains(newest.refusal(70, driver(13000)), &["NVRTC 13.0", "sm_70", "CUDA 13.0", package]);
        contains(newest.refusal(61, None), &["NVRTC 13.0", "sm_61", package]);
        // There a newer driver would not help.
        let reason = newest.refusal(70, driver(12080)).expect("a refusal");
        assert!(reason.contains(package) && !reason.contains("newer driver"), "{reason}");
        // A driver that does not load what a newer NVRTC makes.
        let parts = ["NVRTC 13.0", "sm_90", "CUDA 12.8", "newer driver", package];
        contains(newest.refusal(90, driver(12080)), &parts);
        // GPUs that are newer than NVRTC.
        contains(older.refusal(120, driver(12080)), &["NVRTC 12.4", "sm_120", "CUDA 12.8", package]);
        contains(older.refusal(120, driver(13000)), &["sm_120", "\"nvidia-cuda-nvrtc==13.*\""]);
        // One that is too old for all.
        contains(older.refusal(35, None), &["sm_35", "no other"]);
    }
}
