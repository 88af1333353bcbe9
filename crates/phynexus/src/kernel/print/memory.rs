//! Loads and stores.

use super::*;

impl Printer<'_> {
    /// The elements of a place as they are in memory, or `fill` where its mask does not hold.
    pub(super) fn load(&mut self, place: &Place, of: Type, fill: Scalar) -> Result<String> {
        let loaded = self.elements(place, of, "const ")?;
        if place.mask.is_always() {
            return Ok(loaded);
        }
        let fill = self.functions.constant(of.dtype, fill);
        let fill = self.functions.encode(of.dtype, &fill);
        Ok(format!("{} ? {loaded} : {}", self.mask(&place.mask), self.pack(of, &vec![fill; of.lanes.into()])))
    }

    /// The assignment of a value to a place, regardless of its mask.
    pub(super) fn assignment(&mut self, place: &Place, value: Value) -> Result<String> {
        let Bound { of, value, bits } = self.bound(value)?.clone();
        let stored = match bits {
            Some(bits) => bits.whole,
            None if of.dtype == of.dtype.compute() => value.whole,
            None => {
                let each: Vec<String> =
                    value.lanes.iter().map(|v| self.functions.encode(of.dtype, v)).collect();
                self.pack(of, &each)
            }
        };
        Ok(format!("{} = {stored};", self.elements(place, of, "")?))
    }

    fn elements(&mut self, place: &Place, of: Type, constant: &str) -> Result<String> {
        let array = self.array(place.memory);
        let variable = matches!(place.memory, Memory::Register(_))
            && self.kernel.array(place.memory).is_some_and(|(_, length)| length == 1);
        match of.lanes {
            1 if variable => Ok(array),
            1 => Ok(format!("{array}[{}]", self.address(place)?)),
            lanes => {
                let t = self.language.vector_type(of.dtype, lanes);
                Ok(format!("*{}", self.pointer(place, &format!("{constant}{t}"))?))
            }
        }
    }

    pub(super) fn pointer(&mut self, place: &Place, t: &str) -> Result<String> {
        let (array, address) = (self.array(place.memory), self.address(place)?);
        Ok(format!("({}{t} *)({array} + {address})", self.language.qualifier(place.memory)))
    }

    /// The position of a place's first element.
    pub(super) fn address(&mut self, place: &Place) -> Result<String> {
        let index = self.index(&place.index);
        let Some(row) = &place.row else { return Ok(index) };
        let (number, t) = (self.bound(row.value)?.value.whole.clone(), self.index_type());
        self.too_wide |= place.index.bounds(&self.ranges).1.saturating_add(row.last()) > i32::MAX.into();
        let (count, last) = (row.count, row.count - 1);
        let clamped = format!("({number} < 0 ? 0 : {number} < {count} ? ({t}){number} : {last})");
        Ok(format!("{index} + {clamped} * {}", row.stride))
    }
}
