//! From a `[[step]]` to a graph with its jobs: `shapes` makes the graphs of the usual steps, `graph` reads one node by
//! node, and `install` gives both jobs.

mod graph;
mod install;
mod shapes;

pub(super) use self::install::install;
