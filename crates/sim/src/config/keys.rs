//! Keys that lead into a file's tables: `"job.0.trees"` is the key `trees` of the first `[[job]]`.

use toml::{Table, Value};

/// A segment of a key that does not exist, and what exists there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no \"{segment}\"; {known}")]
pub struct MissingKey {
    /// The segment.
    pub segment: String,
    /// What exists: "there are: delay, queue", "there are 0 to 3".
    pub known: String,
}

impl MissingKey {
    fn new(segment: &str, parent: Option<&Value>, top: &Table) -> MissingKey {
        let names = |table: &Table| table.keys().cloned().collect::<Vec<_>>().join(", ");
        let known = match parent {
            None => format!("there are: {}", names(top)),
            Some(Value::Table(inner)) if inner.is_empty() => "nothing is in that table".to_string(),
            Some(Value::Table(inner)) => format!("there are: {}", names(inner)),
            Some(Value::Array(list)) if list.is_empty() => "that list is empty".to_string(),
            Some(Value::Array(list)) if list.len() == 1 => "there is only 0".to_string(),
            Some(Value::Array(list)) => format!("there are 0 to {}", list.len() - 1),
            Some(_) => "what is before it has no keys".to_string(),
        };
        MissingKey { segment: segment.to_string(), known }
    }
}

/// Sets one key of a table; returns its previous value. The last segment of the key may be new; the first earlier
/// segment that does not exist is the error.
pub fn set_key(table: &mut Table, key: &str, value: Value) -> Result<Option<Value>, MissingKey> {
    // Checked first, because the error names what exists.
    check_key(table, key)?;
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut parent: Option<&mut Value> = None;
    for segment in path.split('.').filter(|segment| !segment.is_empty()) {
        let inner = match parent {
            None => table.get_mut(segment),
            Some(Value::Table(inner)) => inner.get_mut(segment),
            Some(Value::Array(list)) => segment.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            Some(_) => None,
        };
        parent = inner;
    }
    match parent {
        Some(Value::Table(inner)) => Ok(inner.insert(last.to_string(), value)),
        _ => Ok(table.insert(last.to_string(), value)),
    }
}

/// Checks a key up to the table that contains its last segment.
fn check_key(table: &Table, key: &str) -> Result<(), MissingKey> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut parent: Option<&Value> = None;
    for segment in path.split('.').filter(|segment| !segment.is_empty()) {
        let inner = match parent {
            None => table.get(segment),
            Some(Value::Table(inner)) => inner.get(segment),
            Some(Value::Array(list)) => segment.parse::<usize>().ok().and_then(|index| list.get(index)),
            Some(_) => None,
        };
        parent = Some(inner.ok_or_else(|| MissingKey::new(segment, parent, table))?);
    }
    match parent {
        None | Some(Value::Table(_)) => Ok(()),
        Some(_) => Err(MissingKey::new(last, parent, table)),
    }
}

/// Lays one table over another: tables are merged key by key, and all other values are replaced.
pub fn overlay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => overlay(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_key_leads_through_tables_and_lists() {
        let mut file = table("[[job]]\ntrees = 1\n[network]\nstar = { hosts = 4 }\n");
        assert_eq!(set_key(&mut file, "job.0.trees", Value::Integer(2)), Ok(Some(Value::Integer(1))));
        assert_eq!(set_key(&mut file, "network.star.hosts", Value::Integer(8)), Ok(Some(Value::Integer(4))));
        assert_eq!(set_key(&mut file, "network.queue", Value::Integer(9)), Ok(None));
        assert_eq!(file, table("[[job]]\ntrees = 2\n[network]\nstar = { hosts = 8 }\nqueue = 9\n"));
    }

    #[test]
    fn a_key_that_leads_nowhere_names_what_is_there() {
        let mut file = table("[[job]]\ntrees = 1\n[network]\nqueue = 9\nstar = { hosts = 4 }\n");
        let mut error = |key: &str| set_key(&mut file, key, Value::Integer(2)).unwrap_err().to_string();
        assert_eq!(error("jobs.0.trees"), "there is no \"jobs\"; there are: job, network");
        assert_eq!(error("job.1.trees"), "there is no \"1\"; there is only 0");
        assert_eq!(error("network.stars.hosts"), "there is no \"stars\"; there are: queue, star");
        assert_eq!(error("network.star.hosts.more"), "there is no \"more\"; what is before it has no keys");
    }

    #[test]
    fn an_overlay_replaces_values_and_lists_but_not_tables() {
        let mut base = table("x = 1\nlist = [1, 2]\n[network]\nqueue = 1\n[network.shape]\nhosts = 4\n");
        overlay(&mut base, table("list = [3]\n[network.shape]\nhosts = 2\n"));
        assert_eq!(base, table("x = 1\nlist = [3]\n[network]\nqueue = 1\n[network.shape]\nhosts = 2\n"));
    }
}
