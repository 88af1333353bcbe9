//! Prints loop trees as WGSL, for Vulkan, Metal and DirectX 12.
//!
//! Values are printed lane by lane; integers of 8 and 16 bits are computed in 32, 16-bit floats in `f32`. Where each
//! buffer's first element lies comes in immediates: bindings begin at multiples of what the device asks for. All buffers
//! are bound for reading and writing, since several may be one. The last immediate is 0: a zero that no compiler knows, for
//! sums and products that drivers would else simplify as if there were neither NaN, infinities nor signed zeros.

mod convert;
mod division;
mod elementary;
mod functions;
mod memory;
mod operation;

use std::collections::HashMap;

pub use functions::Arithmetic;
use memory::{Form, element_type, forms};
pub use operation::refuses;
use operation::{Functions, value_type};

use super::{axis_name, index::Indices};
use crate::{
    DType, Error, Result, Scalar,
    kernel::{
        index::Ranges,
        loops::{Array, AxisKind, Kernel, Memory, Operation, Statement, Type, Value},
    },
    op::{Binary, Combine},
};

/// The source of a kernel as WGSL: an entry point `main`, whose buffers are the bindings of group 0 in their order, and
/// whose immediates are the first element of each, in elements from the binding's start (`i32`), and then 0.
///
/// # Errors
/// [`Error::Device`] for what WGSL cannot say: matrix fragments, elementary functions of `float64`, indices beyond 32
/// bits; [`Error::Internal`] if a value is used that is not bound.
pub fn print(kernel: &Kernel, arithmetic: Arithmetic) -> Result<String> {
    if !kernel.fragments.is_empty() {
        return Err(refused(format!("kernel {} needs matrix fragments, which WGSL has not", kernel.name)));
    }
    if !kernel.scalars.is_empty() || kernel.buffers.is_empty() {
        return Err(refused(format!("kernel {} has scalar parameters or no buffers", kernel.name)));
    }
    let mut printer = Printer {
        kernel,
        functions: Functions::new(arithmetic),
        ranges: kernel.ranges(),
        forms: forms(kernel),
        wide: false,
        values: HashMap::new(),
        text: String::new(),
        depth: 0,
        names: 0,
        copies: 1,
    };
    printer.kernel()?;
    if printer.wide {
        return Err(refused(format!("kernel {} has indices beyond 32 bits", kernel.name)));
    }
    let declarations = printer.declarations();
    Ok([declarations, printer.functions.source(), printer.text].join("\n"))
}

/// Bytes of workgroup memory that the printed kernel takes: small integers take 32 bits.
pub fn workgroup_bytes(kernel: &Kernel) -> usize {
    let bytes = |array: &Array| (array.length * array.dtype.size().max(4)).next_multiple_of(16);
    kernel.shared.iter().map(bytes).sum()
}

fn refused(message: String) -> Error {
    Error::Unsupported { device: "WGSL".to_owned(), message }
}

/// Loops that index registers are written out up to so many copies of their body.
const MOST_COPIES: usize = 512;

/// One lane of a value: a name or a literal.
#[derive(Clone)]
struct Lane {
    text: String,
    /// A literal: WGSL computes with those before anything runs, and refuses what overflows.
    constant: bool,
}

impl Lane {
    fn of(text: String) -> Lane {
        Lane { text, constant: false }
    }
}

/// A bound value. The bits of a 16-bit float are known where it comes from memory or was rounded, so that storing it
/// again converts nothing.
#[derive(Clone)]
struct Bound {
    of: Type,
    lanes: Vec<Lane>,
    bits: Option<Vec<String>>,
}

impl Bound {
    /// The only lane.
    fn only(&self) -> Result<String> {
        match self.lanes.as_slice() {
            [one] => Ok(one.text.clone()),
            _ => Err(Error::internal("kernel::print", format!("{:?} as one number", self.of))),
        }
    }
}

