//! Prints loop trees as WGSL, for Vulkan, Metal and DirectX 12.
//!
//! Values are printed lane by lane. Integers of 8 and 16 bits are computed in 32 bits, 16-bit floats in `f32`. Bindings
//! start at multiples of the device's alignment, so immediates pass the position of each buffer's first element. All
//! buffers are bound for reading and writing, because several may be the same one. The last immediate is 0, a zero that
//! compilers cannot see. It hides constants from them: drivers would otherwise simplify sums and products as if there
//! were no NaN, infinities, signed zeros or rounding.

mod arrays;
mod convert;
mod division;
mod elementary;
mod functions;
mod gamma;
mod operation;

use arrays::{Form, element_type, forms, stored_type};
pub use functions::Arithmetic;
pub use operation::refuses;
use operation::{suffix, value_type};

use super::{Dialect, LANES, Names, Printer, Variable, variable};
use crate::{
    DType, DTypeKind, Error, Result, Scalar,
    hash::FastMap,
    kernel::loops::{Array, ArrayId, Axis, AxisKind, Kernel, KernelOp, MemoryAccess, Statement, Type},
    op::Binary,
};

/// The source of a kernel as WGSL: an entry point `main`, whose buffers are the bindings of group 0 in their order, and
/// whose immediates are the first element of each, in elements from the binding's start (`i32`), and then 0.
///
/// # Errors
/// [`Error::Device`] for features that WGSL lacks: matrix fragments, elementary functions of `float64`, indices beyond
/// 32 bits. [`Error::Internal`] if a value is used that is not bound.
pub fn print(kernel: &Kernel, arithmetic: Arithmetic) -> Result<String> {
    printed(kernel, arithmetic, false)
}

/// The same source, whose numbers can become arguments: elements of the last buffer.
///
/// # Errors
/// Those of [`print()`].
pub fn print_variable(kernel: &Kernel, arithmetic: Arithmetic) -> Result<Variable> {
    printed(kernel, arithmetic, true).map(Variable::new)
}

fn printed(kernel: &Kernel, arithmetic: Arithmetic, marks: bool) -> Result<String> {
    if !kernel.fragments.is_empty() {
        return Err(refused(format!(
            "kernel {} needs matrix fragments, which WGSL does not have",
            kernel.name
        )));
    }
    if !kernel.scalars.is_empty() || kernel.buffers.is_empty() {
        return Err(refused(format!("kernel {} has scalar parameters or no buffers", kernel.name)));
    }
    let wgsl = Wgsl { arithmetic, forms: forms(kernel), names: 0, copies: 1 };
    let mut printer = Printer::new(kernel, wgsl, marks);
    printer.kernel()?;
    if printer.too_wide {
        return Err(refused(format!("kernel {} has indices beyond 32 bits", kernel.name)));
    }
    Ok([printer.declarations(), printer.preamble(), printer.text].join("\n"))
}

/// Bytes of workgroup memory that the printed kernel uses; small integers take 32 bits.
pub fn workgroup_bytes(kernel: &Kernel) -> usize {
    let bytes = |array: &Array| (array.length * array.dtype.size().max(4)).next_multiple_of(16);
    kernel.shared.iter().map(bytes).sum()
}

fn refused(message: String) -> Error {
    Error::Unsupported { device: "WGSL".to_owned(), message }
}

/// Loops that index registers are unrolled up to this many copies of their body.
const MOST_COPIES: usize = 512;

struct Wgsl {
    arithmetic: Arithmetic,
    forms: FastMap<ArrayId, Form>,
    /// Names given so far.
    names: usize,
    /// Copies of the current statement.
    copies: usize,
}

