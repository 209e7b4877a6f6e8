//! The client of the parent switch's control plane: joins that wait there, and leaves.
//!
//! The calls block, so each call runs on a thread of the runtime. The results come back over a channel.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tributary_control::levels::{ParentAnswer, SwitchRanks};
use tributary_control::{JobName, JoinRequest, Limits, Refusal};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire;

use crate::api::{JoinBody, RankBody, SwitchBody, SwitchJoinBody, SwitchLeaveBody, hex};
use crate::client::{ClientError, ParentApi, Token, join_again};
use crate::os::to_duration;
use crate::pool_size;
use crate::rendezvous;
use crate::udp::path::Path;

/// Ranks that join within this time are reported to the parent together.
const GATHER: Duration = Duration::from_millis(5);
/// The interval at which this switch asks its parent which ranks are missing.
const ASK_EVERY: Duration = Duration::from_millis(1_000);

/// A message from the parent switch.
pub(crate) enum ParentMessage {
    /// The answer to a join.
    Answer { name: JobName, question: u64, outcome: Result<ParentAnswer, Refusal> },
    /// The ranks that are missing at the parent switch.
    Missing { name: JobName, ranks: Vec<u16> },
}

/// A join of this switch's ranks at the parent.
pub(crate) struct ParentJoin {
    pub name: JobName,
    pub number: u64,
    pub ranks: Vec<(JoinRequest, Span)>,
    pub most_slots: u16,
    pub switches: Vec<SwitchRanks>,
}

/// The switch parent, and the questions that are open there.
pub(crate) struct ParentClient {
    parent: Arc<ParentApi>,
    /// The control API of this switch.
    listen: SocketAddr,
    incarnation: u64,
    /// For each name, the newest join that has no answer yet.
    open: Arc<Mutex<BTreeMap<JobName, u64>>>,
    messages: UnboundedSender<ParentMessage>,
    /// The leaves that are under way. Each takes a second at most.
    leaves: Mutex<Vec<JoinHandle<()>>>,
}

impl ParentClient {
    /// A client of the switch whose control API is at `parent`, and the channel of its answers.
    pub fn new(
        parent: SocketAddr,
        listen: SocketAddr,
        incarnation: u64,
        token: Option<Token>,
    ) -> (ParentClient, UnboundedReceiver<ParentMessage>) {
        let (messages, received) = unbounded_channel();
        let parent = Arc::new(ParentApi::new(parent, token));
        (
            ParentClient { parent, listen, incarnation, open: Arc::default(), messages, leaves: Mutex::default() },
            received,
        )
    }

    /// The control API of the parent switch.
    pub fn parent(&self) -> SocketAddr {
        self.parent.addr()
    }

    /// The incarnation by which the parent switch knows this one.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The headers of requests that need this switch's token.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.parent.token().iter().map(|token| ("Authorization", token.header())).collect()
    }

    /// Joins, in place of any earlier join for the name. `shards` are the addresses of this switch's shards.
    pub fn join(&self, join: ParentJoin, shards: Vec<SocketAddr>) {
        let (name, number, withdraws) = (join.name.clone(), join.number, join.ranks.is_empty());
        {
            let mut open = self.open.lock().expect("no call panics while it holds the joins");
            match withdraws {
                true => open.remove(&name),
                false => open.insert(name.clone(), number),
            };
        }
        let timeout = join.ranks.iter().map(|(request, _)| to_duration(request.timeout)).max().unwrap_or_default();
        let (body, ranks) = self.body(join, shards);
        let (parent, open, messages) = (Arc::clone(&self.parent), Arc::clone(&self.open), self.messages.clone());
        let is_open = move |name: &JobName| {
            open.lock().expect("no call panics while it holds the joins").get(name) == Some(&number)
        };
        tokio::spawn(async move {
            if withdraws {
                // If this call fails, the parent drops the join by itself, because its answer is not taken.
                let _ = spawn_blocking(move || parent.join(&name, &body, Duration::ZERO)).await;
                return;
            }
            tokio::time::sleep(GATHER).await;
            if !is_open(&name) {
                return;
            }
            let answer = {
                let (parent, name, still_open) = (Arc::clone(&parent), name.clone(), is_open.clone());
                spawn_blocking(move || {
                    let path = Path::to(parent.addr()).ok();
                    let ranks = ranks.into_iter().map(|(rank, waited)| rank_body(capped(rank, path), waited));
                    let mut body = SwitchJoinBody { ranks: ranks.collect(), ..body };
                    for rank in &mut body.ranks {
                        body.modules = std::mem::take(&mut rank.join.modules);
                    }
                    join_again(timeout, |left| match still_open(&name) {
                        true => parent.join(&name, &body, left),
                        false => Err(ClientError::Unreachable("a newer join has replaced it".into())),
                    })
                })
            };
            tokio::pin!(answer);
            let outcome = loop {
                tokio::select! {
                    outcome = &mut answer => break outcome,
                    () = tokio::time::sleep(ASK_EVERY), if is_open(&name) => {
                        let (parent, about) = (Arc::clone(&parent), name.clone());
                        if let Ok(Ok(ranks)) = spawn_blocking(move || parent.missing(&about)).await {
                            let _ = messages.send(ParentMessage::Missing { name: name.clone(), ranks });
                        }
                    }
                }
            };
            if let Ok(outcome) = outcome {
                let outcome = outcome.map_err(|error| refusal(&parent, error));
                // The call fails only if the control plane is gone.
                let _ = messages.send(ParentMessage::Answer { name, question: number, outcome });
            }
        });
    }

    /// The body of the join without its ranks, and separately the ranks.
    fn body(&self, join: ParentJoin, shards: Vec<SocketAddr>) -> (SwitchJoinBody, Vec<(JoinRequest, Span)>) {
        let ParentJoin { number, ranks, most_slots, switches, .. } = join;
        let mut below: Vec<u16> = ranks.iter().map(|(request, _)| request.rank).collect();
        below.sort_unstable();
        let own = SwitchRanks { addr: self.listen, ranks: below };
        let body = SwitchJoinBody {
            wire_version: wire::VERSION,
            incarnation: hex(self.incarnation),
            question: number,
            shards,
            most_slots,
            modules: Vec::new(),
            ranks: Vec::new(),
            switches: std::iter::once(&own).chain(&switches).map(SwitchBody::new).collect(),
        };
        (body, ranks)
    }

    /// Leaves a job at the parent.
    pub fn leave(&self, name: JobName, job: JobId, key: JobKey, wid: ChildId, completed: Option<u64>) {
        let parent = Arc::clone(&self.parent);
        let (key, incarnation) = (hex(key.0), hex(self.incarnation));
        let body = SwitchLeaveBody { job_id: job.0, key, wid: wid.0, incarnation, completed };
        let task = spawn_blocking(move || {
            if let Err(error) = parent.leave(&name, &body) {
                tracing::debug!(job = %name, %error, "the parent switch did not receive the leave; the lease will end it");
            }
        });
        let mut leaves = self.leaves.lock().expect("no call panics while it holds the leaves");
        leaves.retain(|task| !task.is_finished());
        leaves.push(task);
    }

    /// Returns once each leave was delivered or its time was over.
    pub async fn drain(&self) {
        let leaves = std::mem::take(&mut *self.leaves.lock().expect("no call panics while it holds the leaves"));
        for task in leaves {
            // An error means that the call has panicked. Then there is nothing to wait for.
            let _ = task.await;
        }
    }
}