struct Printer<'a> {
    kernel: &'a Kernel,
    functions: Functions,
    ranges: Ranges,
    forms: HashMap<Memory, Form>,
    /// Some index does not fit 32 bits.
    wide: bool,
    values: HashMap<Value, Bound>,
    text: String,
    depth: usize,
    /// Names given so far.
    names: usize,
    /// Copies of the current statement.
    copies: usize,
}

impl Indices for Printer<'_> {
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    fn axis(&self, axis: u8) -> String {
        axis_name(self.kernel, axis)
    }

    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String {
        match (remainder, u64::try_from(by).is_ok_and(u64::is_power_of_two)) {
            // Right below 0 too.
            (false, true) => format!("({dividend} >> {}u)", by.trailing_zeros()),
            (true, true) => format!("({dividend} & {})", by - 1),
            (false, false) if negative => {
                format!("{}({dividend}, {by})", self.functions.library("floor_quotient"))
            }
            (true, false) if negative => {
                format!("{}({dividend}, {by})", self.functions.library("floor_rest"))
            }
            (false, false) => format!("(i32(u32({dividend}) / {by}u))"),
            (true, false) => format!("(i32(u32({dividend}) % {by}u))"),
        }
    }

    fn too_wide(&mut self) {
        self.wide = true;
    }
}

