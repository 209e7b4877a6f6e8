//! What one rank asks for when it joins, and where it differs from the ranks before it.

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;

use crate::admission::Limits;
use crate::client::Client;
use crate::memory::MAX_ELEMENTS_PER_PACKET;
use crate::ranks::Ranks;
use crate::refusal::Refusal;

/// The request of one rank to be a member of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The rank, 0 to `world` - 1.
    pub rank: u16,
    /// The number of ranks that this rank expects.
    pub world: u16,
    /// The protocol.
    pub protocol: &'static Protocol,
    /// Slots over all shards, if the caller insists on a number.
    pub slots: Option<u16>,
    /// Slots that suit the rank's link (SwitchML, appendix C). The job is granted the most that any rank suggests, if
    /// it fits.
    pub suggested_slots: u16,
    /// Elements per packet, if the caller insists on a number.
    pub elements_per_packet: Option<u16>,
    /// Elements per packet that the rank's path holds. The job has the fewest of any rank.
    pub max_elements_per_packet: u16,
    /// Aggregation trees, if the caller insists on a number. A fabric plans fewer if it has no more.
    pub trees: Option<u16>,
    /// The source address of the rank's packets.
    pub addr: SocketAddr,
    /// The address of the switch at which the rank asked. It takes packets from no other address.
    pub asked_at: IpAddr,
    /// Drawn at random by each process when it starts; tells a process that asks again from its successor.
    pub incarnation: u64,
    /// The protocol's options, as the caller chose them.
    pub options: Options,
    /// How long the rank waits for the others.
    pub timeout: Span,
    /// The client to whom the job is charged, if this rank is the first of the job.
    pub client: Client,
}

impl JoinRequest {
    /// The most trees of a job.
    pub const MAX_TREES: u16 = 64;

    /// Checks the request by itself.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        let JoinRequest { rank, world, max_elements_per_packet: fit, .. } = *self;
        if world == 0 || world > JobConfig::MAX_WORLD_SIZE {
            return Err(Refusal::BadWorld { world });
        }
        if rank >= world {
            return Err(Refusal::BadRank { rank, world });
        }
        for asked in [Some(fit), self.elements_per_packet].into_iter().flatten() {
            if asked == 0 || asked > MAX_ELEMENTS_PER_PACKET {
                return Err(Refusal::BadElements { asked });
            }
        }
        if let Some(asked) = self.trees.filter(|asked| !(1..=JoinRequest::MAX_TREES).contains(asked)) {
            return Err(Refusal::BadTrees { asked, most: JoinRequest::MAX_TREES });
        }
        match self.slots {
            Some(asked) if asked == 0 || asked > limits.max_slots() => {
                Err(Refusal::BadSlots { asked, most: limits.max_slots() })
            }
            _ => Ok(()),
        }
    }
}

/// The settings that all ranks of a job must bring alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    World,
    Protocol,
    Slots,
    Elements,
    Options,
    Trees,
}

impl Setting {
    const ALL: [Setting; 6] =
        [Setting::World, Setting::Protocol, Setting::Slots, Setting::Elements, Setting::Options, Setting::Trees];

    fn name(self) -> &'static str {
        match self {
            Setting::World => "the world size",
            Setting::Protocol => "the protocol",
            Setting::Slots => "the number of slots",
            Setting::Elements => "the elements per packet",
            Setting::Options => "the protocol's options",
            Setting::Trees => "the number of trees",
        }
    }

    /// What a rank says about a setting; `None` if it leaves the choice to the others.
    fn value(self, request: &JoinRequest) -> Option<String> {
        match self {
            Setting::World => Some(request.world.to_string()),
            Setting::Protocol => Some(request.protocol.name.to_owned()),
            Setting::Slots => request.slots.map(|slots| slots.to_string()),
            Setting::Elements => request.elements_per_packet.map(|elements| elements.to_string()),
            Setting::Options => {
                let options = request.options.to_text();
                Some(options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
            }
            Setting::Trees => request.trees.map(|trees| trees.to_string()),
        }
    }
}

/// The first setting on which ranks disagree, in words: `the world size: ranks 0, 1 say 4; rank 2 says 3`.
pub(crate) fn disagreement<'a>(requests: impl Iterator<Item = &'a JoinRequest> + Clone) -> Option<String> {
    Setting::ALL.into_iter().find_map(|setting| {
        let mut camps: Vec<(String, Vec<u16>)> = Vec::new();
        for request in requests.clone() {
            let Some(value) = setting.value(request) else { continue };
            match camps.iter_mut().find(|(said, _)| *said == value) {
                Some((_, ranks)) => ranks.push(request.rank),
                None => camps.push((value, vec![request.rank])),
            }
        }
        camps.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
        (camps.len() > 1).then(|| {
            let says = camps.iter().map(|(value, ranks)| {
                format!("{} {} {value}", Ranks(ranks), if ranks.len() == 1 { "says" } else { "say" })
            });
            format!("{}: {}", setting.name(), says.collect::<Vec<_>>().join("; "))
        })
    })
}
