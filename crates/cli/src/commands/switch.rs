//! `tributary switch`: the aggregation daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::address::DEFAULT_PORT;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tributary switch                                   every address of this machine, port 17777
  tributary switch --listen 10.0.0.1:17777 --cores 2 --memory 256
  tributary switch --http 127.0.0.1:9100             Prometheus: http://127.0.0.1:9100/metrics
  tributary switch --config /etc/tributary.toml

The file has the flags' names, and flags win over it:
  listen = \"10.0.0.1:17777\"
  cores = 2
  memory = 256
  http = \"127.0.0.1:9100\"

Workers need UDP and TCP to the port, and UDP to the ports above the ephemeral range's start where --cores is above 1.";

/// The flags of `tributary switch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to listen, UDP for packets and TCP for control [default: 0.0.0.0:17777]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Threads that aggregate, each with its own share of the slots [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cores: Option<u16>,
    /// Memory for slots that all jobs share, in MiB [default: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// Serve /metrics and /jobs on this address too
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<SocketAddr>,
    /// Read the settings from a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON: one object when ready, one at the end
    #[arg(long)]
    pub json: bool,
}

/// Serves until a signal asks to stop.
pub fn run(_args: Args) -> Result<(), Failure> {
    let _ = DEFAULT_PORT;
    Err(Failure::new("switch is not built yet"))
}
