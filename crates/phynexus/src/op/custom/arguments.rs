//! Checks tensors and scalars against the signature.

use super::{
    builder::Rule,
    kernel::{CustomKernel, GroupCount, Parameter, ParameterKind, operands},
    pattern::Bound,
};
use crate::{
    DType, DTypeKind, Error, Result, Scalar,
    op::TensorType,
    shape::{Dims, checked_element_count},
    text::show_shape,
};

impl CustomKernel {
    /// Checks the inputs against the signature, and returns the shapes of the outputs.
    pub(super) fn output_shapes(&self, inputs: &[TensorType]) -> Result<Vec<Dims>> {
        let expected = operands(self.parameters()).count();
        if inputs.len() != expected {
            return Err(self.misfit("inputs", count(expected, "tensor"), inputs.len().to_string()));
        }
        let mut bound = Bound::new();
        for (input, parameter) in inputs.iter().zip(operands(self.parameters())) {
            let (dtype, shape) = (input.dtype(), input.shape());
            if dtype != parameter.dtype {
                return Err(Error::KernelDType {
                    kernel: self.0.name.clone(),
                    argument: parameter.name.clone(),
                    expected: parameter.dtype,
                    given: dtype,
                });
            }
            if let Some(Rule::Pattern(pattern)) = &parameter.shape {
                let before = bound.clone();
                if !pattern.bind(shape, &mut bound) {
                    let expected = format!("shape {}", pattern.describe(&before));
                    return Err(self.misfit(&parameter.name, expected, show_shape(shape)));
                }
            }
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape()).collect();
        let (read, begun) = shapes.split_at(self.of_kind(ParameterKind::Input).count());
        let mut begun = begun.iter();
        let shape = |output: &Parameter| match output.copied.then(|| begun.next()).flatten() {
            Some(shape) => Ok(Dims::from_slice(shape)),
            None => self.output_shape(output, &bound, read),
        };
        self.of_kind(ParameterKind::Output).map(shape).collect()
    }

    fn output_shape(&self, output: &Parameter, bound: &Bound, inputs: &[&[usize]]) -> Result<Dims> {
        let shape: Dims = match &output.shape {
            Some(Rule::Pattern(pattern)) => pattern
                .shape(bound)
                .ok_or_else(|| Error::internal("custom", "an output's shape has an unbound name"))?,
            Some(Rule::Function(function)) => function.0(inputs)?.into(),
            None => return Err(Error::internal("custom", "an output has no shape")),
        };
        let bytes = checked_element_count(&shape).and_then(|n| n.checked_mul(output.dtype.size()));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(shape),
            _ => {
                let expected = "a shape within the address space".to_owned();
                Err(self.misfit(&output.name, expected, show_shape(&shape)))
            }
        }
    }

    /// Converts scalars to the dtypes of their parameters. Integers must fit; a float is not accepted as an integer.
    pub(super) fn check_scalars(&self, scalars: &[Scalar]) -> Result<Vec<Scalar>> {
        let expected = self.of_kind(ParameterKind::Scalar).count();
        if scalars.len() != expected {
            return Err(self.misfit("scalars", count(expected, "number"), scalars.len().to_string()));
        }
        let one = |(&scalar, parameter): (&Scalar, &Parameter)| {
            let cast = scalar.cast(parameter.dtype);
            match fits(scalar, cast, parameter.dtype) {
                true => Ok(cast),
                false => Err(self.misfit(
                    &parameter.name,
                    format!("a number of {}", parameter.dtype),
                    format!("{scalar} ({})", kind_name(scalar)),
                )),
            }
        };
        scalars.iter().zip(self.of_kind(ParameterKind::Scalar)).map(one).collect()
    }

    /// The number of groups to launch for these outputs. It may be zero along an axis only if there is nothing to
    /// write.
    pub(super) fn groups(&self, outputs: &[Dims]) -> Result<[usize; 3]> {
        let first = outputs.first().map(|shape| shape.as_slice()).unwrap_or_default();
        let nothing = outputs.iter().all(|shape| shape.contains(&0));
        let groups = match &self.0.groups {
            GroupCount::PerElement => {
                let size = self.work_group_size().iter().product();
                let needed = usize::from(!nothing);
                [first.iter().product::<usize>().div_ceil(size).max(needed), 1, 1]
            }
            GroupCount::Fixed(groups) => *groups,
            GroupCount::Function(function) => function.0(first),
        };
        if groups.contains(&0) && !nothing {
            let given = format!("{groups:?} for outputs of {}", show_shape(first));
            return Err(self.misfit("groups", "at least one along each axis".to_owned(), given));
        }
        Ok(groups)
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn kind_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool(_) => "a bool",
        Scalar::Int(_) | Scalar::UInt(_) => "an integer",
        Scalar::Float(_) => "a float",
    }
}

fn fits(scalar: Scalar, cast: Scalar, dtype: DType) -> bool {
    let whole = |scalar: Scalar| match scalar {
        Scalar::UInt(u) => i128::from(u),
        other => i128::from(other.as_i64()),
    };
    match scalar.kind() {
        DTypeKind::Bool => false,
        DTypeKind::Float => dtype.is_float(),
        DTypeKind::Signed | DTypeKind::Unsigned => dtype.is_float() || whole(scalar) == whole(cast),
    }
}
