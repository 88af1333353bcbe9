//! Shared test code of the composites' routines: compares results with the composite's body in `float64`, through the
//! device.

use phynexus::{
    DType, Tensor,
    device::{Binding, Support},
    kernel::step::{Library, Operand, Step},
    op::{Composite, Op, TensorType, ir::IrNode},
    schedule::execute_ir,
    shape::Layout,
};
use smallvec::SmallVec;

/// An operand with its row-major values.
pub(super) struct Given {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
    /// Whether it is a mask; nonzero is true.
    pub(super) is_bool: bool,
    /// Whether the last two axes are stored exchanged, if the routine supports that.
    pub(super) transposed: bool,
    /// Elements between the rows, if the routine supports that.
    pub(super) gap: usize,
}

impl Given {
    pub(super) fn new(shape: &[usize], values: Vec<f32>) -> Given {
        Given { shape: shape.to_vec(), values, is_bool: false, transposed: false, gap: 0 }
    }

    fn dtype(&self) -> DType {
        if self.is_bool { DType::Bool } else { DType::F32 }
    }

    /// The layout in which the routine of `node` gets operand `at`. A layout that it does not support is made
    /// row-major, as in a plan.
    fn layout(&self, node: &IrNode, at: usize) -> Layout {
        let row_major = Layout::contiguous(&self.shape);
        let mut wider = self.shape.clone();
        wider.iter_mut().last().into_iter().for_each(|columns| *columns += self.gap);
        let mut other = Layout { shape: row_major.shape.clone(), ..Layout::contiguous(&wider) };
        if let (true, [.., rows, columns]) = (self.transposed, other.strides.as_mut_slice()) {
            (*rows, *columns) = (1, self.shape[self.shape.len() - 2] as isize);
        }
        let is_read = || crate::register().backend().reads_layout(node, at, &other);
        if (self.transposed || self.gap > 0) && is_read() { other } else { row_major }
    }

    /// The operand in memory, with NaN between its elements.
    fn bytes(&self, layout: &Layout) -> Vec<u8> {
        let place = |flat: usize| {
            let axes = layout.shape.iter().zip(&layout.strides).rev();
            axes.fold((flat, 0), |(rest, at), (n, stride)| (rest / n, at + rest % n * *stride as usize)).1
        };
        let length = (0..self.values.len()).map(place).max().map_or(0, |last| last + 1);
        let mut stored = vec![f32::NAN; length];
        self.values.iter().enumerate().for_each(|(flat, value)| stored[place(flat)] = *value);
        match self.is_bool {
            true => stored.iter().map(|v| u8::from(*v != 0.0)).collect(),
            false => stored.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        }
    }

    /// The operand in `float64`.
    fn wide(&self) -> Tensor {
        let x = Tensor::from_slice(&self.values, &self.shape, crate::register()).unwrap();
        x.to_dtype(if self.is_bool { DType::Bool } else { DType::F64 }).unwrap()
    }
}

/// Numbers between -1 and 1.
pub(super) fn given(shape: &[usize], seed: u64) -> Given {
    let mut state = seed;
    let values = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Given::new(shape, values)
}

/// The packed results of the device's routine, and of the body in `float64`.
fn both(composite: Composite, operands: &[Given]) -> (Vec<f32>, Vec<f64>) {
    let device = crate::register();
    let backend = device.backend();
    let wide: Vec<Tensor> = operands.iter().map(Given::wide).collect();
    let types: Vec<TensorType> = wide.iter().map(|t| TensorType::new(t.dtype(), t.shape())).collect();
    let body = composite.draft(&types).unwrap();
    let expected = execute_ir(&body, &wide, device).unwrap().remove(0);
    let shape = expected.shape().to_vec();
    let expected = expected.to_vec::<f64>().unwrap();

    let node = IrNode {
        op: Op::Composite(composite),
        dtype: DType::F32,
        shape: shape.as_slice().into(),
        inputs: SmallVec::new(),
    };
    let laid_out: Vec<Operand> = (operands.iter().enumerate())
        .map(|(at, o)| Operand { dtype: o.dtype(), layout: o.layout(&node, at) })
        .collect();
    let types: Vec<TensorType> = laid_out.iter().map(Operand::tensor_type).collect();
    assert_eq!(backend.support(&node, &types), Support::Routine);
    let step = Library { node, operands: laid_out.clone(), epilogue: None };
    let mut bindings: Vec<Binding> = operands
        .iter()
        .zip(&laid_out)
        .map(|(o, operand)| {
            let bytes = o.bytes(&operand.layout);
            let buffer = backend.allocate(bytes.len()).unwrap();
            backend.write(&buffer, 0, &bytes).unwrap();
            Binding { buffer, offset: 0 }
        })
        .collect();
    let result = backend.allocate(4 * expected.len()).unwrap();
    // Unwritten elements stay NaN.
    backend.write(&result, 0, &vec![0xff; 4 * expected.len()]).unwrap();
    bindings.push(Binding { buffer: result.clone(), offset: 0 });
    backend.compile(&Step::Library(step)).unwrap().run(&bindings).unwrap();
    let mut bytes = vec![0; 4 * expected.len()];
    backend.read(&result, 0, &mut bytes).unwrap();
    (bytes.as_chunks().0.iter().map(|c| f32::from_ne_bytes(*c)).collect(), expected)
}

/// Checks a routine's packed results and returns them.
pub(super) fn agree(composite: &Composite, operands: &[Given]) -> Vec<f32> {
    let (found, expected) = both(composite.clone(), operands);
    for (at, (x, y)) in found.iter().zip(&expected).enumerate() {
        let tolerance = 2e-5 * (1.0 + y.abs());
        let same = f64::from(*x) == *y || x.is_nan() && y.is_nan();
        assert!(same || (f64::from(*x) - y).abs() <= tolerance, "{composite:?} element {at}: {x}, not {y}");
    }
    found
}
