//! Kernels written by hand as loop trees, in the forms that a compiler would choose for a GPU.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{
            ArrayId, AxisKind, Fragment, Kernel, KernelOp, Matrix, MatrixShape, MemoryAccess, Role, Row,
            Type, ValueId,
        },
    },
    op::{Binary, Combine, Unary},
};

fn zero() -> Index {
    Index::default()
}

/// `out = gelu(a * b + c)` over `n` elements, four per invocation; `c` and the result are float16.
pub(crate) fn elementwise(n: usize) -> Kernel {
    let mut b = Builder::new("gelu_multiply_add");
    let (x, y, z) = (b.input(DType::F32, n), b.input(DType::F32, n), b.input(DType::F16, n));
    let out = b.output(DType::F16, n);
    let gelu = |b: &mut Builder, index: &Index, mask: Mask, lanes: u8| {
        let load = |b: &mut Builder, array| {
            if lanes == 1 {
                b.load_where(array, index, mask.clone(), Scalar::Float(0.0))
            } else {
                b.load_lanes(array, index, lanes)
            }
        };
        let (x, y, z) = (load(b, x), load(b, y), load(b, z));
        let constant = |b: &mut Builder, c: f64| {
            let c = b.constant(DType::F32, c);
            if lanes == 1 { c } else { b.bind(Type { dtype: DType::F32, lanes }, KernelOp::Splat(c)) }
        };
        let z = b.cast(DType::F32, z);
        let product = b.binary(Binary::Mul, x, y);
        let sum = b.binary(Binary::Add, product, z);
        let scale = constant(b, std::f64::consts::FRAC_1_SQRT_2);
        let scaled = b.binary(Binary::Mul, sum, scale);
        let erf = b.unary(Unary::Erf, scaled);
        let one = constant(b, 1.0);
        let gate = b.binary(Binary::Add, erf, one);
        let half = constant(b, 0.5);
        let halved = b.binary(Binary::Mul, sum, half);
        let result = b.binary(Binary::Mul, halved, gate);
        let result = b.cast(DType::F16, result);
        b.store_where(out, index, mask, result);
    };
    b.over(n.div_ceil(256), AxisKind::Grid(0), |b, group| {
        b.over(64, AxisKind::Block(0), |b, invocation| {
            let first = group.scale(256).add(&invocation.scale(4));
            let whole = Mask::within(&first, 0, n as i64 - 3, b.ranges());
            b.choose(
                whole,
                |b| gelu(b, &first, Mask::default(), 4),
                |b| {
                    b.over(4, AxisKind::Serial, |b, i| {
                        let index = first.add(i);
                        let inside = Mask::within(&index, 0, n as i64, b.ranges());
                        b.when(inside, |b| gelu(b, &index, Mask::default(), 1));
                    });
                },
            );
        });
    });
    b.finish()
}

/// Combines every invocation's value in `register` over the group through a shared array. After the final barrier,
/// element 0 holds the result.
fn group_reduce(
    b: &mut Builder,
    combine: Combine,
    width: usize,
    invocation: &Index,
    register: ArrayId,
    shared: ArrayId,
) {
    let mine = b.load(register, &zero());
    b.store(shared, invocation, mine);
    b.barrier();
    let mut half = width / 2;
    while half > 0 {
        let lower = Mask::within(invocation, 0, half as i64, b.ranges());
        b.when(lower, |b| {
            let (low, high) = (b.load(shared, invocation), b.load(shared, &invocation.shift(half as i64)));
            let both = b.binary(combine.binary(), low, high);
            b.store(shared, invocation, both);
        });
        b.barrier();
        half /= 2;
    }
}

