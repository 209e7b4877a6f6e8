//! PANAMA table 2 and appendix A: the accelerator's share of a chip, and its latency, by the paper's formulas.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Table 2: the cost of one of each module.
    pub modules: Modules,
    /// The prototype.
    pub prototype: Prototype,
    /// The chips for which the share is computed.
    pub devices: Vec<Device>,
    /// The accelerators to which the appendix scales the prototype.
    pub scaled: Scaled,
}

/// Lookup tables and flip-flops.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// Lookup tables.
    pub luts: f64,
    /// Flip-flops.
    pub ffs: f64,
}

impl Cells {
    fn times(self, count: f64) -> Cells {
        Cells { luts: count * self.luts, ffs: count * self.ffs }
    }

    fn plus(self, other: Cells) -> Cells {
        Cells { luts: self.luts + other.luts, ffs: self.ffs + other.ffs }
    }
}

/// What each module of the accelerator costs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// A header parser; one for each port.
    pub parser: Cells,
    /// A buffering control; one for each port.
    pub buffering: Cells,
    /// An adder of two floats; equation 2 gives their number.
    pub adder: Cells,
    /// The control logic; one.
    pub control: Cells,
}

/// The accelerator that was built.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prototype {
    /// `N`.
    pub ports: f64,
    /// `W`, bits.
    pub bus_bits: f64,
    /// `f`.
    pub clock_mhz: f64,
}

/// A chip.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Findings are named after it.
    pub name: String,
    /// The cells that it has.
    pub cells: Cells,
}

/// Accelerators that were not built.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// Pairs of bus width `W` and clock `f` whose rates are computed.
    pub buses: Vec<Bus>,
    /// The ports in figures 12 and 13.
    pub ports: f64,
    /// `W` in these figures.
    pub bus_bits: f64,
    /// Figure 14.
    pub latency: Latency,
}

/// A bus.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Findings are named after it.
    pub name: String,
    /// `W`.
    pub bits: f64,
    /// `f`.
    pub clock_mhz: f64,
}

/// Figure 14: cut-through latencies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// `S`.
    pub packet_bytes: f64,
    /// `N`.
    pub ports: f64,
    /// Rates, Gbit/s.
    pub gbit: Vec<f64>,
    /// The kinds of chips.
    pub chips: Vec<Chip>,
}

/// A kind of chip.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// Its name in the figure.
    pub name: String,
    /// `f`.
    pub clock_mhz: f64,
    /// `L_a`: the latency of an adder.
    pub adder_ns: f64,
}

/// Equation 1, `R = W f`, in Gbit/s.
fn rate_gbps(bus_bits: f64, clock_mhz: f64) -> f64 {
    bus_bits * clock_mhz / 1e3
}

/// Equation 2, `N_a = W (N - 1) / 32`.
fn adders(bus_bits: f64, ports: f64) -> f64 {
    bus_bits * (ports - 1.0) / 32.0
}

/// Equation 3, with a bus that is as wide as the rate needs; `levels` is the equation's `log N`.
fn latency_ns(latency: &Latency, chip: &Chip, gbit: f64, levels: f64) -> f64 {
    let cycle_ns = 1e3 / chip.clock_mhz;
    (8.0 * latency.packet_bytes / (gbit * cycle_ns) - 1.0) * cycle_ns + chip.adder_ns * levels
}

impl Experiment for Hardware {
    /// Findings `luts`, `ffs`, `adders` of the prototype and `<device>-luts`, `<device>-ffs` (percent); `rate-<bus>`,
    /// `scaled-<device>-luts` and `-ffs`, `adders-a-parser`, and `latency`, the greatest of all chips and rates (ns).
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let Latency { ports, gbit, chips, .. } = &self.scaled.latency;
        if gbit.is_empty() || chips.is_empty() || *ports < 2.0 {
            return Err(ReproduceError::Bad("figure 14 needs a rate, a chip and two ports at least".into()));
        }
        let mut findings = Findings::default();
        self.cells(&mut findings);
        self.latency(&mut findings);
        for bus in &self.scaled.buses {
            findings.value(format!("rate-{}", bus.name), rate_gbps(bus.bits, bus.clock_mhz));
        }
        Ok(findings)
    }
}

