//! Rows in batches, for custom training loops.

use ndarray::{Array2, Axis};
use neurenix::data::random::epoch_order;

use crate::{NetworkError, Result, convert, network::time};

/// Returns rows and targets in batches; [`DataLoader::reset`] shuffles them again.
#[derive(Clone, Debug)]
pub struct DataLoader {
    data: Array2<f64>,
    targets: Array2<f64>,
    batch_size: usize,
    /// The seed for shuffling; absent if rows keep their order.
    seed: Option<u64>,
    epoch: u64,
    order: Vec<usize>,
    next: usize,
}

impl DataLoader {
    /// A loader of these rows and targets.
    ///
    /// # Errors
    /// If there are no rows, the number of targets differs, or `batch_size` is 0.
    pub fn new(
        data: Array2<f64>,
        targets: Array2<f64>,
        batch_size: usize,
        shuffle: bool,
    ) -> Result<DataLoader> {
        convert::check_rows(&data, &targets)?;
        if data.nrows() == 0 {
            return Err(NetworkError::data("there are no rows: give at least one"));
        }
        if batch_size == 0 {
            return Err(NetworkError::invalid_parameter("batch_size", 0, "it must be at least 1"));
        }
        let seed = shuffle.then(time);
        let mut loader = DataLoader { data, targets, batch_size, seed, epoch: 0, order: Vec::new(), next: 0 };
        loader.arrange();
        Ok(loader)
    }

    fn arrange(&mut self) {
        let rows = self.data.nrows();
        self.order = match self.seed {
            Some(seed) => epoch_order(seed, self.epoch, rows),
            None => (0..rows).collect(),
        };
        self.next = 0;
    }

    /// The next batch, or `None` at the end. The last batch may be smaller.
    pub fn next_batch(&mut self) -> Option<(Array2<f64>, Array2<f64>)> {
        let rows = self.order.get(self.next..).filter(|rest| !rest.is_empty())?;
        let rows = &rows[..self.batch_size.min(rows.len())];
        self.next += rows.len();
        Some((self.data.select(Axis(0), rows), self.targets.select(Axis(0), rows)))
    }

    /// Starts again, in another order if rows are shuffled.
    pub fn reset(&mut self) {
        self.epoch += 1;
        self.arrange();
    }

    /// The number of batches per pass.
    pub fn num_batches(&self) -> usize {
        self.data.nrows().div_ceil(self.batch_size)
    }

    /// True if there is a next batch.
    pub fn has_next(&self) -> bool {
        self.next < self.order.len()
    }
}
