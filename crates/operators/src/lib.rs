//! Operators that people write (Flare §3), in a sandbox: one module of WebAssembly, checked before it is used.
//!
//! [`Sandbox`] turns bytes into an [`UserOperator`]: it compiles the module, checks it against the interface below, and
//! runs the [self-test](check). The result is an operator as `proto` knows it; it is the same at switches, in the
//! simulator and on hosts. [`source`] makes modules from text, from C and from expressions; [`shipped`] has ready-made
//! ones.
//!
//! # The interface, version 1
//!
//! A module has no imports, no start function, one memory and at most 64 KiB of code. It exports
//!
//! ```text
//! (memory "memory")
//! (global "tributary_abi" i32)      1
//! (global "element_size" i32)       bytes of an element, 1 to 64
//! (func "combine" (param i32 i32 i32))   combine(acc, with, n): acc[i] = acc[i] o with[i] for n elements; acc is the left operand
//! (global "commutative" i32)        optional: 1 claims that a o b = b o a, 0 that the order of ranks matters
//! ```
//!
//! and may declare its name and its elements, for people, in custom sections `tributary.name` and `tributary.element`.
//! Elements are in memory as in a rank's array, little-endian. The result of a call must not depend on earlier calls.

#![forbid(unsafe_code)]

pub mod check;
pub mod element;
mod error;
pub mod expression;
mod instance;
mod layout;
mod library;
mod limits;
mod module;
mod operator;
mod sandbox;
mod sections;
pub mod shipped;
pub mod source;

pub use error::OperatorError;
pub use library::{Allowed, Library};
pub use operator::{UserOperator, reduce};
pub use sandbox::Sandbox;
pub use sections::describe;
