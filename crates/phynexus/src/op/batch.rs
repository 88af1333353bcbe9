//! Batching: what an operation on one example becomes for a batch of examples along a new first axis. Each primitive
//! has a rule here, composites follow by their bodies, and what has no rule is computed for each example and
//! concatenated.

use smallvec::SmallVec;

use super::{
    ArgReduce, Axes, Cat, Composite, Constant, Conv, ConvKind, Gather, IndexRange, Op, Pad, Permute, Pool,
    Reduce, Scan, Scatter, SearchSorted, Slice, TensorType,
    composite::{
        Softmax,
        precision::{self, InPrecision, MatmulPrecision},
    },
    custom::CustomCall,
    formula::Formula,
    ir::Id,
    term::Term,
};
use crate::{
    DType, Error, Result,
    shape::{Dims, element_count},
};

/// An operand of a batched operation: it has the batch as its first axis, or is the same for every example.
#[derive(Clone)]
pub(crate) struct Operand {
    pub(crate) term: Term,
    pub(crate) is_batched: bool,
}

/// An operation on one example.
pub(crate) struct Example<'a> {
    pub(crate) op: &'a Op,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
}

/// A batch of examples.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    /// The number of examples; at least 1.
    pub(crate) size: usize,
    /// Whether each example draws random numbers of its own.
    pub(crate) draws_for_each: bool,
}

impl Batch {
    /// Records an operation of one example for the whole batch, on the device of `place`. It is not batched if no
    /// operand is, and it draws no random numbers of each example.
    pub(crate) fn record(self, place: &Term, example: &Example, operands: &[Operand]) -> Result<Operand> {
        let is_batched = operands.iter().any(|operand| operand.is_batched);
        let term = match example.op {
            Op::RandomBits if self.draws_for_each && !is_batched => {
                let state: Vec<&Term> = operands.iter().map(|operand| &operand.term).collect();
                place.record_beside(Op::RandomBits, example.dtype, self.shape(example.shape), &state)?
            }
            Op::Composite(composite) if is_batched || self.may_draw(operands) => {
                match self.composite(place, composite, example, operands)? {
                    Operand { term, is_batched: true } => term,
                    same_for_all => return Ok(same_for_all),
                }
            }
            _ if is_batched => self.rule(place, example, operands)?,
            op => {
                let operands: Vec<&Term> = operands.iter().map(|operand| &operand.term).collect();
                let term = place.record_beside(op.clone(), example.dtype, example.shape.into(), &operands)?;
                return Ok(Operand { term, is_batched: false });
            }
        };
        Ok(Operand { term, is_batched: true })
    }

    /// Whether a composite with these operands may draw random numbers: it has the state of a generator.
    fn may_draw(self, operands: &[Operand]) -> bool {
        let is_state = |term: &Term| term.dtype() == DType::U32 && *term.shape() == [4];
        self.draws_for_each && operands.iter().any(|operand| is_state(&operand.term))
    }

    /// A shape with the batch as its first axis.
    fn shape(self, example: &[usize]) -> Dims {
        std::iter::once(self.size).chain(example.iter().copied()).collect()
    }

    /// An operand with the batch as its first axis.
    fn full(self, operand: &Operand) -> Formula {
        let term = &operand.term;
        if operand.is_batched {
            return Formula::of(term);
        }
        // Constants stay constants, which rewrites recognise.
        if let Some((Op::Constant(Constant(value)), _)) = term.definition() {
            return Formula::of(term).constant(term.dtype(), &self.shape(term.shape()), *value);
        }
        let one: Dims = std::iter::once(1).chain(term.shape().iter().copied()).collect();
        Formula::of(term).reshape(&one).expand(&self.shape(term.shape()))
    }

    /// An operand with the batch merged into this axis of the example, which precedes the elements of the axis.
    fn merged(self, operand: &Operand, axis: usize) -> Formula {
        self.full(operand).then(|term| {
            let mut order: SmallVec<[usize; 8]> = (1..term.rank()).collect();
            order.insert(axis, 0);
            let mut shape: Dims = term.shape()[1..].into();
            shape[axis] *= self.size;
            let moved = if axis == 0 { Formula::of(term) } else { Formula::of(term).permute(&order) };
            moved.reshape(&shape).term()
        })
    }

