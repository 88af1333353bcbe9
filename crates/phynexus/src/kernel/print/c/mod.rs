//! The dialect of the C family. Each language is a table, which a device crate fills.

mod bulk;
mod float8;
mod gamma;
mod language;
mod matrix;
mod operation;

pub use language::{Language, Products};

use super::{Dialect, LANES, Names, Printer, Variable, number::fill, variable};
use crate::{
    DType, Error, Result, Scalar,
    kernel::loops::{Axis, AxisKind, Kernel, KernelOp, MemoryAccess, Panel, Statement, Type},
    op::Binary,
};

/// The source of a kernel in a language: the functions it needs, then a kernel function with its name.
///
/// # Errors
/// [`Error::Device`] if the language has no matrix fragments and the kernel uses them; [`Error::Internal`] if a value
/// is used that is not bound.
pub fn print(kernel: &Kernel, language: &'static Language) -> Result<String> {
    printed(kernel, language, false)
}

/// The same source, whose numbers can become arguments: elements of the last buffer.
///
/// # Errors
/// Those of [`print()`].
pub fn print_variable(kernel: &Kernel, language: &'static Language) -> Result<Variable> {
    printed(kernel, language, true).map(Variable::new)
}

fn printed(kernel: &Kernel, language: &'static Language, marks: bool) -> Result<String> {
    let print = |wide| {
        let dialect = CFamily {
            language,
            wide,
            matrices: false,
            products: String::new(),
            makes_copies: false,
            stores_to_panels: kernel.stores_to_panels(),
        };
        let mut printer = Printer::new(kernel, dialect, marks);
        printer.kernel().map(|()| printer)
    };
    let mut printer = print(false)?;
    if printer.too_wide {
        printer = print(true)?;
    }
    let matrices = language.matrices.filter(|_| printer.dialect.matrices).unwrap_or_default();
    let parts = [language.header, matrices, &printer.dialect.products, &printer.preamble(), &printer.text];
    Ok(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n"))
}

struct CFamily {
    language: &'static Language,
    /// Whether indices are 64 bits wide.
    wide: bool,
    /// Whether the functions for fragments and copies are called.
    matrices: bool,
    /// The functions that multiply panels.
    products: String,
    /// Whether this is the part of the kernel that makes bulk copies.
    makes_copies: bool,
    /// Whether invocations store to panels.
    stores_to_panels: bool,
}

impl Printer<'_, CFamily> {
    fn language(&self) -> &'static Language {
        self.dialect.language
    }

    fn kernel(&mut self) -> Result<()> {
        let (kernel, language) = (self.kernel, self.language());
        let (block, meets) = (kernel.block(), kernel.has_grid_barriers());
        let [x, y, z] = block.map(|extent| extent.to_string());
        let mut size = kernel.launched_block().iter().product::<usize>().to_string();
        if kernel.residents > 0 {
            size += &format!(", {}", kernel.residents);
        }
        let declaration = fill(language.kernel, &[("x", &x), ("y", &y), ("z", &z), ("size", &size)]);
        let mut parameters = Vec::new();
        let mut begins = Vec::new();
        for (i, b) in kernel.buffers.iter().enumerate() {
            let constant = if b.written { "" } else { "const " };
            // Other groups write what this one reads after a barrier.
            let changes = b.written && meets;
            let restrict = if b.exclusive && !changes { language.restrict } else { "" };
            let name = self.buffer(i as u16);
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
        parameters.extend(self.tensor_parameters());
        self.block(format!("{declaration} {}({}) {{", kernel.name, parameters.join(", ")), |p| {
            begins.iter().for_each(|begin| p.line(begin));
            if p.marks {
                p.text += &variable::declaration(&p.argument());
            }
            p.arrays()?;
            if meets {
                p.line("unsigned int came = 0;");
            }
            if !kernel.tensors.is_empty() { p.bulk_body() } else { p.body(&kernel.body) }
        })
    }

    fn arrays(&mut self) -> Result<()> {
        let (kernel, language) = (self.kernel, self.language());
        let alignment = if kernel.has_panels() { Panel::ALIGNMENT } else { Kernel::SHARED_ALIGNMENT };
        let aligned = format!("__attribute__((aligned({alignment})))");
        if language.dynamic_shared && !kernel.shared.is_empty() {
            self.line(format!("extern __shared__ unsigned char shared_memory[] {aligned};"));
        }
        let mut offset = 0;
        for (i, array) in kernel.shared.iter().enumerate() {
            let t = language.memory_type(array.dtype);
            self.line(if language.dynamic_shared {
                format!("{t} *const shared{i} = ({t} *)(shared_memory + {offset});")
            } else {
                format!("{}{t} shared{i}[{}] {aligned};", language.qualifiers.1, array.length)
            });
            offset += array.aligned_bytes();
        }
        for (i, array) in kernel.registers.iter().enumerate() {
            let length = if array.length == 1 { String::new() } else { format!("[{}]", array.length) };
            self.line(format!("{} register{i}{length};", language.value_type(array.dtype)));
        }
        kernel.fragments.iter().enumerate().try_for_each(|(i, fragment)| self.fragment(i, fragment))
    }

    fn index_dtype(&self) -> DType {
        if self.dialect.wide { DType::I64 } else { DType::I32 }
    }

    fn index_type(&self) -> &'static str {
        self.language().value_type(self.index_dtype())
    }

    /// The type of a bound value; 16-bit floats as their bits.
    fn type_name(&self, of: Type) -> String {
        match of {
            Type { dtype: DType::Bool, lanes: 1 } => "bool".to_owned(),
            Type { dtype, lanes: 1 } => self.language().memory_type(dtype).to_owned(),
            Type { dtype, lanes } => self.language().vector_type(dtype, lanes),
        }
    }

    fn declare(&mut self, name: &str, of: Type, expression: &str) -> Names {
        self.line(format!("const {} {name} = {expression};", self.type_name(of)));
        let lanes = match of.lanes {
            1 => vec![name.to_owned()],
            lanes => LANES[..usize::from(lanes)].iter().map(|lane| format!("{name}.{lane}")).collect(),
        };
        Names { whole: name.to_owned(), lanes }
    }

    /// The elements of an access as they are in memory.
    fn elements(&mut self, access: &MemoryAccess, of: Type, constant: &str) -> Result<String> {
        match of.lanes {
            1 => self.element(access),
            lanes => {
                let t = self.language().vector_type(of.dtype, lanes);
                Ok(format!("*{}", self.pointer(access, &format!("{constant}{t}"))?))
            }
        }
    }

    fn pointer(&mut self, access: &MemoryAccess, t: &str) -> Result<String> {
        let (array, address) = (self.array(access.array), self.address(access)?);
        Ok(format!("({}{t} *)({array} + {address})", self.language().qualifier(access.array)))
    }
}

