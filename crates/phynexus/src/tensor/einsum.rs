//! Einstein summation, lowered to permutations, elementwise products and matrix products.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Tensor,
    op::{Axes, Combine},
    shape::{Dims, element_count},
};

/// The label of a dimension: 0 to 51 for letters; 52 and up for dimensions covered by an ellipsis, 52 being the last
/// one.
type Label = u8;

const ELLIPSIS: Label = 52;
const OP: &str = "einsum";

/// A tensor whose dimensions have distinct labels.
#[derive(Clone)]
struct Named {
    tensor: Tensor,
    labels: Vec<Label>,
}

/// The labels of one operand: letters before and after the ellipsis, if any.
struct Term {
    before: Vec<Label>,
    ellipsis: bool,
    after: Vec<Label>,
}

fn parse_term(text: &str) -> Result<Term> {
    let mut term = Term { before: Vec::new(), ellipsis: false, after: Vec::new() };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if term.ellipsis {
                return Err(Error::argument(OP, format!("{text:?} has more than one ellipsis")));
            }
            term.ellipsis = true;
            rest = after;
            continue;
        }
        let label = match c {
            'a'..='z' => Some(c as u8 - b'a' + 26),
            'A'..='Z' => Some(c as u8 - b'A'),
            ' ' => None,
            _ => {
                return Err(Error::argument(
                    OP,
                    format!("{c:?} in {text:?} is not a letter, \"...\", \",\" or \"->\""),
                ));
            }
        };
        let side = if term.ellipsis { &mut term.after } else { &mut term.before };
        side.extend(label);
        rest = &rest[c.len_utf8()..];
    }
    Ok(term)
}

impl Term {
    /// The labels of `rank` dimensions.
    fn labels(&self, text: &str, rank: usize) -> Result<Vec<Label>> {
        let letters = self.before.len() + self.after.len();
        let covered = rank.checked_sub(letters).filter(|&n| (n == 0 || self.ellipsis) && n < 64);
        let Some(covered) = covered else {
            let message = format!("{text:?} names {letters} dimensions, the operand has {rank}");
            return Err(Error::argument(OP, message));
        };
        Ok(self.with_covered(covered))
    }

    fn with_covered(&self, covered: usize) -> Vec<Label> {
        let under = (0..covered as Label).rev().map(|i| ELLIPSIS + i);
        self.before.iter().copied().chain(under).chain(self.after.iter().copied()).collect()
    }
}

impl Tensor {
    /// Einstein summation with NumPy's rules: `Tensor::einsum("bij,bjk->bik", &[&a, &b])`.
    ///
    /// Each letter labels a dimension. Letters that do not appear in the result are summed over. A letter repeated
    /// within an operand takes its diagonal. `...` covers any number of dimensions, which are broadcast between
    /// operands. Without `->`, the result has the dimensions of the ellipsis, then the letters that occur once, sorted
    /// (uppercase first). Dtypes are promoted, and sums stay in the promoted dtype.
    ///
    /// # Errors
    /// [`Error::Argument`] for an invalid equation or one that does not fit the operands' ranks; [`Error::Shape`] if a
    /// letter has two sizes (other than 1); [`Error::DType`] if all operands are `bool`.
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let (inputs, output) = match equation.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output)),
            None => (equation, None),
        };
        let texts: Vec<&str> = inputs.split(',').collect();
        if texts.len() != operands.len() || operands.is_empty() {
            let message = format!("{equation:?} has {} operands, got {}", texts.len(), operands.len());
            return Err(Error::argument(OP, message));
        }
        if operands.iter().all(|t| t.dtype() == DType::Bool) {
            let dtypes: Vec<DType> = operands.iter().map(|t| t.dtype()).collect();
            return Err(Error::dtype(OP, &dtypes, "bool cannot be summed: convert with .to_dtype() first"));
        }
        let mut named = Vec::with_capacity(operands.len());
        let dtype = operands.iter().fold(DType::Bool, |dtype, t| dtype.promote(t.dtype()));
        let promoted = operands.iter().map(|t| t.to_dtype(dtype)).collect::<Result<Vec<_>>>()?;
        for (text, tensor) in texts.iter().zip(&promoted) {
            let labels = parse_term(text)?.labels(text, tensor.rank())?;
            named.push((labels, tensor));
        }
        let covered = |labels: &Vec<Label>| labels.iter().filter(|&&l| l >= ELLIPSIS).count();
        let ellipsis = named.iter().map(|(labels, _)| covered(labels)).max().unwrap_or(0);
        let wanted = match output {
            Some(text) => {
                let term = parse_term(text)?;
                let labels = term.with_covered(if term.ellipsis { ellipsis } else { 0 });
                check_output(text, &labels, &named)?;
                labels
            }
            None => implicit_output(&named, ellipsis),
        };
        let sizes = sizes(&named)?;
        let mut terms = named
            .into_iter()
            .map(|(labels, tensor)| unique(labels, tensor, &sizes))
            .collect::<Result<Vec<_>>>()?;
        while terms.len() > 1 {
            let (i, j) = cheapest_pair(&terms, &wanted, &sizes);
            let (b, a) = (terms.remove(j), terms.remove(i));
            let keep =
                |label: Label| wanted.contains(&label) || terms.iter().any(|t| t.labels.contains(&label));
            let a = a.summed(|label| keep(label) || b.labels.contains(&label))?;
            let b = b.summed(|label| keep(label) || a.labels.contains(&label))?;
            terms.push(contract(&a, &b, keep, &sizes)?);
        }
        let Some(last) = terms.pop() else {
            return Err(Error::internal(OP, "no operand is left"));
        };
        last.summed(|label| wanted.contains(&label))?.arranged(&wanted, &sizes)
    }
}

