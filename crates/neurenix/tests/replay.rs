//! The work that a replay skips. A separate program, because plans are counted for the whole process.

use phynexus::{
    Device, Error, Result, Tensor,
    schedule::{capture::Captured, plan_statistics},
};

#[test]
fn a_replay_records_plans_and_allocates_nothing_new() -> Result<()> {
    neurenix::register_all();
    let device = Device::find("cpu")?;
    let step = Captured::new(|weights: &[Tensor], inputs: &[Tensor]| -> Result<Vec<Tensor>> {
        let w = weights[0].with_grad()?;
        let loss = inputs[0].matmul(&w)?.square()?.mean(&[], false)?;
        let mut gradients = loss.leaf_gradients()?;
        let Some(gradient) = gradients.take(&w) else { return Err(Error::argument("test", "no gradient")) };
        Ok(vec![weights[0].sub(&gradient.mul_scalar(0.1)?)?, loss])
    });
    let mut weights = vec![Tensor::from_slice(&[1.0f32, -2.0, 0.5], &[3], device)?];
    let inputs = [Tensor::from_slice(&[1.0f32, 0.5, -1.0, 2.0, 1.0, 0.0], &[2, 3], device)?];
    weights = step.call(&mut weights, &inputs)?[..1].to_vec();
    let (plans, address) = (plan_statistics(), weights[0].storage()?.buffer.0.host_pointer());
    for _ in 0..5 {
        weights = step.call(&mut weights, &inputs)?[..1].to_vec();
    }
    assert_eq!(plan_statistics(), plans, "a replay looks nothing up");
    assert_eq!(weights[0].storage()?.buffer.0.host_pointer(), address, "weights are overwritten in place");
    Ok(())
}