impl Printer<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Bindings, immediates and workgroup arrays.
    fn declarations(&self) -> String {
        let mut text = String::new();
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let memory = Memory::Buffer(i as u16);
            let form = match self.forms.get(&memory) {
                Some(form) => *form,
                None if buffer.dtype.size() < 4 => Form::Words { atomic: false },
                None => Form::Vectors(1),
            };
            let element = element_type(buffer.dtype, form);
            let array = self.array(memory);
            text += &format!("@group(0) @binding({i}) var<storage, read_write> {array}: array<{element}>;\n");
        }
        let starts: String = (0..self.kernel.buffers.len()).map(|i| format!("b{i}: i32, ")).collect();
        text += &format!("struct Starts {{ {starts}zero: u32 }}\nvar<immediate> starts: Starts;\n");
        for (i, array) in self.kernel.shared.iter().enumerate() {
            let memory = Memory::Shared(i as u16);
            let form = self.form(memory);
            let width = if let Form::Vectors(width) = form { usize::from(width) } else { 1 };
            let (element, length) = (element_type(array.dtype, form), array.length.div_ceil(width));
            text += &format!("var<workgroup> {}: array<{element}, {length}>;\n", self.array(memory));
        }
        text
    }

    fn kernel(&mut self) -> Result<()> {
        let kernel = self.kernel;
        let [x, y, z] = kernel.block();
        self.line(format!("@compute @workgroup_size({x}, {y}, {z})"));
        let group = "@builtin(workgroup_id) group: vec3<u32>";
        let invocation = "@builtin(local_invocation_id) invocation: vec3<u32>";
        self.line(format!("fn main({group}, {invocation}) {{"));
        self.depth += 1;
        for i in 0..kernel.buffers.len() {
            if self.forms.contains_key(&Memory::Buffer(i as u16)) {
                self.line(format!("let start{i} = starts.b{i};"));
            }
        }
        for (i, array) in kernel.registers.iter().enumerate() {
            let t = value_type(array.dtype);
            self.line(match array.length {
                1 => format!("var register{i}: {t};"),
                length => format!("var register{i}: array<{t}, {length}>;"),
            });
        }
        self.body(&kernel.body)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn body(&mut self, statements: &[Statement]) -> Result<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn block(&mut self, statements: &[Statement]) -> Result<()> {
        self.depth += 1;
        self.body(statements)?;
        self.depth -= 1;
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Loop { axis, body } => self.repeat(*axis, body),
            Statement::Let { value, of, operation } => self.bind(*value, *of, operation),
            Statement::Store { place, value } => self.store(place, *value),
            Statement::If { mask, then, otherwise } => {
                let condition = self.mask(mask);
                self.line(format!("if ({condition}) {{"));
                self.block(then)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.block(otherwise)?;
                }
                self.line("}");
                Ok(())
            }
            Statement::Atomic { place, combine, value, when } => {
                let name = match combine {
                    Combine::Sum => "atomicAdd",
                    Combine::Max => "atomicMax",
                    Combine::Min => "atomicMin",
                    Combine::Prod => return Err(Error::internal("kernel::print", "an atomic product")),
                };
                let (when, value) = (self.bound(*when)?.only()?, self.bound(*value)?.only()?);
                let (array, address) = (self.array(place.memory), self.address(place)?);
                let mask = self.mask(&place.mask);
                let both = if place.mask.is_always() { when } else { format!("{when} && {mask}") };
                self.line(format!("if ({both}) {{ {name}(&{array}[{address}], {value}); }}"));
                Ok(())
            }
            Statement::Break { when } => {
                let when = self.bound(*when)?.only()?;
                self.line(format!("if ({when}) {{ break; }}"));
                Ok(())
            }
            Statement::Barrier => {
                let written = self.kernel.buffers.iter().any(|buffer| buffer.written);
                self.line(if written {
                    "workgroupBarrier(); storageBarrier();"
                } else {
                    "workgroupBarrier();"
                });
                Ok(())
            }
            Statement::AsyncCopy(_) => {
                Err(Error::internal("kernel::print", "WGSL has no copies in the background"))
            }
            Statement::Matrix(_) => Err(Error::internal("kernel::print", "a matrix without fragments")),
        }
    }

    fn repeat(&mut self, axis: u8, body: &[Statement]) -> Result<()> {
        let described = self.kernel.axes[usize::from(axis)];
        let (name, extent) = (self.axis(axis), described.extent);
        match described.kind {
            AxisKind::Grid(d) | AxisKind::Block(d) => {
                let builtin =
                    if matches!(described.kind, AxisKind::Grid(_)) { "group" } else { "invocation" };
                // A range of one value is never used.
                if extent > 1 {
                    self.line(format!("let {name} = i32({builtin}.{});", super::LANES[usize::from(d)]));
                }
                self.body(body)
            }
            AxisKind::Part(first) => {
                self.line(format!("let {name} = i32(group.x) - {first}i;"));
                self.line(format!("if ({name} >= 0i && {name} < {extent}i) {{"));
                self.block(body)?;
                self.line("}");
                Ok(())
            }
            // Registers are registers where indices are constants.
            AxisKind::Unroll if self.copies * extent <= MOST_COPIES && indexes_registers(body, axis) => {
                self.copies *= extent;
                for i in 0..extent {
                    self.line("{");
                    self.depth += 1;
                    self.line(format!("const {name} = {i}i;"));
                    self.body(body)?;
                    self.depth -= 1;
                    self.line("}");
                }
                self.copies /= extent;
                Ok(())
            }
            _ => {
                self.line(format!("for (var {name} = 0i; {name} < {extent}i; {name}++) {{"));
                self.block(body)?;
                self.line("}");
                Ok(())
            }
        }
    }

    fn bound(&self, value: Value) -> Result<&Bound> {
        let unbound = || Error::internal("kernel::print", format!("value {value} is not bound"));
        self.values.get(&value).ok_or_else(unbound)
    }

    fn bind(&mut self, value: Value, of: Type, operation: &Operation) -> Result<()> {
        let lanes = usize::from(of.lanes);
        let half = of.dtype != of.dtype.compute();
        let mut bits = None;
        let written = match operation {
            // What is as short as a name needs none.
            Operation::Constant(scalar) => {
                vec![constant(&mut self.functions, of.dtype.compute(), *scalar); lanes]
            }
            Operation::Splat(a) => {
                let a = self.bound(*a)?;
                bits = a.bits.as_ref().and_then(|bits| Some(vec![bits.first()?.clone(); lanes]));
                a.lanes.iter().cycle().take(lanes).cloned().collect()
            }
            Operation::Lane(a, lane) => {
                let (a, lane) = (self.bound(*a)?, usize::from(*lane));
                bits = a.bits.as_ref().and_then(|bits| Some(vec![bits.get(lane)?.clone()]));
                a.lanes.get(lane).cloned().into_iter().collect()
            }
            Operation::Pack(each) => {
                let each = each.iter().map(|a| self.bound(*a)).collect::<Result<Vec<_>>>()?;
                bits = each.iter().map(|a| a.bits.as_ref()?.first().cloned()).collect();
                each.iter().filter_map(|a| a.lanes.first().cloned()).collect()
            }
            Operation::Cast(a) if self.bound(*a)?.of.dtype.compute() == of.dtype => {
                self.bound(*a)?.lanes.clone()
            }
            Operation::Load(place, fill) if half => {
                let loaded = self.load(&format!("v{value}_bits"), place, of, *fill)?;
                let loaded: Vec<String> = loaded.into_iter().map(|lane| lane.text).collect();
                self.decoded(value, of, loaded, &mut bits)
            }
            Operation::Load(place, fill) => self.load(&format!("v{value}"), place, of, *fill)?,
            Operation::Cast(a) if half => {
                let from = self.bound(*a)?.clone();
                let mut rounded = Vec::with_capacity(lanes);
                for (at, lane) in from.lanes.iter().enumerate() {
                    let (text, name) = (
                        self.functions.round(from.of.dtype, of.dtype, &lane.text)?,
                        format!("v{value}_bits_{at}"),
                    );
                    self.line(format!("let {name} = {text};"));
                    rounded.push(name);
                }
                self.decoded(value, of, rounded, &mut bits)
            }
            _ => {
                let mut all = Vec::with_capacity(lanes);
                for lane in 0..lanes {
                    let text = self.lane(of, operation, lane)?;
                    let name = if lanes == 1 { format!("v{value}") } else { format!("v{value}_{lane}") };
                    self.line(format!("let {name} = {text};"));
                    all.push(Lane::of(name));
                }
                all
            }
        };
        self.values.insert(value, Bound { of, lanes: written, bits });
        Ok(())
    }

    /// Binds the values of 16-bit floats whose bits have names.
    fn decoded(
        &mut self,
        value: Value,
        of: Type,
        named: Vec<String>,
        bits: &mut Option<Vec<String>>,
    ) -> Vec<Lane> {
        let mut all = Vec::with_capacity(named.len());
        for (at, name) in named.iter().enumerate() {
            let number = self.functions.decode(of.dtype, name);
            self.line(format!("let v{value}_{at} = {number};"));
            all.push(Lane::of(format!("v{value}_{at}")));
        }
        *bits = Some(named);
        all
    }

    /// One lane of an operation on values.
    fn lane(&mut self, of: Type, operation: &Operation, lane: usize) -> Result<String> {
        let operands = operation.operands();
        let mut names = Vec::with_capacity(operands.len());
        for operand in &operands {
            names.extend(self.bound(*operand)?.lanes.get(lane).cloned());
        }
        if !names.is_empty() && names.iter().all(|lane| lane.constant) {
            let name = self.fresh("c");
            self.line(format!("var {name} = {};", names[0].text));
            names[0] = Lane::of(name);
        }
        // Subtracted from itself a number need not be 0: it may be NaN.
        if let (Operation::Binary(Binary::Sub | Binary::Div, ..), [a, b]) = (operation, names.as_mut_slice())
            && a.text == b.text
        {
            match of.dtype {
                DType::F64 => b.text = format!("bitcast<f64>(bitcast<u64>({}) | u64(starts.zero))", b.text),
                _ if of.dtype.is_float() => {
                    b.text = format!("bitcast<f32>(bitcast<u32>({}) | starts.zero)", b.text);
                }
                _ => {}
            }
        }
        let names: Vec<&str> = names.iter().map(|lane| lane.text.as_str()).collect();
        let from = operands.first().map_or(Ok(of.dtype), |a| self.bound(*a).map(|b| b.of.dtype))?;
        Ok(match (operation, names.as_slice()) {
            (Operation::Unary(op, _), &[a]) => self.functions.unary(*op, from, a)?,
            (Operation::Binary(op, ..), &[a, b]) => self.functions.binary(*op, from, a, b)?,
            (Operation::MultiplyAdd(..), &[a, b, c]) => self.functions.multiply_add(of.dtype, a, b, c),
            (Operation::Select(..), &[condition, a, b]) => format!("select({b}, {a}, {condition})"),
            (Operation::Cast(_), &[a]) => self.functions.cast(from, of.dtype, a)?,
            (Operation::Bitcast(a), &[text]) => {
                let bits = self.bound(*a)?.bits.as_ref().and_then(|bits| bits.get(lane).cloned());
                self.functions.bitcast(from, of.dtype, text, bits.as_deref())
            }
            (Operation::ShuffleXor(_, by), &[a]) => match value_type(from) {
                "u64" => format!("{}({a}, {by}u)", self.functions.library("shuffle_xor_u64")),
                // As numbers: on NVIDIA's driver sorting by exchanged truth values left all as it was.
                "bool" => format!("(subgroupShuffleXor(u32({a}), {by}u) != 0u)"),
                t @ ("i64" | "f64") => {
                    let name = self.functions.library("shuffle_xor_u64");
                    format!("bitcast<{t}>({name}(bitcast<u64>({a}), {by}u))")
                }
                _ => format!("subgroupShuffleXor({a}, {by}u)"),
            },
            (Operation::Index(index), []) => {
                let index = self.index(index);
                if of.dtype == DType::I64 { format!("i64({index})") } else { index }
            }
            _ => return Err(Error::internal("kernel::print", format!("{operation:?} as {of:?}"))),
        })
    }
}

