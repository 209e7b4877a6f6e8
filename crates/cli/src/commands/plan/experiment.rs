//! The experiments of a plan: one training step on one network, under each protocol.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use toml::{Table, Value};
use tributary_net::pool_size::elements_in;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::options::{Defaults, Kind};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;
use tributary_proto::protocols;
use tributary_sim::config::{Bytes, Config, DataRate, Duration};

use crate::failure::Failure;

/// A model whose number of parameters is published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: u64,
}

/// Models of torchvision 0.20 (its page "Models and pre-trained weights", `num_params`), and of Hugging Face's hub (the
/// tensors of `google-bert/bert-base-uncased`, `bert-large-uncased`, `openai-community/gpt2`, `gpt2-xl` and
/// `meta-llama/Llama-2-7b-hf`, without tied copies and heads for pre-training).
pub const MODELS: [Model; 9] = [
    Model { name: "alexnet", parameters: 61_100_840 },
    Model { name: "resnet-50", parameters: 25_557_032 },
    Model { name: "resnet-152", parameters: 60_192_808 },
    Model { name: "vgg16", parameters: 138_357_544 },
    Model { name: "bert-base", parameters: 109_482_240 },
    Model { name: "bert-large", parameters: 335_141_888 },
    Model { name: "gpt2", parameters: 124_439_808 },
    Model { name: "gpt2-xl", parameters: 1_557_611_200 },
    Model { name: "llama-2-7b", parameters: 6_738_415_616 },
];

/// The network of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// How the table calls it.
    pub name: String,
    hosts: u32,
    slowest: DataRate,
    network: Table,
}

impl Links {
    /// Hosts round one switch.
    pub fn star(hosts: u32, rate: DataRate, delay: Duration) -> Links {
        // DCTCP's paper: 65 packets at 10 Gbit/s; the host path of steps takes DCTCP.
        let marks = ((100_000.0 * rate.gbps() / 10.0) as i64).clamp(30_000, 500_000);
        let star = Table::from_iter([("hosts".to_string(), Value::from(hosts))]);
        let network = [
            ("star", Value::Table(star)),
            ("rate", rate.to_string().into()),
            ("delay", delay.to_string().into()),
            ("mark_above", marks.into()),
        ];
        let network = network.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        Links { name: format!("{hosts} hosts at one switch, links of {rate}"), hosts, slowest: rate, network }
    }

    /// The network of an experiment's file.
    pub fn of_file(file: &Path) -> Result<Links, Failure> {
        let shown = file.display();
        let wrong = |why: String| Failure::new(format!("{shown}: {why}"));
        let text = fs::read_to_string(file).map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
        let mut table: Table = toml::from_str(&text).map_err(|error| wrong(error.message().to_string()))?;
        let Some(Value::Table(network)) = table.remove("network") else {
            return Err(wrong("it has no [network]; `tributary plan` takes an experiment's file".into()));
        };
        let only = Table::from_iter([("network".to_string(), Value::Table(network.clone()))]);
        let config = read(&only.to_string()).map_err(wrong)?;
        let graph = config.network.build().map_err(|error| wrong(error.to_string()))?;
        let hosts = graph.hosts();
        let rates = graph.edges().iter().flat_map(|edge| [edge.a_to_b.rate, edge.b_to_a.rate]);
        let slowest = DataRate(rates.min().unwrap_or(config.network.rate.0));
        if hosts < 2 {
            return Err(wrong(format!("it has {hosts} hosts; a plan needs two")));
        }
        Ok(Links { name: format!("{hosts} hosts of {shown}"), hosts, slowest, network })
    }
}

/// The training step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepShape {
    /// "ddp" or "fsdp".
    pub kind: String,
    /// The model's parameters.
    pub parameters: u64,
    /// What a rank computes.
    pub compute: Duration,
    /// The model's layers.
    pub layers: u32,
    /// The size of DDP's buckets.
    pub bucket: Bytes,
    /// The type of parameters and gradients.
    #[serde(rename = "type")]
    pub dtype: String,
}

/// The experiments of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The network.
    pub links: Links,
    /// The step, in full size.
    pub step: StepShape,
    /// Sizes and computations are divided by this.
    pub scale: u64,
    dtype: DType,
    seed: u64,
}

/// The packets of all ranks in a step that a run of seconds has.
const PACKETS: u64 = 600_000;
/// The least that a layer is scaled down to: packets of a layer that latency does not rule.
const LEAST_PARAMETERS: u64 = 1024;

