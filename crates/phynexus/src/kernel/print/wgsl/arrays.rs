//! Memory: how arrays are declared, loads and stores.
//!
//! Not every device supports WGSL's types of 8 and 16 bits, so buffers of such types are arrays of words. A store of
//! less than a word changes its bits in two atomic steps, so that concurrent stores to the rest of the word are kept.

use super::{Dialect, Printer, Wgsl, operation::value_type};
use crate::{
    DType, DTypeKind, Result,
    hash::FastMap,
    kernel::loops::{ArrayId, Kernel, KernelOp, MemoryAccess, Statement, Type, ValueId},
};

/// How an array is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As vectors of this many elements.
    Vectors(u8),
    /// As atomic 32-bit integers, because some statement combines into them.
    Atomic,
    /// As words that hold smaller elements; atomic if less than a word is stored.
    Words {
        /// Whether stores are atomic.
        atomic: bool,
    },
}

/// How an array is accessed.
#[derive(Default)]
struct Uses {
    /// Lanes of the widest load.
    loaded: u8,
    /// Lanes of the narrowest store.
    stored: Option<u8>,
    atomic: bool,
}

/// The forms of all arrays that are accessed.
pub(super) fn forms(kernel: &Kernel) -> FastMap<ArrayId, Form> {
    let mut lanes: FastMap<ValueId, u8> = FastMap::default();
    let mut uses: FastMap<ArrayId, Uses> = FastMap::default();
    kernel.visit(&mut |statement| match statement {
        Statement::Let { value, of, operation } => {
            lanes.insert(*value, of.lanes);
            if let KernelOp::Load(access, _) = operation {
                let used = uses.entry(access.array).or_default();
                used.loaded = used.loaded.max(of.lanes);
            }
        }
        Statement::Store { access, value, .. } => {
            let width = lanes.get(value).copied().unwrap_or(1);
            let used = uses.entry(access.array).or_default();
            used.stored = Some(used.stored.map_or(width, |w| w.min(width)));
        }
        Statement::Atomic { access, .. } => uses.entry(access.array).or_default().atomic = true,
        _ => {}
    });
    let form = |(array, uses): (ArrayId, Uses)| {
        let size = kernel.array(array).map_or(4, |(dtype, _)| dtype.size());
        let form = match array {
            _ if uses.atomic => Form::Atomic,
            ArrayId::Buffer(_) if size < 4 => {
                let partial = |lanes: u8| !(usize::from(lanes) * size).is_multiple_of(4);
                Form::Words { atomic: uses.stored.is_some_and(partial) }
            }
            ArrayId::Buffer(_) | ArrayId::Shared(_) if size == 4 => {
                Form::Vectors(uses.stored.unwrap_or(uses.loaded.max(1)))
            }
            _ => Form::Vectors(1),
        };
        (array, form)
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

impl Printer<'_, Wgsl> {
    pub(super) fn form(&self, array: ArrayId) -> Form {
        let size = self.kernel.array(array).map_or(4, |(dtype, _)| dtype.size());
        let unused = match array {
            ArrayId::Buffer(_) if size < 4 => Form::Words { atomic: false },
            _ => Form::Vectors(1),
        };
        self.dialect.forms.get(&array).copied().unwrap_or(unused)
    }

    /// The address as a name.
    fn named_address(&mut self, access: &MemoryAccess) -> Result<String> {
        let (address, name) = (self.address(access)?, self.fresh("a"));
        self.line(format!("let {name} = {address};"));
        Ok(name)
    }

    /// Writes the elements of an access to names, each as it is stored; `keyword` precedes the names.
    pub(super) fn read(
        &mut self,
        access: &MemoryAccess,
        of: Type,
        keyword: &str,
        names: &[String],
    ) -> Result<()> {
        let elements = self.elements(access, of)?;
        for (name, element) in names.iter().zip(elements) {
            self.line(format!("{keyword}{name} = {element};"));
        }
        Ok(())
    }

    /// Each element of an access as it is stored.
    fn elements(&mut self, access: &MemoryAccess, of: Type) -> Result<Vec<String>> {
        let (array, form) = (self.array(access.array), self.form(access.array));
        let lanes = usize::from(of.lanes);
        match form {
            Form::Vectors(1) if lanes == 1 => Ok(vec![self.element(access)?]),
            Form::Vectors(width) => {
                let (address, width) = (self.named_address(access)?, usize::from(width));
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
                let address = self.named_address(access)?;
                Ok((0..lanes).map(|lane| format!("atomicLoad(&{array}[{address} + {lane}])")).collect())
            }
            Form::Words { atomic } => {
                let (address, size) = (self.named_address(access)?, of.dtype.size());
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
                    let shift = (lanes < each).then(|| self.bit_position(&address, size));
                    for lane in 0..lanes.min(each) {
                        let from = match &shift {
                            None => format!("{}u", lane * size * 8),
                            Some(shift) if lane == 0 => shift.clone(),
                            Some(shift) => format!("({shift} + {}u)", lane * size * 8),
                        };
                        all.push(part_of_word(of.dtype, &word, &from));
                    }
                }
                Ok(all)
            }
        }
    }

    /// Binds the position of an element's lowest bit in its word.
    fn bit_position(&mut self, address: &str, size: usize) -> String {
        let name = self.fresh("s");
        self.line(format!("let {name} = (u32({address}) & {}u) * {}u;", 4 / size - 1, size * 8));
        name
    }

    /// Stores the lanes of a value, each as it is stored.
    pub(super) fn assign(&mut self, access: &MemoryAccess, of: Type, lanes: &[String]) -> Result<()> {
        let (array, form) = (self.array(access.array), self.form(access.array));
        match form {
            Form::Vectors(1) if lanes.len() == 1 => {
                let element = self.element(access)?;
                self.line(format!("{element} = {};", lanes[0]));
            }
            Form::Vectors(width) => {
                let address = self.named_address(access)?;
                for (at, part) in lanes.chunks(width.into()).enumerate() {
                    let value = self.vector(Type { lanes: width, ..of }, part);
                    let shift = width.trailing_zeros();
                    self.line(format!("{array}[({address} >> {shift}u) + {at}] = {value};"));
                }
            }
            Form::Atomic => {
                let address = self.named_address(access)?;
                for (lane, value) in lanes.iter().enumerate() {
                    self.line(format!("atomicStore(&{array}[{address} + {lane}], {value});"));
                }
            }
            Form::Words { atomic } => {
                let (address, size) = (self.named_address(access)?, of.dtype.size());
                let each = 4 / size;
                for (at, part) in lanes.chunks(each).enumerate() {
                    let bits = |(lane, value): (usize, &String)| {
                        let bits = bits_in_word(of.dtype, value);
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
        DTypeKind::Signed => {
            format!("(bitcast<i32>({word} << ({}u - {shift})) >> {}u)", 32 - bits, 32 - bits)
        }
        DTypeKind::Bool => format!("((({word} >> {shift}) & 0xffu) != 0u)"),
        _ if bits == 8 => format!("(({word} >> {shift}) & 0xffu)"),
        _ => format!("(({word} >> {shift}) & 0xffffu)"),
    }
}

/// The bits of an element, and no others.
fn bits_in_word(dtype: DType, value: &str) -> String {
    match (dtype.kind(), dtype.size()) {
        (DTypeKind::Bool, _) => format!("select(0u, 1u, {value})"),
        (DTypeKind::Signed, 1) => format!("(bitcast<u32>({value}) & 0xffu)"),
        (DTypeKind::Signed, _) => format!("(bitcast<u32>({value}) & 0xffffu)"),
        _ => value.to_owned(),
    }
}
