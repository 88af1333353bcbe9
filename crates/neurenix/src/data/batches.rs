//! Batches of a dataset, prefetched by a background thread.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use super::dataset::Dataset;
use super::random::epoch_order;
use crate::array::HostArray;
use crate::{Error, Result};

/// Rows of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The inputs: `[rows, ...]`.
    pub inputs: HostArray,
    /// The targets: `[rows]` labels or `[rows, ...]` floats.
    pub targets: HostArray,
    /// The indices of the rows in the dataset.
    pub indices: Vec<usize>,
}

/// How an epoch is divided into batches.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOptions {
    /// The number of rows per batch, at least 1.
    pub batch_size: usize,
    /// The shuffle seed; `None` keeps the dataset's order.
    pub shuffle_seed: Option<u64>,
    /// The epoch. The order is a pure function of seed and epoch.
    pub epoch: u64,
    /// Drops an incomplete last batch, so that every batch has the same shape.
    pub drop_last: bool,
    /// The number of batches to skip at the start, for example those done before an interruption.
    pub skip: usize,
    /// The number of batches to prefetch.
    pub prefetch: usize,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions { batch_size: 64, shuffle_seed: None, epoch: 0, drop_last: false, skip: 0, prefetch: 4 }
    }
}

/// An iterator over the batches of one epoch. A background thread fills it and ends with it.
#[derive(Debug)]
pub struct Batches {
    receiver: Option<Receiver<Result<Batch>>>,
    worker: Option<JoinHandle<()>>,
    left: usize,
}

impl Batches {
    /// Starts prefetching the batches of an epoch.
    ///
    /// # Errors
    /// If the batch size is 0, or the system cannot start a thread.
    pub fn new(dataset: &Dataset, options: &BatchOptions) -> Result<Batches> {
        let size = options.batch_size;
        if size == 0 {
            return Err(Error::data("batch size", "must be at least 1, got 0"));
        }
        let count = dataset.len();
        let total = if options.drop_last { count / size } else { count.div_ceil(size) };
        let order = match options.shuffle_seed {
            Some(seed) => epoch_order(seed, options.epoch, count),
            None => (0..count).collect(),
        };
        let (sender, receiver) = sync_channel(options.prefetch);
        let (dataset, skip) = (dataset.clone(), options.skip);
        let work = move || {
            for rows in order.chunks(size).take(total).skip(skip) {
                let batch = dataset.batch(rows);
                let failed = batch.is_err();
                // Sending fails after the iterator was dropped.
                if sender.send(batch).is_err() || failed {
                    return;
                }
            }
        };
        let worker = std::thread::Builder::new().name("neurenix-batches".to_owned()).spawn(work);
        let worker = worker.map_err(|e| Error::data("batches", format!("cannot start a thread: {e}")))?;
        Ok(Batches { receiver: Some(receiver), worker: Some(worker), left: total.saturating_sub(skip) })
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.left == 0 {
            return None;
        }
        match self.receiver.as_ref()?.recv() {
            Ok(Ok(batch)) => {
                self.left -= 1;
                Some(Ok(batch))
            }
            Ok(Err(error)) => {
                self.left = 0;
                Some(Err(error))
            }
            Err(_) => {
                self.left = 0;
                Some(Err(phynexus::Error::internal("Batches", "the prefetch thread ended early").into()))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Batches {}

impl Drop for Batches {
    fn drop(&mut self) {
        // Without a receiver, the thread ends at its next batch.
        self.receiver = None;
        if let Some(worker) = self.worker.take() {
            // The iterator already reported a panic in the thread as an error.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Result<Dataset> {
        let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let column = HostArray::from_values(&[count, 1], &values)?;
        Dataset::regression("numbers", column.clone(), column)
    }

    fn rows(dataset: &Dataset, options: &BatchOptions) -> Result<Vec<Vec<usize>>> {
        Batches::new(dataset, options)?.map(|batch| batch.map(|b| b.indices)).collect()
    }

    #[test]
    fn every_row_comes_once_in_an_order_of_seed_and_epoch() -> Result<()> {
        let data = numbers(10)?;
        let options = BatchOptions { batch_size: 3, shuffle_seed: Some(1), ..BatchOptions::default() };
        let batches = rows(&data, &options)?;
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(batches.concat(), epoch_order(1, 0, 10));
        let next = BatchOptions { epoch: 1, ..options.clone() };
        assert_ne!(rows(&data, &next)?, batches);
        // A resumed epoch yields the same batches as an uninterrupted one, whatever the prefetch depth.
        for prefetch in [0, 1, 100] {
            let resumed = BatchOptions { skip: 2, prefetch, ..options.clone() };
            assert_eq!(rows(&data, &resumed)?, batches[2..]);
        }
        let dropped = BatchOptions { drop_last: true, ..options.clone() };
        assert_eq!(rows(&data, &dropped)?, batches[..3]);
        let past = BatchOptions { skip: 9, ..options };
        assert!(rows(&data, &past)?.is_empty());
        Ok(())
    }

    #[test]
    fn values_belong_to_their_rows() -> Result<()> {
        let options = BatchOptions { batch_size: 4, shuffle_seed: Some(3), ..BatchOptions::default() };
        for batch in Batches::new(&numbers(9)?, &options)? {
            let batch = batch?;
            let expected: Vec<f32> = batch.indices.iter().map(|&i| i as f32).collect();
            assert_eq!(batch.inputs.to_vec::<f32>()?, expected);
            assert_eq!(batch.targets.to_vec::<f32>()?, expected);
        }
        Ok(())
    }

    #[test]
    fn abandoned_and_empty_epochs_end() -> Result<()> {
        let mut batches =
            Batches::new(&numbers(1000)?, &BatchOptions { batch_size: 1, ..BatchOptions::default() })?;
        assert_eq!(batches.len(), 1000);
        assert!(batches.next().is_some());
        drop(batches);
        let nothing = numbers(3)?.split_at(0)?.0;
        assert_eq!(Batches::new(&nothing, &BatchOptions::default())?.count(), 0);
        assert!(Batches::new(&nothing, &BatchOptions { batch_size: 0, ..BatchOptions::default() }).is_err());
        Ok(())
    }
}
