//! Extents as expressions of symbols: sums, products and floor divisions.

use std::{cmp::Ordering, collections::HashMap, fmt, sync::Arc};

/// The most parts of an expression. Larger ones are given up, so that a file cannot ask for endless ones.
const GREATEST: usize = 128;
/// The most steps of a division of expressions.
const STEPS: usize = 32;

/// An integer that may depend on sizes with names: a sum of products. Expressions that are equal for the
/// simplifications made here, which include those of nested floor divisions by numbers, compare equal.
///
/// It prints as Python would read it: `a + b`, `4*batch`, `(h + 1)//2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(Vec<Term>);

/// A number times atoms, which are sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    atoms: Vec<Atom>,
    factor: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    /// An unknown number, which differs from the others.
    Unknown(usize),
    /// A floor division.
    Quotient(Arc<(Size, Size)>),
}

impl Size {
    /// A number.
    pub fn number(number: i64) -> Size {
        Size::of_terms(vec![Term { atoms: Vec::new(), factor: number }])
    }

    /// A size with a name.
    pub fn symbol(name: &str) -> Size {
        Size(vec![Term { atoms: vec![Atom::Symbol(name.into())], factor: 1 }])
    }

    /// An unknown number.
    pub(crate) fn unknown(number: usize) -> Size {
        Size(vec![Term { atoms: vec![Atom::Unknown(number)], factor: 1 }])
    }

    /// The number, if no symbol is part of it.
    pub fn as_number(&self) -> Option<i64> {
        match &self.0[..] {
            [] => Some(0),
            [term] if term.atoms.is_empty() => Some(term.factor),
            _ => None,
        }
    }

    /// The extent, if it is a number.
    pub fn as_extent(&self) -> Option<usize> {
        self.as_number().and_then(|number| usize::try_from(number).ok())
    }

    /// The number for these values of symbols. `None` if a symbol is missing, a divisor is 0, or it overflows.
    pub fn evaluate(&self, symbols: &HashMap<String, i64>) -> Option<i64> {
        self.0.iter().try_fold(0i64, |sum, term| {
            let product = term.atoms.iter().try_fold(term.factor, |product, atom| {
                let value = match atom {
                    Atom::Symbol(name) => *symbols.get(&**name)?,
                    Atom::Unknown(_) => return None,
                    Atom::Quotient(pair) => floor(pair.0.evaluate(symbols)?, pair.1.evaluate(symbols)?)?,
                };
                product.checked_mul(value)
            })?;
            sum.checked_add(product)
        })
    }

    /// Whether nothing unknown is part of it.
    pub(crate) fn is_known(&self) -> bool {
        self.0.iter().flat_map(|term| &term.atoms).all(|atom| match atom {
            Atom::Symbol(_) => true,
            Atom::Unknown(_) => false,
            Atom::Quotient(pair) => pair.0.is_known() && pair.1.is_known(),
        })
    }

    /// The least number that it can be, if symbols are sizes: at least 0. `None` if that is not clear.
    pub(crate) fn least(&self) -> Option<i64> {
        let is_size = |atom: &Atom| match atom {
            Atom::Symbol(_) => true,
            Atom::Unknown(_) => false,
            Atom::Quotient(pair) => {
                pair.0.least().is_some_and(|least| least >= 0)
                    && pair.1.least().is_some_and(|least| least >= 0)
            }
        };
        let grows = |term: &Term| term.atoms.is_empty() || term.factor > 0 && term.atoms.iter().all(is_size);
        let constant = self.0.iter().find(|term| term.atoms.is_empty()).map_or(0, |term| term.factor);
        self.0.iter().all(grows).then_some(constant)
    }

    /// Whether it is at least 0; with `assumes`, also if that holds only for sizes that are large enough.
    pub(crate) fn is_size(&self, assumes: bool) -> bool {
        self.least().is_some_and(|least| least >= 0) || assumes && self.grows()
    }

