//! Prints loop trees as sources of the C family. A kernel is checked before it is printed; what a language cannot say
//! at all is an error here.

mod cuda;
mod hip;
mod index;
mod language;
mod matrix;
mod memory;
mod operation;
mod wgsl;

use std::collections::HashMap;

use index::Indices;
use language::fill;
pub use language::{CUDA, HIP, Language, OPENCL};
use operation::Functions;
pub use wgsl::{
    Arithmetic as WgslArithmetic, print as print_wgsl, refuses as wgsl_refuses,
    workgroup_bytes as wgsl_workgroup_bytes,
};

use super::{
    index::Ranges,
    loops::{
        AsyncCopy, AxisKind, Fragment, Kernel, Matrix, Memory, Operation, Place, Role, Statement, Tile, Type,
        Value,
    },
};
use crate::{DType, Error, Result, Scalar, op::Combine};

/// The source of a kernel in a language: the functions it needs, then a kernel function with its name.
///
/// # Errors
/// [`Error::Device`] if the language has no matrix fragments and the kernel uses them; [`Error::Internal`] if a value
/// is used that is not bound.
pub fn print(kernel: &Kernel, language: &'static Language) -> Result<String> {
    let mut printer = Printer::new(kernel, language, false);
    printer.kernel()?;
    if printer.too_wide {
        printer = Printer::new(kernel, language, true);
        printer.kernel()?;
    }
    let matrices = match language.matrices {
        Some(functions) if printer.matrices => functions,
        _ => "",
    };
    let parts = [language.header, matrices, &printer.functions.source(), &printer.text];
    Ok(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n"))
}

const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// How a value is written: all of it, and each lane.
#[derive(Clone)]
struct Names {
    whole: String,
    lanes: Vec<String>,
}

/// A bound value. The bits of a 16-bit float are bound too where it comes from memory or was rounded, so that storing
/// it again converts nothing; compilers drop whichever is not used.
#[derive(Clone)]
struct Bound {
    of: Type,
    value: Names,
    bits: Option<Names>,
}

struct Printer<'a> {
    kernel: &'a Kernel,
    language: &'static Language,
    functions: Functions,
    ranges: Ranges,
    /// Indices are 64 bits wide.
    wide: bool,
    /// Some index needs that.
    too_wide: bool,
    values: HashMap<Value, Bound>,
    text: String,
    /// The functions for fragments and copies are called.
    matrices: bool,
    depth: usize,
}

/// The name of an axis.
fn axis_name(kernel: &Kernel, axis: u8) -> String {
    match kernel.axes.get(usize::from(axis)).map(|a| a.kind) {
        Some(AxisKind::Grid(d)) => format!("group_{}", LANES[usize::from(d)]),
        Some(AxisKind::Block(d)) => format!("invocation_{}", LANES[usize::from(d)]),
        _ => format!("i{axis}"),
    }
}

impl Indices for Printer<'_> {
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    fn axis(&self, axis: u8) -> String {
        axis_name(self.kernel, axis)
    }

    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String {
        match negative {
            true => self.functions.floor_index(remainder, self.wide, dividend, by),
            false => format!("{dividend} {} {by}", if remainder { "%" } else { "/" }),
        }
    }

    fn too_wide(&mut self) {
        self.too_wide = true;
    }
}

