//! Keys that lead into a file's tables: `"job.0.trees"` is the key `trees` of the first `[[job]]`.

use toml::{Table, Value};

/// Sets one key of a table; gives what it was. The table need not have the last part of the key; of those before it the
/// first one that leads nowhere is the error.
pub fn set_key(table: &mut Table, key: &str, value: Value) -> Result<Option<Value>, String> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place: Option<&mut Value> = None;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let inner = match place {
            None => table.get_mut(part),
            Some(Value::Table(inner)) => inner.get_mut(part),
            Some(Value::Array(list)) => part.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            Some(_) => None,
        };
        place = Some(inner.ok_or_else(|| part.to_string())?);
    }
    match place {
        None => Ok(table.insert(last.to_string(), value)),
        Some(Value::Table(inner)) => Ok(inner.insert(last.to_string(), value)),
        Some(_) => Err(last.to_string()),
    }
}

/// Lays one table over another: tables are laid over tables key by key, everything else takes the other's place.
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
        assert_eq!(set_key(&mut file, "job.1.trees", Value::Integer(2)), Err("1".into()));
        assert_eq!(set_key(&mut file, "network.star.hosts.more", Value::Integer(2)), Err("more".into()));
    }

    #[test]
    fn what_lies_above_hides_values_and_lists_but_not_tables() {
        let mut below = table("x = 1\nlist = [1, 2]\n[network]\nqueue = 1\n[network.shape]\nhosts = 4\n");
        overlay(&mut below, table("list = [3]\n[network.shape]\nhosts = 2\n"));
        assert_eq!(below, table("x = 1\nlist = [3]\n[network]\nqueue = 1\n[network.shape]\nhosts = 2\n"));
    }
}
