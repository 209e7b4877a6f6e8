//! How ranks go through their training steps.
//!
//! A rank is woken when a computation ends or something happened to its collectives, and begins all that can begin. Its
//! state depends on its own host's events alone, so a run on several threads needs no more messages.

use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{NodeId, OpId};
use tributary_proto::contract::time::Span;

use crate::engine::records::EndpointId;
use crate::engine::simulation::Simulation;
use crate::engine::step_graph::{Order, RankStream, StepGraph, StepNews, StepRank, StepWork, Way};
use crate::engine::traffic::Traffic;
use crate::events::{EventId, EventKind};

impl Simulation {
    /// Adds a training step, with the streams of each rank. Its jobs are installed before.
    pub fn install_step(&mut self, graph: StepGraph, streams: Vec<Vec<Option<RankStream>>>) {
        let (number, start) = (self.steps.graphs.len(), graph.start);
        for (rank, streams) in streams.into_iter().enumerate() {
            let id = self.steps.ranks.len() as u32;
            let state = StepRank::new(number, &graph, rank, streams);
            for (index, stream) in state.streams.iter().enumerate() {
                match stream.as_ref().map(|stream| &stream.way) {
                    Some(Way::Job { endpoint, .. }) => {
                        self.steps.of_endpoint.insert(*endpoint, (id, index as u16));
                    }
                    Some(Way::Flows(exchange)) => {
                        self.steps.of_lane.insert((state.host, exchange.lane), id);
                    }
                    None => {}
                }
            }
            self.open += 1;
            self.fabric.queue.push(start, EventId::new(EventKind::StepWake, id));
            self.steps.ranks.push(state);
            self.steps.news.push(Vec::new());
        }
        self.steps.order.push(Order::of(&graph));
        self.steps.graphs.push(graph);
    }

    /// A lane for the flows of a stream; `None` once all are in use.
    pub(crate) fn next_lane(&mut self) -> Option<u8> {
        self.steps.lanes = self.steps.lanes.checked_add(1)?;
        Some(self.steps.lanes)
    }

    /// An operation of a step's job is complete at a rank.
    pub(crate) fn note_operation(&mut self, endpoint: EndpointId, op: OpId) {
        if let Some(&(rank, stream)) = self.steps.of_endpoint.get(&endpoint) {
            self.notify_step(rank, StepNews::Operation(stream, op));
        }
    }

    /// Takes what a host's transport reports about the flows of steps.
    pub(crate) fn note_flows(&mut self, host: NodeId) {
        let Some(transport) = &mut self.hosts[host.index()].transport else { return };
        for (lane, from) in transport.take_on_lanes() {
            let Some(&rank) = self.steps.of_lane.get(&(host, lane)) else { continue };
            let news = from.map_or(StepNews::Sent(lane), |from| StepNews::Received(lane, from));
            self.notify_step(rank, news);
        }
    }

    fn notify_step(&mut self, rank: u32, news: StepNews) {
        let waiting = &mut self.steps.news[rank as usize];
        waiting.push(news);
        if waiting.len() == 1 {
            self.fabric.queue.push(self.fabric.now, EventId::new(EventKind::StepWake, rank));
        }
    }

    /// An endpoint has ended: if that is too early, its rank gives up.
    pub(crate) fn end_step_of(&mut self, endpoint: EndpointId) {
        let Some(&(rank, _)) = self.steps.of_endpoint.get(&endpoint) else { return };
        let state = &self.traffic.endpoints[endpoint.0 as usize];
        if state.completed < self.traffic.jobs.get(state.job).plan.iterations {
            self.end_step_rank(rank);
        }
    }

    /// A host has died.
    pub(crate) fn end_steps_at(&mut self, host: NodeId) {
        for rank in 0..self.steps.ranks.len() {
            if self.steps.ranks[rank].host == host {
                self.end_step_rank(rank as u32);
            }
        }
    }

