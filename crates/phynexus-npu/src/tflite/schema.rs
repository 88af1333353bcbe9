//! The part of the TFLite schema (version 3, `tensorflow/compiler/mlir/lite/schema/schema.fbs`, as of LiteRT 2.3.0)
//! that this crate writes: numbers of operators, types and fields.

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Push, PushAlignment, UOffsetT, Vector, WIPOffset};

/// `TensorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    F32 = 0,
    I32 = 2,
    I64 = 4,
    Bool = 6,
    I16 = 7,
    I8 = 9,
}

impl Kind {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Kind::I8 | Kind::Bool => 1,
            Kind::I16 => 2,
            Kind::F32 | Kind::I32 => 4,
            Kind::I64 => 8,
        }
    }

    /// The least and the largest value of a quantized type.
    pub(crate) fn range(self) -> (f64, f64) {
        match self {
            Kind::I16 => (i16::MIN.into(), i16::MAX.into()),
            _ => (i8::MIN.into(), i8::MAX.into()),
        }
    }

    /// These integers as the bytes of this type, whose range holds them.
    pub(crate) fn bytes(self, numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
        let size = self.size();
        numbers.into_iter().flat_map(|number| number.to_le_bytes().into_iter().take(size)).collect()
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        /// `BuiltinOperator`, with the names of the schema.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are the schema's")]
        pub(crate) enum Code { $($name = $number,)* }

        impl Code {
            /// The schema's name.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Code::$name => stringify!($name),)* }
            }

            /// The operator of this number.
            pub(crate) fn of_number(number: i32) -> Option<Code> {
                match number { $($number => Some(Code::$name),)* _ => None }
            }
        }
    };
}

codes! {
    ADD = 0, AVERAGE_POOL_2D = 1, CONCATENATION = 2, CONV_2D = 3, DEPTHWISE_CONV_2D = 4, DEQUANTIZE = 6, FLOOR = 8,
    FULLY_CONNECTED = 9, LOGISTIC = 14, MAX_POOL_2D = 17, MUL = 18, RELU = 19, RELU_N1_TO_1 = 20, RELU6 = 21,
    RESHAPE = 22, RESIZE_BILINEAR = 23, SOFTMAX = 25, TANH = 28, PAD = 34, GATHER = 36, TRANSPOSE = 39, MEAN = 40,
    SUB = 41, DIV = 42, STRIDED_SLICE = 45, EXP = 47, MAXIMUM = 55, MINIMUM = 57, NEG = 59, PADV2 = 60, SLICE = 65,
    SIN = 66, TRANSPOSE_CONV = 67, LOG = 73, SQRT = 75, RSQRT = 76, POW = 78, RESIZE_NEAREST_NEIGHBOR = 97,
    LEAKY_RELU = 98, ABS = 101, CEIL = 104, COS = 108, ELU = 111, QUANTIZE = 114, HARD_SWISH = 117,
    BATCH_MATMUL = 126, GELU = 150,
}

impl Code {
    /// The version of the operator that has this type (`tensorflow/compiler/mlir/lite/tools/versioning/op_version.cc`).
    pub(crate) fn version(self, kind: Kind) -> i32 {
        let [float, narrow, wide] = match self {
            Code::CONV_2D => [1, 3, 4],
            Code::DEPTHWISE_CONV_2D => [2, 3, 5],
            Code::FULLY_CONNECTED => [5, 5, 7],
            Code::ADD => [1, 2, 4],
            Code::SUB => [1, 3, 5],
            Code::MUL => [1, 2, 4],
            Code::SLICE | Code::STRIDED_SLICE | Code::GATHER | Code::TRANSPOSE => [1, 2, 4],
            Code::TRANSPOSE_CONV => [3, 3, 4],
            Code::QUANTIZE => [1, 2, 2],
            Code::DEQUANTIZE => [2, 2, 3],
            Code::LEAKY_RELU | Code::GELU | Code::RSQRT => [1, 2, 2],
            Code::RESIZE_BILINEAR | Code::RESIZE_NEAREST_NEIGHBOR => [3, 3, 3],
            Code::AVERAGE_POOL_2D
            | Code::MAX_POOL_2D
            | Code::CONCATENATION
            | Code::LOGISTIC
            | Code::TANH
            | Code::SOFTMAX
            | Code::MEAN
            | Code::PAD
            | Code::RELU
            | Code::RELU6
            | Code::BATCH_MATMUL => [1, 2, 3],
            Code::MAXIMUM | Code::MINIMUM | Code::PADV2 => [1, 2, 2],
            _ => [1, 1, 1],
        };
        match kind {
            Kind::I8 => narrow,
            Kind::I16 => wide,
            _ => float,
        }
    }
}

