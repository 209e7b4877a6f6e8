//! The graphs of the usual training steps: DDP, FSDP2 and FSDP2 in groups (HSDP).

use std::collections::BTreeMap;

use tributary_proto::contract::time::Span;

use crate::config::{LayerSection, StepCollective, StepKind, StepSection};

/// A node before it has streams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub name: String,
    pub work: DraftWork,
    /// By number.
    pub after: Vec<usize>,
    pub ranks: Option<Vec<u16>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum DraftWork {
    Compute(Span),
    Collective { kind: StepCollective, group: String, bytes: u64, root: u16 },
    Send { pairs: Vec<[u16; 2]>, bytes: u64 },
}

/// Groups of ranks by name; each is several groups of different ranks.
pub(super) struct Groups(pub BTreeMap<String, Vec<Vec<u16>>>);

impl Groups {
    pub fn of_all(ranks: u16) -> Groups {
        Groups([(ALL.to_string(), vec![(0..ranks).collect()])].into())
    }

    pub fn add(&mut self, name: &str, groups: Vec<Vec<u16>>) {
        self.0.insert(name.to_string(), groups);
    }
}

impl StepCollective {
    /// The name, as torch spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            StepCollective::AllReduce => "all_reduce",
            StepCollective::ReduceScatter => "reduce_scatter",
            StepCollective::AllGather => "all_gather",
            StepCollective::Reduce => "reduce",
            StepCollective::Broadcast => "broadcast",
            StepCollective::Barrier => "barrier",
            StepCollective::AllToAll => "all_to_all",
            StepCollective::Send => "send",
        }
    }
}

/// A layer of the model.
struct Layer {
    name: String,
    bytes: u64,
    forward: Span,
    backward: Span,
}

/// The nodes of a step of one of the usual kinds, and its groups.
pub(super) fn draft(section: &StepSection, ranks: u16) -> Result<(Vec<Draft>, Groups), String> {
    let layers = layers(section)?;
    if section.accumulate == 0 {
        return Err("accumulate = 0: a step has at least one backward pass".into());
    }
    let mut groups = Groups::of_all(ranks);
    let shard = match (section.kind, section.shard) {
        (StepKind::Hsdp, Some(shard)) if shard > 0 && ranks.is_multiple_of(shard) => shard,
        (StepKind::Hsdp, Some(shard)) => return Err(format!("shard = {shard} does not divide its {ranks} ranks")),
        (StepKind::Hsdp, None) => return Err("an hsdp step needs shard, the ranks that share the parameters".into()),
        (_, Some(_)) => return Err("shard is for kind = \"hsdp\"".into()),
        (_, None) => ranks,
    };
    if section.kind == StepKind::Hsdp {
        let blocks = (0..ranks / shard).map(|block| (block * shard..(block + 1) * shard).collect());
        groups.add("shard", blocks.collect());
        let across = (0..shard).map(|first| (first..ranks).step_by(usize::from(shard)).collect());
        groups.add("replicate", across.collect());
    }
    let mut builder = Builder { section, layers, nodes: Vec::new() };
    match section.kind {
        StepKind::Ddp => builder.ddp(),
        _ => builder.sharded(shard),
    }
    Ok((builder.nodes, groups))
}

fn layers(section: &StepSection) -> Result<Vec<Layer>, String> {
    let size = section.dtype.size() as u64;
    let mut layers = Vec::new();
    for LayerSection { name, parameters, backward, forward, count } in &section.layers {
        for number in 0..*count {
            let default = layers.len().to_string();
            let name = name.clone().map(|name| if *count == 1 { name } else { format!("{name}.{number}") });
            layers.push(Layer {
                name: name.unwrap_or(default),
                bytes: parameters * size,
                forward: forward.map_or(Span(backward.0.0 / 2), |forward| forward.0),
                backward: backward.0,
            });
        }
        if layers.len() > MAX_LAYERS {
            return Err(format!("it has more than {MAX_LAYERS} layers"));
        }
    }
    if layers.is_empty() { Err("it needs [[step.layer]], the layers of the model".into()) } else { Ok(layers) }
}

const MAX_LAYERS: usize = 10_000;

struct Builder<'a> {
    section: &'a StepSection,
    layers: Vec<Layer>,
    nodes: Vec<Draft>,
}

