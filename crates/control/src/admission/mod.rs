//! Admission: whether a job may run, and with how much memory. Every rule about memory, slots and counts is here, and pure:
//! a function of limits, the jobs that use memory, and a request. Who may come at all (bans, cordons, names in use) is
//! decided in `machine` before.
//!
//! | question | file |
//! |---|---|
//! | what has the operator allowed? | `limits` |
//! | what does a rank request, and is it valid by itself? | `request` |
//! | how many bytes does a job of this shape take? | `job_shape` |
//! | what is charged where, and what is free? | `charge`, `ledger` |
//! | how many slots does a job get? | `grant`; if jobs divide the memory, `divide`; over planned trees, `tree_grant` |
//! | what may a client's jobs have together? | `ledger` for what is free; where slots change later, `divide` too |
//! | which sentence explains a refusal, and which code? | `refusal`, `operator_act`, `refusal_codes` |
//!
//! [`Control`](crate::Control) admits jobs by these rules; the controller of a fabric grants trees by them, and the simulator
//! divides its switches' memory by them: it knows neither clients nor quotas.

pub(crate) mod charge;
mod divide;
pub(crate) mod grant;
mod job_shape;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod operator_act;
pub(crate) mod refusal;
mod refusal_codes;
mod request;
mod tree_grant;

pub use charge::{SharedMemory, SharedTooLarge, TreeCharge, is_charged_by_tree};
pub use divide::{divide_beside, is_resized};
pub use job_shape::{JobShape, MAX_ELEMENTS_PER_PACKET};
pub use limits::{ClientLimits, Limits, Quota, Timers};
pub use operator_act::OperatorAct;
pub use refusal::Refusal;
pub use request::JoinRequest;
pub(crate) use request::disagreement;
pub use tree_grant::{FabricShape, TreeGrant, grant_trees, repair_trees};
