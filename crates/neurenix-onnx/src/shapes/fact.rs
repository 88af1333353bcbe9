//! What is known of a value while a graph is inferred.

use phynexus::{DType, Device, Tensor};

use super::SMALL;
use crate::types::{Size, Type};
use crate::{
    Element, Value,
    value::{floats, integers},
};

/// What is known of a value.
#[derive(Clone, Debug, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    Tensor(Fact),
    Sequence(Box<Known>),
    Optional(Box<Known>),
}

/// What is known of a tensor.
#[derive(Clone, Debug, Default)]
pub(super) struct Fact {
    pub(super) element: Option<Element>,
    pub(super) shape: Option<Vec<Size>>,
    /// Its elements in row-major order, if they are few and whole, whatever the element type, and not a constant's.
    pub(super) symbols: Option<Vec<Size>>,
    /// The tensor itself, if it is small.
    pub(super) constant: Option<Value>,
}

impl Known {
    /// What is known of a value that is there.
    pub(super) fn of_value(value: &Value) -> Known {
        match value {
            Value::Sequence(parts) => {
                let mut parts = parts.iter().map(|part| Known::of_value(part).without_numbers());
                let first = parts.next().unwrap_or_default();
                Known::Sequence(Box::new(parts.fold(first, |all, part| all.joined(&part))))
            }
            Value::Optional(Some(inner)) => Known::of_value(inner),
            Value::Optional(None) => Known::Nothing,
            _ => {
                let sizes = value.shape().unwrap_or_default();
                let shape = sizes.iter().map(|&size| Size::number(size as i64)).collect();
                let is_small = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
                let constant = is_small.is_some_and(|count| count <= SMALL).then(|| value.clone());
                Known::Tensor(Fact { element: value.element(), shape: Some(shape), symbols: None, constant })
            }
        }
    }

    /// What a file declares; `fresh` makes sizes for those that it leaves out.
    pub(super) fn of_type(declared: &Type, fresh: &mut dyn FnMut() -> Size) -> Known {
        match declared {
            Type::Tensor { element, shape } => {
                let mut size = |size: &Option<Size>| size.clone().unwrap_or_else(&mut *fresh);
                let shape = shape.as_ref().map(|shape| shape.iter().map(&mut size).collect());
                Known::Tensor(Fact { element: *element, shape, ..Fact::default() })
            }
            Type::Sequence(inner) => Known::Sequence(Box::new(Known::of_type(inner, fresh))),
            Type::Optional(inner) => Known::Optional(Box::new(Known::of_type(inner, fresh))),
            Type::Unknown => Known::Nothing,
        }
    }

    pub(super) fn to_type(&self) -> Type {
        match self {
            Known::Nothing => Type::Unknown,
            Known::Tensor(fact) => {
                let size = |size: &Size| size.is_known().then(|| size.clone());
                let shape = fact.shape.as_ref().map(|shape| shape.iter().map(size).collect());
                Type::Tensor { element: fact.element, shape }
            }
            Known::Sequence(inner) => Type::Sequence(Box::new(inner.to_type())),
            Known::Optional(inner) => Type::Optional(Box::new(inner.to_type())),
        }
    }

    /// The fact of a tensor, also within an optional.
    pub(super) fn fact(&self) -> Option<&Fact> {
        match self {
            Known::Tensor(fact) => Some(fact),
            Known::Optional(inner) => inner.fact(),
            _ => None,
        }
    }

    /// The type without the elements.
    pub(super) fn without_numbers(mut self) -> Known {
        match &mut self {
            Known::Tensor(fact) => (fact.symbols, fact.constant) = (None, None),
            Known::Sequence(inner) | Known::Optional(inner) => {
                **inner = std::mem::take(&mut **inner).without_numbers();
            }
            Known::Nothing => {}
        }
        self
    }

    /// What both have in common. Extents that differ become unknown ones of the number `usize::MAX`, until
    /// [`Known::renewed`] gives them their own.
    pub(super) fn joined(&self, other: &Known) -> Known {
        match (self, other) {
            (Known::Tensor(a), Known::Tensor(b)) => {
                let shape = match (&a.shape, &b.shape) {
                    (Some(a), Some(b)) if a.len() == b.len() => {
                        let size = |(a, b): (&Size, &Size)| {
                            if a == b { a.clone() } else { Size::unknown(usize::MAX) }
                        };
                        Some(a.iter().zip(b).map(size).collect())
                    }
                    _ => None,
                };
                let element = if a.element == b.element { a.element } else { None };
                let (numbers, others) = (a.numbers(), b.numbers());
                let symbols = if numbers == others { numbers } else { None };
                Known::Tensor(Fact { element, shape, symbols, constant: None })
            }
            (Known::Sequence(a), Known::Sequence(b)) => Known::Sequence(Box::new(a.joined(b))),
            (Known::Optional(a), Known::Optional(b)) => Known::Optional(Box::new(a.joined(b))),
            (Known::Optional(a), b) => Known::Optional(Box::new(a.joined(b))),
            (a, Known::Optional(b)) => Known::Optional(Box::new(a.joined(b))),
            _ => Known::Nothing,
        }
    }

