//! A picture's data: lines over one pair of axes. `python/tributary/plots.py` draws it.

use serde::{Deserialize, Serialize};

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, `[x, y]`.
    pub points: Vec<[f64; 2]>,
    /// The least and the greatest y of each point over seeds; empty with one seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<[f64; 2]>,
}

impl Series {
    /// A line without ranges.
    pub fn new(name: impl Into<String>, points: Vec<[f64; 2]>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new() }
    }
}

/// A period on the x axis in which something happened, such as a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its name in the legend.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends; `None` if it extends to the right edge.
    pub to: Option<f64>,
}

/// A picture's data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// The name and unit of the x axis.
    pub x: String,
    /// The name and unit of the y axis.
    pub y: String,
    /// True if the x axis is logarithmic.
    pub log_x: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// The periods to be marked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}
