//! `tributary doctor`: what is wrong, and the command that mends it.
//!
//! Checks of the machine are in `machine.rs`, of the network in `network.rs`, of a switch's link in `link.rs`. `smoke.rs` proves that sums are right,
//! and `way.rs` checks what the path to a switch does to packets besides carrying them.

mod link;
mod machine;
mod network;
mod path_probe;
mod smoke;

use serde::Serialize;

use crate::failure::Failure;
use crate::flags::parse_switch;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  tributary doctor                       this machine
  tributary doctor --switch 10.0.0.1     this machine and the way to that switch
  tributary doctor --switch 10.0.0.1 --world-size 4   and whether its link is enough for four
  tributary doctor --json | jq '.checks[] | select(.level != \"ok\")'

Every line is ok, warn (it works, slower) or fail (it does not work), with the command that mends
it. Exit code 1 if something fails.";

/// The flags of `tributary doctor`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Check the way to this switch too
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: Option<String>,
    /// Judge the switch's link for this many workers, a rank each [default: those of its largest job]
    #[arg(long, value_name = "N", requires = "switch", value_parser = clap::value_parser!(u16).range(2..))]
    pub world_size: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well.
    Ok,
    /// It works, but slower or less safely.
    Warn,
    /// It does not work.
    Fail,
}

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The name of what was checked.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Check {
    /// A check that found all well.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, level: Level::Ok, found: found.into(), remedy: None }
    }

    /// A check that found something that works but could be better.
    pub fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, level: Level::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// A check that found something that does not work.
    pub fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, level: Level::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn line(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let remedy = self.remedy.iter().map(|remedy| format!("\n{:24}-> {remedy}", ""));
        format!("{level}  {:<16}  {}{}", self.name, self.found, remedy.collect::<String>())
    }
}

/// Runs every check; prints each as soon as it is done.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut checks = Vec::new();
    let mut add = |found: Vec<Check>| -> Result<(), Failure> {
        for check in found {
            if !args.json {
                output::line(&check.line())?;
            }
            checks.push(check);
        }
        Ok(())
    };
    add(machine::checks())?;
    add(network::local())?;
    match &args.switch {
        None => add(vec![smoke::embedded()])?,
        Some(switch) => {
            let reach = network::way_to(switch, args.world_size);
            let reached = reach.iter().all(|check| check.level != Level::Fail);
            add(reach)?;
            if reached {
                add(vec![smoke::at(switch)])?;
                add(path_probe::checks(switch))?;
            }
        }
    }
    let failed: Vec<&str> = checks.iter().filter(|check| check.level == Level::Fail).map(|check| check.name).collect();
    let warned = checks.iter().filter(|check| check.level == Level::Warn).count();
    if args.json {
        output::json(&serde_json::json!({ "ok": failed.is_empty(), "checks": checks }))?;
    }
    if !failed.is_empty() {
        return Err(Failure::Reported(format!(
            "{} of {} checks failed: {}",
            failed.len(),
            checks.len(),
            failed.join(", ")
        )));
    }
    if !args.json {
        let warnings = if warned == 1 { "1 warning".to_string() } else { format!("{warned} warnings") };
        output::line(&format!("{} checks, nothing fails, {warnings}", checks.len()))?;
    }
    Ok(())
}
