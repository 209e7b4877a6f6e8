//! The costs of custom operators on cores.
//!
//! A table has the cycles of operators by the hash of their modules, as `dataplanes/pspin` counted them.
//! `experiments/operator-cycles.csv` has the ready-made operators, and people add others (`tributary operator cycles`).
//! The cycles of an operator that is in no table are estimated from its fuel ([`Table::find`]), and are marked as
//! estimated wherever they are shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tributary_operators::UserOperator;
use tributary_proto::contract::custom_op::CustomOp;

/// The table of ready-made operators, which is part of the program.
const COUNTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/operator-cycles.csv"));

/// The first line of a table.
pub const HEADER: &str = "sha256,name,element,element_bytes,cycles_per_call,cycles_per_element,fuel_per_element";

/// Cycles of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OperatorCycles {
    /// Cycles of a call without its elements.
    pub per_call: f64,
    /// Cycles of an element.
    pub per_element: f64,
    /// The cycles were not counted, but estimated from the fuel.
    pub estimated: bool,
}

/// CustomOps whose cycles were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    by_hash: BTreeMap<String, OperatorCycles>,
    /// Cycles of a unit of fuel, and of a call, as averages over the ready-made operators.
    per_fuel: f64,
    per_call: f64,
}

impl Table {
    /// The table of ready-made operators.
    ///
    /// # Panics
    /// If the committed file is not a table.
    pub fn shipped() -> Table {
        let rows = rows(COUNTED).expect("the committed file is a table");
        let mean = |of: &dyn Fn(&Row) -> f64| {
            let logarithms: f64 = rows.iter().map(|row| of(row).ln()).sum();
            (logarithms / rows.len().max(1) as f64).exp()
        };
        let per_fuel = mean(&|row| row.cycles.per_element / row.fuel);
        let per_call = mean(&|row| row.cycles.per_call);
        Table { by_hash: rows.into_iter().map(|row| (row.hash, row.cycles)).collect(), per_fuel, per_call }
    }

    /// Adds the rows of a file that `tributary operator cycles` wrote. The error names the wrong line.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        self.by_hash.extend(rows(text)?.into_iter().map(|row| (row.hash, row.cycles)));
        Ok(())
    }

    /// An operator's cycles: counted, or else its fuel times the cycles of a unit of fuel, which is the geometric mean
    /// over the ready-made operators.
    pub fn find(&self, operator: &UserOperator) -> OperatorCycles {
        let known = self.by_hash.get(&operator.hash().to_string());
        known.copied().unwrap_or_else(|| OperatorCycles {
            per_call: self.per_call,
            per_element: self.per_fuel * operator.verdict().fuel_per_element as f64,
            estimated: true,
        })
    }
}

struct Row {
    hash: String,
    cycles: OperatorCycles,
    fuel: f64,
}

fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("its first line is not {HEADER}"));
    }
    lines
        .filter(|line| !line.is_empty())
        .map(|line| row(line).ok_or_else(|| format!("{line:?} is not a row")))
        .collect()
}

fn row(line: &str) -> Option<Row> {
    // The type of an element with several fields contains commas, so fields are found from both ends.
    let (hash, _) = line.split_once(',')?;
    let mut numbers = line.rsplit(',').map(|text| text.parse::<f64>().ok().filter(|number| *number > 0.0));
    let (fuel, per_element, per_call) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(Row { hash: hash.to_owned(), cycles: OperatorCycles { per_call, per_element, estimated: false }, fuel })
}
