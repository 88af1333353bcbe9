//! Reassembles decompositions, and checks against answers worked out by hand and derivatives by finite differences.

use super::Decomposition;
use crate::{
    DType, Error, Result, Tensor,
    gradient::tests::harness::{check, values},
    oracle::reference_device,
};

/// Irregular numbers of both signs.
fn matrices(shape: &[usize]) -> Tensor {
    let (numbers, _) = values(shape, -1.0, 1.2);
    Tensor::from_slice(&numbers, shape, reference_device()).unwrap()
}

fn matrix(numbers: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(numbers, shape, reference_device()).unwrap()
}

fn t(x: &Tensor) -> Tensor {
    x.transpose(-2, -1).unwrap()
}

#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (found.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{found} is not {expected}");
    }
}

#[track_caller]
fn assert_orthonormal_columns(q: &Tensor) {
    let n = *q.shape().last().unwrap();
    let product = t(q).matmul(q).unwrap();
    let identity = Tensor::eye(n, n, DType::F64, reference_device()).unwrap();
    assert_close(&product, &identity.broadcast_to(product.shape()).unwrap());
}

/// Ordinary and difficult matrices: of low rank, zero, with columns of very different lengths, or with squares that
/// overflow or underflow.
fn hard(m: usize, n: usize) -> Vec<Tensor> {
    let plain = matrices(&[m, n]);
    let low = matrices(&[m, 1]).matmul(&matrices(&[1, n])).unwrap();
    let scales: Vec<f64> = (0..n).map(|j| 10f64.powi(-9 * j as i32)).collect();
    vec![
        plain.mul(&matrix(&scales, &[n])).unwrap(),
        plain.mul_scalar(1e200).unwrap(),
        plain.mul_scalar(1e-200).unwrap(),
        low,
        plain.zeros_like().unwrap(),
        Tensor::eye(m, n, DType::F64, reference_device()).unwrap(),
        plain,
    ]
}

/// The matrices, scaled to elements of at most 1.
fn scaled(x: &Tensor, by: &Tensor) -> Tensor {
    let greatest = by.abs().unwrap().max(&[], false).unwrap().item::<f64>().unwrap();
    x.div_scalar(if greatest > 0.0 { greatest } else { 1.0 }).unwrap()
}

const SHAPES: [(usize, usize); 7] = [(1, 1), (2, 2), (5, 5), (6, 3), (3, 6), (1, 4), (4, 1)];

#[test]
fn singular_values_have_gradients_beyond_the_range_of_squares() {
    for scale in [1e200, 1e-200, 1.0] {
        let a = matrices(&[4, 3]).mul_scalar(scale).unwrap().with_grad().unwrap();
        let (u, s, vh) = a.svd(false).unwrap();
        s.sum(&[], false).unwrap().backward().unwrap();
        // The gradient of the sum of singular values is the nearest matrix with orthonormal columns.
        assert_close(&a.grad().unwrap(), &u.matmul(&vh).unwrap());
    }
}

#[test]
fn qr_is_put_together_again() {
    for (m, n) in SHAPES {
        for a in hard(m, n) {
            for complete in [false, true] {
                let (q, r) = a.qr(complete).unwrap();
                assert_orthonormal_columns(&q);
                assert_close(&r, &r.triu(0).unwrap());
                assert_close(&scaled(&q.matmul(&r).unwrap(), &a), &scaled(&a, &a));
            }
        }
    }
}

#[test]
fn svd_is_put_together_again() {
    for (m, n) in SHAPES {
        for a in hard(m, n) {
            for full in [false, true] {
                let (u, s, vh) = a.svd(full).unwrap();
                assert_orthonormal_columns(&u);
                assert_orthonormal_columns(&t(&vh));
                let count = m.min(n) as i64;
                let (u, vh) = (u.slice(1, None, Some(count), 1), vh.slice(0, None, Some(count), 1));
                let product = u.unwrap().mul(&s).unwrap().matmul(&vh.unwrap()).unwrap();
                assert_close(&scaled(&product, &a), &scaled(&a, &a));
                let s = s.to_vec::<f64>().unwrap();
                assert!(s.is_sorted_by(|a, b| a >= b) && s.iter().all(|&s| s >= 0.0), "{s:?}");
            }
        }
    }
    // Small singular values are as accurate as large ones.
    let graded = matrix(&[1.0, 0.0, 0.0, 1e-14], &[2, 2]);
    assert_eq!(graded.svdvals().unwrap().to_vec::<f64>().unwrap(), [1.0, 1e-14]);
}

