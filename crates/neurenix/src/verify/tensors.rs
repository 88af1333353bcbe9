//! Programs that test tensors beyond the graph: tensors keep their values while memory is reused.

use phynexus::{
    DType, Device, Result, Tensor,
    op::{Binary, Op, Permute},
    oracle::{
        OracleArray, compare, evaluate,
        generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    },
};

use super::execute::Outcome;

/// A program and its name in the report.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) run: fn(Device) -> Result<Outcome>,
}

/// All programs.
pub(super) const PROGRAMS: &[Program] = &[
    Program { name: "in-place updates", run: in_place_updates },
    Program { name: "shared operands", run: shared_operands },
    Program { name: "views of updated data", run: views_of_updated_data },
    Program { name: "intermediate reads", run: intermediate_reads },
    Program { name: "repeated steps", run: repeated_steps },
    Program { name: "rows written in place", run: rows_in_place },
];

const SHAPE: [usize; 2] = [37, 130];

/// Two operands on the device, and a case with both as leaves 0 and 1.
fn operands(device: Device, seed: u64) -> Result<(Tensor, Tensor, Case)> {
    let mut choice = Choice::new(seed);
    let mut case = Case::new("program");
    for _ in 0..2 {
        case.leaf(CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, DType::F32, &SHAPE)));
    }
    Ok((case.leaves[0].upload(device)?, case.leaves[1].upload(device)?, case))
}

/// Compares a tensor with a node of the case.
fn check(outcome: &mut Outcome, what: &str, case: &Case, node: u32, actual: &Tensor) -> Result<()> {
    let mut asked = case.clone();
    asked.ir.outputs = vec![node];
    let expected: Vec<OracleArray> = evaluate(&asked.ir, &asked.values())?;
    let comparison = compare(&expected[0], &actual.to_bytes()?, actual.dtype());
    outcome.add(&|| what.to_owned(), comparison);
    Ok(())
}

/// Appends `x * y + x`.
fn step(case: &mut Case, x: u32, y: u32) -> u32 {
    let product = case.ir.push(Op::Binary(Binary::Mul), DType::F32, SHAPE.as_slice().into(), [x, y]);
    case.ir.push(Op::Binary(Binary::Add), DType::F32, SHAPE.as_slice().into(), [product, x])
}

/// An operand without other references may repeatedly donate its memory to the result.
fn in_place_updates(device: Device) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut x, y, mut case) = operands(device, 1)?;
    let mut node = 0;
    for round in 0..4 {
        x = x.mul(&y)?.add(&x)?;
        x.evaluate()?;
        node = step(&mut case, node, 1);
        check(&mut outcome, &format!("round {round}"), &case, node, &x)?;
    }
    Ok(outcome)
}

/// An operand that is still referenced keeps its values.
fn shared_operands(device: Device) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut x, y, mut case) = operands(device, 2)?;
    let held = x.clone();
    x = x.mul(&y)?.add(&x)?;
    x.evaluate()?;
    let node = step(&mut case, 0, 1);
    check(&mut outcome, "the update", &case, node, &x)?;
    check(&mut outcome, "the operand that is still held", &case, 0, &held)?;
    check(&mut outcome, "the other operand", &case, 1, &y)?;
    Ok(outcome)
}

/// A view keeps its data when its base tensor is updated, and vice versa.
fn views_of_updated_data(device: Device) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut x, y, mut case) = operands(device, 3)?;
    let view = x.permute(&[1, 0])?;
    x = x.mul(&y)?.add(&x)?;
    x.evaluate()?;
    let turned: [usize; 2] = [SHAPE[1], SHAPE[0]];
    let permute = Op::Permute(Permute([1u8, 0].as_slice().into()));
    let old = case.ir.push(permute.clone(), DType::F32, turned.as_slice().into(), [0]);
    check(&mut outcome, "the view of the old values", &case, old, &view)?;
    // An update of the view does not change the base tensor.
    let mut view = x.permute(&[1, 0])?;
    view = view.add(&view)?;
    view.evaluate()?;
    let node = step(&mut case, 0, 1);
    let new = case.ir.push(permute, DType::F32, turned.as_slice().into(), [node]);
    let doubled = case.ir.push(Op::Binary(Binary::Add), DType::F32, turned.as_slice().into(), [new, new]);
    check(&mut outcome, "the updated view", &case, doubled, &view)?;
    check(&mut outcome, "the tensor behind the updated view", &case, node, &x)?;
    Ok(outcome)
}

