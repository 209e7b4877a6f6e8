//! Whose jobs a switch has: its clients with what they have and how often they were refused, the jobs of theirs that have
//! ended, and what operators have done about them and the switch.

use tributary_net::status::{ClientStatus, EndedJob, SwitchInfo};

use super::mib;
use crate::output::{Table, duration, first_names};

/// What each client has and does, where there are several, and whose joins were refused.
pub fn lines(clients: &[ClientStatus]) -> Vec<String> {
    let line = |client: &ClientStatus| {
        let ClientStatus { client, jobs, memory_bytes, goodput_gbps, refused, last_refusal, .. } = client;
        let plural = if *jobs == 1 { "" } else { "s" };
        let refusals = last_refusal.as_ref().map(|last| {
            let joins = if *refused == 1 { "join" } else { "joins" };
            format!("; {refused} {joins} refused, the last {} ago ({})", duration(last.s_ago), last.code)
        });
        let refusals = refusals.unwrap_or_default();
        format!("{client} has {jobs} job{plural}, {:.1} MiB, {goodput_gbps:.2} Gbit/s{refusals}", mib(*memory_bytes))
    };
    let are_several = clients.len() > 1;
    clients.iter().filter(|client| are_several || client.refused > 0).map(line).collect()
}

/// The table of the jobs that ended in the last hour.
pub fn ended_jobs(jobs: &[EndedJob]) -> String {
    if jobs.is_empty() {
        return "no job has ended in the last hour".to_owned();
    }
    let mut table =
        Table::new(["JOB", "CLIENT", "PROTOCOL", "RANKS", "END", "AGO", "LASTED", "GBYTE", "DROPPED", "WHY"]);
    for job in jobs {
        table.row([
            job.name.clone(),
            job.client.clone(),
            job.protocol.clone(),
            job.world_size.to_string(),
            job.end.clone(),
            duration(job.ended_s_ago),
            duration(job.lasted_s),
            format!("{:.3}", job.goodput_bytes as f64 / 1e9),
            job.drops.values().sum::<u64>().to_string(),
            job.why.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render()
}

/// What operators have done that holds now.
pub fn about_acts(switch: &SwitchInfo) -> Vec<String> {
    let cordoned = switch.cordoned.then(|| "CORDONED: no new job begins; `tributary uncordon` ends that".to_owned());
    let banned = (!switch.banned.is_empty()).then(|| format!("banned: {}", switch.banned.join(", ")));
    cordoned.into_iter().chain(banned).chain(earlier_jobs(switch)).collect()
}

/// The jobs that the earlier program still serves.
pub fn earlier_jobs(switch: &SwitchInfo) -> Option<String> {
    let jobs = &switch.earlier_jobs;
    let plural = if jobs.len() == 1 { "" } else { "s" };
    (!jobs.is_empty()).then(|| format!("the earlier program serves {} job{plural}: {}", jobs.len(), first_names(jobs)))
}

#[cfg(test)]
mod tests {
    use tributary_net::status::RefusalStatus;

    use super::*;
    use crate::commands::status::testing;

    #[test]
    fn a_client_alone_is_a_line_once_it_was_refused_and_several_are_a_line_each() {
        let client = |name: &str, jobs| ClientStatus { client: name.into(), jobs, ..ClientStatus::default() };
        assert!(lines(&[client("10.0.0.1", 3)]).is_empty(), "its jobs say the same");
        let last_refusal = Some(RefusalStatus { code: "over_client_limit".into(), s_ago: 7.0 });
        let refused = ClientStatus { refused: 2, last_refusal, ..client("tenant 'a'", 1) };
        let line = "tenant 'a' has 1 job, 0.0 MiB, 0.00 Gbit/s; 2 joins refused, the last 7 s ago (over_client_limit)";
        assert_eq!(lines(std::slice::from_ref(&refused)), [line]);
        let both = lines(&[refused, client("tenant 'b'", 2)]);
        assert_eq!(both[1..], ["tenant 'b' has 2 jobs, 0.0 MiB, 0.00 Gbit/s"]);
    }

    #[test]
    fn the_jobs_of_the_earlier_program_are_named_beside_what_else_operators_have_done() {
        let mut switch = testing::status(Vec::new()).switch;
        assert!(about_acts(&switch).is_empty());
        switch.cordoned = true;
        switch.earlier_jobs = vec!["train".into()];
        assert_eq!(about_acts(&switch)[1..], ["the earlier program serves 1 job: train"]);
        switch.earlier_jobs = (1..=6).map(|number| format!("job{number}")).collect();
        let line = "the earlier program serves 6 jobs: job1, job2, job3, job4 and 2 more";
        assert_eq!(earlier_jobs(&switch).unwrap(), line);
    }

    #[test]
    fn an_ended_job_has_its_end_and_the_reason_if_it_has_one() {
        assert_eq!(ended_jobs(&[]), "no job has ended in the last hour");
        let job = |end: &str, why: Option<&str>| EndedJob {
            end: end.into(),
            why: why.map(str::to_owned),
            lasted_s: 90.0,
            goodput_bytes: 2_500_000_000,
            ..EndedJob::default()
        };
        let table = ended_jobs(&[job("left", None), job("lost", Some("rank 3 lost"))]);
        let rows: Vec<&str> = table.lines().skip(1).map(str::trim).collect();
        assert!(rows[0].ends_with('-') && rows[0].contains("2.500") && rows[0].contains("1 min"), "{table}");
        assert!(rows[1].ends_with("rank 3 lost"), "{table}");
    }
}
