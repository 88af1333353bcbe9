//! The derivatives as tensor code, which is differentiable itself. References: Giles 2008, Collected matrix derivative
//! results for forward and reverse mode algorithmic differentiation; Murray 2016 for the Cholesky factor; Walter and
//! Lehmann 2012 for QR; Townsend 2016 for singular values; Golub and Pereyra 1973 for the pseudoinverse.

use super::Decomposition;
use crate::{Error, Result, Tensor, custom::GradientCall};

type Gradients = Result<Vec<Option<Tensor>>>;

/// Transposes the matrices.
fn t(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// `A^-1 B`.
fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Decomposition::Solution.record_one(&[a, b])
}

/// `B A^-1`.
fn solve_right(b: &Tensor, a: &Tensor) -> Result<Tensor> {
    t(&solve(&t(a)?, &t(b)?)?)
}

/// One number per matrix, reshaped to `[.., 1, 1]`.
fn as_matrices(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(-1)?.unsqueeze(-1)
}

/// Diagonal matrices with these rows as diagonals.
fn diagonal(rows: &Tensor) -> Result<Tensor> {
    identity_like(rows)?.mul(&rows.unsqueeze(-1)?)
}

/// Identity matrices whose size is the number of columns of `rows`.
fn identity_like(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape().last().copied().unwrap_or(1);
    Tensor::eye(n, n, rows.dtype(), rows.device())
}

/// Half of `X + X^T`.
fn symmetric(x: &Tensor) -> Result<Tensor> {
    x.add(&t(x)?)?.mul_scalar(0.5)
}

/// `X - X^T`.
fn skew(x: &Tensor) -> Result<Tensor> {
    x.sub(&t(x)?)
}

/// The quotient, with 0 / 0 = 0: no dependence on the difference of equal values, or on the direction of a zero vector.
/// Any other number divided by 0 is infinite: there is no derivative.
fn quotient(x: &Tensor, divisor: &Tensor) -> Result<Tensor> {
    let ones = divisor.ones_like()?;
    let of_nothing = x.eq_scalar(0.0)?.where_(&ones, divisor)?;
    x.div(&divisor.eq_scalar(0.0)?.where_(&of_nothing, divisor)?)
}

/// `v_j - v_i` at (i, j), with ones on the diagonal.
fn differences(v: &Tensor) -> Result<Tensor> {
    v.unsqueeze(-2)?.sub(&v.unsqueeze(-1)?)?.add(&identity_like(v)?)
}

/// The trace of each matrix, as `[.., 1, 1]`.
fn trace(x: &Tensor) -> Result<Tensor> {
    x.mul(&identity_like(x)?)?.sum(&[-2, -1], true)
}

/// `g` times the cofactors, which are defined for singular matrices, too.
pub(super) fn determinant(call: &GradientCall<'_>) -> Gradients {
    let cofactors = Decomposition::Cofactors.record_one(&[&call.inputs[0]])?;
    Ok(vec![Some(as_matrices(&call.gradients[0])?.mul(&cofactors)?)])
}

/// The second derivative of the determinant in the direction G.
pub(super) fn cofactors(call: &GradientCall<'_>) -> Gradients {
    Ok(vec![Some(Decomposition::CofactorGradient.record_one(&[&call.inputs[0], &call.gradients[0]])?)])
}

/// The third derivative in the directions X and G. Its gradient by A uses `B = A^-1`, so A must not be singular: `det
/// ((tr(BX) tr(BG) - tr(BXBG)) B - tr(BG) BXB - tr(BX) BGB + BXBGB + BGBXB)^T`.
pub(super) fn cofactor_gradient(call: &GradientCall<'_>) -> Gradients {
    let (a, x, g) = (&call.inputs[0], &call.inputs[1], &call.gradients[0]);
    let b = Decomposition::Inverse.record_one(&[a])?;
    let (bx, bg) = (b.matmul(x)?, b.matmul(g)?);
    let (along_x, along_g) = (trace(&bx)?, trace(&bg)?);
    let (xg, gx) = (bx.matmul(&bg)?, bg.matmul(&bx)?);
    let both = along_x.mul(&along_g)?.sub(&trace(&xg)?)?;
    let single = along_g.mul(&bx)?.add(&along_x.mul(&bg)?)?;
    let inner = xg.add(&gx)?.sub(&single)?.matmul(&b)?.add(&both.mul(&b)?)?;
    let determinant = as_matrices(&Decomposition::Determinant.record_one(&[a])?)?;
    let by_x = Decomposition::CofactorGradient.record_one(&[a, g])?;
    Ok(vec![Some(determinant.mul(&t(&inner)?)?), Some(by_x)])
}

/// `g A^-T` for the logarithm; the derivative of the sign is 0 where it exists.
pub(super) fn log_determinant(call: &GradientCall<'_>) -> Gradients {
    let inverse = Decomposition::Inverse.record_one(&[&call.inputs[0]])?;
    Ok(vec![Some(as_matrices(&call.gradients[1])?.mul(&t(&inverse)?)?)])
}

/// `-X^T G X^T`.
pub(super) fn inverse(call: &GradientCall<'_>) -> Gradients {
    let transposed = t(&call.outputs[0])?;
    Ok(vec![Some(transposed.matmul(&call.gradients[0])?.matmul(&transposed)?.neg()?)])
}