#[test]
fn eigenvalues_are_put_together_again() {
    for n in [1, 2, 3, 8] {
        for a in hard(n, n) {
            let a = a.add(&t(&a)).unwrap();
            let (values, vectors) = a.eigh().unwrap();
            assert_orthonormal_columns(&vectors);
            let product = vectors.mul(&values).unwrap().matmul(&t(&vectors)).unwrap();
            assert_close(&scaled(&product, &a), &scaled(&a, &a));
            assert!(values.to_vec::<f64>().unwrap().is_sorted());
        }
    }
    // The upper triangle is not read.
    let lower = matrix(&[2.0, 99.0, 1.0, 2.0], &[2, 2]);
    assert_close(&lower.eigvalsh().unwrap(), &matrix(&[1.0, 3.0], &[2]));
}

#[test]
fn triangles_are_put_together_again() {
    for batch in [vec![], vec![3], vec![2, 2]] {
        let shape = [batch.clone(), vec![4, 4]].concat();
        let a = matrices(&shape);
        let identity = Tensor::eye(4, 4, DType::F64, reference_device()).unwrap();
        let definite = a.matmul(&t(&a)).unwrap().add(&identity).unwrap();
        let l = definite.cholesky(false).unwrap();
        assert_close(&l, &l.tril(0).unwrap());
        assert_close(&l.matmul(&t(&l)).unwrap(), &definite);
        assert_close(&definite.cholesky(true).unwrap(), &t(&l));
        let whole = identity.broadcast_to(&shape).unwrap();
        assert_close(&definite.inv().unwrap().matmul(&definite).unwrap(), &whole);
        let b = matrices(&[4, 2]);
        let x = definite.solve(&b).unwrap();
        assert_close(&definite.matmul(&x).unwrap(), &b.broadcast_to(x.shape()).unwrap());
        let b = matrices(&[4]);
        let x = definite.solve(&b).unwrap();
        assert_eq!(x.shape(), &shape[..shape.len() - 1]);
        let product = definite.matmul(&x.unsqueeze(-1).unwrap()).unwrap().squeeze(-1).unwrap();
        assert_close(&product, &b.broadcast_to(x.shape()).unwrap());
        let (sign, logarithm) = definite.slogdet().unwrap();
        assert_close(&sign.mul(&logarithm.exp().unwrap()).unwrap(), &definite.det().unwrap());
        assert_close(&definite.pinv(None).unwrap(), &definite.inv().unwrap());
    }
}

