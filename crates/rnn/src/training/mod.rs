//! Training: configuration, runs, measurements.

mod augment;
mod callback;
mod config;
mod direction;
mod forward;
mod loader;
mod methods;
mod metrics;
pub(crate) mod random;
mod regularize;
mod report;
mod run;
mod schedule;
mod search;
mod session;
mod step;
mod train;
mod workers;

pub use augment::DataAugmentationConfig;
pub use callback::{TrainingCallback, TrainingState};
pub use config::{TrainingConfig, TrainingMethod};
pub use loader::DataLoader;
pub use metrics::Metrics;
pub use neurenix::train::EarlyStopping;
pub use regularize::RegularizationConfig;
pub use schedule::{LearningRateSchedule, LearningRateScheduler};
pub(crate) use train::train_on;

pub use crate::network::TrainingHistory;