/// The softmax of every row of `[rows, columns]`, one group per row.
pub(crate) fn softmax(rows: usize, columns: usize) -> Kernel {
    const WIDTH: usize = 64;
    let mut b = Builder::new("row_softmax");
    let (x, out) = (b.input(DType::F32, rows * columns), b.output(DType::F32, rows * columns));
    let shared = b.shared(DType::F32, WIDTH);
    let (greatest, total) = (b.registers(DType::F32, 1), b.registers(DType::F32, 1));
    b.over(rows, AxisKind::Grid(0), |b, row| {
        b.over(WIDTH, AxisKind::Block(0), |b, invocation| {
            let (step, i) = b.axis(columns.div_ceil(WIDTH), AxisKind::Reduce);
            let column = i.scale(WIDTH as i64).add(invocation);
            let index = row.scale(columns as i64).add(&column);
            let inside = Mask::within(&column, 0, columns as i64, b.ranges());
            let exponential = |b: &mut Builder, greatest: ValueId| {
                let x = b.load(x, &index);
                let shifted = b.binary(Binary::Sub, x, greatest);
                b.unary(Unary::Exp, shifted)
            };

            let lowest = b.constant(DType::F32, f64::NEG_INFINITY);
            b.store(greatest, &zero(), lowest);
            b.repeat(step, |b| {
                let x = b.load_where(x, &index, inside.clone(), Scalar::Float(f64::NEG_INFINITY));
                b.accumulate(greatest, &zero(), Binary::Max, x);
            });
            group_reduce(b, Combine::Max, WIDTH, invocation, greatest, shared);
            let row_greatest = b.load(shared, &zero());
            b.barrier();

            let nothing = b.constant(DType::F32, 0.0);
            b.store(total, &zero(), nothing);
            b.repeat(step, |b| {
                b.when(inside.clone(), |b| {
                    let e = exponential(b, row_greatest);
                    b.accumulate(total, &zero(), Binary::Add, e);
                });
            });
            group_reduce(b, Combine::Sum, WIDTH, invocation, total, shared);
            let row_total = b.load(shared, &zero());

            b.repeat(step, |b| {
                b.when(inside.clone(), |b| {
                    let e = exponential(b, row_greatest);
                    let share = b.binary(Binary::Div, e, row_total);
                    b.store(out, &index, share);
                });
            });
        });
    });
    b.finish()
}

/// `relu(a b + bias)`: tiles of 32 x 32 in shared memory, 4 x 4 results per invocation.
pub(crate) fn matmul(m: usize, n: usize, k: usize) -> Kernel {
    const TILE: usize = 32;
    const DEPTH: usize = 8;
    const SIDE: usize = 8;
    const EACH: usize = TILE / SIDE;
    let mut b = Builder::new("matmul_bias_relu");
    let (a, w, bias) = (b.input(DType::F32, m * k), b.input(DType::F32, k * n), b.input(DType::F32, n));
    let out = b.output(DType::F32, m * n);
    let (a_tile, w_tile) = (b.shared(DType::F32, TILE * DEPTH), b.shared(DType::F32, DEPTH * TILE));
    let sums = b.registers(DType::F32, EACH * EACH);
    let (a_part, w_part) = (b.registers(DType::F32, EACH), b.registers(DType::F32, EACH));
    b.over(m.div_ceil(TILE), AxisKind::Grid(1), |b, group_row| {
        b.over(n.div_ceil(TILE), AxisKind::Grid(0), |b, group_column| {
            b.over(SIDE, AxisKind::Block(1), |b, y| {
                b.over(SIDE, AxisKind::Block(0), |b, x| {
                    let (rows, i) = b.axis(EACH, AxisKind::Unroll);
                    let (columns, j) = b.axis(EACH, AxisKind::Unroll);
                    let at = i.scale(EACH as i64).add(&j);
                    let each = |b: &mut Builder, build: &dyn Fn(&mut Builder)| {
                        b.repeat(rows, |b| b.repeat(columns, build));
                    };
                    each(b, &|b| {
                        let nothing = b.constant(DType::F32, 0.0);
                        b.store(sums, &at, nothing);
                    });

                    b.over(k.div_ceil(DEPTH), AxisKind::Reduce, |b, step| {
                        let first = step.scale(DEPTH as i64);
                        let (pieces, piece) = b.axis(TILE * DEPTH / (SIDE * SIDE), AxisKind::Unroll);
                        let invocation = y.scale(SIDE as i64).add(x);
                        let flat = piece.scale((SIDE * SIDE) as i64).add(&invocation);
                        b.repeat(pieces, |b| {
                            let ranges = b.ranges().clone();
                            let load = |b: &mut Builder, matrix, tile, row: Index, column: Index, (h, w)| {
                                let inside = Mask::within(&row, 0, h as i64, &ranges);
                                let inside = inside.and(&Mask::within(&column, 0, w as i64, &ranges));
                                let index = row.scale(w as i64).add(&column);
                                let value = b.load_where(matrix, &index, inside, Scalar::Float(0.0));
                                b.store(tile, &flat, value);
                            };
                            let split = |width: usize| {
                                (flat.quotient(width as i64, &ranges), flat.remainder(width as i64, &ranges))
                            };
                            let (row, column) = split(DEPTH);
                            let row = group_row.scale(TILE as i64).add(&row);
                            load(b, a, a_tile, row, first.add(&column), (m, k));
                            let (row, column) = split(TILE);
                            let column = group_column.scale(TILE as i64).add(&column);
                            load(b, w, w_tile, first.add(&row), column, (k, n));
                        });
                        b.barrier();
                        b.over(DEPTH, AxisKind::Unroll, |b, d| {
                            b.repeat(rows, |b| {
                                let row = y.scale(EACH as i64).add(&i);
                                let value = b.load(a_tile, &row.scale(DEPTH as i64).add(d));
                                b.store(a_part, &i, value);
                            });
                            b.repeat(columns, |b| {
                                let column = x.scale(EACH as i64).add(&j);
                                let value = b.load(w_tile, &d.scale(TILE as i64).add(&column));
                                b.store(w_part, &j, value);
                            });
                            each(b, &|b| {
                                let (left, right) = (b.load(a_part, &i), b.load(w_part, &j));
                                let product = b.binary(Binary::Mul, left, right);
                                b.accumulate(sums, &at, Binary::Add, product);
                            });
                        });
                        b.barrier();
                    });

                    let row = group_row.scale(TILE as i64).add(&y.scale(EACH as i64)).add(&i);
                    let column = group_column.scale(TILE as i64).add(&x.scale(EACH as i64)).add(&j);
                    let inside = Mask::within(&row, 0, m as i64, b.ranges());
                    let inside = inside.and(&Mask::within(&column, 0, n as i64, b.ranges()));
                    each(b, &|b| {
                        b.when(inside.clone(), |b| {
                            let (sum, bias) = (b.load(sums, &at), b.load(bias, &column));
                            let biased = b.binary(Binary::Add, sum, bias);
                            let nothing = b.constant(DType::F32, 0.0);
                            let relu = b.binary(Binary::Max, biased, nothing);
                            b.store(out, &row.scale(n as i64).add(&column), relu);
                        });
                    });
                });
            });
        });
    });
    b.finish()
}