/// `ActivationFunctionType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    None = 0,
    Relu = 1,
    ReluN1To1 = 2,
    Relu6 = 3,
}

/// `Padding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    Same = 0,
    Valid = 1,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Bool(bool),
    Byte(i8),
    Int(i32),
    Float(f32),
    Ints(Vec<i32>),
}

/// An operator's options: the number of their table in the union `BuiltinOptions`, and (number, value) of each field.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Options(pub(crate) u8, pub(crate) Vec<(u16, Field)>);

/// `Conv2DOptions`.
pub(crate) fn convolution(
    padding: Padding,
    stride: [i32; 2],
    dilation: [i32; 2],
    act: Activation,
) -> Options {
    let fields = vec![
        (0, Field::Byte(padding as i8)),
        (1, Field::Int(stride[1])),
        (2, Field::Int(stride[0])),
        (3, Field::Byte(act as i8)),
        (4, Field::Int(dilation[1])),
        (5, Field::Int(dilation[0])),
    ];
    Options(1, fields)
}

/// `DepthwiseConv2DOptions`.
pub(crate) fn depthwise(
    padding: Padding,
    stride: [i32; 2],
    dilation: [i32; 2],
    multiplier: i32,
    act: Activation,
) -> Options {
    let fields = vec![
        (0, Field::Byte(padding as i8)),
        (1, Field::Int(stride[1])),
        (2, Field::Int(stride[0])),
        (3, Field::Int(multiplier)),
        (4, Field::Byte(act as i8)),
        (5, Field::Int(dilation[1])),
        (6, Field::Int(dilation[0])),
    ];
    Options(2, fields)
}

/// `Pool2DOptions`.
pub(crate) fn pool(padding: Padding, stride: [i32; 2], window: [i32; 2], act: Activation) -> Options {
    let fields = vec![
        (0, Field::Byte(padding as i8)),
        (1, Field::Int(stride[1])),
        (2, Field::Int(stride[0])),
        (3, Field::Int(window[1])),
        (4, Field::Int(window[0])),
        (5, Field::Byte(act as i8)),
    ];
    Options(5, fields)
}

/// `FullyConnectedOptions`.
pub(crate) fn fully_connected(keeps_rank: bool, act: Activation) -> Options {
    Options(8, vec![(0, Field::Byte(act as i8)), (2, Field::Bool(keeps_rank))])
}

/// `TransposeConvOptions`.
pub(crate) fn transposed_convolution(padding: Padding, stride: [i32; 2], act: Activation) -> Options {
    let fields = vec![
        (0, Field::Byte(padding as i8)),
        (1, Field::Int(stride[1])),
        (2, Field::Int(stride[0])),
        (3, Field::Byte(act as i8)),
    ];
    Options(49, fields)
}

/// `SoftmaxOptions`.
pub(crate) fn softmax() -> Options {
    Options(9, vec![(0, Field::Float(1.0))])
}

/// `ConcatenationOptions`.
pub(crate) fn concatenation(axis: i32) -> Options {
    Options(10, vec![(0, Field::Int(axis))])
}

/// `AddOptions`, `SubOptions`, `MulOptions`, `DivOptions` or `MaximumMinimumOptions`. Scales of 16 bits need not be
/// powers of two.
pub(crate) fn arithmetic(code: Code, act: Activation) -> Options {
    let activation = (0, Field::Byte(act as i8));
    match code {
        Code::ADD => Options(11, vec![activation, (1, Field::Bool(false))]),
        Code::SUB => Options(28, vec![activation, (1, Field::Bool(false))]),
        Code::MUL => Options(21, vec![activation]),
        Code::DIV => Options(29, vec![activation]),
        Code::POW => Options(56, vec![]),
        _ => Options(39, vec![]),
    }
}

/// `ReshapeOptions`.
pub(crate) fn reshape(shape: Vec<i32>) -> Options {
    Options(17, vec![(0, Field::Ints(shape))])
}

/// `ReducerOptions`.
pub(crate) fn reducer(keeps: bool) -> Options {
    Options(27, vec![(0, Field::Bool(keeps))])
}

/// `GatherOptions`.
pub(crate) fn gather(axis: i32) -> Options {
    Options(23, vec![(0, Field::Int(axis))])
}

/// `LeakyReluOptions`.
pub(crate) fn leaky_relu(alpha: f32) -> Options {
    Options(75, vec![(0, Field::Float(alpha))])
}

/// `GeluOptions`.
pub(crate) fn gelu(approximate: bool) -> Options {
    Options(116, vec![(0, Field::Bool(approximate))])
}