impl Printer<'_, Wgsl> {
    fn fresh(&mut self, prefix: &str) -> String {
        self.dialect.names += 1;
        format!("{prefix}{}", self.dialect.names)
    }

    /// A float of which no compiler knows that it is this one.
    fn opaque(&mut self, dtype: DType, number: &str) -> String {
        let name = if dtype == DType::F64 { "opaque_f64" } else { "opaque" };
        format!("{}({number})", self.library(name))
    }

    /// A number of an index as an `i32`.
    fn size_i(&self, value: i64) -> String {
        self.number(value, format!("{value}i"), "#")
    }

    /// Bindings, immediates and workgroup arrays.
    fn declarations(&self) -> String {
        let mut text = String::new();
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let array = ArrayId::Buffer(i as u16);
            let element = element_type(buffer.dtype, self.form(array));
            let array = self.array(array);
            text += &format!("@group(0) @binding({i}) var<storage, read_write> {array}: array<{element}>;\n");
        }
        let starts: String = (0..self.kernel.buffers.len()).map(|i| format!("b{i}: i32, ")).collect();
        text += &format!("struct Starts {{ {starts}zero: u32 }}\nvar<immediate> starts: Starts;\n");
        for (i, array) in self.kernel.shared.iter().enumerate() {
            let id = ArrayId::Shared(i as u16);
            let form = self.form(id);
            let width = if let Form::Vectors(width) = form { usize::from(width) } else { 1 };
            let (element, length) = (element_type(array.dtype, form), array.length.div_ceil(width));
            text += &format!("var<workgroup> {}: array<{element}, {length}>;\n", self.array(id));
        }
        text
    }

    fn kernel(&mut self) -> Result<()> {
        let kernel = self.kernel;
        let [x, y, z] = kernel.block();
        self.line(format!("@compute @workgroup_size({x}, {y}, {z})"));
        let group = "@builtin(workgroup_id) group: vec3<u32>";
        let invocation = "@builtin(local_invocation_id) invocation: vec3<u32>";
        self.block(format!("fn main({group}, {invocation}) {{"), |p| {
            for i in 0..kernel.buffers.len() {
                if p.dialect.forms.contains_key(&ArrayId::Buffer(i as u16)) {
                    p.line(format!("let start{i} = starts.b{i};"));
                }
            }
            if p.marks {
                let last = kernel.buffers.len() - 1;
                p.line(format!("let start{last} = starts.b{last};"));
                p.text += &variable::declaration(&p.argument());
            }
            for (i, array) in kernel.registers.iter().enumerate() {
                let t = value_type(array.dtype);
                p.line(match array.length {
                    1 => format!("var register{i}: {t};"),
                    length => format!("var register{i}: array<{t}, {length}>;"),
                });
            }
            p.body(&kernel.body)
        })
    }
}