impl Dialect for Printer<'_, CFamily> {
    const VECTORS: bool = true;

    fn keep(&mut self, axis: u8, body: &[Statement]) {
        self.keep_addresses(axis, body);
    }

    fn only_if(condition: &str, statement: &str) -> String {
        format!("if ({condition}) {statement}")
    }

    fn axis(&self, name: &str, Axis { extent, kind }: Axis) -> (String, Option<String>) {
        let (language, t) = (self.language(), self.index_type());
        let bound = |position: &str| format!("const {t} {name} = {position};");
        let last = match kind {
            AxisKind::Unroll => extent.to_string(),
            _ => self.size(extent as i64),
        };
        let serial = Some(format!("for ({t} {name} = 0; {name} < {last}; ++{name}) {{"));
        match kind {
            AxisKind::Grid(d) => (bound(language.group[usize::from(d)]), None),
            AxisKind::Block(d) => (bound(language.invocation[usize::from(d)]), None),
            AxisKind::Part(first) => (
                bound(&format!("({t}){} - {}", language.group[0], self.size(first.into()))),
                Some(format!("if ({name} >= 0 && {name} < {last}) {{")),
            ),
            AxisKind::Unroll => (language.unroll.to_owned(), serial),
            AxisKind::Serial | AxisKind::Reduce => (String::new(), serial),
        }
    }

    fn barrier(&self) -> String {
        let barrier = self.language().barrier.to_owned();
        // Products do not see what invocations have stored otherwise.
        if self.dialect.stores_to_panels { format!("panels_are_ready(); {barrier}") } else { barrier }
    }

    fn atomic(&self, function: usize, array: &str, address: &str, value: &str) -> String {
        format!("{}({array} + {address}, {value});", self.language().atomics[function])
    }

    fn joint(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Matrix(matrix) => self.matrix(matrix),
            Statement::AsyncCopy(copy) => self.async_copy(copy),
            Statement::GridBarrier(counter) => self.grid_barrier(counter),
            _ => Err(Error::internal("print", "a joint statement that the language lacks")),
        }
    }

    fn buffer(&self, number: u16) -> String {
        let written = self.kernel.buffers.get(usize::from(number)).is_some_and(|b| b.written);
        format!("{}{number}", if written { "out" } else { "in" })
    }

    fn argument(&self) -> String {
        let last = self.kernel.buffers.len() - 1;
        format!(
            "    const {} size# = {}[#];\n",
            self.language().value_type(DType::I32),
            self.buffer(last as u16)
        )
    }

    fn converted(&mut self, to: DType, bits: bool) -> String {
        if bits { self.bitcast(DType::I32, to, "#") } else { self.cast(DType::I32, to, "#") }
    }

    fn clamped(&self, _dtype: DType, number: &str, count: usize) -> String {
        let (t, last) = (self.index_type(), self.size(count as i64 - 1));
        let count = self.size(count as i64);
        format!("({number} < 0 ? 0 : {number} < {count} ? ({t}){number} : {last})")
    }

    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String {
        if !negative {
            return format!("{dividend} {} {}", if remainder { "%" } else { "/" }, self.size(by));
        }
        let op = if remainder { Binary::Remainder } else { Binary::FloorDiv };
        self.binary(op, self.index_dtype(), dividend, &self.size(by))
    }

    fn load(&mut self, name: &str, access: &MemoryAccess, of: Type, fill: Scalar) -> Result<Names> {
        let mut loaded = self.elements(access, of, "const ")?;
        let number = of.lanes == 1 && of.dtype == of.dtype.compute();
        if !access.mask.is_always() {
            let fill = self.literal(of.dtype, fill);
            let fill = self.encode(of.dtype, &fill);
            let fill = self.vector(of, &vec![fill; of.lanes.into()]);
            loaded = format!("{} ? {loaded} : {fill}", self.mask(&access.mask));
            if number {
                loaded = format!("({loaded})");
            }
        }
        if number {
            loaded = self.decode(of.dtype, &loaded);
        }
        Ok(self.declare(name, of, &loaded))
    }

    fn store(&mut self, access: &MemoryAccess, of: Type, value: &Names) -> Result<()> {
        let place = match self.dialect.stores_to_panels && self.kernel.holds_panels(access.array) {
            true => format!("{}[permuted({})]", self.array(access.array), self.address(access)?),
            false => self.elements(access, of, "")?,
        };
        let assignment = format!("{place} = {};", value.whole);
        let condition = self.mask(&access.mask);
        self.line(if access.mask.is_always() { assignment } else { Self::only_if(&condition, &assignment) });
        Ok(())
    }

    fn name(
        &mut self,
        name: &str,
        of: Type,
        _numbered: bool,
        mut lane: impl FnMut(&mut Self, usize) -> Result<String>,
    ) -> Result<Names> {
        let lanes = (0..of.lanes.into()).map(|at| lane(self, at)).collect::<Result<Vec<_>>>()?;
        Ok(self.declare(name, of, &self.vector(of, &lanes)))
    }

    fn vector(&self, of: Type, lanes: &[String]) -> String {
        match lanes {
            [one] if of.lanes == 1 => one.clone(),
            _ => {
                let t = self.language().vector_type(of.dtype, of.lanes);
                fill(self.language().vector, &[("type", &t), ("lanes", &lanes.join(", "))])
            }
        }
    }

    fn suffix(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::U64 => self.language().long_suffixes[0],
            DType::I64 => self.language().long_suffixes[1],
            DType::U8 | DType::U16 | DType::U32 => "u",
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 => "f",
            _ => "",
        }
    }

    fn whole(&self, _dtype: DType, number: i64) -> String {
        number.to_string()
    }

    fn special(&mut self, dtype: DType, nan: bool) -> String {
        let (infinity, not_a_number) = self.language().special[usize::from(dtype == DType::F64)];
        if nan { not_a_number } else { infinity }.to_owned()
    }

    fn constant(&mut self, dtype: DType, scalar: Scalar) -> String {
        self.literal(dtype, scalar)
    }

    fn round(&mut self, from: DType, to: DType, number: &str) -> String {
        let single = self.cast(from, DType::F32, number);
        self.encode(to, &single)
    }

    fn decode(&mut self, dtype: DType, bits: &str) -> String {
        match dtype {
            DType::Bool => format!("({bits} != 0)"),
            _ if let Some(format) = dtype.float8() => self.float8_value(dtype, format, bits),
            DType::F16 | DType::BF16 => self.half(dtype, 0, bits),
            _ => bits.to_owned(),
        }
    }

    fn encode(&mut self, dtype: DType, number: &str) -> String {
        match dtype {
            _ if let Some(format) = dtype.float8() => self.float8_bits(dtype, format, number),
            DType::F16 | DType::BF16 => self.half(dtype, 1, number),
            _ => number.to_owned(),
        }
    }

    fn lane(&mut self, of: Type, operation: &KernelOp, lane: usize) -> Result<String> {
        let (from, mut names) = self.operands(of, operation, lane)?;
        // Compilers compute functions of what they know, not always as the device does.
        if from.is_float()
            && matches!(operation, KernelOp::Unary(..) | KernelOp::Binary(..))
            && self.is_known(operation)
        {
            names[0] = self.opaque(from, &names[0]);
        }
        Ok(match (operation, names.as_slice()) {
            (KernelOp::Unary(op, _), [a]) => self.unary(*op, from, a),
            (KernelOp::Binary(op, ..), [a, b]) => self.binary(*op, from, a, b),
            (KernelOp::MultiplyAdd(..), [a, b, c]) => {
                format!("{}({a}, {b}, {c})", self.math("fma", from))
            }
            (KernelOp::Select(..), [condition, a, b]) => format!("{condition} ? {a} : {b}"),
            (KernelOp::Cast(_), [a]) => self.cast(from, of.dtype, a),
            (KernelOp::Bitcast(_), [a]) => self.bitcast(from, of.dtype, a),
            (KernelOp::ShuffleXor(_, bits), [a]) => {
                fill(self.language().shuffle, &[("value", a), ("bits", &bits.to_string())])
            }
            (KernelOp::Index(_), [index]) => index.clone(),
            _ => return Err(Error::internal("kernel::print", format!("{operation:?} as {of:?}"))),
        })
    }
}
