//! The flags that the workers of every collective share.

use std::path::PathBuf;
use std::time::Duration;

use tributary_net::group::ConnectOptions;
use tributary_numeric::{DType, ReduceOp};
use tributary_operators::shipped;
use tributary_proto::contract::config::{CoreSlots, JobConfig};
use tributary_proto::contract::options::{Options, name_and_value};
use tributary_proto::contract::protocol::Protocol;

use super::design;
use super::made_up::{self, Plan};
use super::protocol::{options_help, protocol, protocols_help, read_options};
use crate::failure::Failure;
use crate::flags::{one_of, parse_switch, parse_timeout};
use crate::npy::{Array, Header};

/// The most cores that drive a worker.
pub const MAX_CORES: i64 = CoreSlots::MAX_CORES as i64;

/// One worker and its array.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("data").required(true).args(["input", "elements"]))]
pub struct Member {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// The job's name, the same on every rank
    #[arg(long, value_name = "NAME")]
    pub job: String,
    /// This worker, 0 to N - 1
    #[arg(long, value_name = "R")]
    pub rank: u16,
    /// Number of workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(JobConfig::MAX_WORLD_SIZE)))]
    pub world_size: u16,
    /// This worker's array
    #[arg(long, value_name = "FILE.npy")]
    pub input: Option<PathBuf>,
    /// Make up an array of N elements, other values on every rank, and check the result
    #[arg(long, value_name = "N")]
    pub elements: Option<usize>,
    /// Where to write the result; shape, order and type are the input's
    #[arg(long, value_name = "FILE.npy")]
    pub output: Option<PathBuf>,
    /// Element type, f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8 | u8 [default: the input's, or f32]
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    pub dtype: Option<DType>,
    /// Do the same K times; times are medians
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,
    /// Time after which other workers, or a result, are given up
    #[arg(long, value_name = "TIME", default_value = "30 s", value_parser = parse_timeout)]
    pub timeout: Duration,
    #[arg(long, value_name = "NAME", default_value = "switchml", value_parser = protocol, help = protocols_help())]
    pub protocol: &'static Protocol,
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value, help = options_help())]
    pub options: Vec<(String, String)>,
    #[arg(long, value_name = "DESIGN", value_parser = design::parse, help = design::help())]
    pub design: Option<&'static str>,
    /// Aggregation trees in a fabric of switches, fewer where it has no more [default: as many as are of use, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub trees: Option<u16>,
    /// Cores that drive this worker, each with a socket and a share of the switch's slots [default: one for each 20 Gbit/s
    /// of the link, as far as half of the processors go]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_CORES))]
    pub cores: Option<u16>,
    /// Elements of four bytes in a packet, the same on every rank [default: those that fill the path's MTU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub elements_per_packet: Option<u16>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub json: bool,
    /// Also print a line at this interval: time, blocks that are summed, packets, the protocol's window
    #[arg(long, value_name = "TIME", requires = "json", value_parser = parse_timeout)]
    pub watch: Option<Duration>,
}

impl Member {
    /// Refuses a rank that the job does not have.
    pub fn check_rank(&self, flag: &str, rank: u16) -> Result<(), Failure> {
        if rank < self.world_size {
            return Ok(());
        }
        let highest = self.world_size - 1;
        Err(Failure::usage(format!("{flag} {rank} is not in 0 to {highest} (--world-size {})", self.world_size)))
    }

    /// Loads or makes up this worker's array.
    pub fn load(&self, plan: &Plan) -> Result<Array, Failure> {
        match (&self.input, self.elements) {
            (Some(path), _) => Ok(Array::read(path, self.dtype)?),
            (None, elements) => {
                let (dtype, elements) = (self.dtype.unwrap_or(DType::F32), elements.unwrap_or(0));
                let data = made_up::array(dtype, plan, self.rank, elements);
                Ok(Array { header: Header::vector(dtype, elements), data })
            }
        }
    }

    /// The chosen options of the protocol, by name.
    pub fn chosen(&self) -> Vec<(String, String)> {
        self.options.iter().cloned().chain(self.design.map(design::as_option)).collect()
    }

    /// The protocol's options.
    pub fn protocol_options(&self) -> Result<Options, Failure> {
        read_options(self.protocol, &self.chosen())
    }

    /// The options with which it joins.
    pub fn options(&self) -> Result<ConnectOptions, Failure> {
        let options = self.protocol_options()?;
        Ok(ConnectOptions {
            switch: self.switch.clone(),
            job: self.job.clone(),
            rank: self.rank,
            world_size: self.world_size,
            timeout: self.timeout,
            protocol: self.protocol,
            options,
            elements_per_packet: self.elements_per_packet,
            slots: None,
            trees: self.trees,
            cores: self.cores,
        })
    }
}

/// Reads an element type.
pub fn dtype(text: &str) -> Result<DType, String> {
    DType::from_name(text).ok_or_else(|| one_of(DType::ALL.map(DType::name)))
}

/// Reads an operator.
pub fn reduce_op(text: &str) -> Result<ReduceOp, String> {
    ReduceOp::from_name(text).ok_or_else(|| one_of(ReduceOp::ALL.map(ReduceOp::name)))
}

/// A built-in operator, or where a custom one is.
#[derive(Clone, Debug)]
pub enum ChosenOp {
    /// Built in.
    Known(ReduceOp),
    /// A file, or the name of a ready-made operator.
    Custom(String),
}

/// Reads either kind.
pub fn chosen_op(text: &str) -> Result<ChosenOp, String> {
    match ReduceOp::from_name(text) {
        Some(op) => Ok(ChosenOp::Known(op)),
        None if text.contains('.') || shipped::named(text).is_some() => Ok(ChosenOp::Custom(text.to_owned())),
        None => Err(format!(
            "{}, or the file of a custom one: tributary operator --help",
            one_of(ReduceOp::ALL.map(ReduceOp::name))
        )),
    }
}
