//! Helpers: data preparation, mathematics, random numbers, timing, settings.

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
