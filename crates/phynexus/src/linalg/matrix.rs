//! The host matrix used by the routines.

use std::ops::{Index, IndexMut};

use crate::{
    host_memory::{filled, room},
    interrupt::or_leave,
};

/// A matrix of `f64`, row-major.
#[derive(Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<f64>,
}

impl Matrix {
    /// A matrix filled with `value`.
    pub(super) fn filled(rows: usize, columns: usize, value: f64) -> Matrix {
        Matrix { rows, columns, values: or_leave(filled(value, rows * columns)) }
    }

    /// Ones on the diagonal, zeros elsewhere.
    pub(super) fn identity(rows: usize, columns: usize) -> Matrix {
        let mut identity = Matrix::filled(rows, columns, 0.0);
        for i in 0..rows.min(columns) {
            identity[(i, i)] = 1.0;
        }
        identity
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    /// Two mutable rows; `second` must come after `first`.
    pub(super) fn two_rows(&mut self, first: usize, second: usize) -> (&mut [f64], &mut [f64]) {
        let columns = self.columns;
        let (above, below) = self.values.split_at_mut(second * columns);
        (&mut above[first * columns..][..columns], &mut below[..columns])
    }

    pub(super) fn swap_rows(&mut self, a: usize, b: usize) {
        if a != b {
            let (first, second) = self.two_rows(a.min(b), a.max(b));
            first.swap_with_slice(second);
        }
    }

    pub(super) fn transposed(&self) -> Matrix {
        let mut transposed = Matrix::filled(self.columns, self.rows, 0.0);
        for i in 0..self.rows {
            for (j, &value) in self.row(i).iter().enumerate() {
                transposed[(j, i)] = value;
            }
        }
        transposed
    }

    /// The matrix product.
    pub(super) fn times(&self, other: &Matrix) -> Matrix {
        let mut product = Matrix::filled(self.rows, other.columns, 0.0);
        for i in 0..self.rows {
            let sums = &mut product.values[i * other.columns..][..other.columns];
            for (k, &factor) in self.row(i).iter().enumerate() {
                sums.iter_mut().zip(other.row(k)).for_each(|(sum, value)| *sum += factor * value);
            }
        }
        product
    }

    /// True if no element is NaN or infinite.
    pub(super) fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }

    /// The greatest absolute value of an element; 0 for an empty matrix.
    pub(super) fn magnitude(&self) -> f64 {
        self.values.iter().fold(0.0, |greatest: f64, value| greatest.max(value.abs()))
    }
}

impl Clone for Matrix {
    fn clone(&self) -> Matrix {
        let mut values = or_leave(room(self.values.len()));
        values.extend_from_slice(&self.values);
        Matrix { values, ..*self }
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.values[row * self.columns + column]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.values[row * self.columns + column]
    }
}
