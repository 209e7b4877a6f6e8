//! `tributary sim topology`: the network of a file, of another program's too, as a table and as a picture.

use std::fs;
use std::path::PathBuf;

use tributary_sim::config::{Config, network_of};
use tributary_sim::report::draw;

use crate::failure::Failure;
use crate::output;

/// The flags of `tributary sim topology`.
#[derive(clap::Args)]
pub struct Args {
    /// An experiment, GraphML, htsim's .topo, a topology of HPCC's ns-3, or a network of ASTRA-sim
    file: PathBuf,
    /// Draw the network into this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

/// Prints the network of another simulator's file as the tables of an experiment, or how large an experiment's network is.
pub fn run(args: Args) -> Result<(), Failure> {
    let name = args.file.display();
    let text = fs::read_to_string(&args.file).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    let is_experiment = args.file.extension().is_some_and(|extension| extension == "toml");
    let table = match is_experiment {
        true => None,
        false => Some(network_of(&text).map_err(|why| Failure::new(format!("{name}: {why}")))?),
    };
    let wrong = |why: &dyn std::fmt::Display| Failure::new(format!("{name}: {why}"));
    let config = Config::parse(table.as_deref().unwrap_or(&text)).map_err(|why| wrong(&why))?;
    let graph = config.network.build().map_err(|why| wrong(&why))?;
    if let Some(path) = &args.svg {
        fs::write(path, draw(&graph))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    let size = format!("{} hosts, {} switches, {} cables", graph.hosts(), graph.switches(), graph.edges().len());
    Ok(output::line(&table.map_or(size, |table| table.trim_end().to_string()))?)
}
