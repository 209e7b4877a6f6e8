//! Keys that lead into a file's tables: `"job.0.trees"` is the key `trees` of the first `[[job]]`.

use toml::{Table, Value};

/// A part of a key that does not exist, and what exists in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no \"{part}\"; {known}")]
pub struct MissingKey {
    /// The part.
    pub part: String,
    /// What exists: "there are: delay, queue", "there are 0 to 3".
    pub known: String,
}

impl MissingKey {
    fn new(part: &str, place: Option<&Value>, top: &Table) -> MissingKey {
        let names = |table: &Table| table.keys().cloned().collect::<Vec<_>>().join(", ");
        let known = match place {
            None => format!("there are: {}", names(top)),
            Some(Value::Table(inner)) if inner.is_empty() => "nothing is in that table".to_string(),
            Some(Value::Table(inner)) => format!("there are: {}", names(inner)),
            Some(Value::Array(list)) if list.is_empty() => "that list is empty".to_string(),
            Some(Value::Array(list)) if list.len() == 1 => "there is only 0".to_string(),
            Some(Value::Array(list)) => format!("there are 0 to {}", list.len() - 1),
            Some(_) => "what is before it has no keys".to_string(),
        };
        MissingKey { part: part.to_string(), known }
    }
}

/// Sets one key of a table; returns its previous value. The last part of the key may be new; the first earlier part
/// that does not exist is the error.
pub fn set_key(table: &mut Table, key: &str, value: Value) -> Result<Option<Value>, MissingKey> {
    // Checked first, because the error names what exists.
    check_key(table, key)?;
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place: Option<&mut Value> = None;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let inner = match place {
            None => table.get_mut(part),
            Some(Value::Table(inner)) => inner.get_mut(part),
            Some(Value::Array(list)) => part.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            Some(_) => None,
        };
        place = inner;
    }
    match place {
        Some(Value::Table(inner)) => Ok(inner.insert(last.to_string(), value)),
        _ => Ok(table.insert(last.to_string(), value)),
    }
}

/// Checks a key up to the table that contains its last part.
fn check_key(table: &Table, key: &str) -> Result<(), MissingKey> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place: Option<&Value> = None;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let inner = match place {
            None => table.get(part),
            Some(Value::Table(inner)) => inner.get(part),
            Some(Value::Array(list)) => part.parse::<usize>().ok().and_then(|index| list.get(index)),
            Some(_) => None,
        };
        place = Some(inner.ok_or_else(|| MissingKey::new(part, place, table))?);
    }
    match place {
        None | Some(Value::Table(_)) => Ok(()),
        Some(_) => Err(MissingKey::new(last, place, table)),
    }
}

/// Lays one table over another: tables are merged key by key, and all other values are replaced.
pub fn overlay(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            (_, value) => {
                below.insert(key, value);
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
        let mut said = |key: &str| set_key(&mut file, key, Value::Integer(2)).unwrap_err().to_string();
        assert_eq!(said("jobs.0.trees"), "there is no \"jobs\"; there are: job, network");
        assert_eq!(said("job.1.trees"), "there is no \"1\"; there is only 0");
        assert_eq!(said("network.stars.hosts"), "there is no \"stars\"; there are: queue, star");
        assert_eq!(said("network.star.hosts.more"), "there is no \"more\"; what is before it has no keys");
    }

    #[test]
    fn what_lies_above_hides_values_and_lists_but_not_tables() {
        let mut below = table("x = 1\nlist = [1, 2]\n[network]\nqueue = 1\n[network.shape]\nhosts = 4\n");
        overlay(&mut below, table("list = [3]\n[network.shape]\nhosts = 2\n"));
        assert_eq!(below, table("x = 1\nlist = [3]\n[network]\nqueue = 1\n[network.shape]\nhosts = 2\n"));
    }
}
