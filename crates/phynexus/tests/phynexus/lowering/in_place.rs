//! Kernels that overwrite what they read.

use phynexus::{
    DType, Device, Element, Scalar,
    device::Binding,
    kernel::{
        Index, Ranges,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        loops::Statement,
        lower::lower,
        step::Step,
    },
    op::{Binary, Combine},
    oracle::lowered_device,
};

use super::targets;

fn load(parameter: u16, index: &Index) -> FusedOp {
    FusedOp::Load { parameter, index: index.clone(), mask: None, fill: Scalar::Float(0.0) }
}

/// A kernel of `float32` parameters, of which those from `written` on are written.
fn fusion(
    [rows, columns]: [usize; 2],
    operations: &[(FusedOp, DType, bool)],
    stores: Vec<Store>,
    written: [bool; 4],
) -> Fusion {
    let instruction = |(operation, dtype, per_column): &(FusedOp, DType, bool)| Instruction {
        operation: operation.clone(),
        dtype: *dtype,
        per_column: *per_column,
    };
    Fusion {
        rows: [rows].into_iter().collect(),
        columns: [columns].into_iter().collect(),
        instructions: operations.iter().map(instruction).collect(),
        stores,
        parameters: written.map(|written| Parameter { dtype: DType::F32, written }).to_vec(),
    }
}

fn upload(device: Device, values: &[f32]) -> Binding {
    let buffer = device.backend().allocate(values.len() * 4).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    device.backend().write(&buffer, 0, &bytes).unwrap();
    Binding { buffer, offset: 0 }
}

fn read(device: Device, binding: &Binding, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    device.backend().read(&binding.buffer, 0, &mut bytes).unwrap();
    f32::read_bytes(&bytes)
}

/// `x` becomes `x + y`, which needs no sum, while `x * sum(x)` needs the old `x` after the sum.
#[test]
fn what_a_later_loop_reads_is_not_overwritten_before() {
    let dtype = DType::F32;
    for [rows, columns] in [[3, 5], [2, 700], [40, 64]] {
        let ranges = Ranges::of(&[rows, columns]);
        let place = Index::range(0, &ranges).scale(columns as i64).add(&Index::range(1, &ranges));
        let operations = [
            (load(0, &place), dtype, true),
            (load(1, &place), dtype, true),
            (FusedOp::Binary(Binary::Add, 0, 1), dtype, true),
            (FusedOp::Reduce(Combine::Sum, 0), dtype, false),
            (FusedOp::Binary(Binary::Mul, 0, 3), dtype, true),
        ];
        let stores = vec![
            Store { parameter: 2, value: 2, index: place.clone(), replaces: Some(0) },
            Store { parameter: 3, value: 4, index: place, replaces: None },
        ];
        let step = Step::Fused(fusion([rows, columns], &operations, stores, [false, false, true, true]));
        // Small integers, so that sums are exact in any order.
        let x: Vec<f32> = (0..rows * columns).map(|at| (at % 7) as f32).collect();
        let y: Vec<f32> = (0..x.len()).map(|at| (at % 5) as f32).collect();
        let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let scaled = |row: &[f32]| row.iter().map(|x| x * row.iter().sum::<f32>()).collect::<Vec<f32>>();
        let products: Vec<f32> = x.chunks(columns).flat_map(scaled).collect();
        for target in targets() {
            let device = lowered_device(&target.limits.device.clone(), target);
            let [first, second, product] = [&x, &y, &y].map(|values| upload(device, values));
            let bindings = [first.clone(), second, first.clone(), product.clone()];
            device.backend().compile(&step).unwrap().run(&bindings).unwrap();
            assert_eq!(read(device, &first, x.len()), sums, "{device}");
            assert_eq!(read(device, &product, x.len()), products, "{device}");
        }
    }
}

/// A choice between new values and those that its buffer holds: only the new ones are stored.
#[test]
fn of_a_choice_in_place_only_new_values_are_stored() {
    let (dtype, [rows, columns]) = (DType::F32, [24, 40]);
    let ranges = Ranges::of(&[rows, columns]);
    let (row, column) = (Index::range(0, &ranges), Index::range(1, &ranges));
    // Columns that are neighbours, and rows that are.
    let places = [row.scale(columns as i64).add(&column), column.scale(rows as i64).add(&row)];
    for (place, in_place) in places.iter().flat_map(|place| [(place, true), (place, false)]) {
        let operations = [
            (load(0, place), dtype, true),
            (load(1, &row), dtype, false),
            (FusedOp::Coordinate(column.clone()), DType::I64, true),
            (FusedOp::Constant(Scalar::Int(7)), DType::I64, false),
            (FusedOp::Binary(Binary::Eq, 2, 3), DType::Bool, true),
            (FusedOp::Select(4, 1, 0), dtype, true),
            (FusedOp::Reduce(Combine::Max, 5), dtype, false),
        ];
        let stores = vec![
            Store { parameter: 2, value: 5, index: place.clone(), replaces: in_place.then_some(0) },
            Store { parameter: 3, value: 6, index: row.clone(), replaces: None },
        ];
        let step = Step::Fused(fusion([rows, columns], &operations, stores, [false, false, true, true]));
        let old: Vec<f32> = (0..rows * columns).map(|at| at as f32).collect();
        let new: Vec<f32> = (0..rows).map(|at| 5000.0 + at as f32).collect();
        let (mut expected, blank) = (old.clone(), vec![-1.0; old.len()]);
        for (row, value) in new.iter().enumerate() {
            expected[place.evaluate(&[row, 7]) as usize] = *value;
        }
        for target in targets() {
            let device = lowered_device(&target.limits.device.clone(), target.clone());
            let mut conditional = 0;
            for launch in &lower(&step, &target).unwrap().launches {
                launch.kernel.visit(&mut |statement| {
                    conditional += usize::from(matches!(statement, Statement::Store { when: Some(_), .. }));
                });
            }
            assert_eq!(conditional > 0, in_place, "{device}");
            let [table, other, row, greatest] =
                [&old, &blank, &new, &blank].map(|values| upload(device, values));
            let result = if in_place { table.clone() } else { other };
            let bindings = [table, row, result.clone(), greatest.clone()];
            device.backend().compile(&step).unwrap().run(&bindings).unwrap();
            assert_eq!(read(device, &result, expected.len()), expected, "{device}");
            assert_eq!(read(device, &greatest, rows), new, "{device}");
        }
    }
}