/// Reading one part of a graph first does not change the rest.
fn intermediate_reads(device: Device) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (x, y, mut case) = operands(device, 4)?;
    let product = x.mul(&y)?;
    let sum = product.add(&x)?;
    let later = sum.sub(&product)?;
    let shape = SHAPE.as_slice();
    let p = case.ir.push(Op::Binary(Binary::Mul), DType::F32, shape.into(), [0, 1]);
    let s = case.ir.push(Op::Binary(Binary::Add), DType::F32, shape.into(), [p, 0]);
    let l = case.ir.push(Op::Binary(Binary::Sub), DType::F32, shape.into(), [s, p]);
    check(&mut outcome, "the sum, read first", &case, s, &sum)?;
    drop(sum);
    check(&mut outcome, "the difference", &case, l, &later)?;
    check(&mut outcome, "the product, read last", &case, p, &product)?;
    Ok(outcome)
}

/// The same step on other data reuses the plan but not the data.
fn repeated_steps(device: Device) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for seed in 10..14 {
        let (x, y, mut case) = operands(device, seed)?;
        let result = x.mul(&y)?.add(&x)?;
        let node = step(&mut case, 0, 1);
        check(&mut outcome, &format!("data {seed}"), &case, node, &result)?;
    }
    Ok(outcome)
}

/// A row is written where a position says, in the kernel that also reduces the whole. If nothing else holds the memory,
/// only that row is stored.
fn rows_in_place(device: Device) -> Result<Outcome> {
    const SHAPE: [usize; 3] = [3, 40, 8];
    let mut outcome = Outcome::default();
    let values = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.to_vec::<f32>();
    let mut choice = Choice::new(6);
    let dtypes = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64, DType::I8];
    let owners = dtypes.iter().flat_map(|&dtype| [(dtype, 1, 0), (dtype, 2, 0), (dtype, 1, 1)]);
    for (round, (dtype, owners, offset)) in owners.enumerate() {
        let mut made = |shape: &[usize]| -> Result<Tensor> {
            let values = random_array(&mut choice, Distribution::Tame, dtype, shape);
            CaseLeaf::contiguous(values).upload(device)
        };
        // Memory with another owner, and the middle of a block, are not overwritten, which is known only when the plan runs.
        let whole = made(&[SHAPE[0] + offset, SHAPE[1], SHAPE[2]])?;
        let table = whole.narrow(0, offset, SHAPE[0])?.evaluated()?;
        drop(whole);
        let row = made(&[SHAPE[0], 1, SHAPE[2]])?;
        let at = 2 * round + 2;
        let (mut expected, old) = (values(&table)?, values(&row)?);
        let storage = (owners > 1).then(|| table.storage()).transpose()?;
        let shared = storage.map(|s| (Tensor::from_storage(device, dtype, s), expected.clone()));
        for (batch, row) in old.chunks(SHAPE[2]).enumerate() {
            let start = (batch * SHAPE[1] + at) * SHAPE[2];
            expected[start..start + SHAPE[2]].copy_from_slice(row);
        }
        let position = Tensor::from_slice(&[at as i64], &[1], device)?;
        let is_new =
            Tensor::arange(0, SHAPE[1] as i64, 1, DType::I64, device)?.eq(&position)?.unsqueeze(-1)?;
        let written = is_new.where_(&row, &table)?;
        drop(table);
        let [along, across] = [written.max(&[2], false)?, written.max(&[1], false)?];
        Tensor::evaluate_all(&[&written, &along, &across])?;
        let mut compare = |what: &str, expected: &[f32], actual: &Tensor| -> Result<()> {
            outcome.compared += expected.len();
            let actual = values(actual)?;
            if actual != expected {
                outcome.failure = Some(format!("{dtype}, {what}: {actual:?}, not {expected:?}"));
            }
            Ok(())
        };
        let greatest = |values: &mut dyn Iterator<Item = f32>| values.fold(f32::NEG_INFINITY, f32::max);
        let rows: Vec<f32> =
            expected.chunks(SHAPE[2]).map(|row| greatest(&mut row.iter().copied())).collect();
        let column = |at: usize| {
            let (batch, column) = (at / SHAPE[2], at % SHAPE[2]);
            greatest(&mut (0..SHAPE[1]).map(|row| expected[(batch * SHAPE[1] + row) * SHAPE[2] + column]))
        };
        compare("the table", &expected, &written)?;
        compare("the greatest of each row", &rows, &along)?;
        let columns: Vec<f32> = (0..SHAPE[0] * SHAPE[2]).map(column).collect();
        compare("the greatest of each column", &columns, &across)?;
        if let Some((shared, before)) = shared {
            compare("the old table", &before, &shared)?;
        }
    }
    Ok(outcome)
}