    /// Undoes [`Batch::merged`] for a result with this shape of an example.
    fn split(self, merged: &Formula, axis: usize, example: &[usize]) -> Formula {
        let mut shape: Dims = example.into();
        shape.insert(axis, self.size);
        let mut order: SmallVec<[usize; 8]> = (0..=example.len()).filter(|&from| from != axis).collect();
        order.insert(0, axis);
        let apart = merged.reshape(&shape);
        if axis == 0 { apart } else { apart.permute(&order) }
    }

    /// The operation with other attributes, on operands that all have the batch.
    fn same(self, place: &Term, op: Op, example: &Example, operands: &[Operand]) -> Result<Term> {
        let full: Vec<Term> =
            operands.iter().map(|operand| self.full(operand).term()).collect::<Result<_>>()?;
        place.record_beside(op, example.dtype, self.shape(example.shape), &full.iter().collect::<Vec<_>>())
    }

    /// At least one operand is batched.
    fn rule(self, place: &Term, example: &Example, operands: &[Operand]) -> Result<Term> {
        let same = |op: Op| self.same(place, op, example, operands);
        match example.op {
            op @ (Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Cast
            | Op::Bitcast
            | Op::Copy
            | Op::Contiguous
            | Op::Reshape
            | Op::Expand
            | Op::ArgSort(_)) => same(op.clone()),
            Op::Permute(Permute(order)) => {
                let order = std::iter::once(0).chain(order.iter().map(|axis| axis + 1)).collect();
                same(Op::Permute(Permute(order)))
            }
            Op::Slice(Slice { start, step }) => {
                let start = std::iter::once(0).chain(start.iter().copied()).collect();
                let step = std::iter::once(1).chain(step.iter().copied()).collect();
                same(Op::Slice(Slice { start, step }))
            }
            Op::Pad(Pad { padding, value }) => {
                let padding = std::iter::once((0, 0)).chain(padding.iter().copied()).collect();
                same(Op::Pad(Pad { padding, value: *value }))
            }
            Op::Cat(Cat { axis }) => same(Op::Cat(Cat { axis: axis + 1 })),
            Op::Reduce(Reduce { combine, axes }) => {
                same(Op::Reduce(Reduce { combine: *combine, axes: Axes(axes.0 << 1) }))
            }
            Op::ArgReduce(ArgReduce { combine, axis }) => {
                same(Op::ArgReduce(ArgReduce { combine: *combine, axis: axis + 1 }))
            }
            Op::Scan(Scan { combine, axis, reverse }) => {
                same(Op::Scan(Scan { combine: *combine, axis: axis + 1, reverse: *reverse }))
            }
            Op::Dot => self.dot(example, operands, MatmulPrecision::Highest),
            Op::Conv(conv) => self.conv(conv, example, operands, MatmulPrecision::Highest),
            Op::Pool(Pool(kind, geometry)) => {
                let x = self.merged(&operands[0], 0).term()?;
                let mut shape: Dims = example.shape.into();
                shape[0] *= self.size;
                let op = Op::Pool(Pool(*kind, geometry.clone()));
                let pooled = Term::record(op, example.dtype, shape, &[&x]);
                self.split(&Formula::from(pooled), 0, example.shape).term()
            }
            Op::Gather(Gather(range)) => {
                self.gather(*range, &operands[0], &operands[1], example.shape).term()
            }
            Op::Scatter(Scatter(mode, range)) => {
                let (x, index, updates) = (&operands[0], &operands[1], &operands[2]);
                if !index.is_batched {
                    let (x, updates) = (self.merged(x, 1), self.merged(updates, 1));
                    let result = x.scatter((*mode, *range), &Formula::of(&index.term), &updates);
                    return self.split(&result, 1, example.shape).term();
                }
                let rows = self.rows(index, example.shape[0], *range);
                let (x, updates) = (self.merged(x, 0), self.merged(updates, 0));
                self.split(&x.scatter((*mode, *range), &rows, &updates), 0, example.shape).term()
            }
            Op::SearchSorted(SearchSorted { right }) if !operands[0].is_batched => {
                let (sorted, values) = (&operands[0].term, self.merged(&operands[1], 0).term()?);
                let op = Op::SearchSorted(SearchSorted { right: *right });
                let found = Term::record(op, example.dtype, values.shape().into(), &[sorted, &values]);
                self.split(&Formula::from(found), 0, example.shape).term()
            }
            Op::Custom(call) if call.kernel().is_linear_algebra() => self.linear_algebra(call, operands),
            Op::Collective(_) => {
                Err(Error::argument("vmap", "a collective cannot run for each example: call it outside"))
            }
            _ => self.one_by_one(place, example, operands),
        }
    }

