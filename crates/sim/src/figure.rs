//! A picture's data: lines over one pair of axes. `python/tributary/plots.py` draws it.

use serde::{Deserialize, Serialize};

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, `[x, y]`.
    pub points: Vec<[f64; 2]>,
    /// The least and the greatest y of each point over seeds; empty where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<[f64; 2]>,
}

impl Series {
    /// A line without ranges.
    pub fn new(name: impl Into<String>, points: Vec<[f64; 2]>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new() }
    }
}

/// A stretch of the x axis at which something happened, as a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its name in the legend.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends; none if it goes on to the right edge.
    pub to: Option<f64>,
}

/// A picture's data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What the x axis shows, with its unit.
    pub x: String,
    /// What the y axis shows, with its unit.
    pub y: String,
    /// The x axis is logarithmic.
    pub log_x: bool,
    /// Its lines.
    pub series: Vec<Series>,
    /// What happened meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}