impl Printer<'_> {
    fn new<'a>(kernel: &'a Kernel, language: &'static Language, wide: bool) -> Printer<'a> {
        Printer {
            kernel,
            language,
            functions: Functions::new(language),
            ranges: kernel.ranges(),
            wide,
            too_wide: false,
            values: HashMap::new(),
            text: String::new(),
            matrices: false,
            depth: 0,
        }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn kernel(&mut self) -> Result<()> {
        let (kernel, language) = (self.kernel, self.language);
        let block = kernel.block();
        let [x, y, z] = block.map(|extent| extent.to_string());
        let size = block.iter().product::<usize>().to_string();
        let declaration = fill(language.kernel, &[("x", &x), ("y", &y), ("z", &z), ("size", &size)]);
        let mut parameters = Vec::new();
        let mut begins = Vec::new();
        for (i, b) in kernel.buffers.iter().enumerate() {
            let constant = if b.written { "" } else { "const " };
            let restrict = if b.exclusive { language.restrict } else { "" };
            let name = self.array(Memory::Buffer(i as u16));
            let pointer = format!("{}{constant}{} *", language.qualifiers.0, language.memory_type(b.dtype));
            if language.offsets {
                parameters.push(format!("{pointer}{restrict}base{i}"));
                parameters.push(format!("const {} begin{i}", language.value_type(DType::I64)));
                begins.push(format!("{pointer}const {name} = base{i} + begin{i};"));
            } else {
                parameters.push(format!("{pointer}{restrict}{name}"));
            }
        }
        let scalars = kernel.scalars.iter().enumerate();
        let scalars = scalars.map(|(i, &dtype)| format!("const {} scalar{i}", language.value_type(dtype)));
        parameters.extend(scalars);
        self.line(format!("{declaration} {}({}) {{", kernel.name, parameters.join(", ")));
        self.depth += 1;
        begins.iter().for_each(|begin| self.line(begin));
        self.arrays()?;
        self.body(&kernel.body)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn arrays(&mut self) -> Result<()> {
        let (kernel, language) = (self.kernel, self.language);
        if language.dynamic_shared && !kernel.shared.is_empty() {
            let aligned = format!("__attribute__((aligned({})))", Kernel::SHARED_ALIGNMENT);
            self.line(format!("extern __shared__ unsigned char shared_memory[] {aligned};"));
        }
        let mut offset = 0;
        for (i, array) in kernel.shared.iter().enumerate() {
            let t = language.memory_type(array.dtype);
            self.line(if language.dynamic_shared {
                format!("{t} *const shared{i} = ({t} *)(shared_memory + {offset});")
            } else {
                let alignment = Kernel::SHARED_ALIGNMENT;
                let qualifier = language.qualifiers.1;
                format!("{qualifier}{t} shared{i}[{}] __attribute__((aligned({alignment})));", array.length)
            });
            offset += array.aligned_bytes();
        }
        for (i, array) in kernel.registers.iter().enumerate() {
            let length = if array.length == 1 { String::new() } else { format!("[{}]", array.length) };
            self.line(format!("{} register{i}{length};", language.value_type(array.dtype)));
        }
        for (i, fragment) in kernel.fragments.iter().enumerate() {
            let declaration = self.fragment(i, fragment)?;
            self.line(declaration);
        }
        Ok(())
    }

    fn array(&self, memory: Memory) -> String {
        match memory {
            Memory::Buffer(i) => {
                let written = self.kernel.buffers.get(usize::from(i)).is_some_and(|b| b.written);
                format!("{}{i}", if written { "out" } else { "in" })
            }
            Memory::Shared(i) => format!("shared{i}"),
            Memory::Register(i) => format!("register{i}"),
        }
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
            Statement::Store { place, value } => {
                let assignment = self.assignment(place, *value)?;
                let condition = self.mask(&place.mask);
                self.line(if place.mask.is_always() {
                    assignment
                } else {
                    format!("if ({condition}) {assignment}")
                });
                Ok(())
            }
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
                    Combine::Sum => self.language.atomics[0],
                    Combine::Max => self.language.atomics[1],
                    Combine::Min => self.language.atomics[2],
                    Combine::Prod => {
                        return Err(Error::internal("kernel::print", "an atomic product"));
                    }
                };
                let (array, address) = (self.array(place.memory), self.address(place)?);
                let (when, value) =
                    (self.bound(*when)?.value.whole.clone(), self.bound(*value)?.value.whole.clone());
                let call = format!("{name}({array} + {address}, {value});");
                let mask = self.mask(&place.mask);
                let both = if place.mask.is_always() { when } else { format!("{when} && {mask}") };
                self.line(format!("if ({both}) {call}"));
                Ok(())
            }
            Statement::Break { when } => {
                let when = self.bound(*when)?.value.whole.clone();
                self.line(format!("if ({when}) break;"));
                Ok(())
            }
            Statement::Barrier => {
                self.line(self.language.barrier);
                Ok(())
            }
            Statement::Matrix(matrix) => self.matrix(matrix),
            Statement::AsyncCopy(copy) => self.async_copy(copy),
        }
    }

    fn repeat(&mut self, axis: u8, body: &[Statement]) -> Result<()> {
        let described = self.kernel.axes[usize::from(axis)];
        let (name, t, extent) = (self.axis(axis), self.index_type(), described.extent);
        match described.kind {
            AxisKind::Grid(d) | AxisKind::Block(d) => {
                let grid = matches!(described.kind, AxisKind::Grid(_));
                let table = if grid { self.language.group } else { self.language.invocation };
                // A range of one value is never used.
                if extent > 1 {
                    self.line(format!("const {t} {name} = {};", table[usize::from(d)]));
                }
                self.body(body)
            }
            AxisKind::Part(first) => {
                self.line(format!("const {t} {name} = ({t}){} - {first};", self.language.group[0]));
                self.line(format!("if ({name} >= 0 && {name} < {extent}) {{"));
                self.block(body)?;
                self.line("}");
                Ok(())
            }
            kind => {
                if kind == AxisKind::Unroll {
                    self.line(self.language.unroll);
                }
                self.line(format!("for ({t} {name} = 0; {name} < {extent}; ++{name}) {{"));
                self.block(body)?;
                self.line("}");
                Ok(())
            }
        }
    }

    fn index_type(&self) -> &'static str {
        self.language.value_type(if self.wide { DType::I64 } else { DType::I32 })
    }

    fn bound(&self, value: Value) -> Result<&Bound> {
        let unbound = || Error::internal("kernel::print", format!("value {value} is not bound"));
        self.values.get(&value).ok_or_else(unbound)
    }

    fn bind(&mut self, value: Value, of: Type, operation: &Operation) -> Result<()> {
        let lanes = usize::from(of.lanes);
        let bits = self.bits(value, of, operation)?;
        let written = match (&bits, operation) {
            (Some(bits), _) => {
                let lanes = bits.lanes.iter().map(|lane| self.functions.decode(of.dtype, lane)).collect();
                self.name(format!("v{value}"), of, lanes)
            }
            // What is as short as a name needs none.
            (_, Operation::Constant(scalar)) => {
                self.unnamed(of, vec![self.functions.constant(of.dtype, *scalar)])
            }
            (_, Operation::Parameter(at)) => self.unnamed(of, vec![format!("scalar{at}")]),
            (_, Operation::Splat(a)) => self.unnamed(of, vec![self.bound(*a)?.value.whole.clone(); lanes]),
            (_, Operation::Lane(a, lane)) => {
                let lane = self.bound(*a)?.value.lanes.get(usize::from(*lane)).cloned();
                self.unnamed(of, lane.into_iter().collect())
            }
            (_, Operation::Pack(each)) => {
                let each = each.iter().map(|a| Ok(self.bound(*a)?.value.whole.clone()));
                self.unnamed(of, each.collect::<Result<_>>()?)
            }
            (_, Operation::Cast(a)) if self.bound(*a)?.of.dtype.compute() == of.dtype => {
                self.bound(*a)?.value.clone()
            }
            (_, Operation::Load(place, fill)) => {
                let loaded = self.load(place, of, *fill)?;
                if lanes == 1 {
                    let element = if place.mask.is_always() { loaded } else { format!("({loaded})") };
                    let number = self.functions.decode(of.dtype, &element);
                    self.name(format!("v{value}"), of, vec![number])
                } else {
                    self.declare(
                        self.language.vector_type(of.dtype, of.lanes),
                        format!("v{value}"),
                        of.lanes,
                        &loaded,
                    )
                }
            }
            _ => {
                let each =
                    (0..lanes).map(|lane| self.lane(of, operation, lane)).collect::<Result<Vec<_>>>()?;
                self.name(format!("v{value}"), of, each)
            }
        };
        self.values.insert(value, Bound { of, value: written, bits });
        Ok(())
    }

    /// Binds the bits of a 16-bit float that is loaded or rounded.
    fn bits(&mut self, value: Value, of: Type, operation: &Operation) -> Result<Option<Names>> {
        if of.dtype == of.dtype.compute() {
            return Ok(None);
        }
        let expression = match operation {
            Operation::Load(place, fill) => self.load(place, of, *fill)?,
            Operation::Cast(a) => {
                let from = self.bound(*a)?.clone();
                let round = |lane: &String| self.functions.round(from.of.dtype, of.dtype, lane);
                let each: Vec<String> = from.value.lanes.iter().map(round).collect();
                self.pack(of, &each)
            }
            Operation::Pack(lanes) => {
                let bits = |lane: &Value| self.bound(*lane).ok()?.bits.as_ref().map(|b| b.whole.clone());
                let Some(each) = lanes.iter().map(bits).collect::<Option<Vec<String>>>() else {
                    return Ok(None);
                };
                self.pack(of, &each)
            }
            _ => return Ok(None),
        };
        let t = match of.lanes {
            1 => self.language.memory_type(of.dtype).to_owned(),
            lanes => self.language.vector_type(of.dtype, lanes),
        };
        Ok(Some(self.declare(t, format!("v{value}_bits"), of.lanes, &expression)))
    }

    /// Writes a constant of the language and gives back its names.
    fn declare(&mut self, t: String, name: String, lanes: u8, expression: &str) -> Names {
        self.line(format!("const {t} {name} = {expression};"));
        let lanes = match lanes {
            1 => vec![name.clone()],
            lanes => LANES[..usize::from(lanes)].iter().map(|lane| format!("{name}.{lane}")).collect(),
        };
        Names { whole: name, lanes }
    }

    /// Names a value that is computed lane by lane.
    fn name(&mut self, name: String, of: Type, lanes: Vec<String>) -> Names {
        let Names { whole, .. } = self.unnamed(of, lanes);
        let t = match of {
            Type { dtype, lanes: 1 } => self.language.value_type(dtype).to_owned(),
            Type { dtype, lanes } => self.language.vector_type(dtype.compute(), lanes),
        };
        self.declare(t, name, of.lanes, &whole)
    }

    fn unnamed(&self, of: Type, lanes: Vec<String>) -> Names {
        Names { whole: self.pack(Type { dtype: of.dtype.compute(), ..of }, &lanes), lanes }
    }

    /// A vector of elements as they are in memory, or the only one.
    fn pack(&self, of: Type, lanes: &[String]) -> String {
        match lanes {
            [one] if of.lanes == 1 => one.clone(),
            _ => {
                let t = self.language.vector_type(of.dtype, of.lanes);
                fill(self.language.vector, &[("type", &t), ("lanes", &lanes.join(", "))])
            }
        }
    }

    /// One lane of an operation on values.
    fn lane(&mut self, of: Type, operation: &Operation, lane: usize) -> Result<String> {
        let operands = operation.operands();
        let mut names = Vec::with_capacity(operands.len());
        for operand in &operands {
            names.extend(self.bound(*operand)?.value.lanes.get(lane).cloned());
        }
        let from = operands.first().map_or(Ok(of.dtype), |a| self.bound(*a).map(|b| b.of.dtype))?;
        let functions = &mut self.functions;
        Ok(match (operation, names.as_slice()) {
            (Operation::Unary(op, _), [a]) => functions.unary(*op, from, a),
            (Operation::Binary(op, ..), [a, b]) => functions.binary(*op, from, a, b),
            (Operation::MultiplyAdd(..), [a, b, c]) => {
                format!("{}({a}, {b}, {c})", functions.math("fma", from))
            }
            (Operation::Select(..), [condition, a, b]) => format!("{condition} ? {a} : {b}"),
            (Operation::Cast(_), [a]) => functions.cast(from, of.dtype, a),
            (Operation::Bitcast(_), [a]) => functions.bitcast(from, of.dtype, a),
            (Operation::ShuffleXor(_, bits), [a]) => {
                fill(self.language.shuffle, &[("value", a), ("bits", &bits.to_string())])
            }
            (Operation::Index(index), []) => self.index(index),
            _ => return Err(Error::internal("kernel::print", format!("{operation:?} as {of:?}"))),
        })
    }
}
