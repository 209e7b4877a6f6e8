//! The plan of a collective on a fabric: who sums what, beside which other traffic, and which switch is killed.

use std::time::Duration;

use tributary_control::fabric::FabricLayout;
use tributary_control::quantity::{self, DataRate};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;

use super::{Args, protocol};
use crate::commands::collective::{design, read_options};
use crate::failure::Failure;

/// `--traffic`: other packets from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub from: String,
    pub to: String,
    pub rate: DataRate,
    pub via: Option<String>,
}

/// `--kill`: a switch, when it is killed, and how long after that it is started again.
#[derive(Clone, Debug, PartialEq)]
pub struct Kill {
    pub switch: String,
    pub after: Duration,
    pub back: Option<Duration>,
}

/// Reads `FROM:TO:RATE[:VIA]`.
pub fn parse_stream(text: &str) -> Result<Stream, String> {
    let wrong = || "write FROM:TO:RATE or FROM:TO:RATE:VIA, for example host3:host7:150Mbit/s:spine0".to_string();
    let fields: Vec<&str> = text.split(':').collect();
    let (from, to, rate, via) = match fields[..] {
        [from, to, rate] => (from, to, rate, None),
        [from, to, rate, via] => (from, to, rate, Some(via.to_string())),
        _ => return Err(wrong()),
    };
    Ok(Stream { from: from.to_string(), to: to.to_string(), rate: rate.parse()?, via })
}

/// Reads `SWITCH:TIME[:BACK]`.
pub fn parse_kill(text: &str) -> Result<Kill, String> {
    let wrong = || "write SWITCH:TIME or SWITCH:TIME:BACK, for example spine1:500ms:2s".to_string();
    let time = |text: &str| text.parse::<quantity::Duration>().map(Duration::from);
    let fields: Vec<&str> = text.split(':').collect();
    let (switch, after, back) = match fields[..] {
        [switch, after] => (switch, after, None),
        [switch, after, back] => (switch, after, Some(time(back)?)),
        _ => return Err(wrong()),
    };
    Ok(Kill { switch: switch.to_string(), after: time(after)?, back })
}

/// The plan for the hosts.
pub struct Plan {
    pub protocol: &'static Protocol,
    pub options: Vec<(String, String)>,
    pub trees: Option<u16>,
    pub elements: usize,
    pub dtype: DType,
    pub iters: u32,
    pub timeout: Duration,
    /// The host of each rank.
    pub workers: Vec<NodeId>,
    pub streams: Vec<(NodeId, Stream)>,
    pub kill: Option<(NodeId, Kill)>,
}

impl Plan {
    /// Finds the nodes that the flags name.
    pub fn new(args: &Args, elements: usize, fabric: &FabricLayout) -> Result<Plan, Failure> {
        let find = |name: &str, switch: bool| {
            let found = fabric.node_named(name).filter(|&node| fabric.is_switch(node) == switch);
            let kind = if switch { "switch" } else { "host" };
            found.ok_or_else(|| Failure::usage(format!("the fabric has no {kind} '{name}'")))
        };
        // Servers bring nothing to the sums.
        let mut busy = fabric.servers.clone();
        let mut streams = Vec::new();
        for stream in &args.traffic {
            let from = find(&stream.from, false)?;
            busy.extend([from, find(&stream.to, false)?]);
            stream.via.as_ref().map(|via| find(via, true)).transpose()?;
            streams.push((from, stream.clone()));
        }
        let workers: Vec<NodeId> = fabric.hosts().filter(|host| !busy.contains(host)).collect();
        if workers.is_empty() {
            return Err(Failure::usage("no host is left to sum: those of --traffic and the file's servers do not"));
        }
        let kill = args.kill.clone().map(|kill| Ok::<_, Failure>((find(&kill.switch, true)?, kill))).transpose()?;
        let protocol = protocol(&args.protocol)?;
        let spec = Spec::allreduce(elements as u32, args.dtype, ReduceOp::Sum);
        let chosen: Vec<_> = args.options.iter().cloned().chain(args.design.map(design::as_option)).collect();
        let options = read_options(protocol, &chosen)?;
        (protocol.check)(&spec, &options).map_err(Failure::usage)?;
        Ok(Plan {
            protocol,
            options: chosen,
            trees: args.trees,
            elements,
            dtype: args.dtype,
            iters: args.iters,
            timeout: args.timeout,
            workers,
            streams,
            kill,
        })
    }

    /// The plan as a sentence, for people who wait.
    pub fn sentence(&self) -> String {
        let (hosts, protocol) = (self.workers.len(), self.protocol.name);
        let times = if self.iters == 1 { String::new() } else { format!(" {} times", self.iters) };
        format!("{hosts} hosts sum {} elements{times} with {protocol}", self.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::protocols;

    use crate::commands::fabric::ChosenFile;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: Args,
    }

    fn sentence(failure: Failure) -> String {
        match failure {
            Failure::Usage(sentence) => sentence,
            other => panic!("no mistake in the flags: {}", other.report(false)),
        }
    }

    #[test]
    fn options_of_the_protocol_are_checked_before_anything_starts() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fabric.toml");
        let has_numbers = |protocol: &&&Protocol| protocol.options.specs.iter().any(|option| option.name == "numbers");
        let name = protocols::ALL.iter().find(has_numbers).expect("some protocol sums floats as it is told").name;
        let plan = |flags: &[&str]| {
            let common = ["fabric", example, "--allreduce", "1000", "--protocol", name];
            let args = <Flags as clap::Parser>::parse_from(common.iter().chain(flags)).args;
            let layout = ChosenFile { path: args.file.clone(), switch_options: Vec::new() }.read().unwrap();
            Plan::new(&args, 1000, &layout).map(|plan| plan.options).map_err(sentence)
        };
        assert_eq!(plan(&["--option", "numbers=fixed"]), Ok(vec![("numbers".to_owned(), "fixed".to_owned())]));
        let unknown = plan(&["--option", "number=fixed"]).unwrap_err();
        assert!(unknown.contains("number") && unknown.contains(name), "{unknown}");
        let impossible = plan(&["--option", "numbers=fixed", "--dtype", "f64"]).unwrap_err();
        assert!(impossible.contains("f64"), "{impossible}");
    }

    #[test]
    fn traffic_and_deaths_are_read_as_they_are_written() {
        let stream = parse_stream("host3:host7:150Mbit/s:spine0").unwrap();
        assert_eq!(
            (stream.from.as_str(), stream.rate.0.0, stream.via.as_deref()),
            ("host3", 150_000_000, Some("spine0"))
        );
        assert_eq!(parse_stream("a:b:1 Mbit/s").unwrap().via, None);
        let kill = parse_kill("spine1:500ms:2 s").unwrap();
        assert_eq!((kill.after, kill.back), (Duration::from_millis(500), Some(Duration::from_secs(2))));
        assert_eq!(parse_kill("spine1:1s").unwrap().back, None);
        for wrong in ["", "a:b", "a:b:0bit/s", "a:b:x", "a:b:1", "a:b:1Mbit/s:c:d"] {
            assert!(parse_stream(wrong).is_err(), "{wrong}");
        }
        assert!(
            ["spine1", "spine1:-1s", "spine1:1", "spine1:1s:x", "spine1:1s:1s:1s"]
                .iter()
                .all(|wrong| parse_kill(wrong).is_err())
        );
    }
}
