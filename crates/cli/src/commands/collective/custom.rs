//! `tributary allreduce --op FILE`: a job with a custom operator, over elements that only the operator
//! understands.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tributary_net::group::{ConnectOptions, Group};
use tributary_numeric::ReduceOp;
use tributary_operators::{Sandbox, UserOperator, reduce, source};
use tributary_proto::contract::host::HostStats;
use tributary_proto::contract::operator::{Needs, Operator};
use tributary_proto::contract::sum_tree::SumTree;

use super::member::Member;
use super::report::median;
use crate::failure::Failure;
use crate::output;

/// Joins, combines, checks or writes, reports.
pub fn run(member: &Member, path: &str) -> Result<(), Failure> {
    member.check_rank("rank", member.rank)?;
    if member.dtype.is_some() {
        return Err(Failure::usage("--dtype is for built-in operators: a custom one names its elements"));
    }
    let operator = source::operator(&Sandbox::new(), path, None).map_err(Failure::new)?;
    let (header, input) = match &member.input {
        Some(path) => read(path, &operator)?,
        None => (Vec::new(), operator.sample(member.rank.into(), member.elements.unwrap_or(0))),
    };
    let group = Group::connect(&options(member, &operator)?)?;
    let (mut output, mut times) = (input.clone(), Vec::new());
    for _ in 0..member.iters {
        output.copy_from_slice(&input);
        let start = Instant::now();
        group.allreduce_in_place(&mut output, ReduceOp::Own(0), member.timeout)?;
        times.push(start.elapsed());
    }
    let counted = group.stats()?.host;
    group.close();
    let is_checked = member.input.is_none() && check(member, &operator, &output)?;
    if let Some(path) = &member.output {
        let whole = [header, output.clone()].concat();
        fs::write(path, whole).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    report(member, &operator, output.len(), median(times), &counted, is_checked)
}

/// The options of a job with the operator, with the order that it needs unless an order was chosen.
fn options(member: &Member, operator: &UserOperator) -> Result<ConnectOptions, Failure> {
    let operators: [Arc<dyn Operator>; 1] = [Arc::new(operator.clone())];
    let (protocol, given) = (member.protocol, member.options.iter().cloned().collect());
    let given = protocol.options.of_own(&given, &operators).ok_or_else(|| {
        let able = tributary_proto::protocols::ALL.iter().filter(|protocol| protocol.options.own.is_some());
        let able: Vec<&str> = able.map(|protocol| protocol.name).collect();
        Failure::usage(format!("{protocol} takes no custom operators: take --protocol {}", able.join(" or ")))
    })?;
    let options = protocol.options.read(&given).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(ConnectOptions { options: options.provided(&operators), ..member.options()? })
}

/// Reads a `.npy` file as its header and its bytes. Elements may be of any type; only their size is checked.
fn read(path: &Path, operator: &UserOperator) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let wrong = |what: &str| Failure::new(format!("{}: {what}", path.display()));
    let bytes = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let not_npy = || wrong("this is not a .npy file");
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(not_npy());
    }
    let at = |index: usize| bytes.get(index).copied().map(usize::from).ok_or_else(not_npy);
    let begin = match at(6)? {
        1 => 10 + at(8)? + 256 * at(9)?,
        _ => 12 + at(8)? + 256 * at(9)? + 65_536 * at(10)?,
    };
    let (header, data) = bytes.split_at_checked(begin).ok_or_else(not_npy)?;
    if String::from_utf8_lossy(header).contains("'fortran_order': True") {
        return Err(wrong("its elements are not in C order: save numpy.ascontiguousarray(x)"));
    }
    if !data.len().is_multiple_of(operator.element_size()) {
        return Err(wrong(&format!(
            "its {} bytes are not whole elements of {} bytes",
            data.len(),
            operator.element_size()
        )));
    }
    Ok((header.to_vec(), data.to_vec()))
}

/// Compares the result with what the same module makes of all ranks' elements on this machine. If the order of arrival
/// matters, nothing can be compared.
fn check(member: &Member, operator: &UserOperator, result: &[u8]) -> Result<bool, Failure> {
    let elements = result.len() / operator.element_size();
    let vectors: Vec<Vec<u8>> = (0..member.world_size).map(|rank| operator.sample(rank.into(), elements)).collect();
    let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
    let expected = reduce(operator, &vectors, &SumTree::star(member.world_size)).transpose().map_err(Failure::new)?;
    let is_same = expected.is_some_and(|expected| expected == result);
    match operator.needs() {
        // With several levels, the arrangement depends on the switches.
        Needs::Arrangement => Ok(is_same),
        _ if is_same => Ok(true),
        _ => Err(Failure::new("the result is not what the same module makes of all ranks' elements on one machine")),
    }
}

fn report(
    member: &Member,
    operator: &UserOperator,
    bytes: usize,
    seconds: f64,
    counted: &HostStats,
    checked: bool,
) -> Result<(), Failure> {
    let (elements, goodput) = (bytes / operator.element_size(), bytes as f64 * 8.0 / seconds.max(1e-9) / 1e9);
    match member.json {
        true => output::json(&json!({
            "collective": "allreduce", "protocol": member.protocol.name, "job": member.job, "rank": member.rank,
            "world_size": member.world_size, "elements": elements, "element": operator.element().to_string(),
            "operator": { "name": operator.name(), "sha256": operator.hash().to_string() },
            "iters": member.iters, "seconds": seconds, "goodput_gbps": goodput,
            "packets_sent": counted.packets_sent, "retransmissions": counted.retransmissions, "checked": checked,
        }))?,
        false => output::line(&format!(
            "{} of {elements} elements ({}) over {} ranks: {seconds:.6} s, {goodput:.2} Gbit/s{}",
            operator.name(),
            operator.element(),
            member.world_size,
            if checked { "; as the same module gives on one machine" } else { "" }
        ))?,
    }
    Ok(())
}
