//! `tributary lab traffic`: loads a fabric's links with packets that its switches only forward: at a rate, or as one flow
//! under DCTCP (`flow.rs`).

pub mod flow;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use tributary_control::fabric::FabricLayout;
use tributary_control::quantity::DataRate;
use tributary_net::fabric::wire::{CARRY_LEN, Carry, NO_VIA, fabric_header, read_pause};
use tributary_proto::contract::ids::{JobKey, NodeId};
use tributary_proto::contract::wire::{Common, kind};

use crate::cluster::Interrupt;
use crate::commands::fabric;
use crate::failure::Failure;
use crate::flags::parse_timeout;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  On host3 of a fabric: 150 Mbit/s to host7, over spine0, until Ctrl-C
    tributary lab traffic --fabric fabric.toml --from host3 --to host7 --via spine0 --rate 150Mbit/s
  The same for ten seconds, over whichever way the switches choose
    tributary lab traffic --fabric fabric.toml --from host3 --to host7 --rate 50Mbit/s --duration 9s

  One flow under DCTCP: first its receiving end on host7, then its sending end on host3
    tributary lab traffic --fabric fabric.toml --from host3 --to host7 --transport dctcp --receive
    tributary lab traffic --fabric fabric.toml --from host3 --to host7 --transport dctcp --json

Packets of 1,500 bytes go through the switches' queues. At a rate they end at the receiver's
discard port. Under DCTCP (RFC 8257) they take part in ECN, and the window follows the marks of
switches with mark_above; --json prints a line every 100 ms: at (seconds since 1970), packets
(that the receiver has acknowledged), window_packets.";

/// UDP's discard service (RFC 863), where no program need listen.
const DISCARD: u16 = 9;
/// UDP payload of a packet of 1,500 bytes.
const PAYLOAD: usize = 1_472;
/// Bytes that Ethernet, IPv4 and UDP add.
const FRAME_BYTES: usize = 14 + 20 + 8;
/// How often a flow reports its state.
const SAY: Duration = Duration::from_millis(100);
/// The pause between two looks at the clock.
const PAUSE: Duration = Duration::from_millis(1);
/// How much lateness a sender makes up for: more would be a burst.
const SLACK: Duration = Duration::from_millis(10);
/// The same in a lossless fabric.
const LOSSLESS_SLACK: Duration = Duration::from_millis(2);

/// The flags of `tributary lab traffic`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The fabric's file
    #[arg(long, value_name = "FILE.toml")]
    pub fabric: PathBuf,
    /// The host that this is
    #[arg(long, value_name = "HOST")]
    pub from: String,
    /// The host that the packets are for
    #[arg(long, value_name = "HOST")]
    pub to: String,
    /// A switch that they pass
    #[arg(long, value_name = "SWITCH")]
    pub via: Option<String>,
    /// How packets are sent: at a rate, or as a flow whose window follows marks and losses
    #[arg(long, value_enum, default_value_t = Transport::Rate)]
    pub transport: Transport,
    /// Rate on the wire
    #[arg(long, value_name = "RATE", required_if_eq("transport", "rate"))]
    pub rate: Option<DataRate>,
    /// Be the receiving end of a flow, on the host of --to
    #[arg(long)]
    pub receive: bool,
    /// Print a line of JSON every 100 ms, and one at the end
    #[arg(long)]
    pub json: bool,
    /// How long; until Ctrl-C, if left out
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub duration: Option<Duration>,
}

/// How packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// At the rate of --rate, whatever becomes of them
    Rate,
    /// As one flow under DCTCP
    Dctcp,
}

/// The ends of the traffic, and the switch that it passes.
#[derive(Clone, Copy)]
pub struct Ends {
    /// The host that sends.
    pub from: NodeId,
    /// The host that receives.
    pub to: NodeId,
    /// The switch between, or [`NO_VIA`].
    pub via: NodeId,
}

/// The result.
#[derive(Serialize)]
struct Outcome {
    packets: u64,
}

