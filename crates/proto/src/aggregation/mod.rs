//! How vectors of several ranks become one, and what the protocols that do this share. Start from the family that fits:
//!
//! | a new protocol … | starts from | used by |
//! |---|---|---|
//! | has slots in switches of a planned tree, with two versions of each slot; a lost packet is sent again alone | [`slots`]: write a `Dialect` | SwitchML, Flare (dense), parameter servers |
//! | has a memory that all jobs share, and servers for blocks that the memory has no space for | [`best_effort`]: write `Rules` | ATP, PA-ATP |
//! | sums in hosts only | [`crate::reliability::link`], a reliable channel between two ranks | ring, SparCML |
//! | fits none of these, as where all packets behind a lost one are sent again | [`life`], and a host and a switch of its own | PANAMA, Canary, Flare (sparse) |
//!
//! Shared by the families:
//! - sums in a fixed order: [`ordered`], with the [`reference()`] that computes them without a network;
//! - a host's collectives: [`life`] completes them and fails them, [`stream`] cuts them into blocks, [`stripe`]
//!   has several side by side, [`agreement`] is how ranks agree
//!   on a block's exponent, [`shutdown`] lets a host leave when nobody needs its server any more;
//! - bodies of notices: [`report`], and [`missing_ranks`], which gathers reports through all levels;
//! - a switch's bookkeeping: [`block_sizes`]; [`Ranks`](missing_ranks::Ranks), [`modulo`].

pub(crate) mod agreement;
pub mod best_effort;
pub(crate) mod block_sizes;
pub(crate) mod life;
pub(crate) mod missing_ranks;
pub(crate) mod modulo;
pub mod ordered;
pub(crate) mod report;
pub(crate) mod shutdown;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod stripe;

pub use agreement::ExponentHint;
pub use ordered::reference;
pub use report::Report;
