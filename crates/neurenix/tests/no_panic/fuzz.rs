//! Random arguments of every kind, most of them invalid.

use neurenix::phynexus::{
    DType, Device, Scalar, Tensor,
    oracle::generate::{CaseLeaf, Choice, Distribution, random_array},
    tensor::{IndexSpec, Reduction},
};

/// A generator of unchecked arguments.
pub(super) struct Fuzz {
    pub(super) choice: Choice,
    pub(super) device: Device,
}

impl Fuzz {
    pub(super) fn shape(&mut self) -> Vec<usize> {
        let rank = self.choice.below(6);
        (0..rank).map(|_| self.choice.of(&[0, 1, 1, 2, 3, 4])).collect()
    }

    pub(super) fn dtype(&mut self) -> DType {
        if self.choice.one_in(2) { DType::F32 } else { self.choice.of(&DType::ALL) }
    }

    pub(super) fn tensor(&mut self) -> Tensor {
        let (dtype, shape) = (self.dtype(), self.shape());
        self.tensor_of(dtype, &shape)
    }

    pub(super) fn tensor_of(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let values = self.choice.of(&[Distribution::Tame, Distribution::Special]);
        let array = random_array(&mut self.choice, values, dtype, shape);
        let leaf = if self.choice.one_in(3) {
            CaseLeaf::scattered(array, &mut self.choice)
        } else {
            CaseLeaf::contiguous(array)
        };
        let tensor = leaf.upload(self.device).expect("small tensors fit in memory");
        if dtype.is_float() && dtype.float8().is_none() && self.choice.one_in(3) {
            tensor.with_grad().expect("a float tensor with data has gradients")
        } else {
            tensor
        }
    }

    /// A tensor whose shape often matches the other one.
    pub(super) fn partner(&mut self, of: &Tensor) -> Tensor {
        let dtype = if self.choice.one_in(2) { of.dtype() } else { self.dtype() };
        let mut shape = of.shape().to_vec();
        match self.choice.below(4) {
            0 => shape = self.shape(),
            1 => shape.iter_mut().for_each(|d| *d = if self.choice.one_in(2) { 1 } else { *d }),
            _ => {}
        }
        self.tensor_of(dtype, &shape)
    }

    pub(super) fn option(&mut self) -> Option<Tensor> {
        self.choice.one_in(2).then(|| self.tensor())
    }

    pub(super) fn axis(&mut self) -> i64 {
        self.choice.of(&[0, 1, 2, 3, -1, -2, -3, 7, -9, i64::MAX, i64::MIN])
    }

    pub(super) fn axes(&mut self) -> Vec<i64> {
        (0..self.choice.below(4)).map(|_| self.axis()).collect()
    }

    pub(super) fn size(&mut self) -> usize {
        self.choice.of(&[0, 1, 1, 2, 2, 3, 5, 1 << 40, usize::MAX])
    }

    pub(super) fn sizes(&mut self) -> Vec<usize> {
        (0..self.choice.below(6)).map(|_| self.size()).collect()
    }

    /// Window sizes; huge ones are rare.
    pub(super) fn window<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| if self.choice.one_in(12) { self.size() } else { self.choice.below(4) })
    }

    pub(super) fn number(&mut self) -> f64 {
        self.choice.of(&[
            0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            -0.0,
            1e-3,
            1e30,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ])
    }

    pub(super) fn scalar(&mut self) -> Scalar {
        match self.choice.below(4) {
            0 => Scalar::Int(self.choice.of(&[0, 1, -1, 300, i64::MIN, i64::MAX])),
            1 => Scalar::UInt(u64::MAX),
            2 => Scalar::Bool(true),
            _ => Scalar::Float(self.number()),
        }
    }

    pub(super) fn flag(&mut self) -> bool {
        self.choice.one_in(2)
    }

    pub(super) fn reduction(&mut self) -> Reduction {
        self.choice.of(&[Reduction::None, Reduction::Mean, Reduction::Sum])
    }

    pub(super) fn spec(&mut self) -> IndexSpec {
        match self.choice.below(5) {
            0 => IndexSpec::At(self.axis()),
            1 => {
                let mut bound = || self.choice.one_in(2).then(|| self.axis());
                let (start, stop) = (bound(), bound());
                IndexSpec::Slice { start, stop, step: self.choice.of(&[1, 2, -1, -3, 0, i64::MIN, i64::MAX]) }
            }
            2 => IndexSpec::NewAxis,
            3 => IndexSpec::Ellipsis,
            _ => IndexSpec::Tensor(self.tensor()),
        }
    }

    pub(super) fn specs(&mut self) -> Vec<IndexSpec> {
        (0..self.choice.below(5)).map(|_| self.spec()).collect()
    }
}