    /// The greater of it and 0, if that is clear; with `assumes`, for sizes that are large enough.
    pub(crate) fn at_least_zero(&self, assumes: bool) -> Option<Size> {
        match self.as_number() {
            Some(number) => Some(Size::number(number.max(0))),
            None if self.is_size(assumes) => Some(self.clone()),
            None => Size::number(0).minus(self)?.is_size(false).then(|| Size::number(0)),
        }
    }

    /// Whether it is positive if the symbols, which are sizes, are large enough.
    fn grows(&self) -> bool {
        let atom = |atom: &Atom| match atom {
            Atom::Symbol(_) => true,
            Atom::Unknown(_) => false,
            Atom::Quotient(pair) => pair.0.grows() && pair.1.as_number().is_some_and(|number| number > 0),
        };
        let is_positive = |term: &Term| term.factor > 0 && term.atoms.iter().all(atom);
        let mut terms = self.0.iter().filter(|term| !term.atoms.is_empty()).peekable();
        terms.peek().is_some() && terms.all(is_positive)
    }

    /// Whether no values of the symbols make both equal.
    pub(crate) fn contradicts(&self, other: &Size) -> bool {
        self.minus(other).and_then(|difference| difference.as_number()).is_some_and(|number| number != 0)
    }

    pub(crate) fn plus(&self, other: &Size) -> Option<Size> {
        Size::combined(self.0.iter().chain(&other.0).cloned().collect())
    }

    pub(crate) fn minus(&self, other: &Size) -> Option<Size> {
        self.plus(&other.times(&Size::number(-1))?)
    }

    pub(crate) fn times(&self, other: &Size) -> Option<Size> {
        let mut terms = Vec::new();
        if self.0.len().saturating_mul(other.0.len()) > GREATEST {
            return None;
        }
        for a in &self.0 {
            for b in &other.0 {
                let mut atoms: Vec<Atom> = a.atoms.iter().chain(&b.atoms).cloned().collect();
                atoms.sort();
                terms.push(Term { atoms, factor: a.factor.checked_mul(b.factor)? });
            }
        }
        Size::combined(terms)
    }

    /// The quotient, rounded down. A divisor is taken to differ from 0.
    pub(crate) fn over(&self, divisor: &Size) -> Option<Size> {
        if let Some(exact) = self.divided(divisor) {
            return Some(exact);
        }
        match divisor.as_number() {
            Some(0) => None,
            Some(divisor) if divisor > 0 => self.over_number(divisor),
            _ => Size::quotient(self.clone(), divisor.clone()),
        }
    }

    /// The quotient, rounded up.
    pub(crate) fn over_up(&self, divisor: &Size) -> Option<Size> {
        self.plus(divisor)?.minus(&Size::number(1))?.over(divisor)
    }

    /// The quotient by a positive number, rounded down.
    fn over_number(&self, divisor: i64) -> Option<Size> {
        // Whole multiples of the divisor are taken out: floor((d*q + r) / d) = q + floor(r / d).
        let (mut whole, mut rest) = (Vec::new(), Vec::new());
        for term in &self.0 {
            whole.push(Term { factor: term.factor.div_euclid(divisor), ..term.clone() });
            rest.push(Term { factor: term.factor.rem_euclid(divisor), ..term.clone() });
        }
        let (whole, rest) = (Size::combined(whole)?, Size::combined(rest)?);
        if let Some(number) = rest.as_number() {
            return whole.plus(&Size::number(number.div_euclid(divisor)));
        }
        // floor((floor(a / b) + k) / c) = floor((a + k*b) / (b*c)).
        let (constant, variable): (Vec<Term>, Vec<Term>) =
            rest.0.iter().cloned().partition(|term| term.atoms.is_empty());
        let constant = constant.first().map_or(0, |term| term.factor);
        if let [Term { atoms, factor: 1 }] = &variable[..]
            && let [Atom::Quotient(pair)] = &atoms[..]
            && let Some(inner) = pair.1.as_number().filter(|&inner| inner > 0)
        {
            let numerator = pair.0.plus(&Size::number(constant.checked_mul(inner)?))?;
            return whole.plus(&numerator.over_number(inner.checked_mul(divisor)?)?);
        }
        let common = variable.iter().fold(divisor, |common, term| greatest_divisor(common, term.factor));
        let mut reduced: Vec<Term> =
            variable.into_iter().map(|term| Term { factor: term.factor / common, ..term }).collect();
        reduced.push(Term { atoms: Vec::new(), factor: constant.div_euclid(common) });
        let quotient = match divisor / common {
            1 => Size::combined(reduced)?,
            divisor => Size::quotient(Size::combined(reduced)?, Size::number(divisor))?,
        };
        whole.plus(&quotient)
    }