    /// Computes each example by itself.
    fn one_by_one(self, place: &Term, example: &Example, operands: &[Operand]) -> Result<Term> {
        let part = |index: usize| {
            let own = operands.iter().map(|operand| match operand.is_batched {
                true => Formula::of(&operand.term).select(0, index).term(),
                false => Ok(operand.term.clone()),
            });
            let own: Vec<Term> = own.collect::<Result<_>>()?;
            let operands: Vec<&Term> = own.iter().collect();
            place.record_beside(example.op.clone(), example.dtype, example.shape.into(), &operands)
        };
        let one: Dims = std::iter::once(1).chain(example.shape.iter().copied()).collect();
        let parts: Vec<Formula> =
            (0..self.size).map(|index| Formula::from(part(index)).reshape(&one)).collect();
        Formula::cat(&parts, 0).term()
    }

    fn dot(self, example: &Example, operands: &[Operand], precision: MatmulPrecision) -> Result<Term> {
        let [a, b] = [&operands[0], &operands[1]];
        let product = |a: &Term, b: &Term, shape: Dims| {
            Formula::from(precision::record(precision, Op::Dot, example.dtype, shape, [a, b]))
        };
        // With one matrix on the right, the rows of all examples are one matrix.
        if example.shape.len() == 2 && !b.is_batched {
            let mut shape: Dims = example.shape.into();
            shape[0] *= self.size;
            return self.split(&product(&self.merged(a, 0).term()?, &b.term, shape), 0, example.shape).term();
        }
        product(&self.full(a).term()?, &self.full(b).term()?, self.shape(example.shape)).term()
    }

    /// With one filter, the batch joins the samples; with a filter for each example, it joins the groups.
    fn conv(
        self,
        Conv(kind, geometry): &Conv,
        example: &Example,
        operands: &[Operand],
        precision: MatmulPrecision,
    ) -> Result<Term> {
        let has_filter = *kind != ConvKind::FilterGradient;
        let record = |geometry, shape: Dims, operands: [Formula; 2]| {
            let [a, b] = operands;
            let op = Op::Conv(Conv(*kind, geometry));
            Formula::from(precision::record(precision, op, example.dtype, shape, [&a.term()?, &b.term()?]))
                .term()
        };
        let mut shape: Dims = example.shape.into();
        if has_filter && !operands[1].is_batched {
            shape[0] *= self.size;
            let filter = Formula::of(&operands[1].term);
            let result = record(geometry.clone(), shape, [self.merged(&operands[0], 0), filter]);
            return self.split(&Formula::from(result), 0, example.shape).term();
        }
        let mut geometry = geometry.clone();
        geometry.groups *= self.size;
        // Channels are axis 1 of data, and output channels axis 0 of filters.
        let (second, result) = if has_filter { (0, 1) } else { (1, 0) };
        shape[result] *= self.size;
        let operands = [self.merged(&operands[0], 1), self.merged(&operands[1], second)];
        self.split(&Formula::from(record(geometry, shape, operands)), result, example.shape).term()
    }

    fn gather(self, range: IndexRange, x: &Operand, index: &Operand, example: &[usize]) -> Formula {
        if !x.is_batched {
            return self.split(&Formula::of(&x.term).gather(&self.merged(index, 0), range), 0, example);
        }
        if !index.is_batched {
            return self.split(&self.merged(x, 1).gather(&Formula::of(&index.term), range), 1, example);
        }
        let rows = self.rows(index, x.term.shape()[1], range);
        self.split(&self.merged(x, 0).gather(&rows, range), 0, example)
    }

