//! The gradient of max pooling. The body adds by index; devices that claim it look at the windows of each element
//! instead, which needs neither atomic operations nor a sort.

use super::{
    Definition, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result,
    op::{
        Geometry, Op, Pool, PoolKind,
        formula::Formula,
        gradient::rule::Reads,
        primitive::{pooling_samples, scatter_along},
        term::{TensorType, Term},
    },
    shape::{Dims, element_count},
};

/// Inputs x `[N, C, spatial..]` and the gradient of its pooling `[N, C, out..]`, floats of one dtype. Each window gives
/// its gradient to the first of its maxima. The result has x's shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPoolGradient(pub Geometry);

impl Definition for MaxPoolGradient {
    fn name(&self) -> &'static str {
        "max_pool_gradient"
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 2)?;
        let [x, g] = operands else { return Err(Error::internal(self.name(), "two operands")) };
        check::float(self.name(), x)?;
        check::dtype(self.name(), g, x.dtype())?;
        let fits = self.0.check(x.shape(), g.shape());
        let same = || if x.shape()[1] == g.shape()[1] { Ok(()) } else { Err("numbers of channels differ") };
        fits.and_then(|_| same())
            .map_err(|wrong| Error::shape(self.name(), &[x.shape(), g.shape()], wrong))?;
        Ok((x.dtype(), x.shape().into()))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let [x, g] = operands else { return Err(Error::internal(self.name(), "two operands")) };
        let positions = Op::Pool(Pool(PoolKind::ArgMax, self.0.clone()));
        let positions = Formula::from(Term::record(positions, DType::I64, g.shape().into(), &[x]));
        let plane =
            |t: &Term| Dims::from_slice(&[t.shape()[0], t.shape()[1], element_count(&t.shape()[2..])]);
        let (from, to) = (plane(g), plane(x));
        let gradient = Formula::of(g).reshape(&from);
        scatter_along(&gradient, &positions.reshape(&from), 2, &to).reshape(x.shape()).term()
    }

    fn gradient_reads(&self) -> Reads {
        Reads::OPERANDS
    }

    fn samples() -> Vec<Sample> {
        let one = |(geometry, x, g): (Geometry, Vec<usize>, Vec<usize>)| {
            Sample::new(MaxPoolGradient(geometry), [SampleOperand::new(&x), SampleOperand::new(&g)])
        };
        pooling_samples().into_iter().map(one).collect()
    }
}