    /// The quotient, if the division leaves no rest: division of polynomials.
    pub(crate) fn divided(&self, divisor: &Size) -> Option<Size> {
        let leading = divisor.0.last()?;
        let mut rest = self.clone();
        let mut quotient = Size(Vec::new());
        for _ in 0..STEPS {
            let Some(term) = rest.0.last() else { return Some(quotient) };
            let mut atoms = term.atoms.clone();
            for atom in &leading.atoms {
                atoms.remove(atoms.iter().position(|own| own == atom)?);
            }
            if term.factor.checked_rem(leading.factor)? != 0 {
                return None;
            }
            let part = Size::of_terms(vec![Term { atoms, factor: term.factor / leading.factor }]);
            rest = rest.minus(&part.times(divisor)?)?;
            quotient = quotient.plus(&part)?;
        }
        None
    }

    fn quotient(numerator: Size, divisor: Size) -> Option<Size> {
        let atom = Atom::Quotient(Arc::new((numerator, divisor)));
        Size::combined(vec![Term { atoms: vec![atom], factor: 1 }])
    }

    /// The sum of these terms; `None` if it overflows or is too large.
    fn combined(mut terms: Vec<Term>) -> Option<Size> {
        terms.sort_by(Term::order);
        let mut sums: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match sums.last_mut() {
                Some(last) if last.atoms == term.atoms => {
                    last.factor = last.factor.checked_add(term.factor)?
                }
                _ => sums.push(term),
            }
        }
        let size = Size::of_terms(sums);
        (size.weight() <= GREATEST).then_some(size)
    }

    fn of_terms(terms: Vec<Term>) -> Size {
        Size(terms.into_iter().filter(|term| term.factor != 0).collect())
    }

    /// The number of its parts.
    fn weight(&self) -> usize {
        let atom = |atom: &Atom| match atom {
            Atom::Quotient(pair) => 1 + pair.0.weight() + pair.1.weight(),
            _ => 1,
        };
        self.0.iter().map(|term| 1 + term.atoms.iter().map(atom).sum::<usize>()).sum()
    }
}

impl Term {
    /// By degree first, as division of polynomials needs it.
    fn order(&self, other: &Term) -> Ordering {
        self.atoms.len().cmp(&other.atoms.len()).then_with(|| self.atoms.cmp(&other.atoms))
    }
}

/// The quotient rounded down; `None` for a divisor of 0.
fn floor(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn greatest_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Positive terms first, and numbers last.
        let mut terms: Vec<&Term> = self.0.iter().collect();
        terms.sort_by_key(|term| (term.atoms.is_empty(), term.factor < 0));
        if terms.is_empty() {
            return f.write_str("0");
        }
        for (place, term) in terms.into_iter().enumerate() {
            match (place, term.factor < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let factor = term.factor.unsigned_abs();
            let shows_factor = factor != 1 || term.atoms.is_empty();
            if shows_factor {
                write!(f, "{factor}")?;
            }
            let is_product = term.atoms.len() + usize::from(shows_factor) > 1;
            for (place, atom) in term.atoms.iter().enumerate() {
                if place > 0 || shows_factor {
                    f.write_str("*")?;
                }
                match atom {
                    Atom::Symbol(name) => f.write_str(name)?,
                    Atom::Unknown(_) => f.write_str("?")?,
                    Atom::Quotient(pair) if is_product => {
                        write!(f, "({}//{})", Operand(&pair.0), Operand(&pair.1))?;
                    }
                    Atom::Quotient(pair) => write!(f, "{}//{}", Operand(&pair.0), Operand(&pair.1))?,
                }
            }
        }
        Ok(())
    }
}

