//! What begins flows at a host: at random, or from a list.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::poisson::PoissonSource;

/// What begins flows at a host.
#[derive(Clone, Debug)]
pub enum FlowSource {
    /// Flows that arrive at random.
    Poisson(PoissonSource),
    /// Flows that a file lists.
    List(FlowList),
}

impl FlowSource {
    /// True if it will end by itself.
    pub fn ends(&self) -> bool {
        match self {
            FlowSource::Poisson(source) => source.ends(),
            FlowSource::List(_) => true,
        }
    }

    /// When the next flow begins, or the source ends.
    pub fn next(&self) -> Option<Time> {
        match self {
            FlowSource::Poisson(source) => source.next(),
            FlowSource::List(list) => list.next(),
        }
    }

    /// A flow that begins by `now`: its receiver and its bytes.
    pub fn pop(&mut self, now: Time) -> Option<(NodeId, u64)> {
        match self {
            FlowSource::Poisson(source) => source.pop(now),
            FlowSource::List(list) => list.pop(now),
        }
    }

    /// True once, at the first call after the end.
    pub fn has_just_ended(&mut self) -> bool {
        match self {
            FlowSource::Poisson(source) => source.has_just_ended(),
            FlowSource::List(list) => list.has_just_ended(),
        }
    }
}

// Flows that a file lists: senders, receivers, bytes and times.

/// One flow of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFlow {
    /// When it begins.
    pub at: Time,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Its bytes of data.
    pub bytes: u64,
}

/// The flows of one sender, by time.
#[derive(Clone, Debug)]
pub struct FlowList {
    flows: VecDeque<ListedFlow>,
    /// The end was reported.
    is_over: bool,
}

impl FlowList {
    /// One source for each sender of a list.
    pub fn sources(mut flows: Vec<ListedFlow>) -> Vec<(NodeId, FlowList)> {
        // Stable, so that flows of one moment begin in the list's order.
        flows.sort_by_key(|flow| flow.at);
        let mut by_sender: BTreeMap<NodeId, VecDeque<ListedFlow>> = BTreeMap::new();
        flows.into_iter().for_each(|flow| by_sender.entry(flow.from).or_default().push_back(flow));
        by_sender.into_iter().map(|(from, flows)| (from, FlowList { flows, is_over: false })).collect()
    }

    /// When the next flow begins.
    pub fn next(&self) -> Option<Time> {
        self.flows.front().map(|flow| flow.at)
    }

    /// A flow that begins by `now`: its receiver and its bytes.
    pub fn pop(&mut self, now: Time) -> Option<(NodeId, u64)> {
        let flow = self.flows.pop_front_if(|flow| flow.at <= now)?;
        Some((flow.to, flow.bytes))
    }

    /// True once, at the first call after the last flow has begun.
    pub fn has_just_ended(&mut self) -> bool {
        let now = self.flows.is_empty() && !self.is_over;
        self.is_over |= now;
        now
    }
}