/// The shape of the matrix instruction of [`matrix_multiply`].
pub(crate) const MATRIX: MatrixShape = MatrixShape { rows: 16, columns: 16, depth: 16 };

/// `a b` of float16 matrices with float32 sums. Each of a group's four subgroups computes 32 x 32 of the group's 64 x
/// 64 results. Sizes are multiples of 64; the depth is a multiple of 16.
pub(crate) fn matrix_multiply(m: usize, n: usize, k: usize) -> Kernel {
    const TILE: usize = 64;
    const DEPTH: usize = 16;
    let mut b = Builder::new("matmul_fragments");
    let (a, w) = (b.input(DType::F16, m * k), b.input(DType::F16, k * n));
    let out = b.output(DType::F32, m * n);
    let (a_tile, w_tile) = (b.shared(DType::F16, TILE * DEPTH), b.shared(DType::F16, DEPTH * TILE));
    let fragment = |role, dtype, length| Fragment { role, shape: MATRIX, dtype, length };
    let left = b.fragments(fragment(Role::Left, DType::F16, 2));
    let right = b.fragments(fragment(Role::Right, DType::F16, 2));
    let sums = b.fragments(fragment(Role::Accumulator, DType::F32, 4));
    let access = |array, index: Index| MemoryAccess { array, index, row: None, mask: Mask::default() };
    b.over(m / TILE, AxisKind::Grid(1), |b, group_row| {
        b.over(n / TILE, AxisKind::Grid(0), |b, group_column| {
            b.over(128, AxisKind::Block(0), |b, invocation| {
                let (rows, i) = b.axis(2, AxisKind::Unroll);
                let (columns, j) = b.axis(2, AxisKind::Unroll);
                let at = i.scale(2).add(&j);
                let subgroup = invocation.quotient(32, b.ranges());
                let tile_row = subgroup.quotient(2, b.ranges()).scale(32).add(&i.scale(16));
                let tile_column = subgroup.remainder(2, b.ranges()).scale(32).add(&j.scale(16));
                b.repeat(rows, |b| {
                    b.repeat(columns, |b| b.matrix(Matrix::Fill(sums(at.clone()), Scalar::Float(0.0))));
                });
                b.over(k / DEPTH, AxisKind::Reduce, |b, step| {
                    b.over(TILE * DEPTH / (128 * 4), AxisKind::Unroll, |b, piece| {
                        let flat = piece.scale(128 * 4).add(&invocation.scale(4));
                        let split = |b: &Builder, width: i64| {
                            (flat.quotient(width, b.ranges()), flat.remainder(width, b.ranges()))
                        };
                        let (row, column) = split(b, DEPTH as i64);
                        let (row, column) =
                            (group_row.scale(TILE as i64).add(&row), step.scale(16).add(&column));
                        let four = b.load_lanes(a, &row.scale(k as i64).add(&column), 4);
                        b.store(a_tile, &flat, four);
                        let (row, column) = split(b, TILE as i64);
                        let (row, column) =
                            (step.scale(16).add(&row), group_column.scale(TILE as i64).add(&column));
                        let four = b.load_lanes(w, &row.scale(n as i64).add(&column), 4);
                        b.store(w_tile, &flat, four);
                    });
                    b.barrier();
                    b.repeat(rows, |b| {
                        let access = access(a_tile, tile_row.scale(DEPTH as i64));
                        b.matrix(Matrix::Load {
                            tile: left(i.clone()),
                            access,
                            stride: DEPTH,
                            transposed: false,
                        });
                    });
                    b.repeat(columns, |b| {
                        let access = access(w_tile, tile_column.clone());
                        b.matrix(Matrix::Load {
                            tile: right(j.clone()),
                            access,
                            stride: TILE,
                            transposed: false,
                        });
                    });
                    b.repeat(rows, |b| {
                        b.repeat(columns, |b| {
                            let (left, right) = (left(i.clone()), right(j.clone()));
                            b.matrix(Matrix::MultiplyAdd { accumulator: sums(at.clone()), left, right });
                        });
                    });
                    b.barrier();
                });
                b.repeat(rows, |b| {
                    b.repeat(columns, |b| {
                        let row = group_row.scale(TILE as i64).add(&tile_row);
                        let column = group_column.scale(TILE as i64).add(&tile_column);
                        let access = access(out, row.scale(n as i64).add(&column));
                        b.matrix(Matrix::Store { tile: sums(at.clone()), access, stride: n });
                    });
                });
            });
        });
    });
    b.finish()
}

