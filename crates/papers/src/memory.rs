//! The results of earlier runs. Figures of one paper share runs (Canary's 7b shows the links of 7a's), and each run is
//! made once. In a folder, results outlive the program, so that a stopped experiment resumes with the missing runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fs, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tributary_sim::Program;
use tributary_sim::rng::mix;

/// Results by what decides them: the text of a run's file, and the question.
#[derive(Default)]
pub struct Memory {
    found: Mutex<BTreeMap<String, serde_json::Value>>,
    folder: Option<PathBuf>,
}

/// A result in a file of its own.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The hash of the program's sources: another program may get other results.
    sources: String,
    question: String,
    answer: serde_json::Value,
}

/// The hashes of the sources of this program's simulator, and of what asks it.
fn sources() -> String {
    format!("{} {}", Program::this().sources, env!("TRIBUTARY_SOURCES"))
}

impl Memory {
    /// A memory that also keeps every result in a folder, and starts with the folder's results.
    pub fn in_folder(folder: &Path) -> io::Result<Memory> {
        fs::create_dir_all(folder)?;
        Ok(Memory { found: Mutex::default(), folder: Some(folder.to_owned()) })
    }

    /// How many results it holds.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.found.lock().expect("no thread panics while it holds the lock").len()
    }

    /// The answer to a question that this program has answered before.
    pub(super) fn get<A: DeserializeOwned>(&self, question: &str) -> Option<A> {
        let known = self.found.lock().expect("no thread panics while it holds the lock").get(question).cloned();
        let answer = known.or_else(|| {
            // A damaged file, or a file of another program, counts as missing.
            let text = fs::read(self.path(question)?).ok()?;
            let kept: Kept = serde_json::from_slice(&text).ok()?;
            (kept.sources == sources() && kept.question == question).then_some(kept.answer)
        })?;
        serde_json::from_value(answer).ok()
    }

    /// Keeps an answer. If the folder cannot take it, no result is lost: the next program makes the run again.
    pub(super) fn keep<A: Serialize>(&self, question: &str, answer: &A) {
        let Ok(answer) = serde_json::to_value(answer) else { return };
        if let Some(path) = self.path(question) {
            let kept = Kept { sources: sources(), question: question.into(), answer: answer.clone() };
            let unfinished = path.with_extension("part");
            let written =
                serde_json::to_vec(&kept).map_err(io::Error::from).and_then(|text| fs::write(&unfinished, text));
            if written.and_then(|()| fs::rename(&unfinished, &path)).is_err() {
                let _ = fs::remove_file(&unfinished);
            }
        }
        self.found.lock().expect("no thread panics while it holds the lock").insert(question.into(), answer);
    }

    /// The known answer, or else the answer that `ask` finds.
    pub(super) fn once<A: Serialize + DeserializeOwned, E>(
        &self,
        question: &str,
        ask: impl FnOnce() -> Result<A, E>,
    ) -> Result<A, E> {
        if let Some(known) = self.get(question) {
            return Ok(known);
        }
        let answer = ask()?;
        self.keep(question, &answer);
        Ok(answer)
    }

    fn path(&self, question: &str) -> Option<PathBuf> {
        let hash = question.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        Some(self.folder.as_ref()?.join(format!("{hash:016x}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tributary-memory-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn results_in_a_folder_are_reused_to_the_last_bit() {
        let folder = folder("again");
        let values = [0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, f64::from_bits(10_000)];
        Memory::in_folder(&folder).unwrap().once("a", || Ok::<_, ()>(values.to_vec())).unwrap();
        let memory = Memory::in_folder(&folder).unwrap();
        let again = memory.once("a", || Err::<Vec<f64>, _>("asked again")).unwrap();
        assert_eq!(again.map_bits(), values.to_vec().map_bits());
        assert!(memory.once("b", || Err::<Vec<f64>, _>(())).is_err(), "an error is not kept");
        assert_eq!(memory.get::<Vec<f64>>("b"), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_program_counts_as_none() {
        let folder = folder("damaged");
        let memory = Memory::in_folder(&folder).unwrap();
        memory.keep("a", &1.5);
        let path = memory.path("a").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let fresh = || Memory::in_folder(&folder).unwrap();
        for other in
            [text.replace(&sources(), "0123"), text[..text.len() / 2].to_string(), text.replace("1.5", "\"x\"")]
        {
            fs::write(&path, other).unwrap();
            assert_eq!(fresh().get::<f64>("a"), None);
        }
        fs::write(&path, text).unwrap();
        assert_eq!(fresh().get("a"), Some(1.5));
        fs::remove_dir_all(&folder).unwrap();
    }

    trait Bits {
        fn map_bits(self) -> Vec<u64>;
    }

    impl Bits for Vec<f64> {
        fn map_bits(self) -> Vec<u64> {
            self.into_iter().map(f64::to_bits).collect()
        }
    }
}
