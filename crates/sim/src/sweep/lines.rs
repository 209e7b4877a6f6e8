//! Named lines of a sweep: each sets some keys, and all values of `[sweep.over]` run with each of them.

use std::collections::BTreeSet;

use toml::{Table, Value};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

use crate::config::{ConfigError, invalid, set_key};

/// The key under which a line's name stands in tables.
pub(super) const LINE: &str = "line";

/// One `[[sweep.line]]`.
#[derive(Clone, Debug)]
pub(super) struct NamedLine {
    pub name: String,
    /// Keys of the file, and their values in this line.
    keys: Table,
}

/// Reads the lines. A line needs a name of its own, and sets no key that the sweep varies.
pub(super) fn read(tables: Vec<Table>, varied: &[String]) -> Result<Vec<NamedLine>, ConfigError> {
    let mut lines: Vec<NamedLine> = Vec::new();
    for mut keys in tables {
        let Some(Value::String(name)) = keys.remove("name") else {
            return Err(invalid("[[sweep.line]] needs a name, as in name = \"4 trees\""));
        };
        if lines.iter().any(|line| line.name == name) {
            return Err(invalid(format!("[[sweep.line]]: there are two lines with the name \"{name}\"")));
        }
        if let Some(key) = keys.keys().find(|key| varied.contains(key)) {
            return Err(invalid(format!(
                "[[sweep.line]]: \"{key}\" is set by the line \"{name}\", and varied by the sweep: it is one of the two"
            )));
        }
        lines.push(NamedLine { name, keys });
    }
    Ok(lines)
}

impl NamedLine {
    /// Sets the line's keys in a file.
    pub fn set(&self, file: &mut Table) -> Result<(), ConfigError> {
        self.keys.iter().try_for_each(|(key, value)| {
            set_key(file, key, value.clone())
                .map(drop)
                .map_err(|missing| invalid(format!("[[sweep.line]]: \"{key}\" leads nowhere: {missing}")))
        })
    }

    /// Leaves out what the file has for other lines' protocols, and this line's protocol lacks. What the line itself sets
    /// stays, so that a wrong key of its own is an error. Returns the keys that were left out.
    pub fn leave_out(&self, file: &mut Table) -> BTreeSet<String> {
        let mut left_out = BTreeSet::new();
        let Some(Value::Array(jobs)) = file.get_mut("job") else { return left_out };
        for (index, job) in jobs.iter_mut().enumerate() {
            let Value::Table(job) = job else { continue };
            let Some(protocol) = job.get("protocol").and_then(Value::as_str).and_then(protocols::named) else {
                continue;
            };
            for key in lacks(protocol) {
                let path = format!("job.{index}.{key}");
                if !self.keys.contains_key(&path) && job.remove(*key).is_some() {
                    left_out.insert(path);
                }
            }
            let own = format!("job.{index}.options");
            let Some(Value::Table(options)) = job.get_mut("options") else { continue };
            let known = |name: &str| protocol.options.specs.iter().any(|spec| spec.name == name);
            let foreign: Vec<String> = options.keys().filter(|name| !known(name)).cloned().collect();
            for name in foreign {
                let path = format!("{own}.{name}");
                if !self.keys.contains_key(&own) && !self.keys.contains_key(&path) {
                    options.remove(&name);
                    left_out.insert(path);
                }
            }
        }
        left_out
    }
}

/// Keys of a job that have no meaning under a protocol.
fn lacks(protocol: &Protocol) -> &'static [&'static str] {
    match (protocol.placement == Placement::Trees, protocol.server.is_some()) {
        (true, true) => &[],
        (true, false) => &["servers"],
        (false, true) => &["trees", "roots", "root_choice"],
        (false, false) => &["trees", "roots", "root_choice", "servers"],
    }
}
