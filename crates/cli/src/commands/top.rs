//! `tributary top`: a switch's slow ranks, live.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::history::{History, JobHistory, Overview, Straggler};
use tributary_net::status::{EndedJob, SwitchStatus};

use super::status::{clients, fabric};
use crate::failure::Failure;
use crate::flags::{parse_switch, parse_time, resolve};
use crate::output::{self, Table, duration, list};

const EXAMPLES: &str = "\
Examples:
  tributary top --switch 10.0.0.1
  tributary top --switch 10.0.0.1 --once        one screen
  tributary top --switch 10.0.0.1 --json | jq '.jobs[] | select(.still_s > 5) | {name, waiting_for}'

COLLECTIVE is the one that ranks are in, by its number in the job, or how many are done; a line
below says who has not begun one that others are in. STILL FOR is how long no sum was completed
while some rank is waited for; WAITS FOR are those ranks. SLOW are the ranks that the others
waited for in the last minute, and in how many of all samples. The last jobs that ended stand
below: status --ended has all of the last hour. The switch takes one sample a second, and keeps
them: --json has goodput and packets of no use sample by sample, and http://SWITCH shows the same
as a page. Ranks of one speed are waited for about equally often, a straggler nearly always. Where
stdout is not a terminal, screens follow one another. Ctrl-C ends it.";

/// The most ranks that the table names as slow.
const SLOWEST: usize = 3;
/// The most ended jobs below the table.
const LAST_ENDED: usize = 5;
/// How much sooner than an interval after the last screen the next may come.
const SLACK: Duration = Duration::from_millis(200);
/// Moves the cursor to the corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// The flags of `tributary top`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// Time from one screen to the next
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval)]
    pub interval: Duration,
    /// One screen
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object for each screen
    #[arg(long)]
    pub json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_time(text, Duration::from_millis(250)..=Duration::from_secs(3600))
}

/// Shows what the switch observes until it is stopped. The switch says it after each of its samples.
pub fn run(args: Args) -> Result<(), Failure> {
    let switch = resolve(&args.switch)?;
    let mut shown_at: Option<Instant> = None;
    for event in client::events(switch)? {
        let Overview { status, history, ended } = event?;
        // Samples are not exactly as far from each other as screens.
        if shown_at.is_some_and(|at| at.elapsed() + SLACK < args.interval) {
            continue;
        }
        shown_at = Some(Instant::now());
        match args.json {
            true => output::json(&history)?,
            false => show(&args, &screen(switch, &history, &status, &ended))?,
        }
        if args.once {
            return Ok(());
        }
    }
    Err(Failure::new(format!("the switch at {switch} has stopped")))
}

fn show(args: &Args, screen: &str) -> io::Result<()> {
    if !args.once && io::stdout().is_terminal() {
        write!(io::stdout(), "{CLEAR}")?;
    }
    output::line(screen)
}

fn screen(
    switch: SocketAddr,
    History { switch: own, jobs, .. }: &History,
    status: &SwitchStatus,
    past: &[EndedJob],
) -> String {
    let mut lines = vec![format!(
        "switch {switch}: in {:.2} Gbit/s, out {:.2} Gbit/s, {} packets lost in its buffers, {} jobs",
        last(&own.rx_gbps),
        last(&own.tx_gbps),
        own.overflows,
        jobs.len()
    )];
    lines.extend(clients::earlier_jobs(&status.switch));
    if !jobs.is_empty() {
        lines.extend([String::new(), table(jobs)]);
        lines.extend(jobs.iter().filter_map(|job| job.operation.as_ref()?.who_lacks(&job.name)));
        lines.extend(jobs.iter().filter_map(|job| Some(job.large_sums.as_ref()?.line(&job.name))));
    }
    lines.extend(fabric::at_controller(status));
    let clients = clients::lines(&status.switch.clients);
    if !clients.is_empty() {
        lines.push(String::new());
        lines.extend(clients);
    }
    if !past.is_empty() {
        lines.push(String::new());
        lines.extend(past.iter().take(LAST_ENDED).map(ended));
    }
    lines.join("\n")
}

fn ended(job: &EndedJob) -> String {
    let why = job.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{} of {} ended {} ago ({}){why}", job.name, job.client, duration(job.ended_s_ago), job.end)
}

fn last(rates: &[f64]) -> f64 {
    rates.last().copied().unwrap_or_default()
}

fn table(jobs: &[JobHistory]) -> String {
    let mut table = Table::new([
        "JOB",
        "STATE",
        "PROTOCOL",
        "RANKS",
        "MISSING",
        "COLLECTIVE",
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
            job.world_size.to_string(),
            list(&job.missing),
            collective(job),
            format!("{:.2}", last(&job.goodput_gbps)),
            format!("{:.0}", job.blocks_per_s),
            job.still_s.map_or("-".to_string(), |still_s| format!("{still_s:.1} s")),
            // In a job that makes progress, the ranks that are last at this moment mean nothing.
            if job.still_s.is_some() { list(&job.waiting_for) } else { "-".to_string() },
            slow(&job.stragglers),
        ]);
    }
    table.render()
}

fn collective(job: &JobHistory) -> String {
    match &job.operation {
        Some(operation) => format!("{} {}", operation.name, operation.number),
        None if job.collectives > 0 => format!("{} done", job.collectives),
        None => "-".to_string(),
    }
}

/// Formats slow ranks: `2 (81 %), 0 (3 %)`.
fn slow(stragglers: &[Straggler]) -> String {
    let one = |Straggler { rank, share }: &Straggler| format!("{rank} ({:.0} %)", share * 100.0);
    match stragglers {
        [] => "-".to_string(),
        _ => stragglers.iter().take(SLOWEST).map(one).collect::<Vec<_>>().join(", "),
    }
}
