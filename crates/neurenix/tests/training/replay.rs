//! Steps that are recorded and replayed.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A model that counts how often its code runs.
struct Counted(Sequential, AtomicUsize);

impl Module for Counted {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.forward(input)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

#[test]
fn a_replayed_step_runs_the_models_code_once_for_each_shape() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let runs = |replay: bool| -> Result<usize> {
        let generator = Generator::new(1);
        let model = Counted(network(&generator)?, AtomicUsize::new(0));
        let options = TrainOptions { epochs: 5, batch_size: 16, replay, ..TrainOptions::default() };
        trainer(&model, &generator, options)?.run(&points(90)?, None, &mut Silent)?;
        Ok(model.1.into_inner())
    };
    // One for the check of the data; the first step has no optimiser state yet; batches have 16 and 10 rows.
    assert_eq!(runs(false)?, 1 + 5 * 6);
    assert_eq!(runs(true)?, 1 + 1 + 2);
    Ok(())
}

/// The code runs again for as long as a part of the model is in another mode.
#[test]
fn a_step_in_another_mode_is_not_replayed() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    struct Freeze<'a>(&'a dyn Module, usize);
    impl Observer for Freeze<'_> {
        fn step(&mut self, report: &StepReport) -> bool {
            self.0.train(report.batch < self.1);
            true
        }
    }
    let mut all = Vec::new();
    for replay in [false, true] {
        phynexus::tensor::manual_seed(7);
        let generator = Generator::new(1);
        let model = network(&generator)?;
        let options = TrainOptions { epochs: 3, batch_size: 15, replay, ..TrainOptions::default() };
        let mut run = trainer(&model, &generator, options)?;
        run.run(&points(90)?, None, &mut Freeze(&model, 3))?;
        all.push(bits(&model, &run.optimizer));
    }
    assert!(all[0] == all[1]);
    Ok(())
}
