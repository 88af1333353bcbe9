//! Prints loop trees as sources: one walk over the statements for all languages, and a `Dialect` for their differences.
//!
//! `c` is the dialect of the C family, whose languages are tables of the device crates; `wgsl` is that of WGSL. A
//! kernel is checked before it is printed. A kernel that the language cannot express is an error.

mod c;
mod dialect;
mod index;
mod number;
mod variable;
mod wgsl;

pub use c::{Language, Products, print, print_variable};
use dialect::Dialect;
pub use variable::{NumberSource, Variable};
pub use wgsl::{
    Arithmetic as WgslArithmetic, print as print_wgsl, print_variable as print_wgsl_variable,
    refuses as wgsl_refuses, workgroup_bytes as wgsl_workgroup_bytes,
};

use super::{
    index::Ranges,
    loops::{AxisKind, Kernel, KernelOp, Statement, Type, ValueId},
};
use crate::{
    DType, Error, Result, Scalar,
    hash::{FastMap, FastSet},
    op::Combine,
};

const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// How a value is written: all of it, and each lane.
#[derive(Clone)]
struct Names {
    whole: String,
    lanes: Vec<String>,
}

/// A bound value. If a 16-bit float was loaded or rounded, its bits are bound too, so that storing it needs no
/// conversion; compilers drop unused names.
#[derive(Clone)]
struct Bound {
    of: Type,
    value: Names,
    bits: Option<Names>,
}

/// The state of printing. `D` is the state of the dialect.
struct Printer<'a, D> {
    kernel: &'a Kernel,
    dialect: D,
    ranges: Ranges,
    /// Whether numbers have marks; see `variable`.
    marks: bool,
    /// Whether some index does not fit 32 bits.
    too_wide: bool,
    /// A loop, and parts of indices that are computed before it.
    kept: Option<(u8, Vec<super::Index>)>,
    values: FastMap<ValueId, Bound>,
    /// The values that a compiler may compute.
    known: FastSet<ValueId>,
    /// The functions that the kernel calls, in the order of their use: names and definitions.
    functions: Vec<(String, String)>,
    text: String,
    depth: usize,
}

