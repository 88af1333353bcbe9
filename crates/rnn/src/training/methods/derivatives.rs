//! Matrices of derivatives.

use neurenix::phynexus::{DType, Tensor};

use super::{objective::flattened, vector::along};
use crate::{Result, convert, device};

fn flat(tensors: &[Tensor]) -> Result<Vec<f64>> {
    flattened(tensors.iter().map(|tensor| Ok(tensor.clone())))
}

/// Unit vectors, in the shapes of tensors.
struct Units {
    zeros: Vec<Tensor>,
    lengths: Vec<usize>,
}

impl Units {
    fn new(like: &[Tensor]) -> Result<Units> {
        let zeros = like
            .iter()
            .map(|tensor| {
                let zeros = vec![0.0; tensor.len()];
                convert::tensor(&zeros, tensor.shape(), tensor.dtype(), tensor.device())
            })
            .collect::<Result<_>>()?;
        Ok(Units { zeros, lengths: like.iter().map(Tensor::len).collect() })
    }

    fn count(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// The dot product with the unit vector of this place; `None` if it depends on no leaf. The graph is the same for
    /// all places, so it is planned once.
    fn product(&self, with: &[Tensor], place: usize) -> Result<Option<Tensor>> {
        let (mut before, mut total) = (0, None::<Tensor>);
        for ((tensor, zeros), &length) in with.iter().zip(&self.zeros).zip(&self.lengths) {
            let own = (before..before + length).contains(&place);
            let unit = match own {
                true => {
                    let mut unit = vec![0.0; length];
                    unit[place - before] = 1.0;
                    convert::tensor(&unit, zeros.shape(), zeros.dtype(), zeros.device())?
                }
                false => zeros.clone(),
            };
            before += length;
            if !tensor.requires_grad() {
                continue;
            }
            let term = tensor.mul(&unit)?.sum(&[], false)?;
            total = Some(match total {
                Some(total) => total.add(&term)?,
                None => term,
            });
        }
        Ok(total)
    }
}

/// The gradient of a scalar with respect to leaves, and the matrix of its second derivatives, row by row.
pub(crate) fn second_derivatives(total: &Tensor, leaves: &[Tensor]) -> Result<(Vec<f64>, Vec<f64>)> {
    let targets: Vec<&Tensor> = leaves.iter().collect();
    let gradients = total.gradients_create_graph(&targets)?;
    Tensor::evaluate_all(&gradients.iter().chain([total]).collect::<Vec<_>>())?;
    let gradient = flat(&gradients)?;
    let (units, count) = (Units::new(leaves)?, gradient.len());
    let mut matrix = vec![0.0; count * count];
    for (place, row) in matrix.chunks_exact_mut(count).enumerate() {
        if let Some(product) = units.product(&gradients, place)? {
            let rows = product.gradients(&targets)?;
            Tensor::evaluate_all(&rows.iter().collect::<Vec<_>>())?;
            row.copy_from_slice(&flat(&rows)?);
        }
    }
    // Rounding makes it slightly asymmetric.
    for i in 0..count {
        for j in 0..i {
            let mean = 0.5 * (matrix[i * count + j] + matrix[j * count + i]);
            (matrix[i * count + j], matrix[j * count + i]) = (mean, mean);
        }
    }
    Ok((gradient, matrix))
}

/// `Jᵀ J`, row by row, for the Jacobian `J` of outputs with respect to leaves.
pub(super) fn products_of_gradients(outputs: &Tensor, leaves: &[Tensor]) -> Result<Vec<f64>> {
    let targets: Vec<&Tensor> = leaves.iter().collect();
    // An element of `Jᵀ u` is linear in `u`: its derivative with respect to `u` is a column of `J`.
    let zeros = vec![0.0; outputs.len()];
    let u = convert::tensor(&zeros, outputs.shape(), outputs.dtype(), outputs.device())?.with_grad()?;
    let back = outputs.mul(&u)?.sum(&[], false)?.gradients_create_graph(&targets)?;
    let units = Units::new(leaves)?;
    let mut columns = Vec::with_capacity(units.count() * outputs.len());
    for place in 0..units.count() {
        match units.product(&back, place)? {
            Some(product) => columns.extend(flat(&product.gradients(&[&u])?)?),
            None => columns.resize(columns.len() + outputs.len(), 0.0),
        }
    }
    let shape = [units.count(), outputs.len()];
    let columns = convert::tensor(&columns, &shape, DType::F64, device::cpu()?)?;
    convert::values(&columns.matmul(&columns.t()?)?)
}

/// Adds `share * numbers`; an empty vector counts as zeros.
pub(super) fn add_share(to: &mut Vec<f64>, share: f64, numbers: &[f64]) {
    *to = match to.is_empty() {
        true => numbers.iter().map(|x| share * x).collect(),
        false => along(to, share, numbers),
    };
}