fn rank_body(request: JoinRequest, waited: Span) -> RankBody {
    let worker = rendezvous::JoinRequest {
        job: String::new(),
        rank: request.rank,
        world_size: request.world_size,
        protocol: request.protocol,
        udp: request.addr,
        // Cores have ports at the rank's own switch.
        core_ports: Vec::new(),
        elements_per_packet: request.elements_per_packet,
        max_elements_per_packet: request.max_elements_per_packet,
        slots: request.slots,
        trees: request.trees,
        // The round trip is at least twice as long as that to this switch, and the pool follows it (appendix C).
        suggested_slots: request.suggested_slots.saturating_mul(2).min(Limits::MAX_SLOTS),
        options: request.options,
        timeout: to_duration(request.timeout),
    };
    let join = JoinBody::new(&worker, request.incarnation);
    RankBody { join, udp: request.addr, waited_s: waited.as_secs_f64() }
}

/// Sums of this rank also cross the path to the parent switch. If that path is known, packets may have no more elements
/// than fit there.
fn capped(request: JoinRequest, path_up: Option<Path>) -> JoinRequest {
    let Some(path) = path_up else { return request };
    let payload = Path { mtu: path.mtu.min(pool_size::MAX_MTU), ..path }.max_payload();
    let most = pool_size::elements_in(request.protocol, payload);
    JoinRequest { max_elements_per_packet: request.max_elements_per_packet.min(most), ..request }
}

fn refusal(parent: &ParentApi, error: ClientError) -> Refusal {
    let addr = parent.addr();
    match error {
        ClientError::Unreachable(why) | ClientError::Interrupted(why) => Refusal::Parent {
            sentence: format!("of the switch above: {why}"),
            code: "parent_unreachable".into(),
            rank: None,
        },
        ClientError::Refused { error, code, rank } if Refusal::concerns_switch(&code) => {
            Refusal::Parent { sentence: format!("the switch above, {addr}, says: {error}"), code, rank }
        }
        ClientError::Refused { error, code, rank } => Refusal::Parent { sentence: error, code, rank },
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::protocols;

    use tributary_control::Client;

    use super::*;

    #[test]
    fn a_rank_is_limited_to_what_packets_of_its_protocol_hold_on_the_path_to_the_parent() {
        let localhost = [127, 0, 0, 1];
        let path = Path { local: localhost.into(), mtu: 1_500, link_bits_per_s: None };
        for protocol in protocols::ALL {
            let rank = JoinRequest {
                rank: 0,
                world_size: 2,
                protocol,
                slots: None,
                trees: None,
                suggested_slots: 64,
                elements_per_packet: None,
                max_elements_per_packet: 2_000,
                addr: (localhost, 4_000).into(),
                core_ports: Vec::new(),
                joined_at: localhost.into(),
                incarnation: 1,
                options: protocol.options.defaults(),
                timeout: Span::from_millis(1),
                client: Client::at(localhost.into()),
            };
            let fits = pool_size::elements_in(protocol, 1_472);
            assert_eq!(capped(rank.clone(), Some(path)).max_elements_per_packet, fits, "{}", protocol.name);
            let narrow = JoinRequest { max_elements_per_packet: 8, ..rank.clone() };
            assert_eq!(capped(narrow.clone(), Some(path)), narrow);
            assert_eq!(capped(rank.clone(), None), rank, "an unknown path limits nothing");
        }
    }
}
