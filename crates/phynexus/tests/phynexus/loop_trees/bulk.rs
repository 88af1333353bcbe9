//! Bulk copies: what they take of a tensor, what the checker refuses, and the faults that the interpreter detects.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        check::{Limits, check},
        loops::{
            ArrayId::Buffer, AsyncCopy, AxisKind, BulkCopy, BulkPart, BulkTensor, Factor, Fragment, Kernel,
            Matrix, MatrixShape, MatrixUnit, MemoryAccess, Panel, Role, Statement, Walk, divided,
        },
    },
    oracle::interpret::interpret,
};

use super::limits;

fn targets() -> Limits {
    let product = MatrixShape { rows: Panel::ROWS, columns: 64, depth: 16 };
    let matrices = vec![MatrixUnit::new(product, DType::BF16, DType::F32)];
    Limits { matrices, shared_bytes: 64 << 10, ..limits() }
}

/// An image of 5 x 6 pixels of 64 channels, twice, whose windows of 3 x 3 begin one pixel before it.
fn image(step: usize) -> BulkTensor {
    let walk = |extent: usize| Walk { low: -1, step, count: (extent - 1) / step + 1 };
    BulkTensor {
        buffer: 0,
        start: 0,
        dimensions: [(64, 1), (6, 64), (5, 6 * 64), (2, 30 * 64)].into_iter().collect(),
        part: BulkPart::Windows { length: 64, count: 64, walks: [walk(6), walk(5)].into_iter().collect() },
    }
}

#[test]
fn windows_are_parts_of_images() {
    for step in [1, 2] {
        let tensor = image(step);
        assert!(tensor.is_supported(2));
        let across = 5 / step + 1;
        let down = 4 / step + 1;
        // Channel 3 of the pixel two to the right of where window 7 begins, and one below.
        let at = [3, 7, 2, 1];
        for element in [0, 63, 64, 64 * 40 + 5] {
            let (window, channel) = (7 + element / 64, 3 + element % 64);
            let (n, row, column) = (window / (across * down), window / across % down, window % across);
            let pixel = [column * step + 1, row * step];
            let inside = channel < 64 && pixel[0] < 6 && pixel[1] < 5 && n < 2;
            let expected = ((n * 5 + pixel[1]) * 6 + pixel[0]) * 64 + channel;
            let found = tensor.element(&tensor.coordinates(&at, element));
            assert_eq!(found, inside.then_some(expected), "step {step}, element {element}");
        }
    }
}

#[test]
fn tensors_that_devices_do_not_copy() {
    let with = |change: &dyn Fn(&mut BulkTensor)| {
        let mut tensor = image(1);
        change(&mut tensor);
        tensor.is_supported(2)
    };
    assert!(with(&|_| {}));
    assert!(!with(&|tensor| tensor.start = 4));
    assert!(!with(&|tensor| tensor.dimensions[1].1 = 68));
    assert!(!with(&|tensor| tensor.dimensions[0].1 = 2));
    assert!(!with(&|tensor| tensor.part = BulkPart::Box([64, 2, 2].into_iter().collect())));
    assert!(!with(&|tensor| tensor.part = BulkPart::Box([32, 2, 2, 2].into_iter().collect())));
    assert!(with(&|tensor| tensor.part = BulkPart::Box([64, 2, 2, 2].into_iter().collect())));
    let walk = |low: i64, step: usize| {
        with(&|tensor| {
            if let BulkPart::Windows { walks, .. } = &mut tensor.part {
                (walks[0].low, walks[0].step) = (low, step);
            }
        })
    };
    assert!(walk(-128, 1) && !walk(-129, 1) && !walk(0, 9));
}

/// What a kernel of one team may leave out or do wrongly.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    NoTurn,
    UnsettledProduct,
    TooManyBatches,
    PlaceOfInvocations,
    Barrier,
    SameTurn,
    IdleTurn,
}

/// Multiplies 64 rows of 128 terms by themselves, in two steps, each of which has its panels.
fn kernel(fault: Fault) -> Kernel {
    let mut b = Builder::new("bulk");
    b.input(DType::BF16, 64 * 128);
    b.output(DType::F32, 64 * 64);
    let panels = b.panels(DType::BF16, 2 * 64 * 64);
    let sums = b.fragments(Fragment {
        role: Role::Accumulator,
        shape: MatrixShape { rows: Panel::ROWS, columns: 64, depth: 16 },
        dtype: DType::F32,
        length: 1,
    });
    let tensor = b.tensor(&BulkTensor {
        buffer: 0,
        start: 0,
        dimensions: [(128, 1), (64, 128)].into_iter().collect(),
        part: BulkPart::Box([64, 64].into_iter().collect()),
    });
    b.over(Panel::INVOCATIONS, AxisKind::Block(0), |b, invocation| {
        let copy = |b: &mut Builder, step: i64, slot: i64| {
            let uneven =
                if fault == Fault::PlaceOfInvocations { invocation.clone() } else { Index::default() };
            b.async_copy(AsyncCopy::Bulk(Box::new(BulkCopy {
                tensor,
                at: [Index::constant(step * 64).add(&uneven), Index::default()].into_iter().collect(),
                mask: Mask::default(),
                to: MemoryAccess::at(panels, &Index::constant(slot * 64 * 64)),
            })));
            b.async_copy(AsyncCopy::Mark);
        };
        copy(b, 0, 0);
        if fault == Fault::TooManyBatches {
            b.async_copy(AsyncCopy::Mark);
            b.async_copy(AsyncCopy::Mark);
        }
        for step in 0..2 {
            if fault != Fault::NoTurn {
                b.async_copy(AsyncCopy::Turn(0));
            }
            // The second step's terms take the place of the first one's if nobody waits for their product.
            let slot = if fault == Fault::UnsettledProduct { 0 } else { step };
            let access = MemoryAccess::at(panels, &Index::constant(slot * 64 * 64));
            let panel = Panel { access, along_terms: true };
            let left = Factor::Panel(panel.clone());
            let sums = sums(Index::default()).fragment;
            b.matrix(Matrix::Product { sums, left, right: panel, begins: step == 0 });
            if step == 0 {
                copy(b, 1, if fault == Fault::UnsettledProduct { 0 } else { 1 });
            }
        }
        b.matrix(Matrix::Settle(0));
        if fault == Fault::SameTurn {
            copy(b, 0, 1);
        }
        if fault == Fault::IdleTurn {
            b.async_copy(AsyncCopy::Turn(0));
        }
        if fault == Fault::Barrier {
            b.barrier();
        }
        let access = MemoryAccess::at(Buffer(1), &Index::default());
        b.matrix(Matrix::Store { tile: sums(Index::default()), access, stride: 64 });
    });
    b.finish()
}

