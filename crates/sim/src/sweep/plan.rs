//! The points of a sweep.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::{Table, Value};

use super::lines::{self, LINE, NamedLine};
use crate::config::{Config, ConfigError, Duration, invalid, json_table, other_kind, set_key};
use crate::experiment::{NamedFile, named_files};
use crate::provenance::Origin;

/// More points than this are probably a mistake.
const MAX_POINTS: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    seeds: Seeds,
    #[serde(default)]
    over: Table,
    #[serde(default)]
    together: Vec<Table>,
    #[serde(default)]
    line: Vec<Table>,
    #[serde(default)]
    give_up_after: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected seeds: a number of them, or a list as in [1, 2, 3]")]
enum Seeds {
    Count(u64),
    List(Vec<u64>),
}

impl Default for Seeds {
    fn default() -> Seeds {
        Seeds::Count(1)
    }
}

/// A file's points: every combination of values, each with every seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The keys that vary: first those that vary alone, in alphabetical order, then the groups that vary together.
    pub keys: Vec<String>,
    /// The runs. Seeds vary fastest, then the last key or group.
    pub points: Vec<SweepPoint>,
    /// This program, and the sweep's file.
    pub origin: Origin,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The value of each key, as written.
    pub values: Vec<String>,
    /// The run's file.
    pub config: Config,
    /// The file as text.
    pub text: String,
    /// The other files that it names. With `text` and the program they decide the run's result.
    pub files: Vec<NamedFile>,
    /// The run is stopped, and fails, when nothing has finished for this long.
    pub give_up_after: Option<Duration>,
}

impl Sweep {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Sweep, ConfigError> {
        let table = toml::from_str(text).map_err(|error| invalid(error.message().to_string()))?;
        Sweep::of_table(table, Origin::of_file(text))
    }

    /// Reads a sweep from a JSON object, as programs make it.
    pub fn parse_json(text: &str) -> Result<Sweep, ConfigError> {
        Sweep::of_table(json_table(text)?, Origin::of_file(text))
    }

    fn of_table(mut base: Table, origin: Origin) -> Result<Sweep, ConfigError> {
        let section = base.remove("sweep").ok_or_else(|| {
            let none = "the file has no [sweep]: name seeds, and under [sweep.over] keys with their values";
            invalid(other_kind(&base).unwrap_or(none))
        })?;
        let Section { seeds, over, together, line, give_up_after } =
            Section::deserialize(section).map_err(|error| invalid(format!("[sweep]: {}", error.message())))?;
        let seeds: Vec<u64> = match seeds {
            Seeds::Count(count) => (1..=count.min(MAX_POINTS as u64 + 1)).collect(),
            Seeds::List(list) => list,
        };
        let axes = axes(over, together)?;
        let varied: Vec<String> = axes.iter().flat_map(|axis| axis.keys.iter().cloned()).collect();
        let lines = lines::read(line, &varied)?;
        let count = axes.iter().fold(seeds.len(), |count, axis| count.saturating_mul(axis.choices.len()));
        let count = count.saturating_mul(lines.len().max(1));
        if count == 0 || count > MAX_POINTS {
            return Err(invalid(format!("the sweep has {count} runs; 1 to {MAX_POINTS} are possible")));
        }
        let keys = table_keys(&lines, &varied);
        let mut points = Vec::with_capacity(count);
        let mut seen = BTreeSet::new();
        for line in optional(&lines) {
            for number in 0..axes.iter().map(|axis| axis.choices.len()).product() {
                let mut table = base.clone();
                let values = point_values(&mut table, line, &axes, number)?;
                // Where a line's protocol lacks a key that varies, its values are one point.
                if seen.insert(values.clone()) {
                    for &seed in &seeds {
                        points.push(SweepPoint {
                            give_up_after,
                            ..SweepPoint::new(&table, &keys, values.clone(), seed)?
                        });
                    }
                }
            }
        }
        Ok(Sweep { keys, points, origin })
    }
}

/// Every line, or a sweep without lines once.
fn optional(lines: &[NamedLine]) -> Vec<Option<&NamedLine>> {
    if lines.is_empty() { vec![None] } else { lines.iter().map(Some).collect() }
}

fn table_keys(lines: &[NamedLine], varied: &[String]) -> Vec<String> {
    let first = (!lines.is_empty()).then(|| LINE.to_string());
    first.into_iter().chain(varied.iter().cloned()).collect()
}

/// Sets the keys of a line and of the choices with this number; returns their values as written, in the order of keys.
fn point_values(
    table: &mut Table,
    line: Option<&NamedLine>,
    axes: &[Axis],
    mut number: usize,
) -> Result<Vec<String>, ConfigError> {
    line.map_or(Ok(()), |line| line.set(table))?;
    let mut values = Vec::new();
    for axis in axes.iter().rev() {
        let choice = &axis.choices[number % axis.choices.len()];
        number /= axis.choices.len();
        for (key, value) in axis.keys.iter().zip(choice).rev() {
            set(table, key, value.clone())?;
            values.push((key, written(value)));
        }
    }
    let left_out = line.map(|line| line.leave_out(table)).unwrap_or_default();
    let values =
        values.into_iter().rev().map(|(key, value)| if left_out.contains(key) { String::new() } else { value });
    Ok(line.map(|line| line.name.clone()).into_iter().chain(values).collect())
}