impl<'a, D> Printer<'a, D> {
    fn new(kernel: &'a Kernel, dialect: D, marks: bool) -> Printer<'a, D> {
        Printer {
            kernel,
            dialect,
            ranges: kernel.ranges(),
            marks,
            too_wide: false,
            kept: None,
            values: FastMap::default(),
            known: FastSet::default(),
            functions: Vec::new(),
            text: String::new(),
            depth: 0,
        }
    }

    /// A number of an index, with a mark if wanted.
    fn size(&self, value: i64) -> String {
        self.number(value, value.to_string(), "#")
    }

    /// The constant term of an index, with a mark if wanted.
    fn offset(&self, value: i64) -> String {
        match i32::try_from(value) {
            Ok(value) if self.marks => variable::offset(value),
            _ => value.to_string(),
        }
    }

    /// A number written as `literal`; `argument` converts an argument `#` to its type.
    fn number(&self, value: i64, literal: String, argument: &str) -> String {
        match i32::try_from(value) {
            Ok(value) if self.marks => variable::mark(value, &literal, argument),
            _ => literal,
        }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn indented(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.depth += 1;
        body(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// Writes a line that opens a block, then `body`, then the end of the block.
    fn block(&mut self, opening: impl AsRef<str>, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.line(opening);
        self.indented(body)?;
        self.line("}");
        Ok(())
    }

    fn has_function(&self, name: &str) -> bool {
        self.functions.iter().any(|(n, _)| n == name)
    }

    /// The definitions of all functions.
    fn preamble(&self) -> String {
        self.functions.iter().map(|(_, definition)| format!("{definition}\n")).collect()
    }

    fn bound(&self, value: ValueId) -> Result<&Bound> {
        let unbound = || Error::internal("kernel::print", format!("value {value} is not bound"));
        self.values.get(&value).ok_or_else(unbound)
    }

    /// Whether a compiler may compute the operation: it depends on constants and loop counters only.
    fn is_known(&self, operation: &KernelOp) -> bool {
        match operation {
            KernelOp::Load(..) | KernelOp::Parameter(_) => false,
            KernelOp::Index(index) => self.kernel.axes.iter().enumerate().all(|(number, axis)| {
                let counted = matches!(axis.kind, AxisKind::Serial | AxisKind::Unroll | AxisKind::Reduce);
                counted || axis.extent == 1 || !index.depends_on(number)
            }),
            operation => operation.operands().iter().all(|operand| self.known.contains(operand)),
        }
    }

    /// One lane of a value.
    fn lane_of(&self, value: ValueId, lane: usize) -> Result<String> {
        let bound = self.bound(value)?;
        let missing = || Error::internal("kernel::print", format!("lane {lane} of {:?}", bound.of));
        bound.value.lanes.get(lane).cloned().ok_or_else(missing)
    }
}

impl<D> Printer<'_, D>
where
    Self: Dialect,
{
    fn body(&mut self, statements: &[Statement]) -> Result<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Loop { axis, body } => return self.repeat(*axis, body),
            Statement::Let { value, of, operation } => {
                let bound = self.bind(*value, *of, operation)?;
                self.values.insert(*value, bound);
                if self.is_known(operation) {
                    self.known.insert(*value);
                }
            }
            Statement::Store { access, value, when: Some(when) } => {
                let condition = self.lane_of(*when, 0)?;
                self.line(format!("if ({condition}) {{"));
                let store = Statement::Store { access: access.clone(), value: *value, when: None };
                self.indented(|p| p.statement(&store))?;
                self.line("}");
            }
            Statement::Store { access, value, when: None } => {
                let Bound { of, value, bits } = self.bound(*value)?.clone();
                let stored = match bits {
                    Some(bits) => bits,
                    None if of.dtype == of.dtype.compute() => value,
                    None => {
                        let lanes = value.lanes.iter().map(|lane| self.encode(of.dtype, lane)).collect();
                        self.unnamed(of, lanes)
                    }
                };
                return self.store(access, of, &stored);
            }
            Statement::If { mask, then, otherwise } => {
                let condition = self.mask(mask);
                self.line(format!("if ({condition}) {{"));
                self.indented(|p| p.body(then))?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.indented(|p| p.body(otherwise))?;
                }
                self.line("}");
            }
            Statement::Atomic { access, combine, value, when } => {
                let (array, address) = (self.array(access.array), self.address(access)?);
                let (when, value) = (self.lane_of(*when, 0)?, self.lane_of(*value, 0)?);
                let function = match combine {
                    Combine::Sum => 0,
                    Combine::Max => 1,
                    Combine::Min => 2,
                    Combine::Prod => return Err(Error::internal("kernel::print", "an atomic product")),
                };
                let call = self.atomic(function, &array, &address, &value);
                let mask = self.mask(&access.mask);
                let both = if access.mask.is_always() { when } else { format!("{when} && {mask}") };
                self.line(Self::only_if(&both, &call));
            }
            Statement::Break { when } => {
                let when = self.lane_of(*when, 0)?;
                self.line(Self::only_if(&when, "break;"));
            }
            Statement::Barrier => self.line(self.barrier()),
            Statement::Matrix(_) | Statement::AsyncCopy(_) | Statement::GridBarrier(_) => {
                return self.joint(statement);
            }
        }
        Ok(())
    }

    fn repeat(&mut self, axis: u8, body: &[Statement]) -> Result<()> {
        let described = self.kernel.axes[usize::from(axis)];
        let name = self.axis_name(axis);
        match described.kind {
            // A range of one value is never used.
            AxisKind::Grid(_) | AxisKind::Block(_) if described.extent == 1 => return self.body(body),
            AxisKind::Unroll if self.copies(axis, body)? => return Ok(()),
            _ => {}
        }
        let (before, header) = self.axis(&name, described);
        if !before.is_empty() {
            self.line(before);
        }
        let outer = self.kept.take();
        if described.kind == AxisKind::Reduce {
            self.keep(axis, body);
        }
        match header {
            Some(header) => self.block(header, |p| p.body(body))?,
            None => self.body(body)?,
        }
        self.kept = outer;
        Ok(())
    }

    fn bind(&mut self, value: ValueId, of: Type, operation: &KernelOp) -> Result<Bound> {
        let (name, bits_name) = (format!("v{value}"), format!("v{value}_bits"));
        let numbers = Type { dtype: of.dtype.compute(), ..of };
        let rounded = of != numbers;
        let value = match operation {
            // What is as short as a name needs none.
            KernelOp::Constant(scalar) => {
                let constant = self.constant(numbers.dtype, *scalar);
                let constant = self.marked_constant(numbers.dtype, *scalar, constant);
                self.unnamed(numbers, vec![constant])
            }
            KernelOp::Parameter(at) => self.unnamed(numbers, vec![format!("scalar{at}")]),
            KernelOp::Splat(a) => return self.arranged(of, &vec![(*a, 0); of.lanes.into()], !Self::VECTORS),
            KernelOp::Lane(a, lane) => return self.arranged(of, &[(*a, (*lane).into())], !Self::VECTORS),
            KernelOp::Pack(each) => {
                let each: Vec<_> = each.iter().map(|a| (*a, 0)).collect();
                let bound = self.arranged(of, &each, true)?;
                let Some(bits) = bound.bits.as_ref().filter(|_| Self::VECTORS) else { return Ok(bound) };
                let bits = self.name(&bits_name, of, true, |_, lane| Ok(bits.lanes[lane].clone()))?;
                return self.decoded(&name, of, bits);
            }
            KernelOp::Cast(a) if self.bound(*a)?.of.dtype.compute() == of.dtype => {
                self.bound(*a)?.value.clone()
            }
            KernelOp::Load(access, fill) if rounded => {
                let bits = self.load(&bits_name, access, of, *fill)?;
                return self.decoded(&name, of, bits);
            }
            KernelOp::Load(access, fill) => self.load(&name, access, of, *fill)?,
            KernelOp::Cast(a) if rounded => {
                let from = self.bound(*a)?.of.dtype;
                let bits = self.name(&bits_name, of, true, |p, lane| {
                    let number = p.lane_of(*a, lane)?;
                    Ok(p.round(from, of.dtype, &number))
                })?;
                return self.decoded(&name, of, bits);
            }
            _ => self.name(&name, numbers, false, |p, lane| p.lane(of, operation, lane))?,
        };
        Ok(Bound { of, value, bits: None })
    }

    /// A constant with a mark if wanted: a finite `float32` by its bits, or an integer that 32 bits hold.
    fn marked_constant(&mut self, dtype: DType, scalar: Scalar, literal: String) -> String {
        if !self.marks {
            return literal;
        }
        match dtype {
            DType::F32 if scalar.as_f64().is_finite() => {
                let bits = (scalar.as_f64() as f32).to_bits().cast_signed();
                let argument = self.converted(dtype, true);
                self.number(bits.into(), literal, &argument)
            }
            _ if dtype.is_integer() => {
                let argument = self.converted(dtype, false);
                self.number(scalar.as_i64(), literal, &argument)
            }
            _ => literal,
        }
    }

    /// Lanes of bound values in a new order, with their bits if those are known and wanted.
    fn arranged(&self, of: Type, from: &[(ValueId, usize)], with_bits: bool) -> Result<Bound> {
        let bits = |&(value, lane): &(ValueId, usize)| {
            self.bound(value).ok()?.bits.as_ref()?.lanes.get(lane).filter(|_| with_bits).cloned()
        };
        let bits = from.iter().map(bits).collect::<Option<Vec<String>>>();
        let lanes = from.iter().map(|&(value, lane)| self.lane_of(value, lane)).collect::<Result<_>>()?;
        let value = self.unnamed(Type { dtype: of.dtype.compute(), ..of }, lanes);
        Ok(Bound { of, value, bits: bits.map(|bits| self.unnamed(of, bits)) })
    }

    /// Binds the values of 16-bit floats whose bits have names.
    fn decoded(&mut self, name: &str, of: Type, bits: Names) -> Result<Bound> {
        let numbers = Type { dtype: of.dtype.compute(), ..of };
        let value = self.name(name, numbers, true, |p, lane| Ok(p.decode(of.dtype, &bits.lanes[lane])))?;
        Ok(Bound { of, value, bits: Some(bits) })
    }

    fn unnamed(&self, of: Type, lanes: Vec<String>) -> Names {
        Names { whole: self.vector(of, &lanes), lanes }
    }

    /// The type of an operation's first operand, and each operand in one lane; of an index, the index.
    fn operands(&mut self, of: Type, operation: &KernelOp, lane: usize) -> Result<(DType, Vec<String>)> {
        if let KernelOp::Index(index) = operation {
            return Ok((of.dtype, vec![self.index(index)]));
        }
        let operands = operation.operands();
        let from = operands.first().map_or(Ok(of.dtype), |a| self.bound(*a).map(|b| b.of.dtype))?;
        let names = operands.iter().map(|a| self.lane_of(*a, lane)).collect::<Result<_>>()?;
        Ok((from, names))
    }
}
