//! The commands that start a fabric on real machines.

use tributary_control::fabric::FabricLayout;

use super::{ChosenFile, PROTOCOL};

/// One line for each machine, and the requirements of that machine.
pub fn commands(fabric: &FabricLayout, chosen: &ChosenFile) -> String {
    let file = chosen.path.display();
    let options: String = chosen.switch_options.iter().map(|option| format!(" --switch-option '{option}'")).collect();
    let mut lines = vec![
        format!("# The same {file} on every switch. A switch has its address below on some interface (a loopback"),
        "# address will do), and routes to those of its neighbours over the cable to each.".to_string(),
        String::new(),
    ];
    for node in fabric.switches() {
        let plan = &fabric.nodes[node.index()];
        let neighbours: Vec<&str> = fabric.ports[node.index()].iter().map(|port| fabric.name(port.to)).collect();
        let controller = if node == fabric.controller { "; jobs are formed here" } else { "" };
        let control = plan.control.map(|control| control.to_string()).unwrap_or_default();
        lines.push(format!(
            "# {}: {}, control {control}, next to {}{controller}",
            plan.name,
            plan.address,
            neighbours.join(" ")
        ));
        lines.push(format!("tributary switch --fabric {file} --node {}{options}", plan.name));
    }
    if !fabric.servers.is_empty() {
        lines.extend([String::new(), "# Servers, for the protocols whose jobs can have some".to_string()]);
    }
    for &host in &fabric.servers {
        let plan = &fabric.nodes[host.index()];
        lines.push(format!("# {}: {}", plan.name, plan.address));
        lines.push(format!("tributary ps --switch {}", fabric.udp(fabric.leaf_of(host))));
    }
    lines.push(String::new());
    lines.push(
        "# A job of all hosts; --input mine.npy --output sum.npy in place of --elements for your own data".to_string(),
    );
    let workers: Vec<_> = fabric.hosts().filter(|host| !fabric.servers.contains(host)).collect();
    for (rank, &host) in workers.iter().enumerate() {
        let plan = &fabric.nodes[host.index()];
        lines.push(format!("# {}: {}", plan.name, plan.address));
        lines.push(format!(
            "tributary allreduce --protocol {PROTOCOL} --switch {} --job sum --rank {rank} --world-size {} --elements 1000000",
            fabric.udp(fabric.leaf_of(host)),
            workers.len()
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_control::fabric::FabricFile;

    #[test]
    fn every_machine_has_its_command() {
        let text = "secret = \"0123456789abcdef\"\n[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n";
        let file = ChosenFile { path: "f.toml".into(), switch_options: vec!["pigeon.rest=1 ms".into()] };
        let commands = commands(&FabricFile::parse(text).unwrap(), &file);
        assert_eq!(commands.matches("--switch-option 'pigeon.rest=1 ms'").count(), 4, "the same at every switch");
        let count = |what: &str| commands.lines().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("tributary switch --fabric f.toml"), count("tributary allreduce")), (4, 4));
        assert!(commands.contains("--switch 10.77.128.2:17777 --job sum --rank 2 --world-size 4"));
        assert_eq!(commands.matches("jobs are formed here").count(), 1);
    }

    #[test]
    fn a_host_that_the_file_names_as_a_server_offers_itself_and_has_no_rank() {
        let text = "secret = \"0123456789abcdef\"\nservers = [\"host1\"]\n[leaf_spine]\nleaves = 2\nspines = 2\n\
                    hosts_per_leaf = 2\n";
        let file = ChosenFile { path: "f.toml".into(), switch_options: Vec::new() };
        let commands = commands(&FabricFile::parse(text).unwrap(), &file);
        assert!(commands.contains("# host1: 10.77.0.2\ntributary ps --switch 10.77.128.1:17777\n"), "{commands}");
        assert_eq!(commands.matches("tributary allreduce").count(), 3);
        assert!(commands.contains("--switch 10.77.128.2:17777 --job sum --rank 1 --world-size 3"), "{commands}");
    }
}
