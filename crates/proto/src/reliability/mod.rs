//! How hosts find and repair losses. Start from one of two:
//!
//! - [`recovery`]: a host with slots resends the packet of a slot until the slot's result comes. Results are the only
//!   acknowledgements. With it come the [`slot_lists`], with which tree owns which slot and the
//!   queue of slots that send next.
//! - [`link`]: a reliable channel between two ranks, with sequence numbers, selective acknowledgements, a congestion
//!   window and a pacer.
//!
//! Both take their timeout from [`RttEstimator`](crate::congestion::RttEstimator). [`deadlines`] bounds how long a collective may take as a whole.

pub mod deadlines;
pub mod link;
pub mod recovery;
pub mod slot_lists;
