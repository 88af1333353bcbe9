//! Training: how, and what is measured.

mod augment;
mod callback;
mod config;
mod direction;
mod history;
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
mod shards;
mod step;

pub use augment::DataAugmentationConfig;
pub use callback::{TrainingCallback, TrainingState};
pub use config::{TrainingConfig, TrainingMethod};
pub use history::TrainingHistory;
pub use loader::DataLoader;
pub use metrics::Metrics;
pub use neurenix::train::EarlyStopping;
pub use regularize::RegularizationConfig;
pub(crate) use run::{Run, train_on};
pub use schedule::{LearningRateSchedule, LearningRateScheduler};
