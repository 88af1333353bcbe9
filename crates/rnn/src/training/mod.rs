//! Training: how, and what is measured.

mod augment;
mod callback;
mod config;
mod early_stopping;
mod history;
mod metrics;
mod regularize;
mod run;
mod schedule;
mod shards;
mod step;

pub use augment::DataAugmentationConfig;
pub use callback::{TrainingCallback, TrainingState};
pub use config::{TrainingConfig, TrainingMethod};
pub use early_stopping::EarlyStopping;
pub use history::TrainingHistory;
pub use metrics::Metrics;
pub use regularize::RegularizationConfig;
pub(crate) use run::{Run, train_on};
pub use schedule::{LearningRateSchedule, LearningRateScheduler};
