//! Errors of the control API: a status, a sentence for people and a code for programs.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use tributary_control::{BadName, OperatorAct, Refusal, printable};
use tributary_proto::contract::wire;
use tributary_proto::protocols;

use crate::api::{ErrorBody, version};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    /// An error with this status.
    pub fn new(status: StatusCode, code: &str, error: String) -> ApiError {
        ApiError { status, body: ErrorBody { error: printable(&error), code: code.to_owned(), rank: None } }
    }

    /// The request lacks something that it must say.
    pub fn bad_request(error: String) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", error)
    }

    /// `asker` sends packets of another version.
    pub fn wire_version(asker: &str, theirs: u8) -> ApiError {
        let ours = ("this switch", wire::VERSION.into());
        let error = version::differ("the wire format", (asker, theirs.into()), ours);
        ApiError::new(StatusCode::BAD_REQUEST, "wire_version", error)
    }

    /// The sender of the request speaks another version of this API.
    pub fn api_version(theirs: u16) -> ApiError {
        let error = version::differ("the control API", ("who asks", theirs), ("this switch", version::API_VERSION));
        ApiError::new(StatusCode::BAD_REQUEST, "api_version", error)
    }

    /// This build does not have the protocol.
    pub fn unknown_protocol(name: &str) -> ApiError {
        let known = protocols::names().collect::<Vec<_>>().join(", ");
        let shown: String = name.chars().take(64).collect();
        ApiError::bad_request(format!("this switch knows no protocol '{shown}'; it knows {known}"))
    }
}

impl From<BadName> for ApiError {
    fn from(error: BadName) -> ApiError {
        Refusal::from(error).into()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let status = match refusal {
            Refusal::BadName(_)
            | Refusal::BadWorldSize { .. }
            | Refusal::BadRank { .. }
            | Refusal::BadElements { .. }
            | Refusal::BadSlots { .. }
            | Refusal::BadTrees { .. }
            | Refusal::NotInLevels { .. }
            | Refusal::NotForFabrics { .. }
            | Refusal::NoTrees { .. }
            | Refusal::OfferBelow => StatusCode::BAD_REQUEST,
            Refusal::OverQuota { .. }
            | Refusal::OverClientLimit { .. }
            | Refusal::OtherTenant { .. }
            | Refusal::WrongKey { .. }
            | Refusal::NotASwitch { .. }
            | Refusal::AddressUnproven { .. }
            | Refusal::AddressTranslated { .. }
            | Refusal::NotAServer { .. }
            | Refusal::Operator(OperatorAct::Banned { .. })
            | Refusal::ServerUnproven { .. } => StatusCode::FORBIDDEN,
            Refusal::UnknownJob { .. } | Refusal::Operator(OperatorAct::NoMember { .. }) => StatusCode::NOT_FOUND,
            Refusal::PathTooNarrow { .. }
            | Refusal::Disagreement { .. }
            | Refusal::RankRefused { .. }
            | Refusal::RankTaken { .. }
            | Refusal::JobBusy { .. }
            | Refusal::AddressTaken { .. }
            | Refusal::SwitchTwice { .. }
            | Refusal::ShardsDiffer { .. }
            | Refusal::NewerRequest { .. }
            | Refusal::HostServes { .. }
            | Refusal::Operator(OperatorAct::Ended { .. })
            | Refusal::OfferOver => StatusCode::CONFLICT,
            Refusal::NotInstalled { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Full { .. }
            | Refusal::SharedFull { .. }
            | Refusal::TooManyJobs { .. }
            | Refusal::TooManyServers { .. }
            | Refusal::WatchedAlready { .. }
            | Refusal::Operator(OperatorAct::Cordoned)
            | Refusal::Stopping
            | Refusal::HandedOver => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::NotComing { .. } | Refusal::ParentSilent { .. } => StatusCode::GATEWAY_TIMEOUT,
            // An error of the parent switch keeps its own code, and has this status whatever its status was there.
            Refusal::Parent { .. } => StatusCode::BAD_GATEWAY,
        };
        let mut error = ApiError::new(status, refusal.code(), refusal.to_string());
        error.body.rank = refusal.rank();
        error
    }
}

/// The code and sentence of an answer that is an error, for the layers that the answer passes on its way out.
#[derive(Clone)]
pub struct ErrorInfo {
    /// The code, for programs.
    pub code: String,
    /// The sentence, for people.
    pub error: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let said = ErrorInfo { code: self.body.code.clone(), error: self.body.error.clone() };
        (self.status, Extension(said), Json(self.body)).into_response()
    }
}
