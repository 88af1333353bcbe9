//! Memory: how arrays are declared, loads and stores.
//!
//! WGSL has no types of 8 and 16 bits that every device has, so buffers of them are arrays of words. A store of less than
//! a word exchanges its bits in two atomic steps, so that what other invocations store beside it survives.

use std::collections::HashMap;

use super::{Lane, Printer, operation::value_type};
use crate::{
    DType, Error, Kind, Result, Scalar,
    kernel::{
        loops::{Kernel, Memory, Operation, Place, Statement, Type, Value},
        print::index::Indices,
    },
};

/// How an array is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Of vectors of so many elements.
    Vectors(u8),
    /// Of 32-bit integers that some statement combines into.
    Atomic,
    /// Of words of smaller elements; atomic ones if less than a word is stored.
    Words {
        /// So it is.
        atomic: bool,
    },
}

/// What is done with an array.
#[derive(Default)]
struct Uses {
    /// Lanes of the widest load.
    loaded: u8,
    /// Lanes of the narrowest store.
    stored: Option<u8>,
    atomic: bool,
}

/// The forms of all arrays that are accessed.
pub(super) fn forms(kernel: &Kernel) -> HashMap<Memory, Form> {
    let mut lanes: HashMap<Value, u8> = HashMap::new();
    let mut uses: HashMap<Memory, Uses> = HashMap::new();
    kernel.visit(&mut |statement| match statement {
        Statement::Let { value, of, operation } => {
            lanes.insert(*value, of.lanes);
            if let Operation::Load(place, _) = operation {
                let used = uses.entry(place.memory).or_default();
                used.loaded = used.loaded.max(of.lanes);
            }
        }
        Statement::Store { place, value } => {
            let width = lanes.get(value).copied().unwrap_or(1);
            let used = uses.entry(place.memory).or_default();
            used.stored = Some(used.stored.map_or(width, |w| w.min(width)));
        }
        Statement::Atomic { place, .. } => uses.entry(place.memory).or_default().atomic = true,
        _ => {}
    });
    let form = |(memory, uses): (Memory, Uses)| {
        let size = kernel.array(memory).map_or(4, |(dtype, _)| dtype.size());
        let form = match memory {
            _ if uses.atomic => Form::Atomic,
            Memory::Buffer(_) if size < 4 => {
                let partial = |lanes: u8| !(usize::from(lanes) * size).is_multiple_of(4);
                Form::Words { atomic: uses.stored.is_some_and(partial) }
            }
            Memory::Buffer(_) | Memory::Shared(_) if size == 4 => {
                Form::Vectors(uses.stored.unwrap_or(uses.loaded.max(1)))
            }
            _ => Form::Vectors(1),
        };
        (memory, form)
    };
    uses.into_iter().map(form).collect()
}

/// The type of a number in a variable or array: the bits of a 16-bit float, else the number.
pub(super) fn stored_type(dtype: DType) -> &'static str {
    if dtype == dtype.compute() { value_type(dtype) } else { "u32" }
}

/// The type of an array's elements.
pub(super) fn element_type(dtype: DType, form: Form) -> String {
    let t = stored_type(dtype);
    match form {
        Form::Vectors(1) => t.to_owned(),
        Form::Vectors(lanes) => format!("vec{lanes}<{t}>"),
        Form::Atomic => format!("atomic<{t}>"),
        Form::Words { atomic: false } => "u32".to_owned(),
        Form::Words { atomic: true } => "atomic<u32>".to_owned(),
    }
}

