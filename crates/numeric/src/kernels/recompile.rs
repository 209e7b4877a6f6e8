//! Compiles loops that are written once for several instruction sets.

use crate::thc::Near;

/// A plain function for a table, from a function that needs instructions that not every processor has.
#[cfg(target_arch = "x86_64")]
macro_rules! enter {
    ($name:ident $(::<$($generic:ty),*>)? ($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the table is only handed out where the processor has the instructions (`is_available`).
        |$($argument: $type),*| $(-> $result)? { unsafe { $name $(::<$($generic),*>)? ($($argument),*) } }
    };
}

/// A set of instructions that [`run`](InstructionSet::run) may use.
pub(super) trait InstructionSet: Near + 'static {
    /// The result of `work`, compiled for these instructions: `work` is inlined into a function that has them.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn run<R>(work: impl FnOnce() -> R) -> R;
}

/// The instructions that every processor of the target has.
pub(super) struct Baseline;

impl Near for Baseline {}

impl InstructionSet for Baseline {
    #[inline(always)]
    unsafe fn run<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// An [`InstructionSet`] of these target features.
#[cfg(target_arch = "x86_64")]
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, $features:literal) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl super::recompile::InstructionSet for $name {
            #[inline(always)]
            unsafe fn run<R>(work: impl FnOnce() -> R) -> R {
                #[target_feature(enable = $features)]
                fn with<R>(work: impl FnOnce() -> R) -> R {
                    work()
                }
                // SAFETY: the caller's promise.
                unsafe { with(work) }
            }
        }
    };
}