impl Dialect for Printer<'_, Wgsl> {
    const VECTORS: bool = false;

    fn only_if(condition: &str, statement: &str) -> String {
        format!("if ({condition}) {{ {statement} }}")
    }

    fn axis(&self, name: &str, Axis { extent, kind }: Axis) -> (String, Option<String>) {
        let position =
            |builtin, d: u8| (format!("let {name} = i32({builtin}.{});", LANES[usize::from(d)]), None);
        match kind {
            AxisKind::Grid(d) => position("group", d),
            AxisKind::Block(d) => position("invocation", d),
            AxisKind::Part(first) => (
                format!("let {name} = i32(group.x) - {};", self.size_i(first.into())),
                Some(format!("if ({name} >= 0i && {name} < {}) {{", self.size_i(extent as i64))),
            ),
            AxisKind::Serial | AxisKind::Unroll | AxisKind::Reduce => {
                let last = match kind {
                    AxisKind::Unroll => format!("{extent}i"),
                    _ => self.size_i(extent as i64),
                };
                (String::new(), Some(format!("for (var {name} = 0i; {name} < {last}; {name}++) {{")))
            }
        }
    }

    /// Registers are registers where indices are constants.
    fn copies(&mut self, axis: u8, body: &[Statement]) -> Result<bool> {
        let (name, extent) = (self.axis_name(axis), self.kernel.axes[usize::from(axis)].extent);
        if self.dialect.copies * extent > MOST_COPIES || !indexes_registers(body, axis) {
            return Ok(false);
        }
        self.dialect.copies *= extent;
        for i in 0..extent {
            self.block("{", |p| {
                p.line(format!("const {name} = {i}i;"));
                p.body(body)
            })?;
        }
        self.dialect.copies /= extent;
        Ok(true)
    }

    fn barrier(&self) -> String {
        let buffers = self.kernel.buffers.iter().any(|buffer| buffer.written);
        if buffers { "workgroupBarrier(); storageBarrier();" } else { "workgroupBarrier();" }.to_owned()
    }

    fn atomic(&self, function: usize, array: &str, address: &str, value: &str) -> String {
        let name = ["atomicAdd", "atomicMax", "atomicMin"][function];
        format!("{name}(&{array}[{address}], {value});")
    }

    fn buffer(&self, number: u16) -> String {
        format!("buffer{number}")
    }

    fn start(array: ArrayId) -> String {
        match array {
            ArrayId::Buffer(i) => format!("start{i} + "),
            _ => String::new(),
        }
    }

    fn argument(&self) -> String {
        let last = self.kernel.buffers.len() - 1;
        format!("    let size# = buffer{last}[start{last} + #];\n")
    }

    fn converted(&mut self, to: DType, bits: bool) -> String {
        if bits { self.bitcast(DType::I32, to, "#", None) } else { self.cast(DType::I32, to, "#") }
    }

    fn clamped(&self, dtype: DType, number: &str, count: usize) -> String {
        let last = count as i64 - 1;
        let last = |suffix: &str, argument: &str| self.number(last, format!("{last}{suffix}"), argument);
        match value_type(dtype) {
            "u32" => format!("i32(min({number}, {}))", last("u", "u32(#)")),
            "u64" => format!("i32(min({number}, {}))", last("lu", "u64(#)")),
            "i64" => format!("i32(min(max({number}, 0li), {}))", last("li", "i64(#)")),
            _ => format!("min(max({number}, 0i), {})", last("i", "#")),
        }
    }

    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String {
        match (remainder, by.count_ones() == 1 && !self.marks) {
            // Right below 0 too.
            (false, true) => format!("({dividend} >> {}u)", by.trailing_zeros()),
            (true, true) => format!("({dividend} & {})", by - 1),
            _ if negative => {
                let function = self.library(if remainder { "floor_rest" } else { "floor_quotient" });
                format!("{function}({dividend}, {})", self.size(by))
            }
            _ => {
                let by = self.number(by, format!("{by}u"), "u32(#)");
                format!("(i32(u32({dividend}) {} {by}))", if remainder { '%' } else { '/' })
            }
        }
    }

    fn load(&mut self, name: &str, access: &MemoryAccess, of: Type, fill: Scalar) -> Result<Names> {
        let lanes: Vec<String> = match of.lanes {
            1 => vec![name.to_owned()],
            lanes => (0..lanes).map(|lane| format!("{name}_{lane}")).collect(),
        };
        if access.mask.is_always() {
            self.read(access, of, "let ", &lanes)?;
        } else {
            let fill = self.literal(of.dtype, fill);
            let fill = self.encode(of.dtype, &fill);
            for name in &lanes {
                self.line(format!("var {name}: {} = {fill};", stored_type(of.dtype)));
            }
            let condition = self.mask(&access.mask);
            self.block(format!("if ({condition}) {{"), |p| p.read(access, of, "", &lanes))?;
        }
        Ok(self.unnamed(of, lanes))
    }

    fn store(&mut self, access: &MemoryAccess, of: Type, value: &Names) -> Result<()> {
        if access.mask.is_always() {
            return self.assign(access, of, &value.lanes);
        }
        let condition = self.mask(&access.mask);
        self.block(format!("if ({condition}) {{"), |p| p.assign(access, of, &value.lanes))
    }

    fn name(
        &mut self,
        name: &str,
        of: Type,
        numbered: bool,
        mut lane: impl FnMut(&mut Self, usize) -> Result<String>,
    ) -> Result<Names> {
        let mut lanes = Vec::with_capacity(of.lanes.into());
        for at in 0..of.lanes.into() {
            let text = lane(self, at)?;
            let name = if numbered || of.lanes > 1 { format!("{name}_{at}") } else { name.to_owned() };
            self.line(format!("let {name} = {text};"));
            lanes.push(name);
        }
        Ok(self.unnamed(of, lanes))
    }

    fn vector(&self, of: Type, lanes: &[String]) -> String {
        match lanes {
            [one] => one.clone(),
            _ => format!("vec{}<{}>({})", of.lanes, stored_type(of.dtype), lanes.join(", ")),
        }
    }

    fn suffix(&self, dtype: DType) -> &'static str {
        suffix(dtype)
    }

    fn whole(&self, dtype: DType, number: i64) -> String {
        match dtype.kind() {
            DTypeKind::Float => format!("{number}.0{}", suffix(dtype)),
            _ => format!("{number}{}", suffix(dtype)),
        }
    }

    fn special(&mut self, dtype: DType, nan: bool) -> String {
        let name = match (nan, dtype == DType::F64) {
            (true, false) => "not_a_number",
            (true, true) => "not_a_number_f64",
            (false, false) => "infinity",
            (false, true) => "infinity_f64",
        };
        format!("{}()", self.library(name))
    }

    /// Floats are such as no compiler knows.
    fn constant(&mut self, dtype: DType, scalar: Scalar) -> String {
        let x = scalar.as_f64();
        match (dtype, x.is_sign_negative()) {
            _ if !dtype.is_float() => self.literal(dtype, scalar),
            _ if x != 0.0 => {
                let literal = self.literal(dtype, scalar);
                self.opaque(dtype, &literal)
            }
            (DType::F64, false) => "bitcast<f64>(u64(starts.zero))".to_owned(),
            (DType::F64, true) => "bitcast<f64>(u64(starts.zero) | 0x8000000000000000lu)".to_owned(),
            (_, false) => "bitcast<f32>(starts.zero)".to_owned(),
            (_, true) => "bitcast<f32>(starts.zero | 0x80000000u)".to_owned(),
        }
    }

    fn round(&mut self, from: DType, to: DType, number: &str) -> String {
        let single = self.cast(from, DType::F32, number);
        self.encode(to, &single)
    }

    fn decode(&mut self, dtype: DType, bits: &str) -> String {
        match dtype {
            _ if let Some(format) = dtype.float8() => self.float8_value(dtype, format, bits),
            DType::F16 => format!("{}({bits})", self.library("float16_value")),
            _ => format!("{}({bits})", self.library("bfloat16_value")),
        }
    }

    fn encode(&mut self, dtype: DType, number: &str) -> String {
        match dtype {
            _ if let Some(format) = dtype.float8() => self.float8_bits(dtype, format, number),
            DType::F16 => format!("{}({number})", self.library("float16_bits")),
            DType::BF16 => format!("{}({number})", self.library("bfloat16_bits")),
            _ => number.to_owned(),
        }
    }

    fn lane(&mut self, of: Type, operation: &KernelOp, lane: usize) -> Result<String> {
        let (from, mut names) = self.operands(of, operation, lane)?;
        if let (KernelOp::Index(_), [index]) = (operation, names.as_slice()) {
            let index = format!("({index} | i32(starts.zero))");
            return Ok(if of.dtype == DType::I64 { format!("i64({index})") } else { index });
        }
        // WGSL computes with literals before anything runs, and refuses what overflows.
        if !of.dtype.is_float() && !from.is_float() && names.iter().all(|name| !name.starts_with('v')) {
            let name = self.fresh("c");
            self.line(format!("var {name} = {};", names[0]));
            names[0] = name;
        }
        // Subtracted from itself a number need not be 0: it may be NaN.
        if let (KernelOp::Binary(Binary::Sub | Binary::Div, ..), [a, b]) = (operation, names.as_mut_slice())
            && of.dtype.is_float()
            && a == b
        {
            *b = self.opaque(of.dtype, b);
        }
        Ok(match (operation, names.as_slice()) {
            (KernelOp::Unary(op, _), [a]) => self.unary(*op, from, a)?,
            (KernelOp::Binary(op, ..), [a, b]) => self.binary(*op, from, a, b)?,
            (KernelOp::MultiplyAdd(..), [a, b, c]) => self.multiply_add(of.dtype, a, b, c),
            (KernelOp::Select(..), [condition, a, b]) => format!("select({b}, {a}, {condition})"),
            (KernelOp::Cast(_), [a]) => {
                let converted = self.cast(from, of.dtype, a);
                // Drivers fold floats that they know, and not always to what the GPU would compute.
                let hides = of.dtype.is_float() && !from.is_float() && self.is_known(operation);
                if hides { self.opaque(of.dtype, &converted) } else { converted }
            }
            (KernelOp::Bitcast(value), [a]) => {
                let bits = self.bound(*value)?.bits.as_ref().and_then(|bits| bits.lanes.get(lane).cloned());
                self.bitcast(from, of.dtype, a, bits)
            }
            (KernelOp::ShuffleXor(_, by), [a]) => match value_type(from) {
                "u64" => format!("{}({a}, {by}u)", self.library("shuffle_xor_u64")),
                // As numbers: on NVIDIA's driver, sorts that exchanged bools did not change the order.
                "bool" => format!("(subgroupShuffleXor(u32({a}), {by}u) != 0u)"),
                t @ ("i64" | "f64") => {
                    format!("bitcast<{t}>({}(bitcast<u64>({a}), {by}u))", self.library("shuffle_xor_u64"))
                }
                _ => format!("subgroupShuffleXor({a}, {by}u)"),
            },
            _ => return Err(Error::internal("kernel::print", format!("{operation:?} as {of:?}"))),
        })
    }
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
        Statement::Let { operation: KernelOp::Load(access, _), .. } | Statement::Store { access, .. } => {
            matches!(access.array, ArrayId::Register(_)) && access.index.depends_on(axis.into())
        }
        _ => false,
    };
    any(body, &indexed) && !any(body, &|statement| matches!(statement, Statement::Break { .. }))
}
