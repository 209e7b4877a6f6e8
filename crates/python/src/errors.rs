//! Our errors as the exceptions of `tributary.errors`.

use std::time::Duration;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_net::group::{ConnectError, GroupError};
use tributary_numeric::DType;
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::{Rank, ServerId};
use tributary_proto::contract::tensor::Spec;
use tributary_sim::config::ConfigError;

/// A time that Python gives in seconds.
pub fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("a timeout is a number of seconds from 0 on, not {value}")))
}

/// A number of Python's that counts ranks, slots or the like.
pub fn count(name: &str, value: i64) -> PyResult<u16> {
    u16::try_from(value)
        .map_err(|_| PyValueError::new_err(format!("{name} is a number from 0 to {}, not {value}", u16::MAX)))
}

/// The job could not be joined.
pub fn of_connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    match error {
        ConnectError::Option(sentence) => PyValueError::new_err(sentence.clone()),
        _ => raise(py, "ConnectError", (error.to_string(),)),
    }
}

/// A collective could not complete.
pub fn of_group(py: Python<'_>, error: &GroupError) -> PyErr {
    let sentence = error.to_string();
    let cause = match error {
        GroupError::Failed { cause, .. } | GroupError::Broken { cause, .. } => cause,
        // Ranks that leave after a server's death are not its cause.
        GroupError::PeerLost { failure, .. } if !failure.servers().is_empty() => {
            return raise(py, "ServerLostError", (sentence, servers(&failure.servers())));
        }
        // No rank is to blame: it is a switch.
        GroupError::PeerLost { failure, .. } if failure.ranks().is_empty() => {
            return raise(py, "SwitchLostError", (sentence,));
        }
        GroupError::PeerLost { failure, .. } => return raise(py, "RankLostError", (sentence, ranks(&failure.ranks()))),
        GroupError::Forked { .. } => return raise(py, "TributaryError", (sentence,)),
        GroupError::Sparse(error) => return PyValueError::new_err(error.to_string()),
        GroupError::Refused(refusal) => return raise(py, "UnsupportedError", (refusal.to_string(),)),
        _ => return raise(py, "CollectiveError", (sentence,)),
    };
    match cause {
        CollectiveError::Missing { missing, .. } => raise(py, "CollectiveTimeoutError", (sentence, ranks(missing))),
        CollectiveError::PeerSilent { worker, .. } => raise(py, "CollectiveTimeoutError", (sentence, vec![worker.0])),
        CollectiveError::ServerSilent { server, .. } => raise(py, "ServerLostError", (sentence, vec![server.0])),
        CollectiveError::SwitchSilent { .. }
        | CollectiveError::ParentSilent { .. }
        | CollectiveError::ChildSwitchSilent { .. } => raise(py, "SwitchLostError", (sentence,)),
        CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } => {
            let of_rank = |(rank, spec): (&Rank, &Spec)| (rank.0, spec.elements as usize, spec.dtype);
            mismatch(py, sentence, [(a, a_spec), (b, b_spec)].map(of_rank))
        }
        CollectiveError::Aborted => raise(py, "CollectiveError", (sentence,)),
    }
}

/// Ranks disagree: which of them brought how many elements of which type, as far as that is known.
pub fn mismatch(py: Python<'_>, sentence: String, brought: impl IntoIterator<Item = (u16, usize, DType)>) -> PyErr {
    let brought = brought.into_iter().map(|(rank, elements, dtype)| (rank, elements, dtype.to_string()));
    raise(py, "MismatchError", (sentence, brought.collect::<Vec<_>>()))
}

fn ranks(workers: &[Rank]) -> Vec<u16> {
    workers.iter().map(|worker| worker.0).collect()
}

fn servers(servers: &[ServerId]) -> Vec<u16> {
    servers.iter().map(|server| server.0).collect()
}

/// The group was closed.
pub fn closed(py: Python<'_>) -> PyErr {
    raise(py, "ClosedError", ("this group was closed; connect again".to_string(),))
}

/// A fork used its parent's group.
pub fn forked(py: Python<'_>, job: &str) -> PyErr {
    raise(
        py,
        "TributaryError",
        (format!("job \"{job}\": this group was made before a fork; connect in the new process"),),
    )
}

/// Something that the caller described is wrong.
pub fn config(py: Python<'_>, sentence: String) -> PyErr {
    raise(py, "ConfigError", (sentence,))
}

/// A file or a dict is not an experiment.
pub fn of_config(py: Python<'_>, error: &ConfigError) -> PyErr {
    raise(py, "ConfigError", (error.to_string(),))
}

/// A simulation cannot be run.
pub fn of_simulation(py: Python<'_>, sentence: String) -> PyErr {
    raise(py, "SimulationError", (sentence,))
}

/// An exception of `tributary.errors`, by its class's name.
pub fn raise<'py, A: PyCallArgs<'py>>(py: Python<'py>, class: &str, arguments: A) -> PyErr {
    let class = py.import("tributary.errors").and_then(|module| module.getattr(class));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
