//! `tributary top`: who is slow at a switch, seen live.

mod watch;

use std::io::{self, IsTerminal, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use tributary_net::client;
use tributary_net::status::{SwitchInfo, SwitchStatus};

use self::watch::{JobView, Straggler, Watch};
use crate::address::{parse_switch, resolve};
use crate::failure::Failure;
use crate::output::{self, Table, list};

const EXAMPLES: &str = "\
Examples:
  tributary top --switch 10.0.0.1
  tributary top --switch 10.0.0.1 --once --interval 10        one screen, of ten seconds
  tributary top --switch 10.0.0.1 --json | jq '.jobs[] | select(.still_s > 5) | {name, waiting_for}'

STILL FOR is how long no sum was completed while some rank is waited for; WAITS FOR are those ranks.
SLOW are the ranks that the others waited for in the last minute, and at how many of all looks: four
a second. Ranks of one speed are waited for about equally often, a straggler nearly always. It looks
back no further than to its own start. Where stdout is no terminal, screens follow one another.
Ctrl-C ends it.";

/// Between two looks; a switch counts no more often.
const LOOK: Duration = Duration::from_millis(250);
/// Ranks that the table names as slow, at most.
const SLOWEST: usize = 3;
/// Moves to the corner and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// The flags of `tributary top`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// Seconds from one screen to the next
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// One screen, after one interval
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object for each screen
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.25..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("say a number of seconds from 0.25 to 3600".to_string()),
    }
}

/// Looks at the switch until it is stopped, and shows what it saw.
pub fn run(args: Args) -> Result<(), Failure> {
    let switch = resolve(&args.switch)?;
    let (mut watch, begun) = (Watch::default(), Instant::now());
    watch.look(0.0, &client::status(switch)?.jobs);
    loop {
        let shown_at = Instant::now() + Duration::from_secs_f64(args.interval);
        let (status, jobs) = loop {
            sleep(LOOK.min(shown_at.saturating_duration_since(Instant::now())));
            let status = client::status(switch)?;
            let jobs = watch.look(begun.elapsed().as_secs_f64(), &status.jobs);
            if Instant::now() >= shown_at {
                break (status, jobs);
            }
        };
        show(&args, &status, &jobs)?;
        if args.once {
            return Ok(());
        }
    }
}

fn show(args: &Args, status: &SwitchStatus, jobs: &[JobView]) -> io::Result<()> {
    if args.json {
        return output::json(&json!({ "switch": status.switch.listen, "jobs": jobs }));
    }
    let screen = screen(&status.switch, jobs);
    if args.once || !io::stdout().is_terminal() {
        return output::line(&screen);
    }
    write!(io::stdout(), "{CLEAR}")?;
    output::line(&screen)
}

fn screen(switch: &SwitchInfo, jobs: &[JobView]) -> String {
    let [into, out] = [
        switch.shards.iter().map(|shard| shard.rx_gbps).sum::<f64>(),
        switch.shards.iter().map(|shard| shard.tx_gbps).sum::<f64>(),
    ];
    let lost: u64 = switch.shards.iter().map(|shard| shard.rx_overflows).sum();
    let mut lines = vec![format!(
        "switch {}: in {into:.2} Gbit/s, out {out:.2} Gbit/s, {lost} packets lost in its buffers, {} jobs",
        switch.listen,
        jobs.len()
    )];
    if !jobs.is_empty() {
        lines.extend([String::new(), table(jobs)]);
    }
    lines.join("\n")
}

fn table(jobs: &[JobView]) -> String {
    let mut table = Table::new([
        "JOB",
        "STATE",
        "PROTOCOL",
        "RANKS",
        "MISSING",
        "GBIT/S",
        "SUMS/S",
        "STILL FOR",
        "WAITS FOR",
        "SLOW",
    ]);
    for job in jobs {
        table.row([
            job.name.clone(),
            job.state.clone(),
            job.protocol.clone(),
            job.world.to_string(),
            list(&job.missing),
            format!("{:.2}", job.goodput_gbps),
            format!("{:.0}", job.blocks_per_s),
            job.still_s.map_or("-".to_string(), |still_s| format!("{still_s:.1} s")),
            // Of a job that goes on, those that happen to be last at this moment say nothing.
            if job.still_s.is_some() { list(&job.waiting_for) } else { "-".to_string() },
            slow(&job.stragglers),
        ]);
    }
    table.render()
}

/// `2 (81 %), 0 (3 %)`
fn slow(stragglers: &[Straggler]) -> String {
    let one = |Straggler { rank, share }: &Straggler| format!("{rank} ({:.0} %)", share * 100.0);
    match stragglers {
        [] => "-".to_string(),
        _ => stragglers.iter().take(SLOWEST).map(one).collect::<Vec<_>>().join(", "),
    }
}