#[test]
fn answers_by_hand() {
    let a = matrix(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    assert_close(&a.det().unwrap(), &matrix(&[-2.0], &[]));
    assert_close(&a.inv().unwrap(), &matrix(&[-2.0, 1.0, 1.5, -0.5], &[2, 2]));
    let (sign, logarithm) = a.slogdet().unwrap();
    assert_close(&sign, &matrix(&[-1.0], &[]));
    assert_close(&logarithm, &matrix(&[2f64.ln()], &[]));
    let singular = matrix(&[1.0, 2.0, 2.0, 4.0], &[2, 2]);
    assert_eq!(singular.det().unwrap().item::<f64>().unwrap(), 0.0);
    let (sign, logarithm) = singular.slogdet().unwrap();
    assert_eq!(sign.item::<f64>().unwrap(), 0.0);
    assert_eq!(logarithm.item::<f64>().unwrap(), f64::NEG_INFINITY);
    assert_eq!(singular.matrix_rank(None).unwrap().item::<i64>().unwrap(), 1);
    assert_close(&singular.pinv(None).unwrap(), &singular.div_scalar(25.0).unwrap());
    // Values up to half of the greatest count as zero.
    let part = matrix(&[0.5], &[]);
    let diagonal = matrix(&[4.0, 0.0, 0.0, 1.0], &[2, 2]);
    assert_close(&diagonal.pinv(Some(&part)).unwrap(), &matrix(&[0.25, 0.0, 0.0, 0.0], &[2, 2]));
    assert_eq!(diagonal.matrix_rank(Some(&part)).unwrap().item::<i64>().unwrap(), 1);
    let single = a.to_dtype(DType::F32).unwrap().inv().unwrap();
    assert_eq!(single.to_vec::<f32>().unwrap(), [-2.0, 1.0, 1.5, -0.5]);
}

#[test]
fn what_does_not_exist_is_an_error() {
    let singular = matrix(&[1.0, 2.0, 2.0, 4.0], &[2, 2]);
    let lacks = |result: Result<Tensor>, name: &str| {
        let error = result.unwrap().to_vec::<f64>().unwrap_err();
        assert!(matches!(error, Error::LinearAlgebra { op, .. } if op == name), "{error}");
    };
    lacks(singular.inv(), "inv");
    lacks(singular.solve(&singular), "solve");
    lacks(singular.neg().unwrap().cholesky(false), "cholesky");
    for dtype in [DType::F16, DType::BF16, DType::I32, DType::Bool] {
        let error = singular.to_dtype(dtype).unwrap().det().unwrap_err();
        assert!(matches!(error, Error::DType { op: "det", .. }), "{error}");
    }
    assert!(matches!(matrices(&[2, 3]).inv(), Err(Error::Shape { op: "inv", .. })));
    assert!(matches!(matrices(&[3]).qr(false), Err(Error::Shape { op: "qr", .. })));
    assert!(matches!(singular.solve(&matrices(&[3])), Err(Error::Shape { op: "solve", .. })));
    // An error rather than a wrong derivative.
    let wide = matrices(&[2, 3]).with_grad().unwrap();
    let tall = matrices(&[3, 2]).with_grad().unwrap();
    let results = [wide.qr(false).unwrap().1, tall.qr(true).unwrap().1, tall.svd(true).unwrap().1];
    for result in results {
        let error = result.sum(&[], false).unwrap().backward().unwrap_err();
        assert!(matches!(error, Error::NoGradient { .. }), "{error}");
    }
}

#[test]
fn nan_and_infinities_end() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let a = matrix(&[2.0, bad, 1.0, bad, 3.0, 0.5, 1.0, 0.5, 4.0], &[3, 3]);
        let all_nan = |x: Tensor| assert!(x.to_vec::<f64>().unwrap().iter().all(|x| x.is_nan()));
        let (q, r) = a.qr(false).unwrap();
        let (u, s, vh) = a.svd(true).unwrap();
        let (values, vectors) = a.eigh().unwrap();
        [q, r, u, s, vh, values, vectors, a.pinv(None).unwrap()].into_iter().for_each(all_nan);
        assert!(matches!(
            a.cholesky(false).unwrap().to_vec::<f64>(),
            Err(Error::LinearAlgebra { op: "cholesky", .. })
        ));
        // Any result is fine, but it must not fail.
        let _ = (a.det().unwrap().to_vec::<f64>(), a.inv().unwrap().to_vec::<f64>());
    }
}

#[test]
fn nothing_has_a_decomposition() {
    for shape in [vec![0, 0], vec![0, 3, 3], vec![2, 0, 0]] {
        let a = Tensor::zeros(&shape, DType::F64, reference_device()).unwrap();
        let (batch, n) = (&shape[..shape.len() - 2], shape[shape.len() - 1]);
        let ones = Tensor::ones(batch, DType::F64, reference_device()).unwrap();
        assert_close(&a.det().unwrap(), &ones);
        let (sign, logarithm) = a.slogdet().unwrap();
        assert_close(&sign, &ones);
        assert_close(&logarithm, &ones.zeros_like().unwrap());
        for same in [a.inv(), a.cholesky(true), a.solve(&a), a.pinv(None), Ok(a.eigh().unwrap().1)] {
            assert_close(&same.unwrap(), &a);
        }
        assert_eq!(a.eigvalsh().unwrap().shape(), [batch, &[n]].concat());
        assert_eq!(a.matrix_rank(None).unwrap().shape(), batch);
    }
    for (m, n) in [(0, 3), (3, 0), (0, 0)] {
        let a = Tensor::zeros(&[2, m, n], DType::F64, reference_device()).unwrap();
        let (u, s, vh) = a.svd(true).unwrap();
        assert_eq!((u.shape(), s.shape(), vh.shape()), (&[2, m, m][..], &[2, 0][..], &[2, n, n][..]));
        assert_orthonormal_columns(&u);
        assert_orthonormal_columns(&vh);
        let (u, s, vh) = a.svd(false).unwrap();
        assert_eq!((u.shape(), s.shape(), vh.shape()), (&[2, m, 0][..], &[2, 0][..], &[2, 0, n][..]));
        let (q, r) = a.qr(true).unwrap();
        assert_eq!((q.shape(), r.shape()), (&[2, m, m][..], &[2, m, n][..]));
        assert_orthonormal_columns(&q);
        assert_eq!(a.pinv(None).unwrap().shape(), [2, n, m]);
    }
}