/// The sum of every row of `[rows, columns]` times a scalar parameter: shuffles within subgroups of 32, then one value
/// per subgroup through shared memory.
pub(crate) fn row_sum(rows: usize, columns: usize) -> Kernel {
    const WIDTH: usize = 128;
    let mut b = Builder::new("row_sum");
    let (x, out) = (b.input(DType::I32, rows * columns), b.output(DType::F32, rows));
    let scale = b.parameter(DType::F32);
    let shared = b.shared(DType::I32, WIDTH / 32);
    let total = b.registers(DType::I32, 1);
    b.over(rows, AxisKind::Grid(0), |b, row| {
        b.over(WIDTH, AxisKind::Block(0), |b, invocation| {
            let nothing = b.constant(DType::I32, 0i32);
            b.store(total, &zero(), nothing);
            b.over(columns.div_ceil(WIDTH), AxisKind::Reduce, |b, i| {
                let column = i.scale(WIDTH as i64).add(invocation);
                let inside = Mask::within(&column, 0, columns as i64, b.ranges());
                let x = b.load_where(x, &row.scale(columns as i64).add(&column), inside, Scalar::Int(0));
                b.accumulate(total, &zero(), Binary::Add, x);
            });
            for bits in [16, 8, 4, 2, 1] {
                let mine = b.load(total, &zero());
                let other = b.bind(Type::scalar(DType::I32), KernelOp::ShuffleXor(mine, bits));
                b.accumulate(total, &zero(), Binary::Add, other);
            }
            let lane = invocation.remainder(32, b.ranges());
            let first = Mask::within(&lane, 0, 1, b.ranges());
            b.when(first, |b| {
                let sum = b.load(total, &zero());
                let subgroup = invocation.quotient(32, b.ranges());
                b.store(shared, &subgroup, sum);
            });
            b.barrier();
            let one = Mask::within(invocation, 0, 1, b.ranges());
            b.when(one, |b| {
                let mut sum = b.load(shared, &zero());
                for subgroup in 1..WIDTH as i64 / 32 {
                    let other = b.load(shared, &Index::constant(subgroup));
                    sum = b.binary(Binary::Add, sum, other);
                }
                let sum = b.cast(DType::F32, sum);
                let scale = b.bind(Type::scalar(DType::F32), scale);
                let scaled = b.binary(Binary::Mul, sum, scale);
                b.store(out, row, scaled);
            });
        });
    });
    b.finish()
}

/// Rows of a float32 table `[count, width]` for `n` indices, four elements per invocation.
pub(crate) fn gather_rows(n: usize, count: usize, width: usize) -> Kernel {
    let mut b = Builder::new("gather_rows");
    let (table, indices) = (b.input(DType::F32, count * width), b.input(DType::I64, n));
    let out = b.output(DType::F32, n * width);
    b.over((n * width).div_ceil(256), AxisKind::Grid(0), |b, group| {
        b.over(64, AxisKind::Block(0), |b, invocation| {
            let four = group.scale(64).add(invocation);
            let inside = Mask::within(&four, 0, (n * width / 4) as i64, b.ranges());
            b.when(inside, |b| {
                let per_row = width as i64 / 4;
                let (row, column) = (four.quotient(per_row, b.ranges()), four.remainder(per_row, b.ranges()));
                let value = b.load(indices, &row);
                let row = Row { value, count, stride: width };
                let elements = b.load_row(table, &column.scale(4), row, 4);
                b.store(out, &four.scale(4), elements);
            });
        });
    });
    b.finish()
}
