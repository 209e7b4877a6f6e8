//! Ready-made operators, to be used and as examples.

use crate::element::Element;
use crate::error::OperatorError;
use crate::{expression, sections};

/// A ready-made operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// The kind of its elements.
    pub element: &'static str,
    /// The expression.
    pub source: &'static str,
}

/// All of them.
pub const ALL: [Shipped; 8] = [
    Shipped {
        name: "maxloc",
        about: "the greatest value and where it is; the least index of several, and a NaN wins",
        element: "v:f32,i:i32",
        source: "first = a.v > b.v or a.v != a.v and b.v == b.v
second = b.v > a.v or b.v != b.v and a.v == a.v
v = max(a.v, b.v)
i = a.i if first else b.i if second else min(a.i, b.i)
",
    },
    Shipped {
        name: "saturating-i8",
        about: "sums that stop at -128 and 127",
        element: "i8",
        source: "min(max(a + b, -128), 127)\n",
    },
    Shipped {
        name: "int4x2",
        about: "sums of two integers of 4 bits in a byte, which wrap",
        element: "u8",
        source: "low = a + b & 15
high = (a >> 4) + (b >> 4) & 15
low | high << 4
",
    },
    Shipped {
        name: "fp8-e4m3",
        about: "sums of 8-bit floats (E4M3 without infinities), rounded to even; what is too large is NaN",
        element: "u8",
        // Both are multiples of 2^-10, so that their sum is exact and is rounded once.
        source: "x_exponent = a >> 3 & 15
y_exponent = b >> 3 & 15
x = ((a & 7) + (8 if x_exponent > 0 else 0)) << max(x_exponent, 1)
y = ((b & 7) + (8 if y_exponent > 0 else 0)) << max(y_exponent, 1)
sum = (x if a < 128 else -x) + (y if b < 128 else -y)
size = abs(sum)
# The exponent: the position of the highest bit.
h8 = 8 if size >> 3 >= 256 else 0
h4 = 4 if size >> 3 >> h8 >= 16 else 0
h2 = 2 if size >> 3 >> h8 + h4 >= 4 else 0
h1 = 1 if size >> 3 >> h8 + h4 + h2 >= 2 else 0
exponent = max(h8 + h4 + h2 + h1, 1)
kept = size >> exponent
rest = size - (kept << exponent)
half = 1 << exponent - 1
up = 1 if rest > half or rest == half and kept & 1 == 1 else 0
code = min((exponent << 3) + kept + up - 8, 127)
sign = 128 if sum < 0 or a >= 128 and b >= 128 and sum == 0 else 0
127 if a & 127 == 127 or b & 127 == 127 or code == 127 else code | sign
",
    },
    Shipped {
        name: "complex-product",
        about: "products of complex numbers",
        element: "re:f32,im:f32",
        source: "re = a.re * b.re - a.im * b.im
im = a.re * b.im + a.im * b.re
",
    },
    Shipped {
        name: "log-sum-exp",
        about: "log(exp(a) + exp(b)), without overflow",
        element: "f32",
        source: "distance = 0.0 if a == b else -abs(a - b)
max(a, b) + log(1.0 + exp(distance))
",
    },
    Shipped {
        name: "matrix-2x2",
        about: "products of matrices of two rows and two columns, in the order of ranks: they do not commute",
        element: "p:f32,q:f32,r:f32,s:f32",
        source: "p = a.p * b.p + a.q * b.r
q = a.p * b.q + a.q * b.s
r = a.r * b.p + a.s * b.r
s = a.r * b.q + a.s * b.s
",
    },
    Shipped { name: "xor", about: "the bitwise exclusive or of words", element: "i64", source: "a ^ b\n" },
];

/// The operator of this name.
pub fn named(name: &str) -> Option<&'static Shipped> {
    static SHIPPED: [Shipped; 8] = ALL;
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl Shipped {
    /// The operator's module.
    pub fn module(&self) -> Result<Vec<u8>, OperatorError> {
        let element = Element::parse(self.element)?;
        Ok(sections::describe(&expression::compile(self.source, &element)?, Some(self.name), Some(self.element)))
    }
}
