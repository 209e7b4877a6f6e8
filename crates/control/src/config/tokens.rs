//! The file of tokens: which tenants may use a switch and how much of it, and who may act on the switch as its operator.
//! `docs/tokens.toml` shows one.

use std::num::NonZeroU16;
use std::sync::Arc;

use serde::Deserialize;

use super::ConfigError;
use crate::admission::ClientLimits;
use crate::quantity::Bytes;

/// A tenant with its token.
#[derive(Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The name in quotas and log lines.
    pub name: Arc<str>,
    token: String,
    /// The tenant's own limits.
    pub limits: ClientLimits,
}

/// An operator with its token.
#[derive(Clone, PartialEq, Eq)]
struct Operator {
    name: Arc<str>,
    token: String,
}

/// All tenants that may use a switch, and its operators.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    tenants: Vec<Tenant>,
    operators: Vec<Operator>,
}

// A token is never printed, not even by accident.
impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operators: Vec<&str> = self.operators.iter().map(|operator| &*operator.name).collect();
        f.debug_struct("Tokens").field("tenants", &self.tenants).field("operators", &operators).finish()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Entry>,
    #[serde(default)]
    operator: Vec<OperatorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorEntry {
    name: String,
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    token: String,
    max_jobs: Option<u16>,
    memory: Option<Bytes>,
    max_slots: Option<u16>,
    max_world_size: Option<u16>,
    weight: Option<NonZeroU16>,
}

impl Tokens {
    /// The fewest characters of a token: 64 random bits in hexadecimal digits.
    pub const SHORTEST: usize = 16;
    /// The most characters of a token.
    pub const LONGEST: usize = 256;

    /// The token in `docs/tokens.toml`.
    const OF_EXAMPLE: &str = "replace-this-with-openssl-rand-hex-32";

    /// Reads and checks a file's text. The error names the line, and no token.
    pub fn parse(text: &str) -> Result<Tokens, ConfigError> {
        // The parser's own message may quote the line, which contains a token.
        let line = |error: &toml::de::Error| {
            let before = error.span().map_or("", |span| &text[..span.start]);
            ConfigError::new(format!(
                "line {}: a file of tokens has [[tenant]] with name, token, and if wanted max_jobs, memory, max_slots, \
                 max_world_size, weight, and [[operator]] with name, token",
                before.matches('\n').count() + 1
            ))
        };
        let file: File = toml::from_str(text).map_err(|error| line(&error))?;
        let mut tokens = Tokens::default();
        for entry in file.tenant {
            tokens.add(entry)?;
        }
        for OperatorEntry { name, token } in file.operator {
            tokens.check("operator", &name, &token)?;
            tokens.operators.push(Operator { name: name.into(), token });
        }
        match tokens.tenants.is_empty() && tokens.operators.is_empty() {
            true => Err(ConfigError::new("it has no [[tenant]] and no [[operator]], so that it says nothing".into())),
            false => Ok(tokens),
        }
    }

    fn add(&mut self, entry: Entry) -> Result<(), ConfigError> {
        let Entry { name, token, max_jobs, memory, max_slots, max_world_size, weight } = entry;
        self.check("tenant", &name, &token)?;
        let memory_bytes = memory.map(|memory| memory.0);
        let limits = ClientLimits { jobs: max_jobs, memory_bytes, max_slots, max_world_size, weight };
        self.tenants.push(Tenant { name: name.into(), token, limits });
        Ok(())
    }

