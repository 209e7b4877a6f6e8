//! Traffic of hosts besides jobs.

mod models;
mod permutation;
mod poisson;
mod sizes;
mod stream;
mod uniform;

pub use models::Model;
pub use permutation::permutation;
pub use poisson::{PoissonGroup, PoissonSource};
pub use sizes::{FlowSizes, SizeTable};
pub use stream::Stream;
pub use uniform::{Uniform, UniformGroup};
