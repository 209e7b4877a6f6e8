//! The indices of sparse tensors' elements: drawn at random, or those of a file, such as one that was recorded in a
//! training.
//!
//! A file has a line for each rank, with the rank's indices, ascending, and spaces between them. A line that begins with
//! `#` is a comment.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::config::JobSection;
use crate::engine::Sparse;

/// The elements that a job's ranks contribute; `None` for dense tensors.
pub(super) fn sparse(
    section: &JobSection,
    density_ppm: Option<u32>,
    world_size: usize,
) -> Result<Option<Sparse>, String> {
    let Some(path) = &section.indices else { return Ok(density_ppm.map(Sparse::Drawn)) };
    if density_ppm.is_none() {
        return Err(format!("indices = {path:?} needs a density, from which the protocol knows how long blocks are"));
    }
    let elements = section.tensor.0 / section.dtype.size() as u64;
    let indices = read(path, elements).map_err(|why| format!("indices = {path:?}: {why}"))?;
    match indices.len() == world_size {
        true => Ok(Some(Sparse::Recorded(Arc::from(indices)))),
        false => Err(format!("indices = {path:?} has those of {} ranks, and the job has {world_size}", indices.len())),
    }
}

/// The indices of a file's ranks, for a tensor of this length.
fn read(path: &Path, elements: u64) -> Result<Vec<Vec<u32>>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines.map(|(at, line)| of_rank(line, elements).map_err(|why| format!("line {}: {why}", at + 1))).collect()
}

/// The indices of a line.
fn of_rank(line: &str, elements: u64) -> Result<Vec<u32>, String> {
    let mut indices = Vec::new();
    let mut least = 0;
    for word in line.split_ascii_whitespace() {
        let index: u32 = word.parse().map_err(|_| format!("{word:?} is not an index"))?;
        if u64::from(index) < least {
            return Err(format!("{index} comes after {}, and indices ascend", least - 1));
        }
        if u64::from(index) >= elements {
            return Err(format!("{index} is not below {elements}, the elements of the tensor"));
        }
        least = u64::from(index) + 1;
        indices.push(index);
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use tributary_proto::protocols::ALL;

    use super::*;
    use crate::config::Config;

    /// What becomes of a file with this text, for a job of two ranks with ten elements each.
    fn of_text(name: &str, text: &str) -> Result<Option<Sparse>, String> {
        let path = std::env::temp_dir().join(format!("tributary-indices-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        let config: Config = toml::from_str(&format!(
            "end = \"1 s\"\nnetwork = {{ star = {{ hosts = 2 }} }}\n\
             job = [{{ protocol = {:?}, tensor = \"40 B\", density = 0.3, indices = {path:?} }}]",
            ALL[0].name
        ))
        .unwrap();
        let found = sparse(&config.jobs[0], Some(300_000), 2);
        fs::remove_file(&path).unwrap();
        found.map_err(|error| error.replace(&format!("{path:?}"), "FILE"))
    }

    #[test]
    fn a_file_has_a_line_of_indices_for_each_rank() {
        let recorded = of_text("read", "# of a made-up training\n0 3 9\n\n").unwrap();
        assert_eq!(recorded, Some(Sparse::Recorded(Arc::from([vec![0, 3, 9], vec![]]))));
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_in_a_sentence() {
        for (text, sentence) in [
            ("1 2", "indices = FILE has those of 1 ranks, and the job has 2"),
            ("1 2\n2 2", "indices = FILE: line 2: 2 comes after 2, and indices ascend"),
            ("1 2\n5 10", "indices = FILE: line 2: 10 is not below 10, the elements of the tensor"),
            ("1 x\n", "indices = FILE: line 1: \"x\" is not an index"),
        ] {
            assert_eq!(of_text("refused", text).unwrap_err(), sentence, "{text:?}");
        }
    }

    #[test]
    fn without_a_density_the_protocol_would_not_know_how_long_blocks_are() {
        let file = format!(
            "end = \"1 s\"\nnetwork = {{ star = {{ hosts = 2 }} }}\n\
             job = [{{ protocol = {:?}, tensor = \"40 B\", indices = \"x\" }}]",
            ALL[0].name
        );
        let config: Config = toml::from_str(&file).unwrap();
        assert!(sparse(&config.jobs[0], None, 2).unwrap_err().contains("needs a density"));
    }
}
