//! Watches at the switch above, one for each job that runs there too. By a watch the switch above learns who is gone
//! below this switch, and this switch learns who is gone elsewhere. The connections show both switches that the other
//! is alive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tributary_control::{Control, Departed, Plan};
use tributary_proto::contract::ids::{JobId, JobKey};

use crate::api::call;
use crate::api::{ErrorBody, GoneMembers, SwitchWatchBody, hex};
use crate::token::Token;

/// The time between a change below and the next question. Ranks often go together, and one question then reports them
/// all.
const GATHER: Duration = Duration::from_millis(20);
/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause after a call that was refused, unless the reason is that the job is unknown.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// Time for an answer. The switch above answers after 30 s at the latest.
const WATCH: Duration = Duration::from_secs(35);

/// What a watch reports.
pub(crate) enum News {
    /// True if the connection to the switch above stands.
    Stands(bool),
    /// The members and switches that are gone elsewhere.
    Departed(Departed),
    /// The job is over at the switch above or elsewhere, for this reason.
    Broken(String),
    /// The switch above no longer has this job.
    Forgotten,
}

/// All watches of this switch at the switch above.
pub(crate) struct WatchesAbove {
    above: SocketAddr,
    token: Option<Token>,
    news: UnboundedSender<(JobId, News)>,
    jobs: Mutex<BTreeMap<JobId, Watch>>,
}

/// The report to the switch above: who is gone below, and why the job is over here, if it is over.
type Below = (Departed, Option<String>);

/// One watch. Dropping it ends it.
struct Watch {
    key: JobKey,
    /// The number of the last report.
    told: u32,
    below: watch::Sender<Below>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchesAbove {
    /// The value before there is any watch. `above` is the control API of the switch above, and calls show it the
    /// token.
    pub fn new(above: SocketAddr, token: Option<Token>, news: UnboundedSender<(JobId, News)>) -> WatchesAbove {
        WatchesAbove { above, token, news, jobs: Mutex::default() }
    }

    /// Begins and ends watches as jobs come and go, and reports changes below.
    pub fn keep(&self, control: &Control, faults: &BTreeMap<JobId, String>) {
        let mut jobs = self.jobs.lock().expect("no call panics while it holds the watches");
        let now: BTreeMap<JobId, (&Plan, u32)> =
            control.jobs_at_parent().map(|(plan, number)| (plan.config.job, (plan, number))).collect();
        jobs.retain(|id, watch| now.get(id).is_some_and(|(plan, _)| plan.config.key == watch.key));
        for (id, (plan, number)) in now {
            let watch = jobs.entry(id).or_insert_with(|| self.begin(plan));
            let fault = faults.get(&id).cloned();
            if watch.told != number || watch.below.borrow().1 != fault {
                watch.told = number;
                let below = (control.gone_below(id).unwrap_or_default(), fault);
                watch.below.send_if_modified(|told| std::mem::replace(told, below.clone()) != below);
            }
        }
    }

    fn begin(&self, plan: &Plan) -> Watch {
        let (below, news_below) = watch::channel(Below::default());
        let body = SwitchWatchBody {
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            wid: plan.uplink.as_ref().map_or(0, |uplink| uplink.wid.0),
            below: GoneMembers::default(),
            gone: GoneMembers::default(),
        };
        let path = format!("/jobs/{}/switches/watch", plan.name);
        let (token, news) = (self.token.clone(), self.news.clone());
        let teller = Teller { above: self.above, token, path, job: plan.config.job, news };
        Watch { key: plan.config.key, told: 0, below, task: tokio::spawn(teller.run(body, news_below)) }
    }
}

/// The task of one watch.
struct Teller {
    above: SocketAddr,
    token: Option<Token>,
    path: String,
    job: JobId,
    news: UnboundedSender<(JobId, News)>,
}

impl Teller {
    async fn run(self, mut body: SwitchWatchBody, mut below: watch::Receiver<Below>) {
        loop {
            {
                let (gone, broken) = &*below.borrow_and_update();
                body.below = GoneMembers { broken: broken.clone(), ..GoneMembers::new(gone) };
            }
            let answer = tokio::select! {
                changed = below.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // If the job is over, its ranks learn the reason, they leave, and this watch ends. So the report
                    // must not wait.
                    if below.borrow().1.is_none() {
                        tokio::time::sleep(GATHER).await;
                    }
                    continue;
                }
                answer = tokio::time::timeout(WATCH, self.ask(&body)) => answer,
            };
            match answer {
                Ok(Ok(Ok(GoneMembers { broken: Some(sentence), .. }))) => {
                    body.gone.broken = Some(sentence.clone());
                    self.tell(News::Broken(sentence));
                }
                Ok(Ok(Ok(mut gone))) if gone != body.gone => {
                    gone.broken = body.gone.broken.take();
                    self.tell(News::Departed(gone.clone().table(self.above.ip())));
                    body.gone = gone;
                }
                Ok(Ok(Ok(_))) => {}
                Ok(Ok(Err(error))) if matches!(error.code.as_str(), "unknown_job" | "wrong_key") => {
                    return self.tell(News::Forgotten);
                }
                Ok(Ok(Err(error))) => {
                    tracing::warn!(above = %self.above, error = error.error, "the switch above keeps no watch");
                    tokio::time::sleep(LONG_PAUSE).await;
                }
                Ok(Err(_)) | Err(_) => {
                    self.tell(News::Stands(false));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn ask(&self, body: &SwitchWatchBody) -> std::io::Result<Result<GoneMembers, ErrorBody>> {
        let bytes = serde_json::to_vec(body)?;
        let headers: Vec<_> = self.token.iter().map(|token| ("Authorization", token.header())).collect();
        let call = call::post(self.above, &self.path, &bytes, &headers).await?;
        self.tell(News::Stands(true));
        let answer = call.answer().await?;
        Ok(match answer.status {
            200 => Ok(serde_json::from_slice(&answer.body)?),
            _ => Err(serde_json::from_slice(&answer.body)?),
        })
    }

    fn tell(&self, news: News) {
        // The call fails only if the control plane is gone.
        let _ = self.news.send((self.job, news));
    }
}