/// 1, 2, 3, .. on the diagonal, plus `x`: well separated singular values.
fn apart(x: &Tensor) -> Result<Tensor> {
    let &[m, n] = x.shape() else { return Err(Error::internal("tests", "a matrix")) };
    let steps = Tensor::arange(1.0, n as f64 + 1.0, 1.0, x.dtype(), x.device())?;
    Tensor::eye(m, n, x.dtype(), x.device())?.mul(&steps)?.add(x)
}

fn definite(x: &Tensor) -> Result<Tensor> {
    let n = *x.shape().last().unwrap_or(&1);
    x.matmul(&x.transpose(-2, -1)?)?.add(&Tensor::eye(n, n, x.dtype(), x.device())?)
}

fn together(parts: &[Tensor]) -> Result<Tensor> {
    let flat = parts.iter().map(|part| part.flatten(0, -1)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&flat.iter().collect::<Vec<_>>(), 0)
}

#[test]
fn derivatives_of_determinants_and_solutions() {
    let x = || values(&[2, 3, 3], -0.3, 0.3);
    let added = |x: &Tensor| x.add(&Tensor::eye(3, 3, DType::F64, x.device())?);
    check(&[x()], 2, &|x| added(&x[0])?.det());
    check(&[x()], 2, &|x| added(&x[0])?.neg()?.slogdet().map(|parts| parts.1));
    check(&[x()], 2, &|x| added(&x[0])?.inv());
    check(&[x(), values(&[2, 3, 2], -1.0, 1.0)], 2, &|x| added(&x[0])?.solve(&x[1]));
    check(&[x(), values(&[3], -1.0, 1.0)], 1, &|x| added(&x[0])?.solve(&x[1]));
    check(&[x()], 2, &|x| definite(&x[0])?.cholesky(false));
    check(&[x()], 1, &|x| definite(&x[0])?.cholesky(true));
}

#[test]
fn determinants_of_singular_matrices_have_derivatives() {
    let product = |n: usize, rank: usize| {
        let (left, right) = (values(&[n, rank], -1.0, 1.0).0, values(&[rank, n], -0.7, 1.3).0);
        let factors = matrix(&left, &[n, rank]).matmul(&matrix(&right, &[rank, n])).unwrap();
        (factors.to_vec::<f64>().unwrap(), vec![n, n])
    };
    // Below rank n - 1, the first derivative vanishes; below rank n - 2, the second one does.
    for (n, rank) in [(2, 1), (3, 2), (4, 3), (4, 2), (4, 1), (5, 3)] {
        check(&[product(n, rank)], 2, &|x| x[0].det());
    }
    check(&[(vec![0.0; 4], vec![2, 2])], 2, &|x| x[0].det());
    check(&[(vec![0.0], vec![1, 1])], 2, &|x| x[0].det());
    let x = matrix(&[1.0, 2.0, 2.0, 4.0], &[2, 2]).with_grad().unwrap();
    x.det().unwrap().backward().unwrap();
    assert_close(&x.grad().unwrap(), &matrix(&[4.0, -2.0, -2.0, 1.0], &[2, 2]));
    // A regular matrix next to it, whose products overflow only jointly.
    let two = matrix(&[1e200, 0.0, 0.0, 1e200, 0.0, 3.0, 0.0, 0.0], &[2, 2, 2]).with_grad().unwrap();
    two.det().unwrap().sum(&[], false).unwrap().backward().unwrap();
    let expected = matrix(&[1e200, 0.0, 0.0, 1e200, 0.0, 0.0, -3.0, 0.0], &[2, 2, 2]);
    assert_close(&two.grad().unwrap(), &expected);
}