impl SweepPoint {
    /// A point from another machine, from its `values`, its `text` and the limit after which it is given up.
    pub fn read(values: Vec<String>, text: String, give_up_after: Option<Duration>) -> Result<SweepPoint, ConfigError> {
        let config = Config::parse(&text)?;
        Ok(SweepPoint { values, files: named_files(&config), config, text, give_up_after })
    }

    fn new(table: &Table, keys: &[String], values: Vec<String>, seed: u64) -> Result<SweepPoint, ConfigError> {
        let text = |table: &Table| toml::to_string(table).map_err(|error| invalid(error.to_string()));
        let mut config = Config::parse(&text(table)?).map_err(|error| match values.is_empty() {
            true => error,
            // A line number would be misleading, because the text was generated.
            false => invalid(format!("with {}: {}", setting(keys, &values), without_line_number(&error.0))),
        })?;
        config.seed = seed;
        let text = toml::to_string(&config).map_err(|error| invalid(error.to_string()))?;
        Ok(SweepPoint { values, files: named_files(&config), config, text, give_up_after: None })
    }
}

/// A sentence without the "line 12: " before it.
fn without_line_number(sentence: &str) -> &str {
    let number = sentence.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    number.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())).map_or(sentence, |(_, rest)| rest)
}

/// Keys and their values, for people.
pub(super) fn setting(keys: &[String], values: &[String]) -> String {
    keys.iter().zip(values).map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

/// Keys that vary together; usually one.
struct Axis {
    keys: Vec<String>,
    /// The values of all keys, choice by choice.
    choices: Vec<Vec<Value>>,
}

fn axes(over: Table, together: Vec<Table>) -> Result<Vec<Axis>, ConfigError> {
    let mut axes = Vec::new();
    for (key, values) in over {
        let choices = list("[sweep.over]", &key, values)?.into_iter().map(|value| vec![value]).collect();
        axes.push(Axis { keys: vec![key], choices });
    }
    for group in together {
        axes.push(grouped(group)?);
    }
    let mut seen = BTreeSet::new();
    match axes.iter().flat_map(|axis| &axis.keys).find(|key| !seen.insert(*key)) {
        Some(twice) => Err(invalid(format!("[sweep]: \"{twice}\" is named twice: a key varies alone or in one group"))),
        None => Ok(axes),
    }
}

fn grouped(group: Table) -> Result<Axis, ConfigError> {
    let mut axis = Axis { keys: Vec::new(), choices: Vec::new() };
    for (key, values) in group {
        let values = list("[[sweep.together]]", &key, values)?;
        if axis.keys.is_empty() {
            axis.choices = vec![Vec::new(); values.len()];
        } else if axis.choices.len() != values.len() {
            return Err(invalid(format!(
                "[[sweep.together]]: \"{key}\" has {} values and \"{}\" has {}: keys that vary together have equally many",
                values.len(),
                axis.keys[0],
                axis.choices.len()
            )));
        }
        axis.keys.push(key);
        axis.choices.iter_mut().zip(values).for_each(|(choice, value)| choice.push(value));
    }
    if axis.keys.is_empty() {
        return Err(invalid("[[sweep.together]] names no keys"));
    }
    Ok(axis)
}

fn list(section: &str, key: &str, values: Value) -> Result<Vec<Value>, ConfigError> {
    match values {
        Value::Array(values) if !values.is_empty() => Ok(values),
        _ => Err(invalid(format!("{section}: \"{key}\" needs a list of values"))),
    }
}

fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Sets one key, `"job.0.trees"`, of a file.
fn set(table: &mut Table, key: &str, value: Value) -> Result<(), ConfigError> {
    let missing = |missing| invalid(format!("[sweep]: \"{key}\" leads nowhere: {missing}"));
    set_key(table, key, value).map(drop).map_err(missing)
}

#[cfg(test)]
mod tests {
    use tributary_proto::protocols;

    use super::*;

    const BASE: &str = "[network]\nstar = { hosts = 4 }\n[[job]]\nprotocol = \"switchml\"\ntensor = \"1 MB\"\n";

    fn sentence(more: &str) -> String {
        Sweep::parse(&format!("{BASE}{more}")).unwrap_err().to_string()
    }

    #[test]
    fn points_are_all_combinations_with_all_seeds() {
        let text = format!(
            "{BASE}[sweep]\nseeds = [3, 9]\n[sweep.over]\n\"job.0.protocol\" = [\"switchml\", \"ring\"]\n\"network.star.hosts\" = [2, 4, 8]\n"
        );
        let sweep = Sweep::parse(&text).unwrap();
        assert_eq!(sweep.keys, ["job.0.protocol", "network.star.hosts"]);
        let points: Vec<(String, u64)> =
            sweep.points.iter().map(|point| (point.values.join(" "), point.config.seed)).collect();
        assert_eq!(points.len(), 12);
        assert_eq!(points[0], ("switchml 2".into(), 3));
        assert_eq!(points[1], ("switchml 2".into(), 9));
        assert_eq!(points[11], ("ring 8".into(), 9));
        assert_eq!(sweep.points[11].config.network.star.as_ref().unwrap().hosts, 8);
    }

    #[test]
    fn keys_of_a_group_vary_together_and_with_the_others_in_every_combination() {
        let text = format!(
            "{BASE}[sweep.over]\n\"job.0.iterations\" = [1, 2]\n[[sweep.together]]\n\"job.0.slots\" = [8, 16]\n\
             \"job.0.trees\" = [1, 2]\n"
        );
        let sweep = Sweep::parse(&text).unwrap();
        assert_eq!(sweep.keys, ["job.0.iterations", "job.0.slots", "job.0.trees"]);
        let values: Vec<String> = sweep.points.iter().map(|point| point.values.join(" ")).collect();
        assert_eq!(values, ["1 8 1", "1 16 2", "2 8 1", "2 16 2"]);
        let job = &sweep.points[3].config.jobs[0];
        assert_eq!((job.iterations, job.slots, job.trees), (2, Some(16), Some(2)));
    }

    /// A protocol whose hosts sum, and which plans no trees.
    fn served() -> &'static str {
        protocols::ALL.iter().find(|protocol| protocol.server.is_some()).unwrap().name
    }

    #[test]
    fn each_line_has_its_name_and_leaves_out_what_its_protocol_lacks() {
        let lines = "[sweep.over]\n\"job.0.trees\" = [1, 2]\n[[sweep.line]]\nname = \"trees\"\n[[sweep.line]]\nname = \"hosts\"\n";
        let keys = format!("\"job.0.protocol\" = \"{}\"\n\"job.0.servers\" = 2\n\"job.0.hosts\" = 2\n", served());
        let sweep = Sweep::parse(&format!("{BASE}{lines}{keys}")).unwrap();
        assert_eq!(sweep.keys, ["line", "job.0.trees"]);
        let values: Vec<String> = sweep.points.iter().map(|point| point.values.join("|")).collect();
        assert_eq!(values, ["trees|1", "trees|2", "hosts|"]);
        let job = &sweep.points[2].config.jobs[0];
        assert_eq!((job.protocol.name, job.trees, job.servers.is_some()), (served(), None, true));
    }

    #[test]
    fn a_wrong_line_is_refused_with_a_sentence() {
        let wrong = |line: &str| sentence(&format!("[sweep.over]\n\"job.0.trees\" = [1]\n{line}"));
        assert!(wrong("[[sweep.line]]\n\"job.0.slots\" = 4\n").starts_with("[[sweep.line]] needs a name"));
        let twice = "[[sweep.line]]\nname = \"a\"\n[[sweep.line]]\nname = \"a\"\n";
        assert!(wrong(twice).ends_with("there are two lines with the name \"a\""));
        let both = "[[sweep.line]]\nname = \"a\"\n\"job.0.trees\" = 2\n";
        assert!(wrong(both).contains("\"job.0.trees\" is set by the line \"a\", and varied by the sweep"));
        assert!(wrong("[[sweep.line]]\nname = \"a\"\n\"job.7.slots\" = 2\n").contains("leads nowhere"));
        // What a line sets itself is not left out, however little its protocol can do with it.
        let own = "[[sweep.line]]\nname = \"a\"\n\"job.0.options\" = { nonsense = 1 }\n";
        let sweep = Sweep::parse(&format!("{BASE}[sweep]\n{own}")).unwrap();
        assert!(sweep.points[0].text.contains("nonsense"));
    }

    #[test]
    fn an_invalid_sweep_is_refused_with_a_sentence() {
        assert!(Sweep::parse(BASE).unwrap_err().to_string().contains("has no [sweep]"));
        assert!(sentence("[sweep]\nseed = 4\n").contains("seed"));
        assert!(sentence("[sweep]\nseeds = 0\n").contains("0 runs"));
        assert!(sentence("[sweep.over]\n\"job.1.trees\" = [1]\n").contains("leads nowhere"));
        assert!(sentence("[sweep.over]\n\"job.0.treees\" = [1]\n").contains("treees"));
        assert!(sentence("[sweep.over]\n\"job.0.trees\" = 1\n").contains("a list of values"));
        assert!(sentence("[sweep.over]\n\"job.0.trees\" = [\"\"]\n").starts_with("with job.0.trees = : invalid type"));
        let group = "[[sweep.together]]\n\"job.0.trees\" = [1, 2]\n\"job.0.slots\" = [8]\n";
        let unequal =
            "\"job.0.trees\" has 2 values and \"job.0.slots\" has 1: keys that vary together have equally many";
        assert!(sentence(group).ends_with(unequal), "{}", sentence(group));
        let twice = "[sweep.over]\n\"job.0.trees\" = [1]\n[[sweep.together]]\n\"job.0.trees\" = [1]\n";
        assert!(sentence(twice).contains("\"job.0.trees\" is named twice"));
    }
}
