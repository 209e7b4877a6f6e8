//! A sweep: its points, those that are finished, and how the others are run here or on another machine.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sim::sweep::{
    self, Finished, Store, Sweep as Plan, SweepPoint, WorkOrder, job_run_table, run_table, summarise, summary_table,
    write_tables,
};

use crate::errors;
use crate::simulation::columns;

/// How often a sweep checks whether Python has a signal to handle.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// How many points are checked between two checks for signals.
const CHECKED_AT_ONCE: usize = 64;

/// The points of a sweep, and the folder with the finished ones.
#[pyclass(frozen, module = "tributary._core")]
pub struct Sweep {
    plan: Plan,
    store: Store,
    folder: PathBuf,
}

#[pymethods]
impl Sweep {
    #[new]
    fn new(py: Python<'_>, text: &str, json: bool, folder: PathBuf) -> PyResult<Sweep> {
        let plan = if json { Plan::parse_json(text) } else { Plan::parse(text) };
        let plan = plan.map_err(|error| errors::of_config(py, &error))?;
        let store = Store::open(&folder).map_err(|error| errors::of_simulation(py, error.to_string()))?;
        Ok(Sweep { plan, store, folder })
    }

    /// The keys whose values vary.
    fn keys(&self) -> Vec<String> {
        self.plan.keys.clone()
    }

    /// The program and the sweep's file, as JSON.
    fn origin(&self) -> PyResult<String> {
        json(&self.plan.origin)
    }

    fn __len__(&self) -> usize {
        self.plan.points.len()
    }

    /// The numbers of the points that are not finished.
    fn open(&self, py: Python<'_>) -> Vec<usize> {
        py.detach(|| {
            let points = self.plan.points.iter().enumerate();
            points.filter(|(_, point)| self.store.find(point).is_none()).map(|(number, _)| number).collect()
        })
    }

    /// A point in the form that `run_point` takes on any machine.
    fn order(&self, number: usize) -> PyResult<String> {
        json(&WorkOrder::new(self.point(number)?))
    }

    /// Keeps the result of `run_point` for a point.
    fn keep(&self, py: Python<'_>, number: usize, finished: &str) -> PyResult<()> {
        let finished: Finished =
            serde_json::from_str(finished).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let point = self.point(number)?;
        if !finished.is_of(point) {
            return Err(errors::of_simulation(py, format!("what came back is not the run number {number}")));
        }
        py.detach(|| self.store.keep(point, &finished)).map_err(|error| errors::of_simulation(py, error.to_string()))
    }

    /// Runs the unfinished points on all cores. `progress` is called after each with how many are finished and how many
    /// there are. An exception that it raises, or that a signal's handler raises, ends the sweep; finished points are
    /// kept.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let open = self.open_points(py);
        let (all, mut finished) = (self.plan.points.len(), self.plan.points.len() - open.len());
        let stop = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        thread::scope(|scope| {
            let (stop, store) = (&stop, &self.store);
            // The channel closes when the sweep is over.
            let running = scope.spawn(move || sweep::run(&open, store, &|_| _ = sender.send(()), stop));
            let mut raised = Ok(());
            loop {
                let received = py.detach(|| receiver.lock().expect("one thread").recv_timeout(SIGNAL_INTERVAL));
                match received {
                    Ok(()) => finished += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if raised.is_err() {
                    continue;
                }
                let report = |call: &Py<PyAny>| call.call1(py, (finished, all)).map(|_| ());
                let reported = received.map_or(Ok(()), |()| progress.as_ref().map_or(Ok(()), report));
                raised = reported.and_then(|()| py.check_signals());
                stop.store(raised.is_err(), Ordering::Relaxed);
            }
            let ran = py.detach(|| running.join()).expect("a sweep does not panic");
            raised.and(ran.map_err(|error| errors::of_simulation(py, error.to_string())))
        })
    }

    /// Builds the unfinished points and runs none of them, so that an error in any point is raised before the first one
    /// runs.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let (open, stop) = (self.open_points(py), AtomicBool::new(false));
        // A few at a time, so that Ctrl-C is noticed soon.
        for some in open.chunks(CHECKED_AT_ONCE) {
            py.detach(|| sweep::check(&self.plan.keys, some, &stop)).map_err(|error| errors::of_config(py, &error))?;
            py.check_signals()?;
        }
        Ok(())
    }

    /// Writes `summary.csv`, `runs.csv` and `job_runs.csv` into the folder, as the command line program does.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| write_tables(&self.folder, &self.plan, &self.kept_runs()))
            .map_err(|error| errors::of_simulation(py, error.to_string()))
    }

    /// The reports of finished points, each as `run_point` returns it.
    fn finished(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.kept_runs()).iter().map(json).collect()
    }

    /// The columns of the tables `summary`, `runs` and `job_runs`.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (keys, finished) = (&self.plan.keys, py.detach(|| self.kept_runs()));
        let tables = PyDict::new(py);
        let all =
            [summary_table(keys, &summarise(&finished)), run_table(keys, &finished), job_run_table(keys, &finished)];
        for table in all {
            tables.set_item(table.name, columns(py, table)?)?;
        }
        Ok(tables)
    }
}

impl Sweep {
    fn open_points(&self, py: Python<'_>) -> Vec<SweepPoint> {
        self.open(py).into_iter().map(|number| self.plan.points[number].clone()).collect()
    }

    fn point(&self, number: usize) -> PyResult<&SweepPoint> {
        self.plan.points.get(number).ok_or_else(|| PyIndexError::new_err("there is no such point"))
    }

    fn kept_runs(&self) -> Vec<Finished> {
        self.plan.points.iter().filter_map(|point| self.store.find(point)).collect()
    }
}

/// Runs one point of a sweep, which may have been planned on another machine, and returns what is kept of it.
#[pyfunction]
pub fn run_point(py: Python<'_>, order: &str) -> PyResult<String> {
    let order: WorkOrder = serde_json::from_str(order).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let finished = py.detach(|| order.run()).map_err(|sentence| errors::of_simulation(py, sentence.to_string()))?;
    json(&finished)
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}