/// For B: `A^-T G`; for A: that times `-X^T`.
pub(super) fn solution(call: &GradientCall<'_>) -> Gradients {
    let by_b = solve(&t(&call.inputs[0])?, &call.gradients[0])?;
    let by_a = by_b.matmul(&t(&call.outputs[0])?)?.neg()?;
    Ok(vec![Some(by_a), Some(by_b)])
}

/// `L^-T P L^-1`, symmetrised. P is the lower triangle of `L^T G` with half the diagonal.
pub(super) fn cholesky(call: &GradientCall<'_>) -> Gradients {
    let (l, g) = (&call.outputs[0], &call.gradients[0]);
    let product = t(l)?.matmul(g)?;
    let p = product.tril(0)?.add(&product.tril(-1)?)?.mul_scalar(0.5)?;
    Ok(vec![Some(symmetric(&solve(&t(l)?, &solve_right(&p, l)?)?)?)])
}

/// `(G_Q + Q copyltu(R G_R^T - G_Q^T Q)) R^-T`, where copyltu copies the lower triangle to the upper one.
pub(super) fn qr(call: &GradientCall<'_>) -> Gradients {
    let (q, r) = (&call.outputs[0], &call.outputs[1]);
    let (by_q, by_r) = (&call.gradients[0], &call.gradients[1]);
    let columns = call.inputs[0].shape().last();
    if r.shape().iter().nth_back(1) != columns || q.shape().last() != columns {
        let hint = "it has one for square matrices, and in mode \"reduced\" for more rows than columns";
        return Err(Error::NoGradient { op: "qr", hint: hint.to_owned() });
    }
    let m = r.matmul(&t(by_r)?)?.sub(&t(by_q)?.matmul(q)?)?;
    let copied = m.tril(0)?.add(&t(&m.tril(-1)?)?)?;
    let product = by_q.add(&q.matmul(&copied)?)?;
    Ok(vec![Some(solve_right(&product, &t(r)?)?)])
}

/// `V (diag(g) + skew(V^T G) / (2 E)) V^T` with `E = w_j - w_i`, for the symmetric part of the matrix.
pub(super) fn eigen(call: &GradientCall<'_>) -> Gradients {
    let (values, vectors) = (&call.outputs[0], &call.outputs[1]);
    let turned = skew(&t(vectors)?.matmul(&call.gradients[1])?)?.mul_scalar(0.5)?;
    let inner = diagonal(&call.gradients[0])?.add(&quotient(&turned, &differences(values)?)?)?;
    Ok(vec![Some(vectors.matmul(&inner)?.matmul(&t(vectors)?)?)])
}

/// `U ((skew(U^T G_U) / E) S + S (skew(V^T G_V) / E) + diag(g)) V^T` with `E = (s_j - s_i) (s_j + s_i)`, plus the
/// changes of U and V orthogonal to their own spaces.
pub(super) fn svd(call: &GradientCall<'_>) -> Gradients {
    let [u, s, vh] = call.outputs else { return Err(Error::internal("linalg", "expected a decomposition")) };
    let [by_u, by_s, by_vh] = call.gradients else {
        return Err(Error::internal("linalg", "expected a gradient for each part"));
    };
    let count = s.shape().last();
    if u.shape().last() != count || vh.shape().iter().nth_back(1) != count {
        let hint = "with full_matrices only square matrices have one: use full_matrices=False";
        return Err(Error::NoGradient { op: "svd", hint: hint.to_owned() });
    }
    let (row, column) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    // Divide by one factor after the other: squares may overflow or underflow.
    let (differences, sums) = (differences(s)?, row.add(&column)?);
    let over = |x: &Tensor| quotient(&quotient(x, &differences)?, &sums);
    let (along_u, along_v) = (t(u)?.matmul(by_u)?, by_vh.matmul(&t(vh)?)?);
    let left = over(&skew(&along_u)?)?.mul(&row)?;
    // V^T G_V is the transpose of G_Vh V.
    let right = over(&skew(&t(&along_v)?)?)?.mul(&column)?;
    let inner = left.add(&right)?.add(&diagonal(by_s)?)?;
    let mut gradient = u.matmul(&inner)?.matmul(vh)?;
    if u.shape().iter().nth_back(1) != count {
        let outside = by_u.sub(&u.matmul(&along_u)?)?;
        gradient = gradient.add(&quotient(&outside, &row)?.matmul(vh)?)?;
    }
    if vh.shape().last() != count {
        let outside = by_vh.sub(&along_v.matmul(vh)?)?;
        gradient = gradient.add(&u.matmul(&quotient(&outside, &column)?)?)?;
    }
    Ok(vec![Some(gradient)])
}

/// `-P^T G P^T + (1 - A P) G^T P P^T + P^T P G^T (1 - P A)`, for matrices of locally constant rank.
pub(super) fn pseudo_inverse(call: &GradientCall<'_>) -> Gradients {
    let (a, p, h) = (&call.inputs[0], &call.outputs[0], t(&call.gradients[0])?);
    let turned = t(p)?;
    let inner = turned.matmul(&t(&h)?)?.matmul(&turned)?;
    let right = h.matmul(p)?.matmul(&turned)?;
    let left = turned.matmul(p)?.matmul(&h)?;
    let outside = right.sub(&a.matmul(p)?.matmul(&right)?)?;
    let beside = left.sub(&left.matmul(p)?.matmul(a)?)?;
    Ok(vec![Some(outside.add(&beside)?.sub(&inner)?), None])
}