impl Hardware {
    /// The cells of an accelerator.
    fn taken(&self, ports: f64, bus_bits: f64) -> Cells {
        let Modules { parser, buffering, adder, control } = self.modules;
        let by_port = parser.plus(buffering).times(ports);
        by_port.plus(adder.times(adders(bus_bits, ports))).plus(control)
    }

    fn cells(&self, findings: &mut Findings) {
        let Prototype { ports, bus_bits, clock_mhz } = self.prototype;
        let built = self.taken(ports, bus_bits);
        let scaled = self.taken(self.scaled.ports, self.scaled.bus_bits);
        findings.value("adders", adders(bus_bits, ports));
        findings.value("luts", built.luts);
        findings.value("ffs", built.ffs);
        findings.value("adders-a-parser", adders(self.scaled.bus_bits, self.scaled.ports) / self.scaled.ports);
        let share = |taken: f64, of: f64| 100.0 * taken / of;
        for Device { name, cells } in &self.devices {
            let shares = self.devices.iter().map(|other| {
                let (luts, ffs) = (share(built.luts, other.cells.luts), share(built.ffs, other.cells.ffs));
                format!("{luts:.3} and {ffs:.3} % of the {}", other.name)
            });
            let cause = format!("the sums are {}", shares.collect::<Vec<_>>().join(", "));
            for (kind, built, scaled, of) in
                [("luts", built.luts, scaled.luts, cells.luts), ("ffs", built.ffs, scaled.ffs, cells.ffs)]
            {
                findings.value(format!("{name}-{kind}"), share(built, of));
                findings.cause(format!("{name}-{kind}"), &*cause);
                findings.value(format!("scaled-{name}-{kind}"), share(scaled, of));
            }
        }
        findings.note(format!("The prototype's bus carries {:.1} Gbit/s.", rate_gbps(bus_bits, clock_mhz)));
    }

    fn latency(&self, findings: &mut Findings) {
        let latency = &self.scaled.latency;
        let mut worst = (0.0, String::new());
        let mut series = Vec::new();
        for chip in &latency.chips {
            let of = |&gbit: &f64| [gbit, latency_ns(latency, chip, gbit, latency.ports.log2())];
            let points: Vec<[f64; 2]> = latency.gbit.iter().map(of).collect();
            for &[gbit, ns] in &points {
                if ns > worst.0 {
                    let other = latency_ns(latency, chip, gbit, latency.ports.log10());
                    worst = (
                        ns,
                        format!(
                            "{ns:.1} ns on the {} at {gbit} Gbit/s; log10 in place of log2 gives {other:.2}",
                            chip.name
                        ),
                    );
                }
            }
            series.push(Series::new(&chip.name, points));
        }
        findings.value("latency", worst.0);
        findings.cause("latency", format!("equation 3 as printed gives up to {}", worst.1));
        findings.figures.push(Figure {
            title: format!("Cut-through latency of {} bytes, {} ports", latency.packet_bytes, latency.ports),
            x: "rate (Gbit/s)".into(),
            y: "latency (ns)".into(),
            log_x: false,
            series,
            marks: Vec::new(),
        });
    }
}

// PANAMA tables 1 and 2 and figure 7 of our own design of the accelerator: what its simulation and synthesis gave.
//
// `make rtl` measures, and compares what it measures with the numbers of the experiment's file, which this program has
// because neither the design nor its tools are part of it.

/// Numbers by their keys, as `make rtl` prints them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtl {
    /// What was measured.
    pub measured: BTreeMap<String, f64>,
}

impl Experiment for Rtl {
    /// A finding for each number.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (key, &value) in &self.measured {
            findings.value(key.as_str(), value);
        }
        Ok(findings)
    }
}
