//! Helpers around networks: data made ready, numbers checked, random numbers, times, settings.

mod math;
mod monitor;
mod preprocessing;
mod random;
mod settings;

pub use math::MathUtils;
pub use monitor::PerformanceMonitor;
pub use preprocessing::DataPreprocessing;
pub use random::RandomUtils;
pub use settings::ConfigManager;