/// Sends until the time is over or a signal stops it.
pub fn run(args: Args) -> Result<(), Failure> {
    let fabric = fabric::ChosenFile { path: args.fabric.clone(), switch_options: Vec::new() }.read()?;
    let find =
        |name: &str| fabric.node_named(name).ok_or_else(|| Failure::usage(format!("the fabric has no node '{name}'")));
    let (from, to) = (find(&args.from)?, find(&args.to)?);
    let via = args.via.as_deref().map(find).transpose()?.unwrap_or(NO_VIA);
    let is_host = |node: NodeId| !fabric.is_switch(node);
    if !is_host(from) || !is_host(to) || (via != NO_VIA && is_host(via)) {
        return Err(Failure::usage("traffic goes from a host to a host, over a switch"));
    }
    let interrupt = Interrupt::on_signals()?;
    let ends = Ends { from, to, via };
    let sent = match args.transport {
        Transport::Rate if args.receive || args.json => {
            return Err(Failure::usage("--receive and --json are for --transport dctcp"));
        }
        Transport::Rate => flood(&fabric, ends, &args, &interrupt)?,
        Transport::Dctcp => {
            let mut end = flow::FlowEnd::open(&fabric, ends, args.receive)?;
            let every = (args.json && !args.receive).then_some(SAY);
            if args.receive && args.json {
                output::line("{\"event\":\"ready\"}")?;
            }
            end.run(args.duration, every, &interrupt)?
        }
    };
    match args.json {
        true => output::json(&Outcome { packets: sent })?,
        false => output::line(&format!("sent {sent} packets"))?,
    }
    Ok(())
}

/// Sends packets at a rate.
fn flood(fabric: &FabricLayout, ends: Ends, args: &Args, interrupt: &Interrupt) -> Result<u64, Failure> {
    let Ends { from, to, via } = ends;
    let own = SocketAddr::new(fabric.nodes[from.index()].address, 0);
    let socket = UdpSocket::bind(own).map_err(|error| {
        Failure::new(format!("{} is not an address of this machine ({error}): is this {}?", own.ip(), args.from))
    })?;
    let leaf = fabric.udp(fabric.leaf_of(from));
    let mut packet = vec![0; PAYLOAD.max(CARRY_LEN)];
    Carry { via, to, udp_port: DISCARD }.emit(fabric.key(), &mut packet);
    let wanted = args.rate.map_or(1_000_000, |rate| rate.0.0);
    let cable = fabric.cables[fabric.ports[from.index()][0].cable].bits_per_s;
    // In a lossless fabric packets in the kernel cannot be stopped, so the kernel gets no more than the cable takes.
    let (rate, slack) = match (fabric.lossless, cable) {
        (Some(_), Some(cable)) => (wanted.min(cable), LOSSLESS_SLACK),
        _ => (wanted, SLACK),
    };
    let wait = Duration::from_secs_f64((packet.len() + FRAME_BYTES) as f64 * 8.0 / rate as f64);
    socket.set_nonblocking(true).map_err(|error| Failure::new(format!("the socket: {error}")))?;
    let switch = Switch { socket, leaf, key: fabric.key(), slack };
    Ok(send(&switch, &packet, wait, args.duration, interrupt))
}

/// The path to the host's switch.
struct Switch {
    socket: UdpSocket,
    leaf: SocketAddr,
    key: JobKey,
    /// How much lateness a sender makes up for.
    slack: Duration,
}

impl Switch {
    /// Until when the switch has paused this host, if it has just sent a PAUSE.
    fn pause(&self) -> Option<Instant> {
        let (mut bytes, mut until) = ([0; PAYLOAD], None);
        while let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
            let packet = &bytes[..len];
            let header = Common::parse(packet).ok().filter(|_| from == self.leaf);
            if header.is_some_and(|header| header == fabric_header(kind::PAUSE, self.key))
                && let Some(span) = read_pause(packet)
            {
                until = Some(Instant::now() + Duration::from_nanos(span.0 / 1_000));
            }
        }
        until
    }
}

fn send(switch: &Switch, packet: &[u8], wait: Duration, duration: Option<Duration>, interrupt: &Interrupt) -> u64 {
    let start = Instant::now();
    let (mut next, mut sent) = (start, 0);
    let over = |now: Instant| duration.is_some_and(|duration| now - start >= duration);
    let mut paused_until = start;
    loop {
        let now = Instant::now();
        if over(now) || interrupt.flag().load(Ordering::Relaxed) {
            return sent;
        }
        paused_until = switch.pause().unwrap_or(paused_until);
        // A pause does not count as lateness.
        next = next.max(now.checked_sub(switch.slack).unwrap_or(now)).max(paused_until);
        while next <= now {
            // The buffer is full, or this reports an error of an earlier packet: this packet is lost, as others are.
            sent += u64::from(switch.socket.send_to(packet, switch.leaf).is_ok());
            next += wait;
        }
        std::thread::sleep(PAUSE);
    }
}