    fn end_step_rank(&mut self, rank: u32) {
        let state = &mut self.steps.ranks[rank as usize];
        if !std::mem::replace(&mut state.open, false) {
            return;
        }
        self.open -= 1;
        // Endpoints that wait for a collective end with it.
        let streams = state.streams.iter().flatten();
        let endpoints = streams.filter_map(|stream| match stream.way {
            Way::Job { endpoint, .. } => Some(endpoint),
            Way::Flows(_) => None,
        });
        for endpoint in endpoints.collect::<Vec<_>>() {
            if !self.traffic.endpoints[endpoint.0 as usize].waits() {
                self.finish_endpoint(endpoint);
            }
        }
    }

    /// A rank goes on.
    pub(crate) fn wake_step(&mut self, id: u32) {
        let index = id as usize;
        if !self.steps.ranks[index].open {
            return;
        }
        let number = self.steps.ranks[index].graph;
        if self.steps.ranks[index].left == 0 && self.steps.ranks[index].iteration == 0 {
            self.begin_iteration(id);
        }
        loop {
            let mut changed = self.end_computation(id);
            for news in std::mem::take(&mut self.steps.news[index]) {
                self.take_news(id, news);
                changed = true;
            }
            changed |= self.begin_computation(id);
            for stream in 0..self.steps.graphs[number].streams.len() {
                changed |= self.begin_collectives(id, stream);
            }
            let state = &mut self.steps.ranks[index];
            if state.open && state.left == 0 {
                state.ends.push(self.fabric.now);
                state.iteration += 1;
                if state.iteration == self.steps.graphs[number].iterations {
                    return self.end_step_rank(id);
                }
                self.begin_iteration(id);
                changed = true;
            }
            if !changed || !self.steps.ranks[index].open {
                return;
            }
        }
    }

    fn begin_iteration(&mut self, id: u32) {
        let now = self.fabric.now;
        let state = &mut self.steps.ranks[id as usize];
        let (graph, order) = (&self.steps.graphs[state.graph], &self.steps.order[state.graph]);
        state.begin(graph);
        for node in state.idle_at_first(graph) {
            state.complete(graph, order, node, now);
        }
    }

    fn complete_node(&mut self, id: u32, node: u32) {
        let state = &mut self.steps.ranks[id as usize];
        let (graph, order) = (&self.steps.graphs[state.graph], &self.steps.order[state.graph]);
        state.complete(graph, order, node, self.fabric.now);
    }

    fn end_computation(&mut self, id: u32) -> bool {
        let state = &mut self.steps.ranks[id as usize];
        let Some((node, _)) = state.computing.take_if(|(_, until)| *until <= self.fabric.now) else { return false };
        self.complete_node(id, node);
        true
    }

    fn begin_computation(&mut self, id: u32) -> bool {
        let now = self.fabric.now;
        let state = &mut self.steps.ranks[id as usize];
        let (graph, order) = (&self.steps.graphs[state.graph], &self.steps.order[state.graph]);
        if state.computing.is_some() {
            return false;
        }
        while order.computes.get(state.computed).is_some_and(|&node| !state.does(graph, node)) {
            state.computed += 1;
        }
        let next = order.computes.get(state.computed).filter(|&&node| state.blocked[node as usize] == 0);
        let Some(&node) = next else { return false };
        let StepWork::Compute(time) = graph.nodes[node as usize].work else { return false };
        state.computed += 1;
        state.began[node as usize] = now;
        state.computing = Some((node, now + time));
        self.fabric.queue.push(now + time, EventId::new(EventKind::StepWake, id));
        time == Span::ZERO
    }