    /// With sizes of their own in place of those that [`Known::joined`] lost.
    pub(super) fn renewed(mut self, fresh: &mut dyn FnMut() -> Size) -> Known {
        match &mut self {
            Known::Tensor(Fact { shape: Some(shape), .. }) => {
                let lost = Size::unknown(usize::MAX);
                shape.iter_mut().filter(|size| **size == lost).for_each(|size| *size = fresh());
            }
            Known::Sequence(inner) | Known::Optional(inner) => {
                **inner = std::mem::take(&mut **inner).renewed(fresh);
            }
            _ => {}
        }
        self
    }

    /// With what is declared where nothing better is known.
    pub(super) fn refined(self, declared: &Type, fresh: &mut dyn FnMut() -> Size) -> Known {
        match (self, declared) {
            (Known::Nothing, declared) => Known::of_type(declared, fresh),
            (Known::Tensor(mut fact), Type::Tensor { element, shape }) => {
                fact.element = fact.element.or(*element);
                match (&mut fact.shape, shape) {
                    (Some(own), Some(declared)) if own.len() == declared.len() => {
                        for (own, declared) in own.iter_mut().zip(declared) {
                            if let (false, Some(declared)) = (own.is_known(), declared) {
                                *own = declared.clone();
                            }
                        }
                    }
                    (None, Some(_)) => {
                        if let Known::Tensor(other) = Known::of_type(declared, fresh) {
                            fact.shape = other.shape;
                        }
                    }
                    _ => {}
                }
                Known::Tensor(fact)
            }
            (Known::Sequence(own), Type::Sequence(declared)) => {
                Known::Sequence(Box::new(own.refined(declared, fresh)))
            }
            (Known::Optional(own), Type::Optional(declared)) => {
                Known::Optional(Box::new(own.refined(declared, fresh)))
            }
            (own, _) => own,
        }
    }

    /// Whether both are the same type, as far as is known.
    pub(super) fn is_alike(&self, other: &Known) -> bool {
        self.to_type() == other.to_type() && self.fact().map(|f| &f.shape) == other.fact().map(|f| &f.shape)
    }
}

impl Fact {
    /// The number of elements, if it is known.
    pub(super) fn count(&self) -> Option<usize> {
        let product = |count: usize, size: &Size| count.checked_mul(size.as_extent()?);
        self.shape.as_ref()?.iter().try_fold(1usize, product)
    }

    /// The tensor on the CPU, if all of its elements are known and few.
    pub(super) fn value(&self) -> Option<Value> {
        let cpu = Device::find("cpu").ok()?;
        if let Some(value) = &self.constant {
            return value.to_device(cpu).ok();
        }
        let element = self.element.filter(|element| !element.is_narrow())?;
        let dtype = element.dtype()?;
        let shape: Vec<usize> = self.shape.as_ref()?.iter().map(Size::as_extent).collect::<Option<_>>()?;
        let numbers: Vec<i64> = self.symbols.as_ref()?.iter().map(Size::as_number).collect::<Option<_>>()?;
        let tensor = Tensor::from_slice(&numbers, &shape, cpu).ok()?.to_dtype(dtype).ok()?;
        Some(Value::Tensor(tensor))
    }

    /// The elements, if they are whole and followed.
    pub(super) fn numbers(&self) -> Option<Vec<Size>> {
        if let Some(symbols) = &self.symbols {
            return Some(symbols.clone());
        }
        let Some(Value::Tensor(tensor)) = &self.constant else { return None };
        match tensor.dtype() {
            DType::U64 => None,
            dtype if dtype.is_float() => {
                let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() < 1e15;
                let all = floats(tensor).ok().filter(|all| all.iter().all(is_whole))?;
                Some(all.into_iter().map(|number| Size::number(number as i64)).collect())
            }
            _ => Some(integers(tensor).ok()?.into_iter().map(Size::number).collect()),
        }
    }

    /// The elements, if all are known integers.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        self.numbers()?.iter().map(Size::as_number).collect()
    }

    /// The elements, if all are known.
    pub(super) fn floats(&self) -> Option<Vec<f64>> {
        floats(self.value()?.tensor().ok()?).ok()
    }
}
