//! Training: how, and what is measured.

mod augment;
mod callback;
mod config;
mod direction;
mod early_stopping;
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
mod shards;
mod step;

pub use augment::DataAugmentationConfig;
pub use callback::{TrainingCallback, TrainingState};
pub use config::{TrainingConfig, TrainingMethod};
pub use early_stopping::EarlyStopping;
pub use history::TrainingHistory;
pub use loader::DataLoader;
pub use metrics::Metrics;
pub use regularize::RegularizationConfig;
pub(crate) use run::{Run, train_on};
pub use schedule::{LearningRateSchedule, LearningRateScheduler};