    /// Begins the collectives of a stream that can begin, in their order.
    fn begin_collectives(&mut self, id: u32, index: usize) -> bool {
        let mut changed = false;
        loop {
            let state = &mut self.steps.ranks[id as usize];
            let Some(stream) = state.streams[index].as_mut().filter(|_| state.open) else { return changed };
            let next = stream.nodes.get(stream.begun).copied();
            let Some(node) = next.filter(|&node| state.blocked[node as usize] == 0) else { return changed };
            let position = stream.begun;
            match &mut stream.way {
                Way::Flows(exchange) if exchange.current.is_some() => return changed,
                Way::Flows(exchange) => exchange.current = Some((position, 0, false)),
                Way::Job { .. } => {}
            }
            stream.begun += 1;
            state.began[node as usize] = self.fabric.now;
            changed = true;
            match stream.way {
                Way::Job { endpoint, .. } => self.submit_operations(id, endpoint, node),
                Way::Flows(_) => self.begin_round(id, index, node),
            }
        }
    }

    /// Submits all operations of a collective.
    fn submit_operations(&mut self, id: u32, endpoint: EndpointId, node: u32) {
        let operations = self.steps.ranks[id as usize].operations[node as usize];
        if operations == 0 {
            return self.complete_node(id, node);
        }
        let now = self.fabric.now;
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let state = &mut endpoints[endpoint.0 as usize];
        if !state.alive || !state.open {
            return self.end_step_rank(id);
        }
        let job = jobs.get_mut(state.job);
        let deadline = job.plan.timeout.map(|timeout| now + timeout);
        let mut collectives = Vec::with_capacity(operations as usize);
        for _ in 0..operations {
            collectives.push(Collective { tensor: job.tensor(state.rank, state.submitted, now), deadline });
            state.submitted += 1;
            state.drain.begin();
        }
        if state.machine.submit_together(now, collectives).is_err() {
            // A failed job refuses collectives; its error is recorded already.
            return self.finish_endpoint(endpoint);
        }
        self.drain(endpoint);
    }

    /// Begins rounds of an exchange, up to one that has to wait, or to the end of the exchange.
    fn begin_round(&mut self, id: u32, index: usize, node: u32) {
        loop {
            let state = &mut self.steps.ranks[id as usize];
            let host = state.host;
            let Some(stream) = &mut state.streams[index] else { return };
            let Way::Flows(exchange) = &mut stream.way else { return };
            let Some((position, round, _)) = exchange.current else { return };
            let Some(what) = exchange.round(position, round) else {
                exchange.current = None;
                return self.complete_node(id, node);
            };
            exchange.current = Some((position, round, what.send.is_none()));
            if let Some((to, bytes)) = what.send {
                let lane = exchange.lane;
                self.start_flow_on(host, to, bytes, lane);
            } else if exchange.ends_round() {
                exchange.current = Some((position, round + 1, false));
                continue;
            }
            return;
        }
    }

    fn take_news(&mut self, id: u32, news: StepNews) {
        let state = &mut self.steps.ranks[id as usize];
        let on_lane = |stream: &Option<RankStream>, lane: u8| {
            stream.as_ref().is_some_and(|stream| matches!(&stream.way, Way::Flows(of) if of.lane == lane))
        };
        let lane = match news {
            StepNews::Operation(stream, op) => {
                let Some(RankStream { way: Way::Job { node_of, .. }, .. }) = &state.streams[usize::from(stream)] else {
                    return;
                };
                let node = node_of[op.0 as usize % node_of.len()];
                state.operations[node as usize] -= 1;
                if state.operations[node as usize] == 0 {
                    self.complete_node(id, node);
                }
                return;
            }
            StepNews::Sent(lane) | StepNews::Received(lane, _) => lane,
        };
        let Some(index) = state.streams.iter().position(|stream| on_lane(stream, lane)) else { return };
        let Some(RankStream { way: Way::Flows(exchange), nodes, .. }) = &mut state.streams[index] else { return };
        match news {
            StepNews::Received(_, from) => *exchange.received.entry(from).or_default() += 1,
            _ => exchange.current.iter_mut().for_each(|current| current.2 = true),
        }
        if exchange.ends_round()
            && let Some((position, round, _)) = exchange.current
        {
            exchange.current = Some((position, round + 1, false));
            let node = nodes[position];
            self.begin_round(id, index, node);
        }
    }
}
