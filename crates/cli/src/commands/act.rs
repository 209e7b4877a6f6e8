//! What operators do: `tributary job end`, `member evict`, `client ban`, `cordon` and `drain`.

use std::thread;
use std::time::Duration;

use serde_json::json;
use tributary_control::JobName;
use tributary_net::client::{self, operators};

use crate::failure::Failure;
use crate::flags::{parse_switch, resolve};
use crate::output;

const ABOUT_TOKENS: &str = "\
Needs the token of an [[operator]] of the switch's file (tributary switch --tokens FILE) in
TRIBUTARY_TOKEN. The switch's log says who has done it. In a fabric, name the controller; in
levels, the switch that the act is about: the root for jobs, each switch for its own members,
clients and cordon.";

/// The time between two questions of a drain.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The switch on which an operator acts.
#[derive(clap::Args)]
struct Target {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    switch: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `tributary job`.
#[derive(clap::Args)]
#[command(after_help = ABOUT_TOKENS)]
pub struct JobArgs {
    #[command(subcommand)]
    act: JobAct,
}

#[derive(clap::Subcommand)]
enum JobAct {
    /// End all jobs of a name: every rank is told at once who has ended it, and its memory is free
    #[command(after_help = ABOUT_TOKENS)]
    End {
        /// The job
        #[arg(value_name = "JOB", value_parser = parse_job)]
        job: JobName,
        #[command(flatten)]
        target: Target,
    },
}

/// `tributary member`.
#[derive(clap::Args)]
#[command(after_help = ABOUT_TOKENS)]
pub struct MemberArgs {
    #[command(subcommand)]
    act: MemberAct,
}

#[derive(clap::Subcommand)]
enum MemberAct {
    /// Call a rank lost whatever it sends: the others are told its number at once, and can go on without it
    #[command(after_help = ABOUT_TOKENS)]
    Evict {
        /// The job
        #[arg(value_name = "JOB", value_parser = parse_job)]
        job: JobName,
        /// The rank
        #[arg(value_name = "RANK")]
        rank: u16,
        #[command(flatten)]
        target: Target,
    },
}

/// `tributary client`.
#[derive(clap::Args)]
#[command(after_help = ABOUT_TOKENS)]
pub struct ClientArgs {
    #[command(subcommand)]
    act: ClientAct,
}

#[derive(clap::Subcommand)]
enum ClientAct {
    /// Refuse all joins of a client until the switch is started again; its running jobs go on
    #[command(after_help = ABOUT_TOKENS)]
    Ban(BanArgs),
    /// Take joins of a client again
    #[command(after_help = ABOUT_TOKENS)]
    Unban(BanArgs),
}

#[derive(clap::Args)]
struct BanArgs {
    /// A tenant's name, or an address
    #[arg(value_name = "CLIENT")]
    client: String,
    #[command(flatten)]
    target: Target,
}

/// `tributary cordon`, `uncordon` and `drain`.
#[derive(clap::Args)]
#[command(after_help = ABOUT_TOKENS)]
pub struct CordonArgs {
    #[command(flatten)]
    target: Target,
}

fn parse_job(name: &str) -> Result<JobName, String> {
    JobName::new(name).map_err(|error| error.to_string())
}

/// Ends a job.
pub fn job(args: JobArgs) -> Result<(), Failure> {
    let JobAct::End { job, target } = args.act;
    operators::end_job(resolve(&target.switch)?, &job)?;
    target.report("job_ended", job.as_str(), &format!("job '{job}' is over"))
}

/// Evicts a member.
pub fn member(args: MemberArgs) -> Result<(), Failure> {
    let MemberAct::Evict { job, rank, target } = args.act;
    operators::evict(resolve(&target.switch)?, &job, rank)?;
    target.report("member_evicted", job.as_str(), &format!("rank {rank} of job '{job}' counts as lost"))
}

/// Bans a client, or takes its joins again.
pub fn client(args: ClientArgs) -> Result<(), Failure> {
    let (BanArgs { client, target }, banned) = match args.act {
        ClientAct::Ban(args) => (args, true),
        ClientAct::Unban(args) => (args, false),
    };
    operators::set_banned(resolve(&target.switch)?, &client, banned)?;
    let (event, sentence) = match banned {
        true => ("client_banned", format!("{client} joins no job until the switch is started again")),
        false => ("client_unbanned", format!("{client} may join jobs again")),
    };
    target.report(event, &client, &sentence)
}

/// Lets no new job begin, or lets jobs begin again.
pub fn cordon(args: &CordonArgs, cordoned: bool) -> Result<(), Failure> {
    let CordonArgs { target } = args;
    operators::set_cordoned(resolve(&target.switch)?, cordoned)?;
    match cordoned {
        true => target.report("cordoned", &target.switch, "no new job begins; `tributary uncordon` ends that"),
        false => target.report("uncordoned", &target.switch, "jobs may begin again"),
    }
}

/// Cordons the switch, and waits for as long as a job is there.
pub fn drain(args: &CordonArgs) -> Result<(), Failure> {
    let CordonArgs { target } = args;
    let switch = resolve(&target.switch)?;
    operators::set_cordoned(switch, true)?;
    let mut before = None;
    loop {
        let status = client::status(switch)?;
        let own = status.jobs.into_iter().map(|job| job.name);
        let jobs: Vec<String> = own.chain(status.switch.earlier_jobs).collect();
        if before.as_ref() != Some(&jobs) {
            match target.json {
                true => output::json(&json!({ "event": "draining", "jobs": jobs }))?,
                false if jobs.is_empty() => {}
                false => output::line(&format!("waiting for {} jobs: {}", jobs.len(), jobs.join(", ")))?,
            }
        }
        if jobs.is_empty() {
            return target.report("drained", &target.switch, "no job is left: the switch may be stopped");
        }
        before = Some(jobs);
        thread::sleep(ASK_EVERY);
    }
}

impl Target {
    fn report(&self, event: &str, what: &str, sentence: &str) -> Result<(), Failure> {
        match self.json {
            true => output::json(&json!({ "event": event, "what": what, "switch": self.switch }))?,
            false => output::line(sentence)?,
        }
        Ok(())
    }
}

impl JobArgs {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        let JobAct::End { target, .. } = &self.act;
        target.json
    }
}

impl MemberArgs {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        let MemberAct::Evict { target, .. } = &self.act;
        target.json
    }
}

impl ClientArgs {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        let (ClientAct::Ban(args) | ClientAct::Unban(args)) = &self.act;
        args.target.json
    }
}

impl CordonArgs {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        self.target.json
    }
}