impl Builder<'_> {
    fn add(&mut self, name: String, work: DraftWork, after: Vec<usize>) -> usize {
        self.nodes.push(Draft { name, work, after, ranks: None });
        self.nodes.len() - 1
    }

    fn compute(&mut self, name: String, time: Span, after: Vec<usize>) -> usize {
        self.add(name, DraftWork::Compute(time), after)
    }

    fn collective(&mut self, kind: StepCollective, group: &str, name: &str, bytes: u64, after: Vec<usize>) -> usize {
        let work = DraftWork::Collective { kind, group: group.to_string(), bytes, root: 0 };
        self.add(format!("{} {name}", kind.name()), work, after)
    }

    /// The passes before the one whose gradients are reduced, and the forward pass of that one.
    fn forward(&mut self) {
        let total = |of: fn(&Layer) -> Span, layers: &[Layer]| Span(layers.iter().map(|layer| of(layer).0).sum());
        let forward = total(|layer| layer.forward, &self.layers);
        let backward = total(|layer| layer.backward, &self.layers);
        for pass in 1..self.section.accumulate {
            self.compute(format!("forward and backward {pass}"), Span(forward.0 + backward.0), Vec::new());
        }
        self.compute("forward".into(), forward, Vec::new());
    }

    /// Buckets as PyTorch's reducer makes them: a bucket is full once a layer makes it exceed its limit.
    fn ddp(&mut self) {
        self.forward();
        let (mut bytes, mut limit, mut number) = (0, self.section.first_bucket.0, 0);
        let mut buckets = Vec::new();
        for index in (0..self.layers.len()).rev() {
            let Layer { name, backward, .. } = &self.layers[index];
            let node = self.compute(format!("backward {name}"), *backward, Vec::new());
            bytes += self.layers[index].bytes;
            if bytes >= limit || index == 0 {
                buckets.push((number, bytes, node));
                (bytes, limit, number) = (0, self.section.bucket.0, number + 1);
            }
        }
        let last = self.nodes.len() - 1;
        let mut reduced = Vec::new();
        for (number, bytes, node) in buckets.into_iter().filter(|(_, bytes, _)| *bytes > 0) {
            let after = vec![if self.section.overlap { node } else { last }];
            let name = format!("bucket {number}");
            reduced.push(self.collective(StepCollective::AllReduce, ALL, &name, bytes, after));
        }
        self.compute("optimizer".into(), self.section.optimizer.0, reduced);
    }

    /// FSDP2: a layer's parameters are gathered while the layer before computes, again for the backward pass, and its
    /// gradients are scattered while the layers before it compute.
    fn sharded(&mut self, shard: u16) {
        let in_groups = self.section.kind == StepKind::Hsdp;
        let group = if in_groups { SHARD } else { ALL };
        let whole = |bytes: u64| bytes.next_multiple_of(u64::from(shard) * 4);
        let mut reduced = Vec::new();
        for pass in 1..=self.section.accumulate {
            let is_last = pass == self.section.accumulate;
            let count = self.layers.len();
            let forward: Vec<usize> = (0..count).collect();
            let backward = (0..count).rev().map(|layer| (layer, true));
            let mut computed: Vec<usize> = Vec::new();
            for (layer, is_backward) in forward.into_iter().map(|layer| (layer, false)).chain(backward) {
                let Layer { name, bytes, forward, backward: time } = &self.layers[layer];
                let (name, bytes, forward, time) = (name.clone(), whole(*bytes), *forward, *time);
                // One layer in advance: what the layer before the last one frees.
                let ahead = if self.section.overlap { 2 } else { 1 };
                let after = computed.len().checked_sub(ahead).map(|index| computed[index]);
                let gathers = !(is_backward && layer + 1 == count) && bytes > 0;
                let what = if is_backward { "backward" } else { "forward" };
                let label = format!("{what} {name}");
                let gathered = gathers.then(|| {
                    let after = after.into_iter().collect();
                    self.collective(StepCollective::AllGather, group, &label, bytes, after)
                });
                let time = if is_backward { time } else { forward };
                let node = self.compute(label, time, gathered.into_iter().collect());
                computed.push(node);
                if is_backward && is_last && bytes > 0 {
                    let scattered = self.collective(StepCollective::ReduceScatter, group, &name, bytes, vec![node]);
                    reduced.push(scattered);
                    if in_groups {
                        let share = bytes / u64::from(shard);
                        reduced.push(self.collective(StepCollective::AllReduce, ACROSS, &name, share, vec![scattered]));
                    }
                }
            }
        }
        self.compute("optimizer".into(), self.section.optimizer.0, reduced);
    }
}

pub(super) const ALL: &str = "all";
const SHARD: &str = "shard";
const ACROSS: &str = "replicate";