fn check_output(text: &str, labels: &[Label], named: &[(Vec<Label>, &Tensor)]) -> Result<()> {
    for (i, label) in labels.iter().enumerate() {
        if labels[..i].contains(label) {
            return Err(Error::argument(OP, format!("the result {text:?} repeats a letter")));
        }
        if !named.iter().any(|(operand, _)| operand.contains(label)) {
            return Err(Error::argument(
                OP,
                format!("the result {text:?} contains a letter that no operand has"),
            ));
        }
    }
    Ok(())
}

fn implicit_output(named: &[(Vec<Label>, &Tensor)], ellipsis: usize) -> Vec<Label> {
    let times = |label: Label| named.iter().flat_map(|(labels, _)| labels).filter(|&&l| l == label).count();
    let under = (0..ellipsis as Label).rev().map(|i| ELLIPSIS + i);
    under.chain((0..ELLIPSIS).filter(|&label| times(label) == 1)).collect()
}

/// The size of each label; a size of 1 broadcasts to any other.
fn sizes(named: &[(Vec<Label>, &Tensor)]) -> Result<Vec<usize>> {
    let mut sizes = vec![1; 256];
    for (labels, tensor) in named {
        for (&label, &size) in labels.iter().zip(tensor.shape()) {
            let known = &mut sizes[usize::from(label)];
            if *known != 1 && size != 1 && *known != size {
                let shapes: Vec<&[usize]> = named.iter().map(|(_, t)| t.shape()).collect();
                return Err(Error::shape(
                    OP,
                    &shapes,
                    format!("the same letter has sizes {known} and {size}"),
                ));
            }
            if *known == 1 {
                *known = size;
            }
        }
    }
    Ok(sizes)
}

/// The operand with distinct labels. A repeated label becomes a diagonal. A dimension of size 1 is dropped if its label
/// is larger elsewhere, since it only broadcasts.
fn unique(mut labels: Vec<Label>, tensor: &Tensor, sizes: &[usize]) -> Result<Named> {
    let mut tensor = tensor.clone();
    let mut axis = 0;
    while axis < labels.len() {
        let label = labels[axis];
        if tensor.shape()[axis] == 1 && sizes[usize::from(label)] != 1 {
            tensor = tensor.squeeze(axis as i64)?;
            labels.remove(axis);
            continue;
        }
        if let Some(first) = labels[..axis].iter().position(|&l| l == label) {
            let size = tensor.shape()[axis];
            // The diagonal of two merged axes of `size` elements is every (size + 1)-th element.
            let paired = tensor.move_axis(axis as i64, first as i64)?;
            let merged = paired.flatten(first as i64, first as i64 + 1)?;
            tensor = merged.sliced_axis(first, 0, size as isize + 1, size)?;
            labels.remove(axis);
            continue;
        }
        axis += 1;
    }
    Ok(Named { tensor, labels })
}

