//! The plan of a bench: which stars, which losses on them, how much data, how often.

use std::fmt;

use serde::{Serialize, Serializer};
use tributary_control::quantity::{Bytes, DataRate, Share};
use tributary_numeric::{DType, ReduceOp, has_fixed_point};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::Kind;
use tributary_testbed::Shaping;

use super::Args;
use super::contender::{Beside, Contender};
use crate::cluster::job;

/// The rate of every link of a star.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as the machine copies.
    Unshaped,
    /// This many Gbit/s each way.
    Gbps(f64),
}

impl Rate {
    /// Bits per second, of a link that is shaped.
    pub fn bits_per_s(self) -> Option<f64> {
        match self {
            Rate::Unshaped => None,
            Rate::Gbps(gbps) => Some(gbps * 1e9),
        }
    }

    /// The testbed's form of the rate. The parser has checked the range.
    pub fn shaping(self) -> Shaping {
        match self {
            Rate::Unshaped => Shaping::Unshaped,
            Rate::Gbps(gbps) => Shaping::BitsPerSecond((gbps * 1e9).round() as u64),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Unshaped => f.write_str("unshaped"),
            Rate::Gbps(gbps) => write!(f, "{gbps} Gbit/s"),
        }
    }
}

impl Serialize for Rate {
    /// A number, or null for an unshaped link.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Rate::Unshaped => serializer.serialize_none(),
            Rate::Gbps(gbps) => serializer.serialize_some(gbps),
        }
    }
}

/// One star, and the losses with which it is measured, no loss first if it is among them.
#[derive(Clone, Debug, PartialEq)]
pub struct StarPlan {
    /// Hosts around the switch.
    pub hosts: u16,
    /// The rate of every link.
    pub rate: Rate,
    /// The losses in percent, for each link and direction.
    pub losses: Vec<f64>,
}

/// Everything that one bench measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stars, measured one after the other.
    pub stars: Vec<StarPlan>,
    /// The contenders, which take turns.
    pub contenders: Vec<Contender>,
    /// Hosts beside those of a star's workers, with a parameter server each.
    pub servers: u16,
    /// Further hosts, each with a switch for PyTorch's ranks.
    pub spare: u16,
    /// The rate of these hosts' links; `None` for that of the others.
    pub spare_rate: Option<Rate>,
    /// PyTorch's ranks on each host.
    pub ranks_per_host: u16,
    /// Elements of the tensor.
    pub elements: usize,
    /// Collectives in one run.
    pub iters: u32,
    /// Runs of each contender.
    pub repetitions: u32,
    /// Elements of the small tensor: 1 KiB of float32.
    pub small_elements: usize,
    /// Collectives of the small tensor in one run.
    pub small_iters: u32,
    /// Threads of the switch.
    pub shards: u16,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
}

impl Plan {
    /// The plan for the flags; if they name no star, most rows of docs/performance.md.
    pub fn new(args: &Args) -> Plan {
        let size = args.size.unwrap_or(Bytes(if args.quick { 1_000_000 } else { 25_000_000 }));
        let spare = (args.spare > 0, Beside::Spare(args.spare));
        let words: Vec<Contender> =
            [(args.one_word, Beside::Nothing), spare, (args.one_word_and_switch, Beside::Switch)]
                .into_iter()
                .filter_map(|(runs, beside)| runs.then_some(Contender::OneWord(beside)))
                .collect();
        let protocols = match args.protocol.is_empty() {
            true if words.is_empty() => job::protocols().collect(),
            _ => args.protocol.clone(),
        };
        Plan {
            stars: stars(args),
            contenders: match &args.sparse[..] {
                [] => {
                    let (dtypes, numbers) = (or(&args.dtype, DType::F32), or(&args.numbers, "float"));
                    let cores = or(&args.cores, 1);
                    [words, Contender::all(&protocols, &dtypes, &numbers, &args.design, &cores)].concat()
                }
                densities => Contender::sparse(&protocols, densities),
            },
            servers: args.servers,
            spare: args.spare,
            spare_rate: args.spare_rate,
            ranks_per_host: args.ranks_per_host,
            elements: args.elements.map_or(elements_of(size), |elements| elements as usize),
            iters: args.iters.unwrap_or(if args.quick { 2 } else { 5 }),
            repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 3 }),
            small_elements: 256,
            small_iters: if args.quick { 20 } else { 200 },
            shards: args.shards,
            mtu: args.mtu,
        }
    }

    /// The most hosts of any star.
    pub fn most_hosts(&self) -> usize {
        self.stars.iter().map(|star| usize::from(star.hosts)).max().unwrap_or(0)
    }
}