impl Experiment {
    /// The experiments; without `scale`, of a size that runs in seconds.
    pub fn new(links: Links, step: StepShape, scale: Option<u64>, seed: u64) -> Result<Experiment, String> {
        let dtype = DType::from_name(&step.dtype).ok_or_else(|| format!("{} is not a type", step.dtype))?;
        let layer = step.parameters / u64::from(step.layers);
        if layer == 0 {
            return Err(format!("{} parameters are fewer than {} layers", step.parameters, step.layers));
        }
        let times = if step.kind == "fsdp" { 3 } else { 1 };
        let packets = u64::from(links.hosts) * times * step.parameters / 256;
        let wanted = packets.div_ceil(PACKETS).min((layer / LEAST_PARAMETERS).max(1));
        let scale = scale.unwrap_or(wanted);
        if layer / scale == 0 {
            return Err(format!("--scale {scale}: nothing is left of a layer of {layer} parameters"));
        }
        Ok(Experiment { links, step, scale, dtype, seed })
    }

    /// The protocols that sum such gradients.
    pub fn protocols(&self) -> Vec<&'static Protocol> {
        let spec = Spec::allreduce(1, self.dtype, ReduceOp::Sum);
        let can = |protocol: &&'static Protocol| (protocol.check)(&spec, &protocol.options.defaults()).is_ok();
        protocols::ALL.iter().copied().filter(can).collect()
    }

    /// The experiment's file under a protocol.
    pub fn text(&self, protocol: &'static Protocol) -> Result<String, String> {
        let StepShape { kind, parameters, compute, layers, bucket, dtype } = &self.step;
        let in_ps = |share: f64| (compute.0.0 as f64 * share / f64::from(*layers) / self.scale as f64).round();
        // PyTorch's first bucket is smaller, so that the first reduction begins early.
        let first = bucket.0.min(1 << 20).div_ceil(self.scale);
        let [forward, backward] = [in_ps(1.0 / 3.0), in_ps(2.0 / 3.0)];
        let header = match self.scale {
            1 => String::new(),
            scale => format!("# Sizes and times are a {scale}th: multiply times by {scale}.\n"),
        };
        let text = format!(
            "seed = {}\nend = \"1000 s\"\n[[step]]\nkind = \"{kind}\"\nprotocol = \"{protocol}\"\nhosts = \"all\"\n\
             iterations = {STEPS}\ntype = \"{dtype}\"\nbucket = {}\nfirst_bucket = {first}\n\
             elements_per_packet = {}\n[[step.layer]]\ncount = {layers}\nparameters = {}\nforward = \"{forward} ps\"\nbackward = \"{backward} ps\"\n",
            self.seed,
            bucket.0.div_ceil(self.scale),
            elements_in(protocol, MTU - IPV4_AND_UDP_LEN),
            parameters / u64::from(*layers) / self.scale,
        );
        let mut file: Table = toml::from_str(&text).map_err(|error| error.to_string())?;
        file.insert("network".into(), Value::Table(self.links.network.clone()));
        let times = self.switch_times(protocol)?;
        if !times.is_empty() {
            file.insert("switches".into(), Value::Table(Table::from_iter([(protocol.name.into(), times.into())])));
        }
        Ok(header + &toml::to_string(&file).map_err(|error| error.to_string())?)
    }

    /// The experiment under a protocol.
    pub fn config(&self, protocol: &'static Protocol) -> Result<Config, String> {
        read(&self.text(protocol)?)
    }

    /// How long switches wait. The simulator's defaults are for links of 100 Gbit/s: on slower ones the packets of a
    /// block lie further apart, and a switch that waits too briefly sends sums that lack most of them.
    fn switch_times(&self, protocol: &'static Protocol) -> Result<Table, String> {
        let Some(shared) = &protocol.shared else { return Ok(Table::new()) };
        let defaults =
            shared.options.read_with(&BTreeMap::new(), Defaults::Simulated).map_err(|error| error.to_string())?;
        let slower = (100.0 / self.links.slowest.gbps()).max(1.0);
        let scaled = shared.options.specs.iter().filter_map(|spec| {
            let Kind::Time { most, .. } = spec.kind else { return None };
            shared.options.simulated.iter().find(|(name, _)| *name == spec.name)?;
            let time = Span::from_secs_f64(defaults.time(spec.name).as_secs_f64() * slower).min(most);
            Some((spec.name.to_string(), Value::from(time.to_text())))
        });
        Ok(scaled.collect())
    }
}

/// The MTU of links.
const MTU: usize = 1500;

/// Steps of each run: the first one finds windows and timers as they are at the beginning.
const STEPS: u32 = 2;

/// Reads an experiment's text.
fn read(text: &str) -> Result<Config, String> {
    Config::parse(text).map_err(|error| error.to_string())
}