#[test]
fn determinants_have_third_derivatives() {
    let shifted = |x: &Tensor| x.add(&Tensor::eye(3, 3, DType::F64, x.device())?);
    check(&[values(&[3, 3], -0.3, 0.3), values(&[3, 3], -1.0, 1.0)], 2, &|x| {
        Decomposition::CofactorGradient.record_one(&[&shifted(&x[0])?, &x[1]])
    });
}

#[test]
fn derivatives_of_orthogonal_factors() {
    for shape in [[3, 3], [4, 3]] {
        let qr = |x: &[Tensor]| apart(&x[0])?.qr(false).and_then(|(q, r)| together(&[q, r]));
        check(&[values(&shape, -0.3, 0.3)], 2, &qr);
    }
    check(&[values(&[3, 3], -0.3, 0.3)], 1, &|x| apart(&x[0])?.qr(true).map(|(q, _)| q));
    // The signs of the vectors are arbitrary.
    check(&[values(&[3, 3], -0.3, 0.3)], 1, &|x| {
        let (values, vectors) = apart(&x[0].add(&x[0].transpose(0, 1)?)?)?.eigh()?;
        let product = vectors.mul(&values.square()?)?.matmul(&vectors.transpose(0, 1)?)?;
        together(&[values, vectors.square()?, product])
    });
    check(&[values(&[3, 3], -0.3, 0.3)], 1, &|x| apart(&x[0].add(&x[0].transpose(0, 1)?)?)?.eigvalsh());
    for shape in [[3, 3], [4, 3], [3, 4]] {
        check(&[values(&shape, -0.3, 0.3)], 1, &|x| {
            let (u, s, vh) = apart(&x[0])?.svd(false)?;
            let product = u.mul(&s.square()?)?.matmul(&vh)?;
            together(&[u.square()?, s, vh.square()?, product])
        });
        check(&[values(&shape, -0.3, 0.3)], 1, &|x| apart(&x[0])?.svdvals());
        check(&[values(&shape, -0.3, 0.3)], 2, &|x| apart(&x[0])?.pinv(None));
    }
    // Rank 2 for all factors.
    let factors = [values(&[4, 2], -1.0, 1.0), values(&[2, 3], -1.0, 1.0)];
    check(&factors, 1, &|x| apart(&x[0])?.matmul(&apart(&x[1])?)?.pinv(None));
}

#[test]
fn equal_values_leave_a_derivative_of_what_has_one() {
    // At the identity: the sum of singular values, and the sum of squared eigenvalues.
    let identity = Tensor::eye(3, 3, DType::F64, reference_device()).unwrap();
    let x = identity.with_grad().unwrap();
    x.svdvals().unwrap().sum(&[], false).unwrap().backward().unwrap();
    assert_close(&x.grad().unwrap(), &identity);
    let x = identity.with_grad().unwrap();
    x.eigvalsh().unwrap().square().unwrap().sum(&[], false).unwrap().backward().unwrap();
    assert_close(&x.grad().unwrap(), &identity.mul_scalar(2.0).unwrap());
    // A single direction in the eigenspace of equal values has no derivative.
    let x = identity.with_grad().unwrap();
    x.eigh().unwrap().1.mul(&matrices(&[3, 3])).unwrap().sum(&[], false).unwrap().backward().unwrap();
    assert!(x.grad().unwrap().to_vec::<f64>().unwrap().iter().any(|g| !g.is_finite()));
}

#[test]
fn placement_names_linear_algebra() {
    let kernel = Decomposition::Inverse.kernel(DType::F32).unwrap();
    let told = kernel.no_source_for("gpu:0", "C").to_string();
    assert_eq!(told, "gpu:0: linear algebra (inv) has no routine here: the CPU computes it");
}
