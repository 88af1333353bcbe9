//! Triangles, diagonals, grids, one-hot encoding, and small products.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::Binary,
    shape::{Dims, normalize_axis},
};

impl Tensor {
    /// The lower triangle of the matrices in the last two dimensions; elements above `diagonal` are set to 0. 0 is the
    /// main diagonal, positive values are above it, negative ones below.
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("tril", diagonal, Binary::Le)
    }

    /// The upper triangle of the matrices in the last two dimensions; elements below `diagonal` are set to 0. 0 is the
    /// main diagonal, positive values are above it, negative ones below.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("triu", diagonal, Binary::Lt)
    }

    /// `Le` keeps the columns up to the diagonal, `Lt` those from the diagonal on.
    fn triangle(&self, op: &'static str, diagonal: i64, side: Binary) -> Result<Tensor> {
        let &[.., rows, columns] = self.shape() else {
            return Err(Error::shape(op, &[self.shape()], "expected at least two dimensions"));
        };
        // Beyond the corners the result does not change, and clamping keeps the sum below in range.
        let diagonal = diagonal.clamp(-(rows as i64), columns as i64);
        let (dtype, rank) = (super::select::position_dtype(rows.max(columns).saturating_mul(2)), self.rank());
        let row = Tensor::iota(self.shape().into(), rank - 2, dtype, self.device())?.add_scalar(diagonal)?;
        let column = Tensor::iota(self.shape().into(), rank - 1, dtype, self.device())?;
        let keep = if side == Binary::Le { column.le(&row)? } else { row.le(&column)? };
        keep.where_(self, &self.zeros_like()?)
    }

    /// For a vector, the square matrix with it on a diagonal. For a matrix, the vector of the elements on a diagonal.
    /// `offset` 0 is the main diagonal, positive values are above it. A diagonal outside the matrix is empty.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the tensor has one or two dimensions.
    pub fn diag(&self, offset: i64) -> Result<Tensor> {
        match *self.shape() {
            [n] => {
                let beyond = offset.unsigned_abs() as usize;
                let Some(size) = n.checked_add(beyond) else {
                    return Err(Error::argument("diag", "the matrix would exceed the address space"));
                };
                let (above, left) = if offset >= 0 { (0, beyond) } else { (beyond, 0) };
                let placed = self.pad(&[(left, size - n - left)], Scalar::Int(0).cast(self.dtype()))?;
                let shape = Dims::from_slice(&[size, size]);
                let dtype = super::select::position_dtype(size);
                let row = Tensor::iota(shape.clone(), 0, dtype, self.device())?;
                let column = Tensor::iota(shape.clone(), 1, dtype, self.device())?;
                let on = row.add_scalar(left as i64)?.eq(&column.add_scalar(above as i64)?)?;
                let spread = placed.stretched(&shape)?;
                on.where_(&spread, &spread.zeros_like()?)
            }
            [rows, columns] => {
                let beyond = offset.unsigned_abs() as usize;
                let (row, column) = if offset >= 0 { (0, beyond) } else { (beyond, 0) };
                let len = rows.saturating_sub(row).min(columns.saturating_sub(column));
                let flat = self.reshaped(Dims::from_slice(&[self.len()]))?;
                let start = if len == 0 { 0 } else { row * columns + column };
                flat.sliced_axis(0, start, columns as isize + 1, len)
            }
            _ => Err(Error::shape("diag", &[self.shape()], "expected one or two dimensions; see diagonal")),
        }
    }

    /// One-hot encoding: shape `[.., classes]` with 1 at each label and 0 elsewhere.
    ///
    /// # Errors
    /// [`Error::DType`] unless the labels are integers; [`Error::Argument`] for a label out of range. Labels are
    /// computed immediately to check this.
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor> {
        super::select::check_index("one_hot", self)?;
        let outside = |label: &i128| !(0..classes as i128).contains(label);
        let label = if self.dtype() == DType::U64 {
            self.to_vec::<u64>()?.into_iter().map(i128::from).find(outside)
        } else {
            self.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().map(i128::from).find(outside)
        };
        if let Some(label) = label {
            let message = format!("label {label} is out of range for {classes} classes");
            return Err(Error::argument("one_hot", message));
        }
        let shape: Dims = self.shape().iter().copied().chain([classes]).collect();
        let dtype_of_labels =
            if self.dtype() == DType::U64 { DType::I64 } else { self.dtype().promote(DType::I32) };
        let class = Tensor::iota(shape, self.rank(), dtype_of_labels, self.device())?;
        self.to_dtype(dtype_of_labels)?.unsqueeze(-1)?.eq(&class)?.to_dtype(dtype)
    }

    /// Coordinate grids: tensor i of the result has the values of vector i along axis i. Each has the lengths of all
    /// vectors as its shape (NumPy's `indexing="ij"`).
    ///
    /// # Errors
    /// [`Error::Shape`] unless every tensor is a vector or a scalar.
    pub fn meshgrid(vectors: &[&Tensor]) -> Result<Vec<Tensor>> {
        if let Some(other) = vectors.iter().find(|v| v.rank() > 1) {
            return Err(Error::shape("meshgrid", &[other.shape()], "expected vectors"));
        }
        let shape: Dims = vectors.iter().map(|v| v.len()).collect();
        let spread = |(axis, vector): (usize, &&Tensor)| {
            let mut aligned = Dims::from_elem(1, shape.len());
            aligned[axis] = vector.len();
            vector.reshaped(aligned)?.stretched(&shape)
        };
        vectors.iter().enumerate().map(spread).collect()
    }

    /// Dot product of two vectors of the same length.
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || other.rank() != 1 {
            let hint = "expected two vectors; see matmul";
            return Err(Error::shape("dot", &[self.shape(), other.shape()], hint));
        }
        self.matmul(other)
    }

    /// Outer product of two vectors: `[N]` and `[M]` give `[N, M]`.
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || other.rank() != 1 {
            return Err(Error::shape("outer", &[self.shape(), other.shape()], "expected two vectors"));
        }
        self.unsqueeze(1)?.mul(other)
    }

    /// Kronecker product: each element of this tensor is replaced by its product with the whole other tensor. Shapes
    /// are aligned at the last dimension, and sizes multiply.
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let at = |t: &Tensor, axis: usize| (axis + t.rank()).checked_sub(rank).map_or(1, |i| t.shape()[i]);
        let (mut left, mut right, mut shape) = (Dims::new(), Dims::new(), Dims::new());
        for axis in 0..rank {
            let (a, b) = (at(self, axis), at(other, axis));
            left.extend([a, 1]);
            right.extend([1, b]);
            shape.push(a.saturating_mul(b));
        }
        self.reshaped(left)?.mul(&other.reshaped(right)?)?.reshaped(shape)
    }

    /// Cross product along an axis of size 3; operands are broadcast.
    pub fn cross(&self, other: &Tensor, dim: i64) -> Result<Tensor> {
        let (a, b) = promote2(self, other)?;
        let (a, b) = super::operands::broadcast2("cross", &a, &b)?;
        let axis = normalize_axis("cross", dim, a.shape())?;
        if a.shape()[axis] != 3 {
            return Err(Error::shape("cross", &[self.shape(), other.shape()], "the axis must have size 3"));
        }
        let axis = [axis as i64];
        let (next_a, next_b) = (a.roll(&[-1], &axis)?, b.roll(&[-1], &axis)?);
        // The product a[i+1] b[i+2] - a[i+2] b[i+1] is a[i] b[i+1] - a[i+1] b[i], rolled by -1.
        a.mul(&next_b)?.sub(&next_a.mul(&b)?)?.roll(&[-1], &axis)
    }

    /// The sum of the main diagonal of a matrix.
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::shape("trace", &[self.shape()], "expected a matrix"));
        }
        self.diag(0)?.sum(&[], false)
    }
}
