//! Rows of a table that are written where they are.

use phynexus::{DType, Device, Error, Result, Tensor, tensor::IndexSpec};

fn address(x: &Tensor) -> Result<usize> {
    Ok(x.storage()?.buffer.0.host_pointer().map_or(0, |pointer| pointer.addr()))
}

fn table(cpu: Device) -> Result<Tensor> {
    Tensor::arange(0, 24, 1, DType::F32, cpu)?.reshape(&[6, 4])?.contiguous()?.evaluated()
}

/// The table with another row, and a product that reads it afterwards.
fn written(table: &Tensor, row: &Tensor) -> Result<[Tensor; 2]> {
    let new = Tensor::zeros(&[1, 4], DType::F32, table.device())?.evaluated()?;
    let after = table.index_put(&[IndexSpec::Tensor(row.clone())], &new)?;
    let product = after.matmul(&Tensor::ones(&[4, 3], DType::F32, table.device())?.evaluated()?)?;
    Ok([after, product])
}

#[test]
fn a_row_is_written_in_place_if_its_number_is_known_to_be_in_range() -> Result<()> {
    let cpu = phynexus_cpu::register();
    let expected: Vec<f32> = (0..24).map(|i| if i / 4 == 2 { 0.0 } else { i as f32 }).collect();
    let known = Tensor::from_slice(&[2i64], &[1], cpu)?;
    // Nothing is known of what is computed from floats.
    let computed = Tensor::from_slice(&[2f32], &[1], cpu)?.to_dtype(DType::I64)?.evaluated()?;
    for (row, is_known) in [(&known, true), (&computed, false)] {
        let before = table(cpu)?;
        let place = address(&before)?;
        let [after, product] = written(&before, row)?;
        Tensor::evaluate_replacing(&[&after, &product], &mut vec![before])?;
        assert_eq!(address(&after)? == place, is_known);
        assert_eq!(after.to_vec::<f32>()?, expected);
        assert_eq!(product.to_vec::<f32>()?[6..12], [0.0, 0.0, 0.0, 54.0, 54.0, 54.0]);
    }
    Ok(())
}

#[test]
fn a_table_that_is_held_or_read_again_stays_as_it_is() -> Result<()> {
    let cpu = phynexus_cpu::register();
    let row = Tensor::from_slice(&[2i64], &[1], cpu)?;
    let before = table(cpu)?;
    let [after, _] = written(&before, &row)?;
    after.evaluate()?;
    assert_ne!(address(&after)?, address(&before)?);
    assert_eq!(before.to_vec::<f32>()?[8..12], [8.0, 9.0, 10.0, 11.0]);
    // A sum that the plan computes after the row is written.
    let [after, product] = written(&before, &row)?;
    let later = before.add(&product.sum(&[], false)?)?;
    Tensor::evaluate_replacing(&[&after, &later], &mut vec![before])?;
    assert_eq!(later.to_vec::<f32>()?[8], 8.0 + 3.0 * (276.0 - 38.0));
    Ok(())
}

#[test]
fn a_row_out_of_range_changes_nothing() -> Result<()> {
    let cpu = phynexus_cpu::register();
    let before = table(cpu)?;
    let row = Tensor::from_slice(&[9f32], &[1], cpu)?.to_dtype(DType::I64)?.evaluated()?;
    let [after, _] = written(&before, &row)?;
    let mut replaced = vec![before];
    assert!(matches!(Tensor::evaluate_replacing(&[&after], &mut replaced), Err(Error::Index { .. })));
    assert_eq!(replaced[0].to_vec::<f32>()?, (0..24).map(|i| i as f32).collect::<Vec<_>>());
    Ok(())
}
