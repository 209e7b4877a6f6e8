//! What hosts are given to do besides jobs.

mod permutation;
mod poisson;
mod sizes;
mod stream;
mod uniform;

pub use permutation::permutation;
pub use poisson::{PoissonGroup, PoissonSource};
pub use sizes::{FlowSizes, SizeTable};
pub use stream::Stream;
pub use uniform::{Uniform, UniformGroup};
