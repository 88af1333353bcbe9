//! Matrix decompositions: host routines that process the matrices of a batch in turn, in `f64` for every dtype.
//!
//! Each is a [`CustomKernel`] with a CPU function and a derivative as tensor code. A GPU therefore hands its matrices
//! to the CPU, which the placement report shows, and gradients of first and second order are available. The methods of
//! [`Tensor`](crate::Tensor) check and record them.
//!
//! | file | subject |
//! |---|---|
//! | `matrix` | a matrix on the host |
//! | `triangular` | LU and Cholesky's factors: determinants, inverses, solutions |
//! | `reflections` | QR |
//! | `jacobi` | eigenvalues of symmetric matrices, singular values, the pseudoinverse, cofactors |
//! | `gradient` | the derivatives |

mod gradient;
mod jacobi;
mod matrix;
mod reflections;
#[cfg(test)]
mod tests;
mod triangular;

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use matrix::Matrix;

use crate::{
    DType, Element, Error, Result, Scalar, Tensor,
    custom::{CustomKernel, GradientCall, HostCall, HostInput, OutputShape},
    host_memory, interrupt,
    shape::element_count,
};

/// The decompositions and functions of matrices A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Decomposition {
    /// The determinant.
    Determinant,
    /// The sign of the determinant, and the logarithm of its absolute value.
    LogDeterminant,
    /// The cofactors of the elements, which are the determinant's derivative.
    Cofactors,
    /// The derivative of the inner product of the cofactors and the second input.
    CofactorGradient,
    /// The inverse.
    Inverse,
    /// X of `A X = B`.
    Solution,
    /// Lower triangular L of `A = L L^T`.
    Cholesky,
    /// Q with as many columns, and R with as many rows, as the lesser extent of A.
    Qr,
    /// Square Q, and R.
    CompleteQr,
    /// Eigenvalues in ascending order and eigenvectors of symmetric A.
    Eigen,
    /// U, S and Vh, reduced to the lesser extent of A.
    Svd,
    /// U, S and Vh, with square U and Vh.
    FullSvd,
    /// The pseudoinverse. Singular values up to a fraction of the greatest, which is the second input, count as zero.
    PseudoInverse,
}

