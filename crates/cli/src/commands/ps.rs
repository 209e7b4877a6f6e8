//! `tributary ps`: a parameter server.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tributary_net::os;
use tributary_net::server::{RunningServer, ServerOptions};

use crate::failure::Failure;
use crate::flags::{parse_switch, resolve};
use crate::log::LogArgs;
use crate::output::Announcer;

const EXAMPLES: &str = "\
Examples:
  One switch, which forms the jobs, two hosts that sum, two that work:
    tributary switch --servers 10.0.0.7,10.0.0.8                          (10.0.0.1)
    tributary ps --switch 10.0.0.1                                        (10.0.0.7)
    tributary ps --switch 10.0.0.1                                        (10.0.0.8)
  tributary allreduce --switch 10.0.0.1 --protocol ps --job a --rank 0 --world-size 2 --elements 900
  tributary allreduce --switch 10.0.0.1 --protocol ps --job a --rank 1 --world-size 2 --elements 900
  Where the firewall lets one port through:
    tributary ps --switch 10.0.0.1 --listen 10.0.0.7:4242

  Behind a switch that sums what it has room for:
    tributary switch --servers 10.0.0.7 --aggregators 16384               (10.0.0.1)
    tributary ps --switch 10.0.0.1                                        (10.0.0.7)

A job with --protocol ps gets all the servers that are on offer when its last rank has come: each
sums an equal share of its blocks, and a server serves many jobs at once. Packets go from worker
to server and back; the switch forms the jobs and forwards. If no server is on offer, each
worker's process is a server too (colocated): nothing to start, and half of each link for the
worker's own data. A packet and a sum are what they are at a switch, so that the two differ in who
sums alone. Where the jobs of a protocol share a switch's memory (tributary switch --aggregators),
the switch sums, and servers what it has no room for; all packets pass the switch. With
--aggregators 0 servers sum everything.

Whoever serves a job reads its tensors, so a switch takes servers from its own machine and from
where its operator says (--servers), or, with --tokens, for their own tenant's jobs alone.

`tributary status` lists the servers and the jobs that they serve. If a server ends or dies, every
rank reports its address within two seconds; servers that come later serve later jobs. Ends on
SIGTERM or Ctrl-C with exit code 0.";

/// The flags of `tributary ps`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The switch whose jobs it serves; port 17777 where none is given
    #[arg(long, value_name = "HOST[:PORT]", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// Where packets come, by UDP [default: the address on the way to the switch, and any port]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Print one JSON object when ready, and one at the end
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Serves until a signal asks to stop.
pub fn run(args: Args) -> Result<(), Failure> {
    os::return_slots_to_the_kernel();
    // Before the switch knows the server, so that a signal that comes then is kept and not lost.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let announcer = Announcer::start(args.json)?;
    let switch = resolve(&args.switch)?;
    let listen = args.listen.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
    let server =
        RunningServer::start(&ServerOptions::new(switch, listen)).map_err(|error| Failure::new(error.to_string()))?;
    let udp = server.udp_addr();
    let object = json!({ "event": "offered", "switch": args.switch, "udp": udp, "pid": std::process::id() });
    let text = format!("on offer to the jobs of the switch {} at udp {udp}; stop with Ctrl-C or SIGTERM", args.switch);
    announcer.announce(&object, &text);
    let signal = signals.forever().next();
    server.stop();
    let name = if signal == Some(SIGINT) { "SIGINT" } else { "SIGTERM" };
    announcer.announce(&json!({ "event": "stopped", "signal": name }), &format!("stopped by {name}"));
    Ok(())
}