    /// Checks the name and token of a tenant or operator, also against those before it.
    fn check(&self, role: &str, name: &str, token: &str) -> Result<(), ConfigError> {
        let fail = |sentence: String| Err(ConfigError::new(sentence));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return fail(format!("{role} '{}': a name has ASCII letters, digits and -_.", name.escape_default()));
        }
        if !(Tokens::SHORTEST..=Tokens::LONGEST).contains(&token.len()) || !token.bytes().all(is_token_byte) {
            let (least, most) = (Tokens::SHORTEST, Tokens::LONGEST);
            return fail(format!(
                "{role} '{name}': a token has {least} to {most} ASCII letters, digits and -_.~+/=; `openssl rand -hex 32` \
                 makes one"
            ));
        }
        if token == Tokens::OF_EXAMPLE {
            return fail(format!(
                "{role} '{name}' has the token of the example, which everybody knows: write one of your own"
            ));
        }
        let tenants = self.tenants.iter().map(|other| (&other.name, &other.token));
        let others = tenants.chain(self.operators.iter().map(|other| (&other.name, &other.token)));
        for (other, its_token) in others {
            if **other == *name {
                return fail(format!("{role} '{name}' is there twice"));
            }
            if its_token == token {
                return fail(format!("'{other}' and '{name}' have one token"));
            }
        }
        Ok(())
    }

    /// The tenant that has this token. The time that the search takes does not depend on the token.
    pub fn tenant(&self, token: &str) -> Option<&Tenant> {
        self.tenants.iter().fold(None, |found, tenant| if same(&tenant.token, token) { Some(tenant) } else { found })
    }

    /// The name of the operator that has this token, found in the same way.
    pub fn operator(&self, token: &str) -> Option<&str> {
        self.operators
            .iter()
            .fold(None, |found, other| if same(&other.token, token) { Some(&*other.name) } else { found })
    }

    /// All tenants. Without any, whoever may use the switch needs no token.
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }
}

/// The characters of a bearer token (RFC 6750, section 2.1).
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte)
}

/// Looks at every byte, so that the time does not reveal where the texts differ.
fn same(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    a.len() == b.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn the_example_has_a_tenant_with_every_limit() {
        let example = include_str!("../../../../docs/tokens.toml");
        assert!(Tokens::parse(example).unwrap_err().to_string().contains("the token of the example"));
        assert!(example.contains("# [[operator]]"));
        let tokens = Tokens::parse(&example.replace(Tokens::OF_EXAMPLE, TOKEN)).unwrap();
        let ClientLimits { jobs, memory_bytes, max_slots, max_world_size, weight } = tokens.tenants()[0].limits;
        assert!(jobs.is_some() && memory_bytes.is_some() && max_slots.is_some());
        assert!(max_world_size.is_some() && weight.is_some());
        assert!(tokens.tenant("of nobody").is_none());
    }

    #[test]
    fn a_token_is_found_and_never_printed() {
        let text = format!("[[tenant]]\nname = \"a\"\ntoken = \"{TOKEN}\"\n");
        let tokens = Tokens::parse(&text).unwrap();
        assert_eq!(&*tokens.tenant(TOKEN).unwrap().name, "a");
        for wrong in ["", &TOKEN[1..], "0123456789abcdeF", &format!("{TOKEN}0")] {
            assert!(tokens.tenant(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{tokens:?}").contains(TOKEN));
        let tokens = Tokens::parse(&text.replace("tenant", "operator")).unwrap();
        assert_eq!((tokens.operator(TOKEN), tokens.tenants().len()), (Some("a"), 0));
        assert!(tokens.tenant(TOKEN).is_none() && tokens.operator("0123456789abcdeF").is_none());
        assert!(!format!("{tokens:?}").contains(TOKEN) && format!("{tokens:?}").contains("\"a\""));
    }

    #[test]
    fn a_wrong_file_is_a_sentence_without_a_token() {
        let tenant = |name: &str, token: &str| format!("[[tenant]]\nname = \"{name}\"\ntoken = \"{token}\"\n");
        let other = "fedcba9876543210";
        for (text, says) in [
            (String::new(), "no [[tenant]] and no [[operator]]"),
            (tenant("a", "short"), "16 to 256"),
            (tenant("a", "0123456789abcde\u{fc}"), "16 to 256"),
            (tenant("a b", TOKEN), "a name has"),
            (tenant("a", TOKEN) + &tenant("a", other), "twice"),
            (tenant("a", TOKEN) + &tenant("b", TOKEN), "one token"),
            (tenant("a", TOKEN) + &tenant("a", other).replace("tenant", "operator"), "twice"),
            (tenant("a", TOKEN) + &tenant("b", TOKEN).replace("tenant", "operator"), "one token"),
            (tenant("a", TOKEN) + "colour = 1\n", "line 4"),
            (tenant("a", TOKEN) + "weight = 0\n", "line 4"),
            (format!("[[tenant]]\nname = \"a\"\ntoken = \"{TOKEN}\n"), "line 3"),
        ] {
            let sentence = Tokens::parse(&text).unwrap_err().to_string();
            assert!(sentence.contains(says) && !sentence.contains(TOKEN), "{sentence}");
        }
    }
}