/// An operand of a division, in parentheses unless it is a number or a name.
struct Operand<'a>(&'a Size);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = match &self.0.0[..] {
            [] => true,
            [Term { atoms, factor }] => match &atoms[..] {
                [] => *factor >= 0,
                [Atom::Symbol(_) | Atom::Unknown(_)] => *factor == 1,
                _ => false,
            },
            _ => false,
        };
        if is_plain { write!(f, "{}", self.0) } else { write!(f, "({})", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> Size {
        Size::number(number)
    }

    #[test]
    fn equal_expressions_compare_equal_and_print_as_python_reads_them() {
        let (h, n) = (Size::symbol("h"), Size::symbol("batch"));
        let strided =
            |x: &Size| x.minus(&number(1)).unwrap().over(&number(2)).unwrap().plus(&number(1)).unwrap();
        assert_eq!(strided(&h), h.over_up(&number(2)).unwrap());
        assert_eq!(strided(&h).to_string(), "(h + 1)//2");
        assert_eq!(strided(&strided(&h)).to_string(), "(h + 3)//4");
        assert_eq!(n.times(&number(4)).unwrap().to_string(), "4*batch");
        let product = n.times(&h).unwrap().times(&number(64)).unwrap();
        assert_eq!(product.to_string(), "64*batch*h");
        assert_eq!(product.over(&n.times(&number(16)).unwrap()).unwrap(), h.times(&number(4)).unwrap());
        let sum = n.plus(&h).unwrap();
        let square = sum.times(&sum).unwrap();
        assert_eq!(square.over(&sum).unwrap(), sum);
        assert_eq!(number(7).minus(&n).unwrap().to_string(), "-batch + 7");
        let half = h.over(&number(2)).unwrap();
        assert_eq!(half.times(&half).unwrap().to_string(), "(h//2)*(h//2)");
        assert_eq!(
            h.times(&number(6)).unwrap().plus(&number(5)).unwrap().over(&number(4)).unwrap().to_string(),
            "h + h//2 + 1"
        );
        assert_eq!(n.over(&h).unwrap().to_string(), "batch//h");
        assert!(n.contradicts(&n.plus(&number(1)).unwrap()) && !n.contradicts(&h));
    }

    /// Every simplification keeps the value.
    #[test]
    fn expressions_have_the_values_of_what_they_were_made_of() {
        let mut state = 5u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut checked = 0;
        for _ in 0..3000 {
            let values = [1 + random(9) as i64, 1 + random(9) as i64];
            let symbols = HashMap::from([("a".to_owned(), values[0]), ("b".to_owned(), values[1])]);
            let mut made = vec![(Size::symbol("a"), values[0]), (Size::symbol("b"), values[1])];
            for _ in 0..8 {
                let (x, a) = made[random(made.len() as u64) as usize].clone();
                let (y, b) = match random(2) {
                    0 => made[random(made.len() as u64) as usize].clone(),
                    _ => {
                        let number = random(9) as i64 - 3;
                        (Size::number(number), number)
                    }
                };
                let result = match random(4) {
                    0 => x.plus(&y).zip(a.checked_add(b)),
                    1 => x.minus(&y).zip(a.checked_sub(b)),
                    2 => x.times(&y).zip(a.checked_mul(b)),
                    _ if b == 0 => None,
                    _ => x.over(&y).zip(floor(a, b)),
                };
                made.extend(result);
            }
            for (size, value) in made {
                if let Some(found) = size.evaluate(&symbols) {
                    assert_eq!(found, value, "{size} for {values:?}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 20_000, "{checked}");
    }
}