    /// The numbers of rows among those of all examples, from numbers among the `count` rows of each. A number out of
    /// range stays out of range.
    fn rows(self, index: &Operand, count: usize, range: IndexRange) -> Formula {
        let index = self.full(index).cast(DType::I64);
        let number = |value: usize| index.like(value as i64);
        let own = index.lt(&number(0)).choose(&(&index + &number(count)), &index);
        let rows = &own + &(index.iota_like(DType::I64, 0) * number(count));
        let rows = match range {
            IndexRange::Known => rows,
            IndexRange::Unknown => {
                let inside = number(0).le(&own).and(&own.lt(&number(count)));
                inside.choose(&rows, &number(count * self.size))
            }
        };
        rows.then(|rows| Formula::of(rows).reshape(&[rows.len()]).term())
    }

    /// Routines of linear algebra take batches. Several results are packed anew.
    fn linear_algebra(self, call: &CustomCall, operands: &[Operand]) -> Result<Term> {
        let full: Vec<Term> =
            operands.iter().map(|operand| self.full(operand).term()).collect::<Result<_>>()?;
        let types: Vec<TensorType> = full.iter().map(Term::tensor_type).collect();
        let whole = CustomCall::new(call.kernel(), &types, call.scalars())?;
        let results = whole.record(&full.iter().collect::<Vec<_>>())?;
        if let [only] = results.as_slice() {
            return Ok(only.clone());
        }
        let (starts, elements) = call.packing()?;
        let ends = starts.iter().skip(1).copied().chain([elements]);
        let parts = results.iter().zip(call.outputs()).zip(starts.iter().zip(ends));
        let parts: Vec<Formula> = parts
            .map(|((result, shape), (start, end))| {
                let own = element_count(shape);
                Formula::of(result).reshape(&[self.size, own]).pad_axis(1, 0, end - start - own, 0.0)
            })
            .collect();
        Formula::cat(&parts, 1).term()
    }

    fn composite(
        self,
        place: &Term,
        composite: &Composite,
        example: &Example,
        operands: &[Operand],
    ) -> Result<Operand> {
        let batched = |term| Ok(Operand { term, is_batched: true });
        match composite {
            Composite::InPrecision(InPrecision { op, precision, .. }) => match &**op {
                Op::Dot => return batched(self.dot(example, operands, *precision)?),
                Op::Conv(conv) => return batched(self.conv(conv, example, operands, *precision)?),
                _ => {}
            },
            Composite::Softmax(Softmax { axis, logarithm }) => {
                let softmax = Softmax { axis: axis + 1, logarithm: *logarithm };
                return batched(self.same(place, Op::Composite(softmax.into()), example, operands)?);
            }
            elementwise if elementwise.is_elementwise() => {
                return batched(self.same(place, example.op.clone(), example, operands)?);
            }
            _ => {}
        }
        let own =
            |operand: &Operand| -> Dims { operand.term.shape()[usize::from(operand.is_batched)..].into() };
        let shapes: Vec<Dims> = operands.iter().map(own).collect();
        let types =
            operands.iter().zip(&shapes).map(|(operand, shape)| TensorType::new(operand.term.dtype(), shape));
        let body = composite.draft(&types.collect::<Vec<_>>())?;
        let mut leaves = operands.iter();
        let mut done: Vec<Operand> = Vec::with_capacity(body.nodes.len());
        for node in &body.nodes {
            let inputs: SmallVec<[Operand; 3]> =
                node.inputs.iter().map(|&input: &Id| done[input as usize].clone()).collect();
            let example = Example { op: &node.op, dtype: node.dtype, shape: &node.shape };
            let next = match (&node.op, leaves.as_slice()) {
                (Op::Buffer, [_, ..]) => leaves.next().cloned(),
                _ => None,
            };
            done.push(next.map_or_else(|| self.record(place, &example, &inputs), Ok)?);
        }
        let result = body.outputs.first().and_then(|&output| done.get(output as usize));
        result.cloned().ok_or_else(|| Error::internal("vmap", "a body without a result"))
    }
}
