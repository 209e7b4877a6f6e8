//! The network over time as one page (HTML) that loads nothing: a line for each direction of each cable, coloured by
//! utilisation, queue or PAUSE, with a slider.

use serde::Serialize;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::topology::Layout;
use super::{Report, Samples};
use crate::config::DataRate;
use crate::net::Pause;
use crate::topology::{Graph, LinkId};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The most values of one measure on a page. Where there are more, several steps are one frame.
const MAX_VALUES: usize = 1 << 20;

/// What the page's script reads. Shares are in thousandths.
#[derive(Serialize)]
struct Data {
    title: String,
    about: String,
    width: f64,
    height: f64,
    nodes: Vec<PageNode>,
    links: Vec<PageLink>,
    /// Links of which the file wants no samples.
    unsampled: Vec<PageLink>,
    every_s: f64,
    frames: usize,
    /// The mean of the frame's steps: frame after frame, one for each of `links`; the others in the same order.
    utilisation: Vec<u16>,
    /// The most bytes at the end of any step of the frame.
    queued: Vec<u64>,
    /// The share of the frame for which the link's near end was stopped; `None` without PAUSE.
    paused: Option<Vec<u16>>,
}

#[derive(Serialize)]
struct PageNode {
    name: String,
    x: f64,
    y: f64,
    named: bool,
    is_switch: bool,
}

#[derive(Serialize)]
struct PageLink {
    name: String,
    rate: String,
    from: usize,
    to: usize,
    bend: f64,
}

impl Report {
    /// The page; `None` if the run took no samples of links.
    pub fn page(&self, graph: &Graph, title: &str) -> Option<String> {
        let samples = self.samples.as_ref().filter(|samples| !samples.queued.is_empty())?;
        let layout = Layout::of(graph);
        let all = (0..2 * graph.edges().len() as u32).map(LinkId);
        let (sampled, unsampled): (Vec<LinkId>, Vec<LinkId>) =
            all.partition(|link| samples.links.binary_search(link).is_ok());
        let of = |links: Vec<LinkId>| links.into_iter().map(|link| page_link(graph, &layout, link)).collect();
        let steps = samples.queued.len().div_ceil(MAX_VALUES);
        let data = Data {
            title: title.to_string(),
            about: format!("{} hosts, {} switches, seed {}", self.hosts, self.switches, self.seed),
            width: layout.width,
            height: layout.height,
            nodes: (0..graph.nodes() as u32).map(|node| page_node(graph, &layout, NodeId(node))).collect(),
            links: of(sampled),
            unsampled: of(unsampled),
            every_s: samples.every.times(steps as u64).as_secs_f64(),
            frames: samples.steps.div_ceil(steps),
            utilisation: utilisation(samples, steps),
            queued: by_frame(&samples.queued, samples.links.len(), steps, |of_link| {
                *of_link.iter().max().unwrap_or(&0)
            }),
            paused: self.pauses.as_ref().map(|pauses| paused(samples, steps, &pauses.log)),
        };
        Some(fill(&data))
    }
}

/// The page with its data. A name in the data cannot end the element that the data is in.
fn fill(data: &Data) -> String {
    let data = serde_json::to_string(data).expect("numbers and texts").replace('<', "\\u003c");
    let (before, behind) = PAGE.split_once("DATA").expect("the page has data");
    let code = |text: &str| text.replace("STYLE", STYLE).replace("SCRIPT", SCRIPT);
    code(before) + &data + &code(behind)
}

fn page_node(graph: &Graph, layout: &Layout, node: NodeId) -> PageNode {
    let (x, y) = layout.positions[node.index()];
    let is_switch = graph.switch_index(node).is_some();
    PageNode { name: graph.name(node), x: round(x), y: round(y), named: layout.is_named(graph, node), is_switch }
}

fn page_link(graph: &Graph, layout: &Layout, link: LinkId) -> PageLink {
    let (from, to) = graph.ends(link);
    PageLink {
        name: graph.link_name(link),
        rate: DataRate(graph.queue_spec(link).rate).to_string(),
        from: from.index(),
        to: to.index(),
        bend: round(layout.bend(from, to)),
    }
}

fn round(length: f64) -> f64 {
    (10.0 * length).round() / 10.0
}

fn thousandths(share: f64) -> u16 {
    (1000.0 * share).round() as u16
}

fn utilisation(samples: &Samples, steps: usize) -> Vec<u16> {
    let shares: Vec<f64> = samples.link_samples().map(|sample| sample.utilisation).collect();
    let mean = |of_link: &[f64]| thousandths(of_link.iter().sum::<f64>() / of_link.len() as f64);
    by_frame(&shares, samples.links.len(), steps, mean)
}

/// For which share of each frame each link's near end was stopped.
fn paused(samples: &Samples, steps: usize, pauses: &[Pause]) -> Vec<u16> {
    let (links, frames) = (samples.links.len(), samples.steps.div_ceil(steps));
    let every = samples.every.times(steps as u64);
    let mut stopped = vec![Span::ZERO; links * frames];
    for pause in pauses {
        let Ok(column) = samples.links.binary_search(&pause.link) else { continue };
        let mut at = pause.from;
        while at < pause.until {
            let frame = (at.0 / every.0) as usize;
            let end = Time((frame as u64 + 1) * every.0).min(pause.until);
            let Some(sum) = stopped.get_mut(frame * links + column) else { break };
            *sum = *sum + end.since(at);
            at = end;
        }
    }
    stopped.iter().map(|span| thousandths(span.0 as f64 / every.0 as f64)).collect()
}

/// What each link's values of some steps become, frame after frame.
fn by_frame<T: Copy, U>(values: &[T], links: usize, steps: usize, merge: impl Fn(&[T]) -> U) -> Vec<U> {
    let mut merged = Vec::with_capacity(values.len() / steps + links);
    for frame in values.chunks(links * steps) {
        for link in 0..links {
            let of_link: Vec<T> = frame.iter().skip(link).step_by(links).copied().collect();
            merged.push(merge(&of_link));
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Cause;

    #[test]
    fn the_steps_of_a_frame_become_one_value_of_each_link() {
        // Two links, three steps: 0, 1 and 2 of the first, 10, 11 and 12 of the second.
        let values = [0u64, 10, 1, 11, 2, 12];
        let most = |of_link: &[u64]| *of_link.iter().max().unwrap();
        assert_eq!(by_frame(&values, 2, 1, most), values);
        assert_eq!(by_frame(&values, 2, 2, most), [1, 11, 2, 12]);
    }

    #[test]
    fn a_pause_counts_in_every_frame_that_it_touches() {
        let samples = Samples { steps: 4, ..Samples::new(Span(100), vec![LinkId(0), LinkId(1)], 0, Vec::new()) };
        let pause = |link, from, until| {
            let (link, ordered, cause) = (LinkId(link), Time(from), Cause::Programs);
            Pause { link, ordered, from: Time(from), until: Time(until), cause }
        };
        let pauses = [pause(1, 50, 250), pause(1, 260, 270), pause(7, 0, 300), pause(0, 390, 500)];
        assert_eq!(paused(&samples, 1, &pauses), [0, 500, 0, 1000, 0, 600, 100, 0]);
        assert_eq!(paused(&samples, 2, &pauses), [0, 750, 50, 300]);
    }
}
