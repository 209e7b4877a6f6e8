//! A picture's data: lines over one pair of axes. `python/tributary/plots.py` draws it.

use serde::Serialize;

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, `[x, y]`.
    pub points: Vec<[f64; 2]>,
}

/// A picture's data.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
}
