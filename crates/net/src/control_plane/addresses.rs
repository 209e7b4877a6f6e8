//! Checks addresses before the control plane believes them. A join goes on only after its process has answered at its
//! address.

use std::net::{IpAddr, SocketAddr};

use tributary_control::levels::SwitchJoin;
use tributary_control::{JobName, JoinRequest, Refusal};

use super::ControlPlane;
use crate::challenge::{LEN, MOST_QUESTIONS};

impl ControlPlane {
    /// A worker has one socket for all shards, so only the first shard asks.
    pub(super) async fn prove_worker(&self, name: &JobName, request: &JoinRequest) -> Result<(), Refusal> {
        let JoinRequest { addr, joined_at, incarnation, .. } = *request;
        self.prove(name, &[addr], joined_at, incarnation, MOST_QUESTIONS).await
    }

    /// Each shard asks the switch's shard of the same number. A switch that takes its join back needs no proof.
    pub(super) async fn prove_switch(&self, name: &JobName, join: &SwitchJoin) -> Result<(), Refusal> {
        if join.ranks.is_empty() {
            return Ok(());
        }
        // The least length of a real request: an address takes some 16 bytes, and the one rank that it must have takes
        // 200.
        let request = 200 + 16 * join.shards.len();
        let questions = (3 * request / (LEN * join.shards.len())) as u32;
        self.prove(name, &join.shards, join.joined_at, join.incarnation, questions).await
    }

    async fn prove(
        &self,
        name: &JobName,
        addrs: &[SocketAddr],
        asked_at: IpAddr,
        incarnation: u64,
        questions: u32,
    ) -> Result<(), Refusal> {
        match self.silent_one(addrs, asked_at, incarnation, questions).await {
            Ok(None) => Ok(()),
            Ok(Some(addr)) => Err(Refusal::AddressUnproven { job: name.clone(), addr }),
            Err(why) => Err(Refusal::NotInstalled { job: name.clone(), why }),
        }
    }

    /// The first of these addresses at which no process with this incarnation answers. The result is an error if a
    /// shard has stopped.
    pub(super) async fn silent_one(
        &self,
        addrs: &[SocketAddr],
        asked_at: IpAddr,
        incarnation: u64,
        questions: u32,
    ) -> Result<Option<SocketAddr>, String> {
        let questions = questions.min(MOST_QUESTIONS);
        let pairs = self.shards.iter().zip(addrs);
        let asked: Vec<_> =
            pairs.map(|(shard, &addr)| (addr, shard.challenge(addr, asked_at, incarnation, questions))).collect();
        for (addr, answer) in asked {
            if !answer.come().await.map_err(|error| error.to_string())? {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }
}