fn run(fault: Fault) -> Result<Vec<f64>, String> {
    let kernel = kernel(fault);
    let inputs: Vec<f64> = (0..64 * 128).map(|i| f64::from(i % 7) - 3.0).collect();
    let mut buffers =
        vec![inputs.iter().map(|&x| Scalar::Float(x)).collect(), vec![Scalar::Float(0.0); 64 * 64]];
    interpret(&kernel, 32, &mut buffers, &[]).map_err(|error| error.to_string())?;
    Ok(buffers[1].iter().map(|scalar| scalar.as_f64()).collect())
}

#[test]
fn products_of_panels_that_are_copied_in_bulk() {
    check(&kernel(Fault::Nothing), &targets()).unwrap();
    let factor = |row: usize, term: usize| ((row * 128 + term) % 7) as f64 - 3.0;
    let product = |at: usize| (0..128).map(|term| factor(at / 64, term) * factor(at % 64, term)).sum::<f64>();
    assert_eq!(run(Fault::Nothing).unwrap(), (0..64 * 64).map(product).collect::<Vec<_>>());
}

#[test]
fn copies_that_are_not_waited_for() {
    let message = run(Fault::NoTurn).unwrap_err();
    assert!(message.contains("is read and written without a barrier"), "{message}");
    let message = run(Fault::UnsettledProduct).unwrap_err();
    assert!(message.contains("before its product is settled"), "{message}");
    let message = run(Fault::TooManyBatches).unwrap_err();
    assert!(message.contains("more than 2 batches"), "{message}");
    // The product has ended, but a device may copy as soon as the turn begins.
    let message = run(Fault::SameTurn).unwrap_err();
    assert!(message.contains("without a barrier between"), "{message}");
    let message = run(Fault::IdleTurn).unwrap_err();
    assert!(message.contains("waits for no batch"), "{message}");
}

/// Both parts of a kernel count the same batches and turns, and one of them does nothing but copy.
#[test]
fn kernels_are_divided() {
    let steps = |body: &[Statement]| {
        let mut found = Vec::new();
        let kernel = Kernel { body: body.to_vec(), ..Kernel::default() };
        kernel.visit(&mut |statement| match statement {
            Statement::AsyncCopy(AsyncCopy::Bulk(_)) => {}
            Statement::AsyncCopy(copy) => found.push(format!("{copy:?}")),
            _ => {}
        });
        found
    };
    let kernel = kernel(Fault::Nothing);
    let [copies, others] = [true, false].map(|copies| divided(&kernel.body, copies));
    assert_eq!(steps(&copies), steps(&others));
    assert_eq!(steps(&copies), steps(&kernel.body));
    let all = |body: &[Statement], wanted: &dyn Fn(&Statement) -> bool| {
        let mut all = true;
        Kernel { body: body.to_vec(), ..Kernel::default() }.visit(&mut |statement| all &= wanted(statement));
        all
    };
    assert!(all(&copies, &|s| matches!(s, Statement::Loop { .. } | Statement::AsyncCopy(_))));
    assert!(all(&others, &|s| !matches!(s, Statement::AsyncCopy(AsyncCopy::Bulk(_)))));
    assert_eq!(kernel.launched_block(), [Panel::INVOCATIONS + BulkCopy::INVOCATIONS, 1, 1]);
}

#[test]
fn copies_that_the_checker_refuses() {
    let refusal = |kernel: &Kernel, limits: &Limits| check(kernel, limits).unwrap_err().to_string();
    let message = refusal(&kernel(Fault::PlaceOfInvocations), &targets());
    assert!(message.contains("differs within a group"), "{message}");
    let message = refusal(&kernel(Fault::Barrier), &targets());
    assert!(message.contains("a barrier beside bulk copies"), "{message}");
    let mut beyond = kernel(Fault::Nothing);
    beyond.tensors[0].dimensions[1].0 = 65;
    let message = refusal(&beyond, &targets());
    assert!(message.contains("a bulk copy of"), "{message}");
    let mut none = kernel(Fault::Nothing);
    none.tensors.clear();
    let message = refusal(&none, &targets());
    assert!(message.contains("no tensor 0"), "{message}");
    let without = Limits { matrices: Vec::new(), ..targets() };
    assert!(check(&kernel(Fault::Nothing), &without).is_err());
}
