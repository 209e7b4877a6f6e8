//! The experiments of a plan: one training step on one network, for each way to sum.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::{Table, Value};
use tributary_net::pool_size::{elements_in, packet_bytes, suggested};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::options::{Defaults, Kind};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;
use tributary_proto::protocols;
use tributary_sim::config::{Bytes, Config, Duration};

use super::calibrate::HostCosts;
use super::network::Links;
use crate::flags::one_of;

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

/// Who sums: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// A protocol.
    Protocol(&'static Protocol),
    /// Hosts, in a ring over TCP, as PyTorch's Gloo does.
    Gloo,
}

impl Way {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Way, String> {
        let gloo = Way::Gloo.name();
        let named = protocols::named(text).map(Way::Protocol).or((text == gloo).then_some(Way::Gloo));
        named.ok_or_else(|| one_of(protocols::names().chain([gloo])))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Way::Protocol(protocol) => protocol.name,
            Way::Gloo => "gloo",
        }
    }

    /// True if switches sum.
    pub fn sums_in_network(self) -> bool {
        matches!(self, Way::Protocol(protocol) if protocol.sums_in_network())
    }
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
    /// What packets cost hosts' processors; nothing if left out.
    pub costs: Option<HostCosts>,
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
        Ok(Experiment { links, step, scale, costs: None, dtype, seed })
    }

    /// Who can sum such gradients.
    pub fn ways(&self) -> Vec<Way> {
        let spec = Spec::allreduce(1, self.dtype, ReduceOp::Sum);
        let can = |protocol: &&'static Protocol| (protocol.check)(&spec, &protocol.options.defaults()).is_ok();
        protocols::ALL.iter().copied().filter(can).map(Way::Protocol).chain([Way::Gloo]).collect()
    }

    /// The experiment's file.
    pub fn text(&self, way: Way) -> Result<String, String> {
        // A step names a protocol even where all its collectives take the host path.
        let protocol = if let Way::Protocol(protocol) = way { protocol } else { protocols::ALL[0] };
        let StepShape { kind, parameters, compute, layers, bucket, dtype } = &self.step;
        let in_ps = |share: f64| (compute.0.0 as f64 * share / f64::from(*layers) / self.scale as f64).round();
        // PyTorch's first bucket is smaller, so that the first reduction begins early.
        let first = bucket.0.min(1 << 20).div_ceil(self.scale);
        let [forward, backward] = [in_ps(1.0 / 3.0), in_ps(2.0 / 3.0)];
        // The pool that workers propose. The simulator's default covers one round trip, in which PA-ATP's ranks cannot be
        // ahead of each other.
        let elements = elements_in(protocol, MTU - IPV4_AND_UDP_LEN);
        let header = match self.scale {
            1 => String::new(),
            scale => format!("# Sizes and times are a {scale}th: multiply times by {scale}.\n"),
        };
        let text = format!(
            "seed = {}\nend = \"1000 s\"\n[[step]]\nkind = \"{kind}\"\nprotocol = \"{protocol}\"\nhosts = \"all\"\n\
             iterations = {STEPS}\ntype = \"{dtype}\"\nbucket = {}\nfirst_bucket = {first}\n\
             elements_per_packet = {elements}\nslots = {}\nhost_path = {}\n[[step.layer]]\ncount = {layers}\nparameters = {}\nforward = \"{forward} ps\"\nbackward = \"{backward} ps\"\n",
            self.seed,
            bucket.0.div_ceil(self.scale),
            suggested(Some(self.links.slowest.0.0), self.links.round_trip.into(), packet_bytes(protocol, elements)),
            way == Way::Gloo,
            parameters / u64::from(*layers) / self.scale,
        );
        let mut file: Table = toml::from_str(&text).map_err(|error| error.to_string())?;
        file.insert("network".into(), Value::Table(self.links.network.clone()));
        if let Some(faults) = &self.links.faults {
            file.insert("fault".into(), faults.clone());
        }
        if let Some(costs) = &self.costs {
            file.insert("hosts".into(), Value::Table(costs.table()));
        }
        let times = self.switch_times(protocol)?;
        if !times.is_empty() {
            file.insert("switches".into(), Value::Table(Table::from_iter([(protocol.name.into(), times.into())])));
        }
        Ok(header + &toml::to_string(&file).map_err(|error| error.to_string())?)
    }

    /// The experiment.
    pub fn config(&self, way: Way) -> Result<Config, String> {
        Config::parse(&self.text(way)?).map_err(|error| error.to_string())
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