/// Computes the outputs, row-major, from a matrix per input. Scalars are 1 x 1 matrices.
type Routine = fn(&[Matrix]) -> Result<Vec<Vec<f64>>>;
/// The derivative.
type Derivative = fn(&GradientCall<'_>) -> Result<Vec<Option<Tensor>>>;

/// The kernels created so far. Equal kernels share plans only if they share their functions, so they are reused.
static KERNELS: LazyLock<Mutex<HashMap<(Decomposition, DType), CustomKernel>>> =
    LazyLock::new(Mutex::default);

impl Decomposition {
    /// Records it for nonempty tensors of `float32` or `float64`.
    pub(crate) fn record(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Some(first) = inputs.first() else {
            return Err(Error::internal("linalg", "the decomposition has no input"));
        };
        self.kernel(first.dtype())?.launch(inputs, &[])
    }

    /// As [`Decomposition::record`], for a decomposition with a single output.
    pub(crate) fn record_one(self, inputs: &[&Tensor]) -> Result<Tensor> {
        let mut outputs = self.record(inputs)?;
        outputs.pop().ok_or_else(|| Error::internal("linalg", "the decomposition has no output"))
    }

    fn kernel(self, dtype: DType) -> Result<CustomKernel> {
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&(self, dtype)) {
            return Ok(kernel.clone());
        }
        let kernel = self.build(dtype)?;
        kernels.insert((self, dtype), kernel.clone());
        Ok(kernel)
    }

    fn build(self, dtype: DType) -> Result<CustomKernel> {
        let (name, routine, derivative): (_, Routine, Derivative) = match self {
            Decomposition::Determinant => ("det", triangular::determinant, gradient::determinant),
            Decomposition::LogDeterminant => {
                ("slogdet", triangular::log_determinant, gradient::log_determinant)
            }
            Decomposition::Cofactors => ("cofactors", jacobi::cofactors, gradient::cofactors),
            Decomposition::CofactorGradient => {
                ("cofactor_gradient", jacobi::cofactor_gradient, gradient::cofactor_gradient)
            }
            Decomposition::Inverse => ("inv", triangular::inverse, gradient::inverse),
            Decomposition::Solution => ("solve", triangular::solution, gradient::solution),
            Decomposition::Cholesky => ("cholesky", triangular::cholesky, gradient::cholesky),
            Decomposition::Qr => ("qr", reflections::reduced, gradient::qr),
            Decomposition::CompleteQr => ("qr", reflections::complete, gradient::qr),
            Decomposition::Eigen => ("eigh", jacobi::eigen, gradient::eigen),
            Decomposition::Svd => ("svd", jacobi::reduced_svd, gradient::svd),
            Decomposition::FullSvd => ("svd", jacobi::full_svd, gradient::svd),
            Decomposition::PseudoInverse => ("pinv", jacobi::pseudo_inverse, gradient::pseudo_inverse),
        };
        let builder = CustomKernel::builder(name).linear_algebra().input("a", dtype, "batch.. m n");
        let builder = match self {
            Decomposition::Determinant => builder.output("det", dtype, "batch.."),
            Decomposition::LogDeterminant => {
                builder.output("sign", dtype, "batch..").output("logabsdet", dtype, "batch..")
            }
            Decomposition::Cofactors => builder.output("cofactors", dtype, "batch.. m n"),
            Decomposition::CofactorGradient => {
                builder.input("g", dtype, "batch.. m n").output("gradient", dtype, "batch.. m n")
            }
            Decomposition::Inverse => builder.output("inverse", dtype, "batch.. m n"),
            Decomposition::Solution => {
                builder.input("b", dtype, "batch.. m k").output("x", dtype, "batch.. n k")
            }
            Decomposition::Cholesky => builder.output("l", dtype, "batch.. m n"),
            Decomposition::Qr => builder.output("q", dtype, extents(|m, n| vec![m, m.min(n)])).output(
                "r",
                dtype,
                extents(|m, n| vec![m.min(n), n]),
            ),
            Decomposition::CompleteQr => {
                builder.output("q", dtype, "batch.. m m").output("r", dtype, "batch.. m n")
            }
            Decomposition::Eigen => {
                builder.output("eigenvalues", dtype, "batch.. m").output("eigenvectors", dtype, "batch.. m n")
            }
            Decomposition::Svd => builder
                .output("u", dtype, extents(|m, n| vec![m, m.min(n)]))
                .output("s", dtype, extents(|m, n| vec![m.min(n)]))
                .output("vh", dtype, extents(|m, n| vec![m.min(n), n])),
            Decomposition::FullSvd => builder
                .output("u", dtype, "batch.. m m")
                .output("s", dtype, extents(|m, n| vec![m.min(n)]))
                .output("vh", dtype, "batch.. n n"),
            Decomposition::PseudoInverse => {
                builder.input("part", dtype, "batch..").output("inverse", dtype, "batch.. n m")
            }
        };
        let builder = match dtype {
            DType::F32 => builder.cpu(move |call| run::<f32>(routine, call)),
            _ => builder.cpu(move |call| run::<f64>(routine, call)),
        };
        builder.gradient(derivative).build()
    }
}

/// The shape of an output whose last extents are a function of the matrix size, m by n.
fn extents(of_matrix: impl Fn(usize, usize) -> Vec<usize> + Send + Sync + 'static) -> OutputShape {
    OutputShape::function(move |inputs| match inputs[0] {
        [batch @ .., m, n] => Ok(batch.iter().copied().chain(of_matrix(*m, *n)).collect()),
        _ => Err(Error::internal("linalg", "expected a matrix")),
    })
}

/// Runs a routine on each matrix of a batch.
fn run<T: Element>(routine: Routine, call: HostCall<'_>) -> Result<()> {
    let HostCall { inputs, mut outputs, .. } = call;
    let batch = inputs[0].shape.len() - 2;
    for item in 0..element_count(&inputs[0].shape[..batch]) {
        interrupt::check()?;
        let matrices: Vec<Matrix> =
            inputs.iter().map(|input| matrix_of::<T>(input, batch, item)).collect::<Result<_>>()?;
        for (output, result) in outputs.iter_mut().zip(routine(&matrices)?) {
            let part = &mut output.values::<T>()?[item * result.len()..];
            for (place, value) in part.iter_mut().zip(result) {
                *place = T::from_scalar(Scalar::Float(value));
            }
        }
    }
    Ok(())
}

fn matrix_of<T: Element>(input: &HostInput<'_>, batch: usize, item: usize) -> Result<Matrix> {
    let (rows, columns) = match input.shape[batch..] {
        [rows, columns] => (rows, columns),
        _ => (1, 1),
    };
    let values = &input.values::<T>()?[item * rows * columns..][..rows * columns];
    let mut matrix = host_memory::room(values.len())?;
    matrix.extend(values.iter().map(|value| value.to_scalar().as_f64()));
    Ok(Matrix { rows, columns, values: matrix })
}

/// The error for a matrix that `op` cannot handle.
fn failure(op: &'static str, message: &str) -> Error {
    Error::LinearAlgebra { op, message: message.to_owned() }
}
