//! The operators as types, so that each operator is compiled into the loops that use it.

use crate::number::{Bits, Lane};

/// Combines two lanes into one. It is commutative to the bit: where a float operation could choose a NaN, the canonical
/// NaN decides.
pub trait Operator<L>: 'static {
    /// `left o right`.
    fn apply(left: L, right: L) -> L;
}

macro_rules! operator {
    ($name:ident, $bound:ident, $method:ident, $meaning:literal) => {
        #[doc = $meaning]
        pub struct $name;

        impl<L: $bound> Operator<L> for $name {
            #[inline(always)]
            fn apply(left: L, right: L) -> L {
                left.$method(right)
            }
        }
    };
}

operator!(Sum, Lane, sum, "Sums; an average is a sum that is divided at its end.");
operator!(Min, Lane, least, "The least.");
operator!(Max, Lane, greatest, "The greatest.");
operator!(Prod, Lane, product, "Products.");
operator!(And, Bits, and, "Bitwise and.");
operator!(Or, Bits, or, "Bitwise or.");
operator!(Xor, Bits, xor, "Bitwise exclusive or.");
