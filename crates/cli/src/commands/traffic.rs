//! `tributary traffic`: loads a fabric's links with packets that its switches only forward.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tributary_net::fabric::wire::{CARRY_LEN, Carry, NO_VIA};
use tributary_proto::contract::ids::NodeId;

use super::fabric;
use crate::failure::Failure;
use crate::output;
use crate::stage::Interrupt;

const EXAMPLES: &str = "\
Examples:
  On host3 of a fabric: 150 Mbit/s to host7, over spine0, until Ctrl-C
    tributary traffic --fabric fabric.toml --from host3 --to host7 --via spine0 --rate-mbps 150
  The same for ten seconds, over whichever way the switches choose
    tributary traffic --fabric fabric.toml --from host3 --to host7 --rate-mbps 150 --seconds 10

Packets of 1,500 bytes go through the switches' queues and end at the receiver's discard port.";

/// UDP's discard service (RFC 863): nobody need listen.
const DISCARD: u16 = 9;
/// UDP payload of a packet of 1,500 bytes.
const PAYLOAD: usize = 1_472;
/// What Ethernet, IPv4 and UDP add.
const FRAME_BYTES: usize = 14 + 20 + 8;
/// A pause between two looks at the clock.
const PAUSE: Duration = Duration::from_millis(1);
/// What a late sender makes up for at most: more would be a burst.
const SLACK: Duration = Duration::from_millis(10);

/// The flags of `tributary traffic`.
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
    /// Bits per second on the wire, in 10^6
    #[arg(long, value_name = "MBPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate_mbps: u32,
    /// How long; until Ctrl-C, if left out
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Sends until the time is over or somebody stops it.
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
    let own = SocketAddr::new(fabric.nodes[from.index()].address, 0);
    let socket = UdpSocket::bind(own).map_err(|error| {
        Failure::new(format!("{} is no address of this machine ({error}): is this {}?", own.ip(), args.from))
    })?;
    let leaf = fabric.udp(fabric.leaf_of(from));
    let mut packet = vec![0; PAYLOAD.max(CARRY_LEN)];
    Carry { via, to, udp_port: DISCARD }.emit(fabric.key(), &mut packet);
    let wait = Duration::from_secs_f64((packet.len() + FRAME_BYTES) as f64 * 8.0 / f64::from(args.rate_mbps) / 1e6);
    let sent = send(&socket, leaf, &packet, wait, args.seconds, &interrupt);
    output::line(&format!("sent {sent} packets"))?;
    Ok(())
}

fn send(
    socket: &UdpSocket,
    leaf: SocketAddr,
    packet: &[u8],
    wait: Duration,
    seconds: Option<f64>,
    interrupt: &Interrupt,
) -> u64 {
    let start = Instant::now();
    let (mut next, mut sent) = (start, 0);
    let over = |now: Instant| seconds.is_some_and(|seconds| (now - start).as_secs_f64() >= seconds);
    loop {
        let now = Instant::now();
        if over(now) || interrupt.flag().load(Ordering::Relaxed) {
            return sent;
        }
        next = next.max(now.checked_sub(SLACK).unwrap_or(now));
        while next <= now {
            // A full buffer or an answer to an earlier packet: this one is lost, as others are.
            sent += u64::from(socket.send_to(packet, leaf).is_ok());
            next += wait;
        }
        std::thread::sleep(PAUSE);
    }
}
