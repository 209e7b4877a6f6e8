//! What one rank requests when it joins, what is refused at once, and where it differs from the ranks before it.

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::time::Span;

use crate::admission::job_shape::MAX_ELEMENTS_PER_PACKET;
use crate::admission::limits::Limits;
use crate::admission::refusal::Refusal;
use crate::names::Client;
use crate::wording::Ranks;

/// The request of one rank to be a member of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The rank, 0 to `world_size` - 1.
    pub rank: u16,
    /// The number of ranks that this rank expects.
    pub world_size: u16,
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
    /// The UDP ports of the rank's further cores, at the same IP address; none where one core drives the rank.
    pub core_ports: Vec<u16>,
    /// The address of the switch at which the rank joined. It takes packets from no other address.
    pub joined_at: IpAddr,
    /// Drawn at random by each process when it starts; it distinguishes a process that asks again from its successor.
    pub incarnation: u64,
    /// The protocol's options, as the caller chose them.
    pub options: Options,
    /// How long the rank waits for the others.
    pub timeout: Span,
    /// The client that is charged for the job, if this rank is the first of the job.
    pub client: Client,
}

impl JoinRequest {
    /// The most trees of a job.
    pub const MAX_TREES: u16 = 64;

    /// The source addresses of the rank's packets, one for each of its cores.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        std::iter::once(self.addr).chain(self.core_ports.iter().map(|&port| SocketAddr::new(self.addr.ip(), port)))
    }

    /// Checks the request by itself. `in_levels`: the switch has a parent, or the rank comes from a child switch.
    pub(crate) fn check(&self, limits: &Limits, in_levels: bool) -> Result<(), Refusal> {
        let JoinRequest { rank, world_size, max_elements_per_packet: fit, .. } = *self;
        self.check_protocol(limits, in_levels)?;
        let most = (self.protocol.numbers)(&self.options).most_ranks();
        if world_size == 0 || world_size > most {
            let with = if most < JobConfig::MAX_WORLD_SIZE { " that sums codes of 4 bits" } else { "" };
            return Err(Refusal::BadWorldSize(world_size, most, with));
        }
        if rank >= world_size {
            return Err(Refusal::BadRank { rank, world_size });
        }
        for requested in [Some(fit), self.elements_per_packet].into_iter().flatten() {
            if requested == 0 || requested > MAX_ELEMENTS_PER_PACKET {
                return Err(Refusal::BadElements { requested });
            }
        }
        if let Some(requested) = self.trees.filter(|trees| !(1..=JoinRequest::MAX_TREES).contains(trees)) {
            return Err(Refusal::BadTrees { requested, most: JoinRequest::MAX_TREES });
        }
        match self.slots {
            Some(requested) if requested == 0 || requested > limits.max_slots() => {
                Err(Refusal::BadSlots { requested, most: limits.max_slots() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that this switch runs the protocol, with as many trees.
    fn check_protocol(&self, limits: &Limits, in_levels: bool) -> Result<(), Refusal> {
        let protocol = self.protocol;
        if protocol.shared.is_some() && in_levels {
            return Err(Refusal::NotInLevels { protocol: protocol.name });
        }
        let in_fabric = limits.planned_trees.is_some();
        if in_fabric && protocol.placement == Placement::Hosts {
            return Err(Refusal::NotForFabrics { protocol: protocol.name });
        }
        let (trees, why) = match in_fabric {
            true => (
                self.trees.filter(|_| protocol.placement != Placement::Trees),
                format!("{protocol} finds its trees itself, block by block: leave the number out"),
            ),
            false => (
                self.trees.filter(|&trees| trees != 1),
                "one switch is one tree; several are for a fabric of switches".into(),
            ),
        };
        trees.map_or(Ok(()), |requested| Err(Refusal::NoTrees { requested, why }))
    }

    /// Limits what the rank suggests to a fabric whose switches sum packets of this length, whose shortest queue has this
    /// many bytes, and whose shared machines have entries for this many packets of a job.
    pub(crate) fn fit_fabric(&mut self, elements_per_packet: u16, shortest_queue: u64, shared_entries: Option<u64>) {
        self.max_elements_per_packet = self.max_elements_per_packet.min(elements_per_packet);
        let elements = self.elements_per_packet.unwrap_or(self.max_elements_per_packet);
        let packet_bytes = self.protocol.header_len as u64 + 4 * u64::from(elements);
        // Sums and contributions of one host may meet in the shortest queue, so each gets half of it.
        let packets = shortest_queue / 2 / packet_bytes;
        let most = packets.min(shared_entries.unwrap_or(u64::MAX)).clamp(1, u16::MAX.into()) as u16;
        // Admission rounds up to a power of two.
        self.suggested_slots = self.suggested_slots.min(1 << most.ilog2());
    }
}

/// The settings that must be the same for all ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    WorldSize,
    Protocol,
    Slots,
    Elements,
    Options,
    Trees,
    AddressFamily,
}

impl Setting {
    const ALL: [Setting; 7] = [
        Setting::WorldSize,
        Setting::Protocol,
        Setting::Slots,
        Setting::Elements,
        Setting::Options,
        Setting::Trees,
        Setting::AddressFamily,
    ];

    fn name(self) -> &'static str {
        match self {
            Setting::WorldSize => "the world size",
            Setting::Protocol => "the protocol",
            Setting::Slots => "the number of slots",
            Setting::Elements => "the elements per packet",
            Setting::Options => "the protocol's options",
            Setting::Trees => "the number of trees",
            Setting::AddressFamily => "the address family, and their packets go from rank to rank",
        }
    }

    /// What a rank says about a setting; `None` if it leaves the choice to the others.
    fn value(self, request: &JoinRequest) -> Option<String> {
        match self {
            Setting::WorldSize => Some(request.world_size.to_string()),
            Setting::Protocol => Some(request.protocol.name.to_owned()),
            Setting::Slots => request.slots.map(|slots| slots.to_string()),
            Setting::Elements => request.elements_per_packet.map(|elements| elements.to_string()),
            Setting::Options => {
                let options = request.options.to_text();
                Some(options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
            }
            Setting::Trees => request.trees.map(|trees| trees.to_string()),
            // Where a switch sums, it sends to both.
            Setting::AddressFamily => (request.protocol.placement == Placement::Hosts)
                .then(|| if request.addr.ip().to_canonical().is_ipv4() { "IPv4" } else { "IPv6" }.to_owned()),
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
