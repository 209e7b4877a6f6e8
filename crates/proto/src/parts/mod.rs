//! Parts that protocols share.

pub mod agreement;
pub mod best_effort;
pub mod block_sizes;
pub mod deadlines;
pub mod farewell;
pub mod form;
pub mod inquiry;
pub mod layout;
pub mod life;
pub mod link;
pub mod look_ahead;
pub mod memory;
pub mod mismatch;
pub mod modulo;
pub mod ordered;
pub mod pacer;
pub mod ranks;
pub mod recovery;
pub mod reference;
pub mod report;
pub mod rtt;
pub mod send_queue;
pub mod slot_lists;
pub mod slots;
pub mod stream;
pub mod window;