/// `ResizeBilinearOptions` or `ResizeNearestNeighborOptions`.
pub(crate) fn resize(is_linear: bool, align_corners: bool, half_pixel_centers: bool) -> Options {
    let (table, first) = if is_linear { (15, 2) } else { (74, 0) };
    Options(table, vec![(first, Field::Bool(align_corners)), (first + 1, Field::Bool(half_pixel_centers))])
}

/// The options of operators whose table has no field that this crate sets.
pub(crate) fn plain(code: Code) -> Options {
    let table = match code {
        Code::PAD => 22,
        Code::PADV2 => 43,
        Code::TRANSPOSE => 26,
        Code::EXP => 33,
        Code::NEG => 42,
        Code::SLICE => 48,
        Code::STRIDED_SLICE => 32,
        Code::ABS => 78,
        Code::COS => 84,
        Code::QUANTIZE => 89,
        Code::DEQUANTIZE => 38,
        Code::HARD_SWISH => 91,
        Code::BATCH_MATMUL => 101,
        _ => 0,
    };
    Options(table, vec![])
}

/// A byte of a buffer: buffers start at multiples of 16 bytes.
#[derive(Clone, Copy)]
struct Aligned(u8);

impl Push for Aligned {
    type Output = u8;

    // SAFETY: the trait wants its caller to give at least `size()` bytes; the body is safe.
    unsafe fn push(&self, dst: &mut [u8], _written_len: usize) {
        if let Some(first) = dst.first_mut() {
            *first = self.0;
        }
    }

    fn size() -> usize {
        1
    }

    fn alignment() -> PushAlignment {
        PushAlignment::new(16)
    }
}

/// A finished part of the file.
pub(crate) type Offset = WIPOffset<Table>;

/// A table of any kind.
pub(crate) struct Table;

/// A field of a table of the file's structure.
pub(crate) enum Entry {
    Field(Field),
    Unsigned(u32),
    UnsignedByte(u8),
    Part(UOffsetT),
}

/// Writes tables.
#[derive(Default)]
pub(crate) struct Bytes(FlatBufferBuilder<'static>);

impl Bytes {
    /// A table with these (number, value) fields.
    pub(crate) fn table(&mut self, fields: Vec<(u16, Entry)>) -> Offset {
        // A vector must be written before the table that refers to it.
        let fields: Vec<(u16, Entry)> = (fields.into_iter())
            .map(|(number, entry)| match entry {
                Entry::Field(Field::Ints(numbers)) => (number, self.ints(&numbers)),
                other => (number, other),
            })
            .collect();
        let start = self.0.start_table();
        for (number, entry) in fields {
            let slot = 4 + 2 * number;
            match entry {
                Entry::Field(Field::Bool(value)) => self.0.push_slot_always(slot, value),
                Entry::Field(Field::Byte(value)) => self.0.push_slot_always(slot, value),
                Entry::Field(Field::Int(value)) => self.0.push_slot_always(slot, value),
                Entry::Field(Field::Float(value)) => self.0.push_slot_always(slot, value),
                Entry::Field(Field::Ints(_)) => {}
                Entry::Unsigned(value) => self.0.push_slot_always(slot, value),
                Entry::UnsignedByte(value) => self.0.push_slot_always(slot, value),
                Entry::Part(offset) => self.0.push_slot_always(slot, WIPOffset::<Table>::new(offset)),
            }
        }
        Offset::new(self.0.end_table(start).value())
    }

    /// A vector of `int`.
    pub(crate) fn ints(&mut self, numbers: &[i32]) -> Entry {
        Entry::Part(self.0.create_vector(numbers).value())
    }

    /// A vector of `long`.
    pub(crate) fn longs(&mut self, numbers: &[i64]) -> Entry {
        Entry::Part(self.0.create_vector(numbers).value())
    }

    /// A vector of `float`.
    pub(crate) fn floats(&mut self, numbers: &[f32]) -> Entry {
        Entry::Part(self.0.create_vector(numbers).value())
    }

    /// A vector of bytes at a multiple of 16.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Entry {
        let bytes: Vec<Aligned> = bytes.iter().copied().map(Aligned).collect();
        Entry::Part(self.0.create_vector(&bytes).value())
    }

    /// A string.
    pub(crate) fn string(&mut self, text: &str) -> Entry {
        Entry::Part(self.0.create_string(text).value())
    }

    /// A vector of tables.
    pub(crate) fn tables(&mut self, tables: &[Offset]) -> Entry {
        let vector: WIPOffset<Vector<'static, ForwardsUOffset<Table>>> = self.0.create_vector(tables);
        Entry::Part(vector.value())
    }

    /// The file with this root.
    pub(crate) fn finish(mut self, root: Offset) -> Vec<u8> {
        self.0.finish(root, Some("TFL3"));
        self.0.finished_data().to_vec()
    }
}