/// The pair of operands whose product has the fewest elements.
fn cheapest_pair(terms: &[Named], wanted: &[Label], sizes: &[usize]) -> (usize, usize) {
    let mut best = (usize::MAX, (0, 1));
    for i in 0..terms.len() {
        for j in i + 1..terms.len() {
            let others = || terms.iter().enumerate().filter(|(k, _)| *k != i && *k != j);
            let needed = |label: &Label| {
                wanted.contains(label) || others().any(|(_, term)| term.labels.contains(label))
            };
            let (a, b) = (&terms[i].labels, &terms[j].labels);
            let kept = a.iter().chain(b.iter().filter(|&l| !a.contains(l))).filter(|&l| needed(l));
            let elements = kept.fold(1usize, |n, &label| n.saturating_mul(sizes[usize::from(label)]));
            if elements < best.0 {
                best = (elements, (i, j));
            }
        }
    }
    best.1
}

impl Named {
    /// Sums over the labels that `keep` rejects.
    fn summed(&self, keep: impl Fn(Label) -> bool) -> Result<Named> {
        let axes = Axes::of((0..self.labels.len()).filter(|&axis| !keep(self.labels[axis])));
        if axes == Axes::default() {
            return Ok(self.clone());
        }
        Ok(Named {
            tensor: self.tensor.reduced(Combine::Sum, axes, false)?,
            labels: self.labels.iter().copied().filter(|&l| keep(l)).collect(),
        })
    }

    /// The tensor with exactly these labels in this order; missing ones are broadcast.
    fn arranged(&self, labels: &[Label], sizes: &[usize]) -> Result<Tensor> {
        let shape: Dims = labels.iter().map(|&l| sizes[usize::from(l)]).collect();
        self.aligned(labels)?.stretched(&shape)
    }

    /// The tensor with these labels in this order; missing ones have size 1.
    fn aligned(&self, labels: &[Label]) -> Result<Tensor> {
        let order: Dims = labels.iter().filter_map(|l| self.labels.iter().position(|m| m == l)).collect();
        let shape: Dims = labels
            .iter()
            .map(|l| self.labels.iter().position(|m| m == l).map_or(1, |axis| self.tensor.shape()[axis]))
            .collect();
        self.tensor.permute(&order)?.reshaped(shape)
    }
}

/// The product of two operands, summed over the shared labels that `keep` rejects.
fn contract(a: &Named, b: &Named, keep: impl Fn(Label) -> bool, sizes: &[usize]) -> Result<Named> {
    let (mut batch, mut inner, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for &label in &a.labels {
        match (b.labels.contains(&label), keep(label)) {
            (true, true) => batch.push(label),
            (true, false) => inner.push(label),
            _ => left.push(label),
        }
    }
    let right: Vec<Label> = b.labels.iter().copied().filter(|l| !a.labels.contains(l)).collect();
    let labels: Vec<Label> = [&batch[..], &left, &right].concat();
    let (x, y) = promote2(&a.tensor, &b.tensor)?;
    let (a, b) =
        (Named { tensor: x, labels: a.labels.clone() }, Named { tensor: y, labels: b.labels.clone() });
    if inner.is_empty() {
        return Ok(Named { tensor: a.aligned(&labels)?.mul(&b.aligned(&labels)?)?, labels });
    }
    let dims = |labels: &[Label]| -> Dims { labels.iter().map(|&l| sizes[usize::from(l)]).collect() };
    let count = |labels: &[Label]| element_count(&dims(labels));
    let groups = |first: usize, second: usize| -> Dims {
        let batches = (!batch.is_empty()).then(|| count(&batch));
        batches.into_iter().chain([first, second]).collect()
    };
    let rows =
        a.aligned(&[&batch[..], &left, &inner].concat())?.reshaped(groups(count(&left), count(&inner)))?;
    let columns =
        b.aligned(&[&batch[..], &inner, &right].concat())?.reshaped(groups(count(&inner), count(&right)))?;
    Ok(Named { tensor: rows.matmul(&columns)?.reshaped(dims(&labels))?, labels })
}