/// A constant. Zeros are those that no compiler knows.
fn constant(functions: &mut Functions, dtype: DType, scalar: Scalar) -> Lane {
    let (zero, negative) = match scalar.as_f64() {
        x if dtype.is_float() && x == 0.0 => (true, x.is_sign_negative()),
        _ => (false, false),
    };
    Lane::of(match (zero, dtype, negative) {
        (false, ..) => return Lane { text: functions.constant(dtype, scalar), constant: true },
        (_, DType::F64, false) => "bitcast<f64>(u64(starts.zero))".to_owned(),
        (_, DType::F64, true) => "bitcast<f64>(u64(starts.zero) | 0x8000000000000000lu)".to_owned(),
        (_, _, false) => "bitcast<f32>(starts.zero)".to_owned(),
        (_, _, true) => "bitcast<f32>(starts.zero | 0x80000000u)".to_owned(),
    })
}

/// True if a register's index depends on the axis and nothing leaves the loop.
fn indexes_registers(body: &[Statement], axis: u8) -> bool {
    fn any(body: &[Statement], test: &dyn Fn(&Statement) -> bool) -> bool {
        body.iter().any(|statement| {
            test(statement)
                || match statement {
                    Statement::Loop { body, .. } => any(body, test),
                    Statement::If { then, otherwise, .. } => any(then, test) || any(otherwise, test),
                    _ => false,
                }
        })
    }
    let indexed = |statement: &Statement| match statement {
        Statement::Let { operation: Operation::Load(place, _), .. } | Statement::Store { place, .. } => {
            matches!(place.memory, Memory::Register(_)) && place.index.depends_on(axis.into())
        }
        _ => false,
    };
    any(body, &indexed) && !any(body, &|statement| matches!(statement, Statement::Break { .. }))
}