/// Reads a list as CSV: a heading with `src`, `dst`, `bytes` and `start_s` among its columns, as the table `flows` of a
/// report has it, and a line for each flow; hosts by number, seconds as numbers. With `class`, only the flows that have it
/// in their column `class`. An error names the line.
pub fn read_flows(text: &str, class: Option<&str>) -> Result<Vec<ListedFlow>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (_, heading) = lines.next().ok_or("it is empty")?;
    let names: Vec<&str> = heading.split(',').map(str::trim).collect();
    let column = |name: &str| {
        let found = names.iter().position(|known| *known == name);
        found.ok_or_else(|| format!("its heading lacks {name}: the columns are src,dst,bytes,start_s"))
    };
    let [src, dst, bytes, start] = [column("src")?, column("dst")?, column("bytes")?, column("start_s")?];
    let class = class.map(|class| Ok::<_, String>((column("class")?, class))).transpose()?;
    let is_of_class = |cells: &[&str]| class.is_none_or(|(column, class)| cells.get(column) == Some(&class));
    let flow = |(index, line): (usize, &str)| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if !is_of_class(&cells) {
            return Ok(None);
        }
        let wrong = |what: &str| format!("line {}: {what}: {line}", index + 1);
        let cell = |column: usize| cells.get(column).copied().unwrap_or_default();
        let host =
            |column: usize| cell(column).parse().map(NodeId).map_err(|_| wrong("src and dst are numbers of hosts"));
        let seconds: f64 = cell(start).parse().map_err(|_| wrong("start_s is not a number of seconds"))?;
        if !(0.0..=1e6).contains(&seconds) {
            return Err(wrong("start_s is not a time in the run"));
        }
        Ok(Some(ListedFlow {
            at: Time::ZERO + Span((seconds * 1e12).round() as u64),
            from: host(src)?,
            to: host(dst)?,
            bytes: cell(bytes).parse().map_err(|_| wrong("bytes is not a whole number"))?,
        }))
    };
    let flows: Vec<ListedFlow> = lines.filter_map(|line| flow(line).transpose()).collect::<Result<_, String>>()?;
    match class {
        _ if !flows.is_empty() => Ok(flows),
        Some((_, class)) => Err(format!("it lists no flows of the class {class}")),
        None => Err("it lists no flows".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_a_report_is_a_list_of_flows() {
        let text = "kind,src,dst,bytes,start_s,seconds,made_by\ndctcp,3,0,1000,0.000002,0.1,x\n# a comment\ndctcp,1,2,5,0,,x\n";
        let flows = read_flows(text, None).unwrap();
        let flow = |at, from, to, bytes| ListedFlow {
            at: Time::ZERO + Span::from_micros(at),
            from: NodeId(from),
            to: NodeId(to),
            bytes,
        };
        assert_eq!(flows, [flow(2, 3, 0, 1000), flow(0, 1, 2, 5)]);
        let mut sources = FlowList::sources(flows);
        let (from, list) = &mut sources[1];
        assert_eq!((*from, list.next()), (NodeId(3), Some(Time::ZERO + Span::from_micros(2))));
        assert_eq!((list.pop(Time::ZERO), list.has_just_ended()), (None, false));
        assert_eq!(list.pop(Time::ZERO + Span::from_micros(2)), Some((NodeId(0), 1000)));
        assert_eq!((list.has_just_ended(), list.has_just_ended(), list.next()), (true, false, None));
    }

    #[test]
    fn a_column_says_which_class_a_flow_is_of() {
        let text = "src,dst,bytes,start_s,class\n0,1,10,0,bulk\n0,1,20,0,3\n1,0,30,0, bulk\n";
        let bytes =
            |class: &str| read_flows(text, Some(class)).unwrap().iter().map(|flow| flow.bytes).collect::<Vec<_>>();
        assert_eq!((bytes("bulk"), bytes("3")), (vec![10, 30], vec![20]));
        assert_eq!(read_flows(text, Some("4")).unwrap_err(), "it lists no flows of the class 4");
        let without = read_flows("src,dst,bytes,start_s\n0,1,2,0\n", Some("4")).unwrap_err();
        assert!(without.starts_with("its heading lacks class"), "{without}");
    }

    #[test]
    fn an_error_names_the_line_and_what_is_wrong_with_it() {
        let sentence = |text: &str| read_flows(text, None).unwrap_err();
        assert_eq!(sentence(""), "it is empty");
        assert_eq!(sentence("src,dst,bytes\n"), "its heading lacks start_s: the columns are src,dst,bytes,start_s");
        assert_eq!(sentence("src,dst,bytes,start_s\n"), "it lists no flows");
        let wrong = |line: &str| sentence(&format!("src,dst,bytes,start_s\n0,1,2,0\n{line}\n"));
        assert_eq!(wrong("a,1,2,0"), "line 3: src and dst are numbers of hosts: a,1,2,0");
        assert_eq!(wrong("0,1,2.5,0"), "line 3: bytes is not a whole number: 0,1,2.5,0");
        assert_eq!(wrong("0,1,2"), "line 3: start_s is not a number of seconds: 0,1,2");
        assert_eq!(wrong("0,1,2,-1"), "line 3: start_s is not a time in the run: 0,1,2,-1");
    }
}
