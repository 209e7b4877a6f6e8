//! `tributary sim run FILE.toml [KEY=VALUE ...]` without the rest of the program, for those who change a protocol and look
//! at what it does: it is built in a fraction of the time. CONTRIBUTING.md has the command.

use std::error::Error;
use std::process::ExitCode;

use toml::{Table, Value};
use tributary_sim::config::{Config, set_key};
use tributary_sim::run;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("which file? simulate FILE.toml [KEY=VALUE ...]")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let mut file: Table = toml::from_str(&text)?;
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} is not KEY=VALUE"))?;
        set_key(&mut file, key, read(value))?;
    }
    let report = run(&Config::parse(&toml::to_string(&file)?)?)?.of_file(&text);
    println!("{report}");
    let Some(failure) = report.failure() else { return Ok(ExitCode::SUCCESS) };
    eprintln!("{failure}");
    Ok(ExitCode::FAILURE)
}

/// A value as TOML has it, or else a word: 4, "4 MiB" and 4 MiB are all right.
fn read(value: &str) -> Value {
    let table: Result<Table, _> = toml::from_str(&format!("value = {value}"));
    table.ok().and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.to_string()))
}
