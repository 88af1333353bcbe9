//! Functions of two integers that the standard library lacks, exact. The caller wraps the result to its width.

/// The quotient rounded towards negative infinity; 0 for a divisor of 0.
pub fn floor_divide(a: i128, b: i128) -> i128 {
    if b == 0 { 0 } else { a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0) }
}

/// The remainder with the divisor's sign; 0 for a divisor of 0.
pub fn remainder(a: i128, b: i128) -> i128 {
    if b == 0 {
        return 0;
    }
    let remainder = a.rem_euclid(b);
    if b < 0 && remainder != 0 { remainder + b } else { remainder }
}

/// `base` to the power `exponent`, modulo 2^128. With a negative exponent the quotient is truncated: 1 for a base of 1, 1 or
/// -1 for -1, and 0 for every other base (0 included, as for the other divisions by zero).
pub fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut left) = (1i128, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    result
}

/// `a << b` of integers of `bits` bits; 0 for shifts by the width or more. A negative shift is a large one, since its bits
/// are read as unsigned.
pub fn shift_left(a: i128, b: i128, bits: u32) -> i128 {
    if (0..i128::from(bits)).contains(&b) { a << b } else { 0 }
}

/// `a >> b`, arithmetic; 0 or -1 for shifts by the width or more, with negative shifts as in [`shift_left`].
pub fn shift_right(a: i128, b: i128, bits: u32) -> i128 {
    if (0..i128::from(bits)).contains(&b) { a >> b } else { -i128::from(a < 0) }
}
