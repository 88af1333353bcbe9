//! Attention and its gradient without the matrix of scores in memory (FlashAttention: Dao et al., 2022; its backward
//! pass in two launches, so that every sum has a fixed order).
//!
//! A group computes a tile of rows of the result: queries for the output and the queries' gradient, keys for the
//! gradients of keys and values. It iterates over the columns (keys or queries) in steps. A step computes the scores of
//! the tile's rows and some columns, makes weights of them, and adds the weighted columns to the sums. An engine
//! distributes the work over invocations.

mod dropout;
mod plain;
mod problem;
mod subgroups;
mod tile;

use problem::{Pass, Place, Problem};

use super::{Launch, Lowered, Source, Target, Unsupported, access, check, operand::Work};
use crate::{
    DType,
    kernel::{Index, Mask, build::Builder, loops::ArrayId, step::Library},
    op::{Binary, TensorType, composite::Attention},
    shape::Layout,
};

/// How the invocations of a group compute scores and sums. Each holds the same number of elements of some rows of a
/// tile, and several hold parts of the same row.
trait Engine {
    /// Extents of the scores that a group computes in a step.
    fn extents(&self) -> [usize; 2];
    /// Rows of which an invocation holds elements.
    fn rows(&self) -> usize;
    /// Elements of a row that an invocation holds, of this many columns; an even number.
    fn elements(&self, columns: usize) -> usize;
    /// The place of row number `row` of the invocation in the tile.
    fn row(&self, b: &Builder, row: &Index) -> Index;
    /// The place of column number `column` of the invocation in the tile.
    fn column(&self, b: &Builder, column: &Index) -> Index;
    /// Whether the invocation is the first of those that hold elements of its rows.
    fn is_first(&self, b: &Builder) -> Mask;
    /// Adds an array for a matrix of the tile's rows and this many columns.
    fn array(&mut self, b: &mut Builder, columns: usize) -> ArrayId;
    /// The place in such an array of an element of the invocation: its row and its column.
    fn element(&self, b: &Builder, columns: usize, row: &Index, column: &Index) -> Index;
    /// Prepares what does not depend on the step.
    fn begin(&self, b: &mut Builder, problem: &Problem, place: &Place);
    /// Combines values of the invocation's rows with those of the others that hold elements of these rows.
    fn exchange(&self, b: &mut Builder, op: Binary, values: ArrayId);
    /// Sets the scores of a step, one array for each pair of matrices. On return, the sums of
    /// the step before are complete.
    fn scores(&self, b: &mut Builder, problem: &Problem, place: &Place, scores: &[ArrayId], step: &Index);
    /// Adds columns of a right matrix, weighted with the contents of an array, to sums.
    fn accumulate(
        &self,
        b: &mut Builder,
        problem: &Problem,
        place: &Place,
        weights: ArrayId,
        matrix: usize,
        sums: ArrayId,
        step: &Index,
    );
    /// Completes the sums.
    fn complete(&self, b: &mut Builder);
}

/// The most features of queries, keys and values: an invocation holds sums for all of them.
const FEATURES: usize = 256;

/// Whether a kernel of its own pays off for attention, or its gradient, of these operands. The products of a single
/// query are sums that are computed together with what makes the keys and values, such as their place in a cache.
pub(super) fn pays(attention: &Attention, operands: &[TensorType], target: &Target) -> bool {
    let [q, k, v, ..] = operands else { return false };
    let (&[.., queries, features], &[.., values]) = (q.shape(), v.shape()) else { return false };
    let (limits, held) = (&target.limits, q.dtype().compute());
    let &[batch, heads, keys, _] = k.shape() else { return false };
    // Numbers of draws are 32 bits wide, also those of a tile's rows and columns beyond the last ones.
    const BEYOND: usize = 256;
    let is_countable = attention.dropout == 0
        || Attention::draws([batch, heads, queries + BEYOND, keys + BEYOND]) < i32::MAX as u64;
    queries != 1
        && is_countable
        && features.max(values) <= FEATURES
        && operands.len() < limits.bindings
        && operands.iter().all(|operand| limits.dtypes.contains(&operand.dtype()))
        && plain::Shape::usable(held, target).next().is_some()
}

/// Whether an operand can be read in this layout without being copied first.
pub(crate) fn reads(attention: &Attention, operand: usize, layout: &Layout) -> bool {
    let is_element = (3..attention.shared()).contains(&operand);
    let is_matrix = operand < 3 || operand == attention.shared() + 1;
    // Of whatever type, as if of the narrowest.
    is_element || is_matrix && problem::has_pieces(DType::F16, layout)
}

/// Lowers attention, or its gradient.
pub(super) fn lower(
    library: &Library,
    attention: &Attention,
    is_gradient: bool,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let work = |pass: Pass| {
        let mut work = Work::new(pass.name());
        let problem = Problem::new(&mut work, library, attention, pass, result, target);
        (work, problem)
    };
    let by_subgroups = |pass: &Pass| -> Option<Launch> {
        let (work, problem) = work(*pass);
        let shape = subgroups::Shape::of(&problem, target)?;
        let made = finish(work, &problem, target, (shape.rows(), shape.block()), |b, problem, _, x| {
            shape.engine(b, problem, x)
        });
        // The checker may not see that all copies are in bounds.
        check(&made.kernel, &target.limits).is_ok().then_some(made)
    };
    let passes: &[Pass] = if is_gradient { &[Pass::Queries, Pass::KeysAndValues] } else { &[Pass::Output] };
    for pass in passes {
        let (plain, problem) = work(*pass);
        if problem.heads == 0 || problem.extents()[0] == 0 {
            continue;
        }
        let made = by_subgroups(pass).map(|launch| vec![launch]);
        let in_parts = || pass.parts().iter().map(by_subgroups).collect::<Option<Vec<_>>>();
        if let Some(launches) = made.or_else(in_parts).filter(|launches| !launches.is_empty()) {
            lowered.launches.extend(launches);
            continue;
        }
        let Some(shape) = plain::Shape::of(&problem, target) else {
            return Err(Unsupported("attention needs groups of 64 invocations".to_owned()));
        };
        let tile = (shape.extents()[0], shape.block());
        lowered.launches.push(finish(plain, &problem, target, tile, |b, problem, y, x| {
            shape.engine(b, problem, target, y, x)
        }));
    }
    Ok(())
}

/// The launch of an engine for tiles of so many rows and groups of this block.
fn finish<E: Engine>(
    mut work: Work,
    problem: &Problem,
    target: &Target,
    (rows, block): (usize, [usize; 2]),
    engine: impl FnOnce(&mut Builder, &Problem, &Index, &Index) -> E,
) -> Launch {
    let tiles = problem.extents()[0].div_ceil(rows);
    access::launch(&mut work.b, &target.limits, tiles * problem.heads, block, |b, group, y, x| {
        let place = problem.place(b, group, rows, tiles);
        let mut engine = engine(b, problem, y, x);
        tile::lower(b, &mut engine, problem, &place);
    });
    work.launch()
}