fn stars(args: &Args) -> Vec<StarPlan> {
    let star = |hosts, rate, losses: &[f64]| StarPlan { hosts, rate, losses: losses.to_vec() };
    if args.hosts.is_empty() && args.rate.is_empty() && args.loss.is_empty() {
        if args.quick {
            return vec![star(2, Rate::Gbps(1.0), &[0.0, 1.0])];
        }
        return vec![
            star(4, Rate::Gbps(1.0), &[0.0, 0.1, 1.0]),
            star(8, Rate::Gbps(1.0), &[0.0]),
            star(4, Rate::Gbps(10.0), &[0.0]),
            star(4, Rate::Unshaped, &[0.0]),
        ];
    }
    let mut losses = or(&args.loss.iter().map(|loss| loss.percent()).collect::<Vec<_>>(), 0.0);
    losses.sort_by(f64::total_cmp);
    let hosts = if args.hosts.is_empty() { vec![4, 8] } else { args.hosts.clone() };
    let rates = if args.rate.is_empty() { vec![Rate::Gbps(1.0)] } else { args.rate.clone() };
    rates
        .iter()
        .flat_map(|&rate| hosts.iter().map(move |&hosts| (hosts, rate)))
        .map(|(h, r)| star(h, r, &losses))
        .collect()
}

fn or<T: Clone>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

/// Parses a type that every way of summing floats has.
pub fn parse_dtype(text: &str) -> Result<DType, String> {
    let types = || DType::ALL.into_iter().filter(|&dtype| dtype.is_float() && has_fixed_point(dtype, ReduceOp::Sum));
    let names: Vec<&str> = types().map(DType::name).collect();
    types().find(|dtype| dtype.name() == text).ok_or_else(|| format!("it is one of {}", names.join(", ")))
}

/// Parses a value of the option that chooses between floats and fixed point.
pub fn parse_numbers(text: &str) -> Result<&'static str, String> {
    let Kind::Choice(words) = Numbers::OPTION.kind else { unreachable!("the option is a choice") };
    words.iter().copied().find(|word| *word == text).ok_or_else(|| format!("it is {}", words.join(" or ")))
}

/// How many elements of float32 a tensor of this size has.
pub fn elements_of(size: Bytes) -> usize {
    (size.0 as f64 / 4.0).round() as usize
}

/// Parses `unshaped`, or a rate that a link can be shaped to.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "unshaped" {
        return Ok(Rate::Unshaped);
    }
    let rate: DataRate = text.parse().map_err(|error| format!("{error}; or write 'unshaped'"))?;
    rate_of(rate.gbps())
}

/// The rate of a link of this many Gbit/s, if it can be shaped to it.
pub fn rate_of(gbps: f64) -> Result<Rate, String> {
    Shaping::gbps(gbps).map(|_| Rate::Gbps(gbps)).map_err(|error| error.to_string())
}

/// Parses the share of packets that links lose.
pub fn parse_loss(text: &str) -> Result<Share, String> {
    match text.parse::<Share>()? {
        share if share <= Share(0.5) => Ok(share),
        _ => Err("it is a share from 0 % to 50 %".to_string()),
    }
}