impl Printer<'_> {
    pub(super) fn form(&self, memory: Memory) -> Form {
        self.forms.get(&memory).copied().unwrap_or(Form::Vectors(1))
    }

    pub(super) fn array(&self, memory: Memory) -> String {
        match memory {
            Memory::Buffer(i) => format!("buffer{i}"),
            Memory::Shared(i) => format!("shared{i}"),
            Memory::Register(i) => format!("register{i}"),
        }
    }

    /// The position of a place's first element.
    pub(super) fn address(&mut self, place: &Place) -> Result<String> {
        let mut text = self.index(&place.index);
        if let Some(row) = &place.row {
            if place.index.bounds(&self.ranges).1.saturating_add(row.last()) > i32::MAX.into() {
                self.too_wide();
            }
            let number = self.bound(row.value)?;
            let (dtype, number) = (number.of.dtype, number.only()?);
            let last = row.count - 1;
            let clamped = match value_type(dtype) {
                "u32" => format!("i32(min({number}, {last}u))"),
                "u64" => format!("i32(min({number}, {last}lu))"),
                "i64" => format!("i32(min(max({number}, 0li), {last}li))"),
                _ => format!("min(max({number}, 0i), {last}i)"),
            };
            text = format!("{text} + {clamped} * {}", row.stride);
        }
        Ok(match place.memory {
            Memory::Buffer(i) => format!("start{i} + {text}"),
            _ => text,
        })
    }

    /// The address as a name.
    fn named_address(&mut self, place: &Place) -> Result<String> {
        let (address, name) = (self.address(place)?, self.fresh("a"));
        self.line(format!("let {name} = {address};"));
        Ok(name)
    }

    /// Binds what is loaded from a place, or the fill where its mask does not hold: each lane, as it is stored.
    pub(super) fn load(&mut self, name: &str, place: &Place, of: Type, fill: Scalar) -> Result<Vec<Lane>> {
        let names: Vec<String> = match of.lanes {
            1 => vec![name.to_owned()],
            lanes => (0..lanes).map(|lane| format!("{name}_{lane}")).collect(),
        };
        if place.mask.is_always() {
            let elements = self.elements(place, of)?;
            for (name, element) in names.iter().zip(elements) {
                self.line(format!("let {name} = {element};"));
            }
        } else {
            let constant = self.functions.constant(of.dtype.compute(), fill);
            let constant = match of.dtype == of.dtype.compute() {
                true => constant,
                false => self.functions.encode(of.dtype, &constant),
            };
            for name in &names {
                self.line(format!("var {name}: {} = {constant};", stored_type(of.dtype)));
            }
            let condition = self.mask(&place.mask);
            self.line(format!("if ({condition}) {{"));
            self.depth += 1;
            let elements = self.elements(place, of)?;
            for (name, element) in names.iter().zip(elements) {
                self.line(format!("{name} = {element};"));
            }
            self.depth -= 1;
            self.line("}");
        }
        Ok(names.into_iter().map(Lane::of).collect())
    }

    /// Each element of a place as it is stored.
    fn elements(&mut self, place: &Place, of: Type) -> Result<Vec<String>> {
        let (array, form) = (self.array(place.memory), self.form(place.memory));
        let lanes = usize::from(of.lanes);
        match form {
            Form::Vectors(1) if lanes == 1 => Ok(vec![self.element(place)?]),
            Form::Vectors(width) => {
                let (address, width) = (self.named_address(place)?, usize::from(width));
                let shift = width.trailing_zeros();
                Ok(match (width, lanes) {
                    (1, _) => (0..lanes).map(|lane| format!("{array}[{address} + {lane}]")).collect(),
                    // Part of a vector.
                    _ if lanes < width => (0..lanes)
                        .map(|lane| {
                            format!("{array}[{address} >> {shift}u][({address} & {}) + {lane}]", width - 1)
                        })
                        .collect(),
                    _ => {
                        let mut all = Vec::with_capacity(lanes);
                        for at in 0..lanes / width {
                            let vector = self.fresh("w");
                            self.line(format!("let {vector} = {array}[({address} >> {shift}u) + {at}];"));
                            all.extend("xyzw"[..width].chars().map(|lane| format!("{vector}.{lane}")));
                        }
                        all
                    }
                })
            }
            Form::Atomic => {
                let address = self.named_address(place)?;
                Ok((0..lanes).map(|lane| format!("atomicLoad(&{array}[{address} + {lane}])")).collect())
            }
            Form::Words { atomic } => {
                let (address, size) = (self.named_address(place)?, of.dtype.size());
                let each = 4 / size;
                let words = (lanes / each).max(1);
                let mut all = Vec::with_capacity(lanes);
                for at in 0..words {
                    let word = self.fresh("w");
                    let element = format!("{array}[({address} >> {}u) + {at}]", each.trailing_zeros());
                    self.line(match atomic {
                        true => format!("let {word} = atomicLoad(&{element});"),
                        false => format!("let {word} = {element};"),
                    });
                    let shift = match lanes < each {
                        true => self.bit_position(&address, size),
                        false => "0u".to_owned(),
                    };
                    for lane in 0..lanes.min(each) {
                        let from = match (shift.as_str(), lane) {
                            ("0u", lane) => format!("{}u", lane * size * 8),
                            (shift, 0) => shift.to_owned(),
                            (shift, lane) => format!("({shift} + {}u)", lane * size * 8),
                        };
                        all.push(part_of_word(of.dtype, &word, &from));
                    }
                }
                Ok(all)
            }
        }
    }

    /// The only element of a place in an array of elements.
    fn element(&mut self, place: &Place) -> Result<String> {
        let array = self.array(place.memory);
        let variable = matches!(place.memory, Memory::Register(_))
            && self.kernel.array(place.memory).is_some_and(|(_, length)| length == 1);
        if variable { Ok(array) } else { Ok(format!("{array}[{}]", self.address(place)?)) }
    }

    /// Binds the position of an element's lowest bit in its word.
    fn bit_position(&mut self, address: &str, size: usize) -> String {
        let name = self.fresh("s");
        self.line(format!("let {name} = (u32({address}) & {}u) * {}u;", 4 / size - 1, size * 8));
        name
    }

    /// Writes a value to a place, where its mask holds.
    pub(super) fn store(&mut self, place: &Place, value: Value) -> Result<()> {
        let bound = self.bound(value)?.clone();
        let dtype = bound.of.dtype;
        let lanes: Vec<String> = match (&bound.bits, dtype == dtype.compute()) {
            (Some(bits), false) => bits.clone(),
            (None, false) => {
                bound.lanes.iter().map(|lane| self.functions.encode(dtype, &lane.text)).collect()
            }
            _ => bound.lanes.iter().map(|lane| lane.text.clone()).collect(),
        };
        let masked = !place.mask.is_always();
        if masked {
            let condition = self.mask(&place.mask);
            self.line(format!("if ({condition}) {{"));
            self.depth += 1;
        }
        self.assign(place, dtype, &lanes)?;
        if masked {
            self.depth -= 1;
            self.line("}");
        }
        Ok(())
    }

    fn assign(&mut self, place: &Place, dtype: DType, lanes: &[String]) -> Result<()> {
        let (array, form) = (self.array(place.memory), self.form(place.memory));
        match form {
            Form::Vectors(1) if lanes.len() == 1 => {
                let element = self.element(place)?;
                self.line(format!("{element} = {};", lanes[0]));
            }
            Form::Vectors(width) => {
                let (address, width) = (self.named_address(place)?, usize::from(width));
                if lanes.len() < width {
                    return Err(Error::internal("kernel::print", "a store of less than a vector"));
                }
                for (at, part) in lanes.chunks(width).enumerate() {
                    let value = match part {
                        [one] => one.clone(),
                        several => format!("vec{width}<{}>({})", stored_type(dtype), several.join(", ")),
                    };
                    let shift = width.trailing_zeros();
                    self.line(format!("{array}[({address} >> {shift}u) + {at}] = {value};"));
                }
            }
            Form::Atomic => {
                let address = self.named_address(place)?;
                for (lane, value) in lanes.iter().enumerate() {
                    self.line(format!("atomicStore(&{array}[{address} + {lane}], {value});"));
                }
            }
            Form::Words { atomic } => {
                let (address, size) = (self.named_address(place)?, dtype.size());
                let each = 4 / size;
                for (at, part) in lanes.chunks(each).enumerate() {
                    let bits = |(lane, value): (usize, &String)| {
                        let bits = bits_in_word(dtype, value);
                        if lane == 0 { bits } else { format!("({bits} << {}u)", lane * size * 8) }
                    };
                    let word = part.iter().enumerate().map(bits).collect::<Vec<_>>().join(" | ");
                    let element = format!("{array}[({address} >> {}u) + {at}]", each.trailing_zeros());
                    if part.len() == each {
                        self.line(match atomic {
                            true => format!("atomicStore(&{element}, {word});"),
                            false => format!("{element} = {word};"),
                        });
                        continue;
                    }
                    let mask = (1u64 << (8 * size * part.len())) - 1;
                    let shift = self.bit_position(&address, size);
                    self.line(format!("atomicAnd(&{element}, ~({mask}u << {shift}));"));
                    self.line(format!("atomicOr(&{element}, ({word}) << {shift});"));
                }
            }
        }
        Ok(())
    }
}

/// An element as it is stored, from its word.
fn part_of_word(dtype: DType, word: &str, shift: &str) -> String {
    let bits = dtype.size() * 8;
    match dtype.kind() {
        Kind::Signed => format!("(bitcast<i32>({word} << ({}u - {shift})) >> {}u)", 32 - bits, 32 - bits),
        Kind::Bool => format!("((({word} >> {shift}) & 0xffu) != 0u)"),
        _ if bits == 8 => format!("(({word} >> {shift}) & 0xffu)"),
        _ => format!("(({word} >> {shift}) & 0xffffu)"),
    }
}

/// The bits of an element, and no others.
fn bits_in_word(dtype: DType, value: &str) -> String {
    match (dtype.kind(), dtype.size()) {
        (Kind::Bool, _) => format!("select(0u, 1u, {value})"),
        (Kind::Signed, 1) => format!("(bitcast<u32>({value}) & 0xffu)"),
        (Kind::Signed, _) => format!("(bitcast<u32>({value}) & 0xffffu)"),
        _ => value.to_owned(),
    }
}
