//! The profiler: which kernels and transfers ran on which device, and for how long.

use std::sync::{Arc, Mutex, PoisonError};

use phynexus::profile::{Detail, Profile, ProfileRow, Profiler, show_giga};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use crate::{
    error::{Result, runtime_error},
    interrupt::compute,
};

enum State {
    Ready,
    Running(Profiler),
    Done(Arc<Profile>),
}

/// Context manager that records kernels, transfers and host work on every device.
#[pyclass(name = "Profiler", module = "neurenix", frozen)]
pub(crate) struct PyProfiler(Mutex<State>);

impl PyProfiler {
    fn with_profile<T>(&self, look: impl FnOnce(&Profile) -> Result<T>) -> Result<T> {
        // Clone and release the lock: creating Python objects may run other threads.
        let profile = match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Done(profile) => profile.clone(),
            _ => return Err(runtime_error("no profile yet: read it after the with block ends")),
        };
        look(&profile)
    }
}

#[pymethods]
impl PyProfiler {
    #[new]
    fn new() -> PyProfiler {
        PyProfiler(Mutex::new(State::Ready))
    }
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        let profiler = Profiler::start(Detail::Timeline)?;
        *slf.get().0.lock().unwrap_or_else(PoisonError::into_inner) = State::Running(profiler);
        Ok(slf.clone())
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Result<()> {
        compute(py, || -> Result<()> {
            let state =
                std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Ready);
            if let State::Running(profiler) = state {
                let profile = profiler.finish()?;
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::Done(Arc::new(profile));
            }
            Ok(())
        })
    }
    /// Kernels and transfers as dicts, longest total time first. Times are in seconds.
    fn rows<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        self.with_profile(|profile| {
            let mut rows: Vec<&ProfileRow> = profile.rows.iter().collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.time));
            rows.into_iter()
                .map(|row| {
                    let told = PyDict::new(py);
                    told.set_item("name", &row.name)?;
                    told.set_item("device", &row.device)?;
                    told.set_item("count", row.count)?;
                    told.set_item("time", row.time.as_secs_f64())?;
                    told.set_item("bytes", row.bytes)?;
                    told.set_item("operations", row.operations)?;
                    Ok(told)
                })
                .collect()
        })
    }
    /// The profile as a text table.
    fn table(&self) -> Result<String> {
        self.with_profile(|profile| {
            let mut rows: Vec<&ProfileRow> = profile.rows.iter().collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.time));
            let mut text =
                format!("{:<44} {:<10} {:>7} {:>11} {:>9}\n", "name", "device", "count", "time", "GB/s");
            for row in rows {
                let name: String = row.name.chars().take(44).collect();
                let rate = row.bytes_per_second().map_or(String::new(), show_giga);
                let time = format!("{:.3} ms", row.time.as_secs_f64() * 1e3);
                text += &format!("{name:<44} {:<10} {:>7} {time:>11} {rate:>9}\n", row.device, row.count);
            }
            Ok(text)
        })
    }
    /// The timeline in Chrome's trace format, which Perfetto opens.
    fn chrome_trace(&self) -> Result<String> {
        self.with_profile(|profile| Ok(profile.chrome_trace()))
    }
}