/// Parses a size that fits into every machine's memory.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse()?;
    match (10..=10_000_000_000).contains(&size.0) {
        true => Ok(size),
        false => Err("it is a size from 10 B to 10 GB".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tributary_proto::protocols;

    use super::*;
    use crate::commands::collective::design;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Plan {
        Plan::new(&Cli::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).expect("flags").args)
    }

    #[test]
    fn without_flags_every_row_of_the_performance_page_is_measured() {
        let plan = plan("");
        assert_eq!(plan.elements, 6_250_000);
        assert_eq!(plan.stars.len(), 4);
        assert_eq!(plan.stars[0].losses, [0.0, 0.1, 1.0]);
        assert_eq!(plan.most_hosts(), 8);
    }

    #[test]
    fn flags_give_every_combination_with_the_least_loss_first() {
        let plan = plan("--hosts 2,3 --rate 10Gbit/s,unshaped --loss 1%,0% --elements 64");
        let stars: Vec<(u16, Rate)> = plan.stars.iter().map(|star| (star.hosts, star.rate)).collect();
        assert_eq!(stars, [(2, Rate::Gbps(10.0)), (3, Rate::Gbps(10.0)), (2, Rate::Unshaped), (3, Rate::Unshaped)]);
        assert!(plan.stars.iter().all(|star| star.losses == [0.0, 1.0]));
        assert_eq!(plan.elements, 64);
    }

    #[test]
    fn every_type_takes_turns_with_every_way_to_sum_it() {
        let names = |line: &str| -> Vec<String> { plan(line).contenders.iter().map(Contender::name).collect() };
        let expected = |dtypes: &[&str], numbers: &[&str]| -> Vec<String> {
            let mut names = Vec::new();
            for protocol in crate::cluster::job::protocols() {
                let numbers: &[&str] = if protocol.options.specs.contains(&Numbers::OPTION) { numbers } else { &[""] };
                for dtype in dtypes {
                    names.extend(numbers.iter().map(|numbers| format!("{}{dtype}{numbers}", protocol.name)));
                }
            }
            names.push("Gloo".to_owned());
            names
        };
        assert_eq!(names(""), expected(&[""], &[""]));
        assert_eq!(names("--dtype f32,bf16"), expected(&["", " bf16"], &[""]));
        assert_eq!(names("--dtype f32,bf16 --numbers float,fixed"), expected(&["", " bf16"], &["", " fixed"]));
    }

    #[test]
    fn a_protocol_with_designs_takes_turns_in_each() {
        let names: Vec<String> = plan("--design single,tree").contenders.iter().map(Contender::name).collect();
        let able = || crate::cluster::job::protocols().filter(|protocol| design::has_designs(protocol));
        assert!(able().next().is_some());
        for protocol in able() {
            assert!(names.contains(&format!("{protocol} single")) && names.contains(&format!("{protocol} tree")));
            assert!(!names.contains(&protocol.name.to_owned()), "{names:?}");
        }
        assert_eq!(names.len(), plan("").contenders.len() + able().count());
        assert!(design::parse("round").unwrap_err().contains("single"));
    }

    #[test]
    fn workers_of_one_core_and_of_several_take_turns_where_a_protocol_divides_its_slots() {
        let contenders = plan("--cores 1,2").contenders;
        let several = |who: &&Contender| who.cores() == 2;
        let able = crate::cluster::job::protocols()
            .filter(|protocol| protocol.divides_slots_by_default())
            .map(|protocol| format!("{protocol} 2 cores"));
        assert!(contenders.iter().filter(several).map(Contender::name).eq(able), "{contenders:?}");
        assert!(contenders.iter().any(|who| who.cores() == 1));
        let Some(Contender::Ours(two)) = contenders.iter().find(several) else { panic!("{contenders:?}") };
        assert!(two.flags().ends_with(&["--cores".to_owned(), "2".to_owned()]), "{:?}", two.flags());
    }

    #[test]
    fn sparse_sums_take_turns_with_dense_ones_of_the_same_contenders() {
        let names: Vec<String> = plan("--sparse 0.01,0.5").contenders.iter().map(Contender::name).collect();
        assert_eq!(names[names.len() - 3..], ["Gloo", "Gloo sparse 0.01", "Gloo sparse 0.5"]);
        let able = crate::cluster::job::protocols().filter(|protocol| protocol.options.sparse.is_some());
        let expected =
            able.flat_map(|protocol| ["", " sparse 0.01", " sparse 0.5"].map(|how| format!("{protocol}{how}")));
        assert!(names[..names.len() - 3].iter().cloned().eq(expected) && names.len() > 3, "{names:?}");
    }

    #[test]
    fn only_the_protocols_that_are_named_take_turns_and_hosts_with_servers_do_not_work() {
        let protocol =
            protocols::ALL.iter().find(|protocol| protocol.server_machine().is_some()).expect("one has some");
        let plan = plan(&format!("--hosts 4 --servers 2 --protocol {protocol}"));
        let names: Vec<String> = plan.contenders.iter().map(Contender::name).collect();
        assert_eq!((names, plan.servers, plan.most_hosts()), (vec![protocol.name.to_owned(), "Gloo".to_owned()], 2, 4));
    }

    #[test]
    fn one_word_and_spare_hosts_take_turns_with_gloo_alone() {
        let names = |line: &str| -> Vec<String> { plan(line).contenders.iter().map(Contender::name).collect() };
        assert_eq!(names("--one-word"), ["one word", "Gloo"]);
        assert_eq!(names("--one-word --spare 2"), ["one word", "one word +2 spare", "Gloo"]);
        assert_eq!(names("--one-word --ranks-per-host 2"), ["one word", "Gloo"]);
        assert_eq!(names("--one-word --one-word-and-switch"), ["one word", "one word +switch", "Gloo"]);
        for flags in ["--one-word", "--one-word-and-switch", "--one-word --one-word-and-switch"] {
            assert_eq!(plan(&format!("{flags} --ranks-per-host 2")).ranks_per_host, 2);
        }
        let protocol = crate::cluster::job::protocols().next().expect("there is one");
        assert_eq!(names(&format!("--spare 1 --protocol {protocol}")), ["one word +1 spare", protocol.name, "Gloo"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(parse_rate("fast").unwrap_err().contains("unshaped"));
        assert!(parse_rate("1").unwrap_err().contains("as in \"100 Gbit/s\""));
        assert!(parse_rate("20 kbit/s").unwrap_err().contains("cannot be shaped"));
        assert!(parse_loss("51 %").is_err() && parse_loss("1").is_err() && parse_loss("NaN").is_err());
        assert!(parse_size("0 MB").is_err());
        assert_eq!(parse_dtype("f64").unwrap_err(), "it is one of f32, f16, bf16");
        assert_eq!(parse_numbers("exact").unwrap_err(), "it is float or fixed or int8 or thc4");
    }
}
